//! One document, many writers.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Format {
    Terminal,
}
