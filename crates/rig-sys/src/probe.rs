//! What this kernel and this process can do.
