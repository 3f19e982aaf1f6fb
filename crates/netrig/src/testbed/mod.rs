//! Testbeds: validate all, build, undo in reverse.
