//! Suite files: TOML in, one validated value out.
