//! An io_uring for socket streams.
