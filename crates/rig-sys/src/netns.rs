//! Network namespaces held by file descriptors, and user namespaces for running without root.
