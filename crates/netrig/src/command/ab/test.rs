//! `netrig ab` of a test between two machines: two ways to one peer in turn.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::anyhow;
use rig_cli::exit::{Exit, Failure};
use rig_facts::record::ab_run::Side;
use rig_suite::ends::SUITES;

use super::AbArgs;

/// Of a first look.
const QUICK: [&str; 3] = ["--time=1s", "--warm-up=300ms", "--trials=5"];
/// More than a time is enough for.
const MANY: u32 = 1000;
/// What a test that takes turns is told here, not by the options after `--`.
const OURS: [&str; 11] = [
    "--client",
    "-c",
    "--server",
    "-s",
    "--trials",
    "--label",
    "--against",
    "--store",
    "--format",
    "--output",
    "--in-turn",
];

/// Whether a test is asked for, not a suite; refuses what the one of them does not have.
pub(super) fn is_asked(args: &AbArgs) -> Result<bool, Failure> {
    let is_test = SUITES.iter().any(|test| args.suite == *test);
    let refuse = |option: &str, why: &str| Err(Failure::new(Exit::BadInput, anyhow!("{option} {why}")));
    let of_suites = [
        ("--only", !args.only.is_empty()),
        ("--layers", args.layers.is_some()),
        ("--seed", args.seed.is_some()),
        ("--old-in", !args.old_in.is_empty()),
        ("--new-in", !args.new_in.is_empty()),
        ("--old-on", !args.old_on.is_empty()),
        ("--new-on", !args.new_on.is_empty()),
    ];
    let of_tests = [
        ("--old-client", args.old_client.is_some()),
        ("--new-client", args.new_client.is_some()),
        ("--old-under", args.old_under.is_some()),
        ("--new-under", args.new_under.is_some()),
        ("`--` with options", !args.options.is_empty()),
    ];
    let given = |options: &[(&'static str, bool)]| options.iter().find(|(_, given)| *given).map(|(name, _)| *name);
    match (is_test, given(&of_suites), given(&of_tests)) {
        (true, Some(option), _) => {
            refuse(option, &format!("is for suites: `netrig ab {}` has one load", args.suite.display()))
        }
        (false, _, Some(option)) => {
            refuse(option, "is for `netrig ab stream`, `rr` and `udp`: a suite has its own ends")
        }
        (true, ..) if args.old_client.is_none() && args.new_client.is_none() => {
            refuse("--old-client HOST", "says which server is tested, --new-client HOST another way to it")
        }
        _ => {
            let ours = |option: &&OsStr| {
                let option = option.to_string_lossy();
                OURS.contains(&option.split('=').next().unwrap_or_default())
            };
            match args.options.iter().map(AsRef::as_ref).find(ours) {
                Some(option) => refuse(
                    &option.to_string_lossy(),
                    "stands before `--`, for both sides or for one: see `netrig ab --help`",
                ),
                None => Ok(is_test),
            }
        }
    }
}

/// The most trials of each side, where a number is asked for.
pub(super) fn trials(args: &AbArgs) -> u32 {
    args.trials.unwrap_or(if args.quick { 5 } else { MANY })
}

/// The command that a side's program runs under, as words.
pub(super) fn under(args: &AbArgs, side: Side) -> impl Iterator<Item = &str> {
    let under = if side == Side::Old { &args.old_under } else { &args.new_under };
    under.as_deref().unwrap_or_default().split_whitespace()
}

/// Adds what a side's program is told.
pub(super) fn tell(run: &mut Command, args: &AbArgs, side: Side) {
    let client = match side {
        Side::Old => args.old_client.as_ref().or(args.new_client.as_ref()),
        Side::New => args.new_client.as_ref().or(args.old_client.as_ref()),
    };
    run.args(client.map(|host| format!("--client={host}")));
    if args.quick {
        run.args(QUICK);
    } else {
        run.arg(format!("--trials={}", trials(args)));
    }
    run.args(args.window.map(|window| format!("--time={window}")));
    run.args(&args.options);
}
