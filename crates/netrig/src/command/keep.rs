//! `netrig up`, `shell` and `down`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams::print;
use rig_study::run::agents::Agents;
use rig_study::run::{Lack, not_here};
use rig_study::suite::{Scenario, Suite};
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process;
use rig_testbed::datapath::Machine;
use rig_testbed::kept::{Kept, NameTaken, Registry};
use rig_testbed::{Placement, Testbed};

use super::{gain_privilege, refuse_if_lacking, usable_cpus};
use crate::doctor::Purpose;

/// What the holder says when the testbed stands.
const READY: &[u8] = b"ready\n";

pub fn up(scenario: &str, name: &str, cpus: Option<&CpuSet>) -> Result<Exit, Failure> {
    // Mistakes are found here, where the user sees them.
    find(scenario)?;
    usable_cpus(cpus)?;
    let registry = Registry::open().or_exit(Exit::Lacking)?;
    if registry.find(name).or_exit(Exit::BadInput)?.is_some() {
        return Err(Failure::new(Exit::BadInput, NameTaken(name.to_owned())));
    }
    let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    command.args(["hold", scenario, name]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cpus) = cpus {
        command.args(["--cpus", &cpus.to_string()]);
    }
    let mut holder = process::in_own_session(&mut command)
        .spawn()
        .context("start the process that keeps the testbed")
        .or_exit(Exit::Failed)?;
    let mut said = Vec::new();
    if let Some(mut out) = holder.stdout.take() {
        out.read_to_end(&mut said).context("read from the process that keeps the testbed").or_exit(Exit::Failed)?;
    }
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
    let kept = registry.find(name)?.with_context(|| format!("testbed '{name}' went away at once"))?;
    let mut text = format!("Testbed '{name}' is up: {}\n", kept.origin);
    for place in &kept.places {
        let address = place.address.as_deref().unwrap_or("no address");
        let _ = writeln!(text, "  {:<16} {address:<16} CPUs {}", place.name, place.cpus);
    }
    let first = kept.places.last().map_or("a", |place| &place.name);
    let _ = writeln!(text, "Try: netrig shell {first} ip address\nEnd: netrig down {name}");
    print(&text)?;
    Ok(Exit::Done)
}

/// Builds the testbed and stays until killed.
pub fn hold(scenario: &str, name: &str, cpus: Option<&CpuSet>) -> Result<Exit, Failure> {
    let registry = Registry::open().or_exit(Exit::Lacking)?;
    let (suite, scenario_found) = find(scenario)?;
    let placement = Placement::new(&usable_cpus(cpus)?, &shared_cores(), suite.nodes).or_exit(Exit::Lacking)?;
    let scenario_found = scenario_found.on(&placement).or_exit(Exit::BadInput)?;
    let of_nodes = placement.of(&scenario_found.topology, scenario_found.dut).or_exit(Exit::Lacking)?;
    let rootless = gain_privilege()?;
    if let Some(Lack { found, remedy, .. }) =
        not_here(&scenario_found, &placement, rig_datapaths::ALL, Machine { rootless })
    {
        return Err(Failure::new(Exit::Lacking, anyhow!("{found}: {remedy}")));
    }
    refuse_if_lacking(&suite.only(std::slice::from_ref(&scenario_found.id))?, Purpose::Build)?;
    let mut testbed = Testbed::build(&scenario_found.topology, &of_nodes).or_exit(Exit::Failed)?;
    if testbed.topology().dut().is_some() {
        // The DUT has nothing else to carry packets to.
        testbed.route_pools().or_exit(Exit::Failed)?;
    }
    let owned = CpuSet::new(of_nodes.iter().flat_map(|share| share.as_slice().iter().copied()));
    let control = usable_cpus(cpus)?.without(&owned);
    let _at_work = Agents::attach(&scenario_found, &testbed, &control, rig_datapaths::ALL).or_exit(Exit::Failed)?;
    registry.publish(name, scenario, rootless, &testbed).map_err(|error| {
        let exit = if error.is::<NameTaken>() { Exit::BadInput } else { Exit::Failed };
        Failure::new(exit, error)
    })?;
    // Whoever reads that the testbed stands finds the terminal left already.
    let told = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
    process::close_standard_streams().context("leave the terminal").or_exit(Exit::Failed)?;
    told.and_then(|mut out| out.write_all(READY)).context("tell that the testbed stands").or_exit(Exit::Failed)?;
    loop {
        std::thread::park();
    }
}

pub fn shell(place: &str, name: Option<&str>, command: &[String]) -> Result<Exit, Failure> {
    let kept = choose(name)?;
    let Some(found) = kept.place(place) else {
        let names: Vec<&str> = kept.places.iter().map(|p| p.name.as_str()).collect();
        let error = anyhow!("testbed '{}' has no '{place}': choose from {}", kept.name, names.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    };
    kept.enter(found).or_exit(Exit::Failed)?;
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
    let default = [shell];
    let command = if command.is_empty() { &default[..] } else { command };
    let error = Command::new(&command[0]).args(&command[1..]).env("NETRIG_PLACE", place).exec();
    Err(Failure::new(Exit::BadInput, anyhow!("cannot run '{}': {error}", command[0])))
}

pub fn down(name: Option<&str>) -> Result<Exit, Failure> {
    let registry = Registry::open().or_exit(Exit::Lacking)?;
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
fn choose(name: Option<&str>) -> Result<Kept, Failure> {
    let registry = Registry::open().or_exit(Exit::Lacking)?;
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

fn known(registry: &Registry, name: &str) -> Result<Kept, Failure> {
    registry.find(name).or_exit(Exit::BadInput)?.ok_or_else(|| {
        let names: Vec<String> = registry.list().unwrap_or_default().into_iter().map(|kept| kept.name).collect();
        let hint = if names.is_empty() { "none is up".into() } else { format!("up are: {}", names.join(", ")) };
        Failure::new(Exit::BadInput, anyhow!("no testbed '{name}': {hint}"))
    })
}

/// The scenario that `SUITE/SCENARIO` names; the suite may be a path with slashes of its own.
fn find(name: &str) -> Result<(Suite, Scenario), Failure> {
    let Some((suite, scenario)) = name.rsplit_once('/') else {
        let error =
            anyhow!("'{name}' is not SUITE/SCENARIO: write for instance layers/B (see `netrig list --scenarios`)");
        return Err(Failure::new(Exit::BadInput, error));
    };
    let suite = Suite::load(suite)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    match suite.scenario(scenario).cloned() {
        Some(scenario) => Ok((suite, scenario)),
        None => Err(suite.no_scenario(scenario).into()),
    }
}
