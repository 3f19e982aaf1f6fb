//! What each subcommand does, from the other parts.

pub mod ab;
pub mod arguments;
pub mod calibrate;
pub mod compare;
pub mod doctor;
pub mod ends;
pub mod examples;
pub mod hosts;
pub mod k8s;
pub mod keep;
mod output;
mod pairs;
mod pods;
mod remote_server;
pub mod report;
pub mod run;
pub mod schema;
pub mod suites;
pub mod tool_runs;
pub mod top;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure, both, in_words};
use rig_cli::streams::tell;
use rig_engine::Engine;
use rig_load::driver::Cancel;
use rig_load::exchange;
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;
use rig_sys::{advice, netns, process, signal};
use rig_testbed::datapath;
use rig_testbed::host::{self, Host, Local};

use crate::BUILD;
use crate::doctor::{MachineSupport, SuitePurpose};

/// The body of the hidden `worker` subcommand.
pub fn worker() -> Result<Exit, Failure> {
    rig_load::worker::run(io::stdin(), io::stdout()).or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

/// The body of the hidden `host` subcommand. Stopped by a signal, too, it gives back what it has taken. Where it may make no nodes, as in a pod
/// of Kubernetes, tests between hosts can be made all the same.
pub fn host() -> Result<Exit, Failure> {
    let (rootless, without_nodes) = match gain_privilege() {
        Ok(rootless) => (rootless, None),
        Err(failure) => (true, Some(failure.to_string())),
    };
    let (stopped, stop) = io::pipe().context("make a pipe").or_exit(Exit::Failed)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_stopped);
    let on_signal = move || {
        told.store(true, Ordering::Relaxed);
        drop(stop);
    };
    signal::on_stop_signal(on_signal).context("catch Ctrl-C").or_exit(Exit::Failed)?;
    // Without rights to do so, nothing was taken by this user either.
    if !rootless && let Err(error) = host::give_back_what_was_left() {
        tell(format_args!("netrig host: {}", in_words(&error)));
    }
    let mut host = hosts::local().or_exit(Exit::Failed)?.without_nodes(without_nodes);
    let served = host::serve(&mut host, io::stdin(), io::stdout(), stopped);
    let torn_down = host.tear_down();
    both(served, torn_down).or_exit(Exit::Failed)?;
    Ok(if is_stopped.load(Ordering::Relaxed) { Exit::Stopped } else { Exit::Done })
}

/// The body of the hidden `agent` subcommand.
pub fn agent(name: &str) -> Result<Exit, Failure> {
    process::raise_file_limit();
    let Some(datapath) = rig_datapaths::ALL.find(name) else {
        let names = rig_datapaths::ALL.names();
        return Err(Failure::new(Exit::BadInput, anyhow!("no datapath '{name}': choose from {names}")));
    };
    if datapath.starts_programs() && std::process::id() != 1 {
        if !datapath.makes_things_of_the_machine() {
            std::process::exit(alone(["agent", name])?);
        }
        process::outlive_parent().context("outlive the runner").or_exit(Exit::Failed)?;
        let status = alone(["agent", name])?;
        let removed = datapath.remove_leftovers();
        if status == 0 {
            return removed.map(|()| Exit::Done).or_exit(Exit::Failed);
        }
        if let Err(error) = removed {
            tell(format_args!("netrig agent: {}", in_words(&error)));
        }
        // It has said why itself.
        std::process::exit(status);
    }
    datapath::serve(datapath, BUILD.id, io::stdin(), io::stdout()).or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

/// Carries out a command of this program as the first process of a process namespace, with the standard streams of this process: its exit
/// status.
fn alone<const N: usize>(arguments: [&str; N]) -> Result<i32, Failure> {
    let program = std::env::current_exe().context("find this program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    let status = process::start_alone(command.args(arguments)).and_then(|mut child| child.wait());
    let status = status.context("start a process with a process namespace of its own").or_exit(Exit::Failed)?;
    Ok(status.code().unwrap_or(Exit::Failed as i32))
}

/// The body of the hidden `pause` subcommand: a container's first process, which ends with its standard input.
pub fn pause() -> Result<Exit, Failure> {
    io::copy(&mut io::stdin(), &mut io::sink()).context("read standard input").or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

/// The body of the hidden `in-container` subcommand: a program in a container of an engine, with the standard streams of this process.
pub fn in_container(socket: &Path, container: &str, command: &[String]) -> Result<Exit, Failure> {
    let status = Engine::at(socket).and_then(|engine| rig_engine::run_in_container(&engine, container, command));
    let status = status.context("start a program in a container").or_exit(Exit::Failed)?;
    // It has said why itself.
    std::process::exit(status.into());
}

/// The body of the hidden `inside` subcommand: a shell command with the interfaces of this network namespace below /sys. What it
/// leaves running ends with it.
pub fn inside(command: &str) -> Result<Exit, Failure> {
    netns::remount_sysfs().or_exit(Exit::Lacking)?;
    let said = io::stdout().as_fd().try_clone_to_owned().context("find standard output").or_exit(Exit::Failed)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stderr(said);
    let status = process::start_alone(&mut shell).and_then(|mut shell| shell.wait());
    let status = status.context("start sh").or_exit(Exit::Failed)?;
    match status.success() {
        true => Ok(Exit::Done),
        false => Err(Failure::new(Exit::Failed, anyhow!("`{command}` failed: {status}"))),
    }
}

/// The body of the hidden `clock` subcommand. Who answers says `ready` and ends with its standard input; who asks says what it found, a
/// [`PathOffset`](exchange::PathOffset) or `null`.
pub fn clock(answers: bool, address: SocketAddr) -> Result<Exit, Failure> {
    let ready = || writeln!(io::stdout(), "ready");
    let done = if answers {
        exchange::answer(address, io::stdin(), ready)
    } else {
        exchange::ask(address).and_then(|found| writeln!(io::stdout(), "{}", serde_json::json!(found)))
    };
    done.with_context(|| format!("exchange times at {address}")).or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

/// Makes sure that this process may create namespaces, by way of a user namespace if need be, and hold many of them
/// open. Tells whether the user namespace was needed. Must be called while the process has one thread.
pub(crate) fn gain_privilege() -> Result<bool, Failure> {
    advice::remember();
    process::raise_file_limit();
    if netns::may_create_namespaces() {
        return Ok(false);
    }
    netns::enter_user_namespace()
        .with_context(|| {
            format!(
                "this process may create no namespaces, and no user namespace instead: {}, or see `netrig doctor` for the setting \
                 that forbids it",
                advice::rights(advice::NAMESPACES)
            )
        })
        .or_exit(Exit::Lacking)?;
    Ok(true)
}

/// Cancelled by the first Ctrl-C, SIGTERM or SIGHUP from now on; the second ends the process. Once in a process.
pub(crate) fn cancel_on_signal() -> Result<Cancel, Failure> {
    Cancel::on_stop_signal().context("catch Ctrl-C").or_exit(Exit::Failed)
}

/// Refuses a suite that this machine lacks something for, before a testbed of it is built. Privileges have to be there already.
pub(crate) fn refuse_if_lacking(suite: &Suite, purpose: SuitePurpose) -> Result<(), Failure> {
    let host = Local::uncounted().or_exit(Exit::Failed)?;
    let lacks = MachineSupport::of_host(&host, &suite.scenarios, purpose).or_exit(Exit::Failed)?.of(&suite.scenarios);
    if lacks.is_empty() {
        return Ok(());
    }
    let words: String = lacks.iter().map(|l| format!("\n  {}: {}\n    {}", l.found, l.effect, l.remedy)).collect();
    let error = anyhow!("this machine lacks what suite '{}' needs (see `netrig doctor`):{words}", suite.name);
    Err(Failure::new(Exit::Lacking, error))
}

/// The CPUs for nodes: those the user named, all of which this process must be allowed to use, or all allowed.
pub(crate) fn usable_cpus(named: Option<&CpuSet>) -> Result<CpuSet, Failure> {
    chosen_cpus(named, &CpuSet::allowed().or_exit(Exit::Failed)?)
}

/// Those that were named, all of which have to be allowed, or all allowed.
fn chosen_cpus(named: Option<&CpuSet>, allowed: &CpuSet) -> Result<CpuSet, Failure> {
    let Some(named) = named else { return Ok(allowed.clone()) };
    let missing = named.without(allowed);
    if missing.is_empty() {
        return Ok(named.clone());
    }
    let error = anyhow!("CPUs {missing} do not exist or may not be used: choose from {allowed}");
    Err(Failure::new(Exit::BadInput, error))
}
