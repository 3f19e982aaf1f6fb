//! Kernel counters: CPU time, receive processing, interfaces, protocols.
