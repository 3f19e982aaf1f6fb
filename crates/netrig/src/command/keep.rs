//! `netrig up`, `shell` and `down`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{note, print};
use rig_run::run::agents::Agents;
use rig_run::run::{MissingResource, not_here};
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::{process, signal};
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Local, is_rootless};
use rig_testbed::registry::{HeldTestbed, NameTaken, TestbedRegistry};
use rig_testbed::{Placement, Testbed};

use super::{gain_privilege, refuse_if_lacking, usable_cpus};
use crate::doctor::SuitePurpose;

/// What the holder says when the testbed stands.
const READY: &[u8] = b"ready\n";
/// What the holder hears once `up` knows. A holder that hears nothing until `up` is gone takes the testbed down.
const TAKEN: &[u8] = b"\n";

pub fn up(scenario: &OsStr, name: &str, cpus: Option<&CpuSet>) -> Result<Exit, Failure> {
    // Mistakes are found here, where the user sees them.
    find(scenario)?;
    usable_cpus(cpus)?;
    let registry = TestbedRegistry::open_to_write().or_exit(Exit::Lacking)?;
    if registry.find(name).or_exit(Exit::BadInput)?.is_some() {
        return Err(Failure::new(Exit::BadInput, NameTaken(name.to_owned())));
    }
    let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    command.arg("hold").args([scenario, OsStr::new(name)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cpus) = cpus {
        command.args(["--cpus", &cpus.to_string()]);
    }
    let mut holder = process::in_own_session(&mut command)
        .spawn()
        .context("start the process that keeps the testbed")
        .or_exit(Exit::Failed)?;
    let building = Arc::new(Mutex::new(Building::Goes));
    let (seen, pid) = (building.clone(), holder.id());
    signal::on_stop_signal(move || stop_building(&seen, pid)).context("catch Ctrl-C").or_exit(Exit::Failed)?;
    let mut said = Vec::new();
    if let Some(mut out) = holder.stdout.take() {
        out.read_to_end(&mut said).context("read from the process that keeps the testbed").or_exit(Exit::Failed)?;
    }
    let mut state = locked(&building);
    if *state == Building::Stopped {
        holder.wait().context("wait for the process that keeps the testbed").or_exit(Exit::Failed)?;
        // What it may have written down does not stand, and is forgotten by looking.
        registry.find(name)?;
        note("netrig: stopped while the testbed was built: nothing of it is left");
        return Ok(Exit::Stopped);
    }
    *state = Building::Over;
    drop(state);
    if said != READY {
        let mut why = String::new();
        if let Some(mut err) = holder.stderr.take() {
            let _ = err.read_to_string(&mut why);
        }
        let status = holder.wait().context("wait for the process that keeps the testbed").or_exit(Exit::Failed)?;
        let same = [Exit::Lacking, Exit::BadInput].into_iter().find(|exit| status.code() == Some(*exit as i32));
        let exit = same.unwrap_or(Exit::Failed);
        return Err(Failure::new(exit, anyhow!("{}", why.trim().trim_start_matches("netrig: "))));
    }
    if let Some(mut line) = holder.stdin.take() {
        // A holder that is gone has left nothing to find.
        let _gone = line.write_all(TAKEN);
    }
    let kept = registry.find(name)?.with_context(|| format!("testbed '{name}' went away at once"))?;
    let mut text = format!("Testbed '{name}' is up: {}\n", kept.origin);
    for place in &kept.namespaces {
        let address = place.address.as_deref().unwrap_or("no address");
        let _ = writeln!(text, "  {:<16} {address:<16} CPUs {}", place.name, place.cpus);
    }
    let first = kept.namespaces.last().map_or("a", |place| &place.name);
    let _ = writeln!(text, "Try: netrig shell {first} ip address\nEnd: netrig down {name}");
    print(&text)?;
    Ok(Exit::Done)
}

/// How far `up` has come, which decides what a stop signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Building {
    Goes,
    Stopped,
    /// The testbed stands, or there will be none.
    Over,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the holder, and with it all that it has built, unless it is done. It is a child, so its number is still its own.
fn stop_building(building: &Mutex<Building>, holder: u32) {
    let mut state = locked(building);
    if *state == Building::Goes {
        *state = Building::Stopped;
        let _gone = process::kill(holder);
    }
}

/// Ends this process, and with it all that it has built, at a stop signal, or when `up` goes away before it has taken the
/// testbed over. The value is true once the testbed is in the registry; the lock is held while it is written there.
fn end_with_up(registry: &Arc<TestbedRegistry>, name: &str) -> io::Result<Arc<Mutex<bool>>> {
    let written = Arc::new(Mutex::new(false));
    let (seen, registry, name) = (written.clone(), registry.clone(), name.to_owned());
    let end = move || {
        // Held to the end: nothing is written down any more.
        let is_written = locked(&seen);
        if *is_written {
            // If the file cannot be removed, the next reader removes it, since its holder has ended.
            let _ = registry.withdraw(&name);
        }
        std::process::exit(Exit::Stopped as i32);
    };
    signal::on_stop_signal(end.clone())?;
    let mut up = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let listen = move || {
        if up.read_exact(&mut [0; TAKEN.len()]).is_err() {
            end();
        }
    };
    thread::Builder::new().name("up".into()).spawn(listen)?;
    Ok(written)
}

/// Builds the testbed and stays until killed.
pub fn hold(scenario: &OsStr, name: &str, cpus: Option<&CpuSet>) -> Result<Exit, Failure> {
    let registry = Arc::new(TestbedRegistry::open().or_exit(Exit::Lacking)?);
    let (suite, scenario_found) = find(scenario)?;
    let placement = Placement::new(&usable_cpus(cpus)?, &shared_cores(), suite.nodes).or_exit(Exit::Lacking)?;
    let scenario_found = scenario_found.on(&placement).or_exit(Exit::BadInput)?;
    let of_nodes = placement.of(&scenario_found.topology, scenario_found.dut).or_exit(Exit::Lacking)?;
    let rootless = gain_privilege()?;
    // From here on, because a user namespace is entered before there are threads.
    let written = end_with_up(&registry, name).context("watch over the building").or_exit(Exit::Failed)?;
    let here = Local::uncounted()
        .or_exit(Exit::Failed)?
        .with_datapaths(rig_datapaths::ALL.on(Machine { rootless: is_rootless() }));
    let lack = not_here(&scenario_found, &placement, rig_datapaths::ALL, &here).or_exit(Exit::Failed)?;
    if let Some(MissingResource { found, remedy, .. }) = lack {
        return Err(Failure::new(Exit::Lacking, anyhow!("{found}: {remedy}")));
    }
    refuse_if_lacking(&suite.only(std::slice::from_ref(&scenario_found.id))?, SuitePurpose::Build)?;
    let mut testbed = Testbed::build(&scenario_found.topology, &of_nodes).or_exit(Exit::Failed)?;
    if testbed.topology().dut().is_some() {
        // The DUT has nothing else to carry packets to.
        testbed.route_pools().or_exit(Exit::Failed)?;
    }
    let owned = CpuSet::new(of_nodes.iter().flat_map(|share| share.as_slice().iter().copied()));
    // What is started on nodes from here on is for everything else than carrying packets.
    testbed.host().keep_off(&owned).or_exit(Exit::Failed)?;
    let at_work = Agents::attach(&scenario_found, &testbed, rig_datapaths::ALL).or_exit(Exit::Failed)?;
    at_work.complete_testbed(&scenario_found, &mut testbed).or_exit(Exit::Failed)?;
    let mut is_written = locked(&written);
    registry.publish(name, &scenario.to_string_lossy(), rootless, &testbed).map_err(|error| {
        let exit = if error.is::<NameTaken>() { Exit::BadInput } else { Exit::Failed };
        Failure::new(exit, error)
    })?;
    *is_written = true;
    drop(is_written);
    // The holder leaves the terminal before it says that the testbed stands, so that `up` ends with no process left at it.
    let told = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    process::close_standard_streams().context("leave the terminal").or_exit(Exit::Failed)?;
    // It cannot be written when `up` has gone, which the thread that listens to `up` sees.
    let _unheard = told.and_then(|mut out| out.write_all(READY));
    loop {
        std::thread::park();
    }
}

pub fn shell(place: &str, name: Option<&str>, command: &[OsString]) -> Result<Exit, Failure> {
    let kept = choose(name)?;
    let Some(found) = kept.namespace(place) else {
        let names: Vec<&str> = kept.namespaces.iter().map(|p| p.name.as_str()).collect();
        let error = anyhow!("testbed '{}' has no '{place}': choose from {}", kept.name, names.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    };
    kept.enter(found).or_exit(Exit::Failed)?;
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let default = [shell];
    let command = if command.is_empty() { &default[..] } else { command };
    let error = Command::new(&command[0]).args(&command[1..]).env("NETRIG_PLACE", place).exec();
    Err(Failure::new(Exit::BadInput, anyhow!("cannot run '{}': {error}", command[0].display())))
}

pub fn down(name: Option<&str>) -> Result<Exit, Failure> {
    let registry = TestbedRegistry::open().or_exit(Exit::Lacking)?;
    let chosen = match name {
        None => registry.list()?,
        Some(name) => vec![known(&registry, name)?],
    };
    let mut text = String::new();
    for kept in &chosen {
        registry.take_down(kept)?;
        let _ = writeln!(text, "Testbed '{}' is down.", kept.name);
    }
    if chosen.is_empty() {
        text.push_str("No testbed is up.\n");
    }
    print(&text)?;
    Ok(Exit::Done)
}

/// The testbed named, or the only one.
fn choose(name: Option<&str>) -> Result<HeldTestbed, Failure> {
    let registry = TestbedRegistry::open().or_exit(Exit::Lacking)?;
    if let Some(name) = name {
        return known(&registry, name);
    }
    let mut all = registry.list()?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(Failure::new(Exit::BadInput, anyhow!("no testbed is up: start one with `netrig up layers/B`"))),
        _ => {
            let names: Vec<&str> = all.iter().map(|kept| kept.name.as_str()).collect();
            let error = anyhow!("several testbeds are up: choose one with --name ({})", names.join(", "));
            Err(Failure::new(Exit::BadInput, error))
        }
    }
}

fn known(registry: &TestbedRegistry, name: &str) -> Result<HeldTestbed, Failure> {
    registry.find(name).or_exit(Exit::BadInput)?.ok_or_else(|| {
        let names: Vec<String> = registry.list().unwrap_or_default().into_iter().map(|kept| kept.name).collect();
        let hint = if names.is_empty() { "none is up".into() } else { format!("up are: {}", names.join(", ")) };
        Failure::new(Exit::BadInput, anyhow!("no testbed '{name}': {hint}"))
    })
}

/// The scenario that `SUITE/SCENARIO` names; the suite may be a path with slashes of its own.
fn find(name: &OsStr) -> Result<(Suite, Scenario), Failure> {
    let bytes = name.as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/');
    // A file may have any name, a scenario is named in its text.
    let parts = slash.and_then(|at| Some((OsStr::from_bytes(&bytes[..at]), str::from_utf8(&bytes[at + 1..]).ok()?)));
    let Some((suite, scenario)) = parts else {
        let error = anyhow!(
            "'{}' is not SUITE/SCENARIO: write for instance layers/B (see `netrig list --scenarios`)",
            name.display()
        );
        return Err(Failure::new(Exit::BadInput, error));
    };
    let suite = Suite::load(suite)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    match suite.scenario(scenario).cloned() {
        Some(scenario) => Ok((suite, scenario)),
        None => Err(suite.no_scenario(scenario).into()),
    }
}
