//! Runs: interleaved trials, repeated until the confidence asked for is met.
