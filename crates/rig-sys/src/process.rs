//! Child processes that live in a namespace and die with their parent.
