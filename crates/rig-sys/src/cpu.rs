//! CPU sets and affinity.
