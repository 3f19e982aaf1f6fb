//! Other kernels: boots each under QEMU's emulation with this machine's files, runs there what depends on the kernel, and writes what works
//! where.
//!
//! ```text
//! Kernel (image.rs) ──┐
//! initramfs.rs ───────┼── Guest (guest.rs) ── Outcome of each Check (checks.rs) ── table.rs ── docs/KERNELS.md
//! Check (checks.rs) ──┘        │
//!                 segment.rs: cards of a guest on a bridge in a namespace
//!                 machine.rs: commands on guests that are up at the same time; pair.rs, three.rs: checks between them
//! ```
//!
//! Emulation is 10 to 30 times slower than the machine: what it tells is whether things work, never how fast.

mod checks;
mod commands;
mod dperf;
mod guest;
mod image;
mod initramfs;
mod machine;
mod pair;
mod segment;
mod suite;
mod table;
mod three;

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::{BAD_INPUT, LACKING, target};
use crate::packages;
pub use checks::verified;
use checks::{Check, OBJECTS_LOG, Outcome, Programs, Setup};
use guest::{Card, Guest, GuestRecord};
use image::Kernel;
use segment::{Segment, Tap};

/// The cards of the guest that has some: the one that is tried, with a CPU for each queue, and the other end of its cable.
const TAPS: [Tap; 2] = [Tap { name: "tap0", queues: 4 }, Tap { name: "tap1", queues: 1 }];

/// What is run in each guest.
#[derive(Debug, Clone)]
pub struct Options {
    /// Debian's by their version, others by the path of their image; all of Debian's where there are none.
    pub kernels: Vec<String>,
    /// The shortest useful part.
    pub quick: bool,
    /// Only checks whose name has one of these in it.
    pub only: Vec<String>,
    /// For a shell, in place of all checks.
    pub command: Option<String>,
}

/// Boots the kernels, side by side.
///
/// # Errors
/// When something cannot be downloaded, built or started.
pub fn kernels(options: &Options) -> Result<ExitCode> {
    let names: Vec<&str> = match options.kernels.is_empty() {
        true => image::DEBIAN.iter().map(|one| one.version).collect(),
        false => options.kernels.iter().map(String::as_str).collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !image::is_known(name)) {
        eprintln!("no kernel `{unknown}`: name one of Debian's, {}, or the path of an image", image::versions());
        return Ok(ExitCode::from(BAD_INPUT));
    }
    match packages::ensure(&[packages::BUILD, packages::GUESTS].concat()) {
        Ok(true) => {}
        Ok(false) => return Ok(ExitCode::from(LACKING)),
        Err(error) => {
            eprintln!("{error:#}");
            return Ok(ExitCode::from(LACKING));
        }
    }
    table::commit();
    let programs = Programs::build(options.quick)?;
    let chosen = |check: &Check| {
        (!options.quick || check.quick)
            && (options.only.is_empty() || options.only.iter().any(|part| check.name.contains(part.as_str())))
    };
    let all = checks::all(&programs)?;
    let needed: Vec<&str> = all.iter().filter(|one| chosen(one)).filter_map(Check::stands_on).collect();
    let checks: Vec<Check> = match &options.command {
        Some(command) => vec![Check::of_command(command)?],
        None => all.iter().filter(|one| chosen(one) || needed.contains(&one.name.as_str())).cloned().collect(),
    };
    if checks.is_empty() {
        let names: Vec<&str> = all.iter().map(|check| check.name.as_str()).collect();
        eprintln!("no check has `{}` in its name: there are {}", options.only.join("` or `"), names.join(", "));
        return Ok(ExitCode::from(BAD_INPUT));
    }
    let kernels = match names.iter().map(|name| Kernel::get(name)).collect::<Result<Vec<Kernel>>>() {
        Ok(kernels) => kernels,
        Err(error) => {
            eprintln!("{error:#}");
            return Ok(ExitCode::from(LACKING));
        }
    };
    let keeps = !options.quick && options.command.is_none();
    let records = side_by_side(&kernels, |kernel| {
        let record = boot(kernel, &checks, &programs, keeps)?;
        if let (Some(_), [command]) = (&options.command, &checks[..]) {
            let log = target().join("kernels").join(&kernel.release).join("checks").join(command.file("log"));
            print!("{}", fs::read_to_string(log).unwrap_or_default());
        }
        println!("{record}");
        Ok(record)
    })?;
    if let Some(record) = records.iter().find(|record| options.quick && !record.has_reached_any()) {
        eprintln!("Linux {} does not boot here", record.release);
        return Ok(ExitCode::from(LACKING));
    }
    if keeps {
        table::write(&all)?;
    }
    Ok(if records.iter().any(GuestRecord::has_failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Does `work` with each kernel, with as many at a time as there are CPUs: a guest takes one.
fn side_by_side<T: Send>(kernels: &[Kernel], work: impl Fn(&Kernel) -> Result<T> + Sync) -> Result<Vec<T>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut done = thread::scope(|scope| {
        let worker = || {
            let mut done = Vec::new();
            while let Some((number, kernel)) = kernels.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((number, work(kernel)));
            }
            done
        };
        let workers: Vec<_> = (0..cpus.min(kernels.len())).map(|_| scope.spawn(worker)).collect();
        let ended =
            |worker: thread::ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        workers.into_iter().flat_map(ended).collect::<Vec<_>>()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, done)| done).collect()
}

/// Runs checks on each setup that one of them needs, and keeps what they found for the page, if it is for that.
fn boot(kernel: &Kernel, checks: &[Check], programs: &Programs, keeps: bool) -> Result<GuestRecord> {
    let directory = target().join("kernels").join(&kernel.release);
    eprintln!("Linux {}: booting; logs go to {}", kernel.release, directory.display());
    let mut whole = GuestRecord::new(kernel);
    let is_run = |name| checks.iter().any(|check| check.name == name);
    let objects = is_run("objects").then(|| directory.join("checks").join(OBJECTS_LOG));
    for (setup, name) in [(Setup::Guest, ""), (Setup::Card, "card"), (Setup::Pair, "pair"), (Setup::Three, "three")] {
        let of_setup: Vec<Check> = checks.iter().filter(|check| check.setup == setup).cloned().collect();
        if of_setup.is_empty() {
            continue;
        }
        let directory = directory.join(name);
        clear(&directory, &of_setup)?;
        let guest = Guest {
            kernel,
            directory: &directory,
            cpus: 2,
            memory_mib: 3000,
            cards: Vec::new(),
            objects: objects.as_deref(),
            clock: None,
        };
        // What was found is kept at once: a day's checks may be interrupted.
        let ended = |check: &Check, outcome: &Outcome, duration| {
            eprintln!("Linux {}: {}: {outcome} ({})", kernel.release, check.name, seconds(duration));
            match keeps {
                true => table::keep(&GuestRecord::of(kernel, check, outcome.clone(), duration), false),
                false => Ok(()),
            }
        };
        let record = match setup {
            Setup::Guest => guest.run(&of_setup, &ended)?,
            Setup::Card => {
                let segment = Segment::new(&TAPS)?;
                let cards = TAPS.map(|tap| Card::Plugged { segment: &segment, tap }).into();
                Guest { cpus: TAPS[0].queues, cards, ..guest }.run(&of_setup, &ended)?
            }
            Setup::Pair => pair::run(kernel, &directory, &programs.netrig, &of_setup, &ended)?,
            Setup::Three => {
                let mut record = GuestRecord::new(kernel);
                for check in &of_setup {
                    record.add(match objects.as_deref().and_then(|objects| check.refusal(objects)) {
                        Some(refusal) => GuestRecord::of(kernel, check, refusal, Duration::ZERO),
                        None => three::run(kernel, &directory, &programs.netrig, check, &ended)?,
                    });
                }
                record
            }
        };
        if keeps {
            table::keep(&record, true)?;
        }
        whole.add(record);
    }
    Ok(whole)
}

/// Removes what the last guest of a setup has left, but the logs of checks that are not run now: those of failed ones are read later.
fn clear(directory: &Path, checks: &[Check]) -> Result<()> {
    let shared = directory.join("checks");
    fs::create_dir_all(&shared).with_context(|| format!("cannot make {}", shared.display()))?;
    let logs: Vec<String> = checks.iter().map(|check| check.file("log")).chain(["dmesg.log".to_owned()]).collect();
    for of in [directory, &shared] {
        for entry in fs::read_dir(of).with_context(|| format!("cannot list {}", of.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_kept = of == shared && name.ends_with(".log") && !logs.contains(&name);
            // Other setups have directories there.
            if entry.file_type()?.is_file() && !is_kept {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
    }
    Ok(())
}

fn empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// Where downloads are kept from one run to the next.
fn cache() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set: where shall downloaded kernels be kept?")?;
    Ok(base.join("netrig/kernels"))
}

fn seconds(duration: Duration) -> String {
    format!("{:.0} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_check_stays_until_it_is_run_again() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["console.log", "card/console.log", "checks/one.log", "checks/two.log", "checks/two.status"];
        for file in files {
            let file = directory.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        let left = |run: &str| {
            clear(directory.path(), &[Check::of_tests(run, "", Setup::Guest)]).unwrap();
            files.map(|file| directory.path().join(file).exists())
        };
        assert_eq!(left("one"), [false, true, false, true, false]);
        assert_eq!(left("two"), [false, true, false, false, false]);
    }
}
