//! One document, many writers.
