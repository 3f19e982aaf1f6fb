//! The project's automation.
#![forbid(unsafe_code)]

mod bench;
mod borders;
mod clangs;
mod command;
mod demo;
mod dist;
mod examples;
mod fuzz;
mod kernels;
mod links;
mod lint;
mod man;
mod names;
mod oldest;
mod packages;
mod parts;
mod readme;
mod results;
mod suites;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's automation. Ends with the status of the command that failed; 2 for bad input; 3 when the machine lacks
/// something.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what is missing, build, run the suite `layers` for a first look and write its HTML report
    Demo,
    /// Run all tests; as root the privileged ones too
    Test {
        /// Arguments for `cargo test`, e.g. `-p netrig store`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a benchmark; without a name, list them
    Bench {
        name: Option<String>,
        /// Arguments for the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check borders between crates, links, formatting, rustdoc and clippy, with warnings as errors
    Lint {
        /// Only what needs no build: neither rustdoc nor clippy
        #[arg(long)]
        without_build: bool,
    },
    /// Write the man pages
    Man,
    /// Write docs/SUITES.md from the schema of suite files
    Suites,
    /// Run each fuzz target for some seconds; needs nightly Rust and cargo-fuzz
    Fuzz {
        #[arg(default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
        seconds: u32,
    },
    /// Build with the oldest Rust that is promised; needs rustup and that toolchain
    Oldest,
    /// Compile the eBPF programs with every clang-N on PATH, from 14 on, load them, and print the verified instructions of each; needs root
    Clangs,
    /// Boot other kernels in virtual machines, run there what depends on the kernel, and write what they found into docs/KERNELS.md
    Kernels {
        /// Debian's 5.10, 6.1, 6.12, or the path of an image with its modules [default: all of Debian's]
        kernels: Vec<String>,
        /// The shortest useful part
        #[arg(long)]
        quick: bool,
        /// Only checks with this in their name; may be given several times
        #[arg(long, value_name = "PART")]
        only: Vec<String>,
        /// Run this shell command instead of checks, in the checkout, where nothing can be written, and print what it prints
        #[arg(long, conflicts_with_all = ["quick", "only"])]
        command: Option<String>,
    },
    /// Make the release: a static binary, Debian packages, checksums and an SBOM
    Dist {
        /// Build all a second time, in another folder, and compare
        #[arg(long)]
        twice: bool,
    },
    /// Run the tasks that the README shows, write what they print into it, and draw its picture: some minutes
    Readme {
        /// Run nothing: write what the tasks printed last
        #[arg(long)]
        stored: bool,
    },
    /// Run suites and write what they found into docs/RESULTS.md: half an hour
    Results {
        /// One suite's name, unless all shall run
        suite: Option<String>,
        /// Run nothing: write what the last runs found, e.g. after a change of the report
        #[arg(long)]
        stored: bool,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Demo => demo::demo(),
        Task::Test { arguments } => test::test(&arguments),
        Task::Bench { name, arguments } => bench::bench(name.as_deref(), &arguments),
        Task::Lint { without_build } => lint::lint(without_build),
        Task::Man => man::man(),
        Task::Suites => suites::write(),
        Task::Fuzz { seconds } => fuzz::fuzz(seconds),
        Task::Oldest => oldest::oldest(),
        Task::Clangs => clangs::clangs(),
        Task::Kernels { kernels, quick, only, command } => {
            kernels::kernels(&kernels::Options { kernels, quick, only, command })
        }
        Task::Dist { twice } => dist::dist(twice),
        Task::Readme { stored } => readme::readme(stored),
        Task::Results { suite, stored } => results::results(suite.as_deref(), stored),
    };
    done.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error:#}");
        ExitCode::FAILURE
    })
}
