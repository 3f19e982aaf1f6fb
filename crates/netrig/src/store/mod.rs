//! The runs of this machine, in one SQLite file.
