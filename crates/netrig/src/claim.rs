//! Claims: expressions over scenario figures with a verdict.
