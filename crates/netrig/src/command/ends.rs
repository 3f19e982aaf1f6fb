//! `netrig stream`, `rr` and `udp` between two machines, and `netrig serve`.

mod iperf3;
mod live;
mod options;
mod recorder;
mod sockets;

use std::io::{self, BufRead, Read, stdin, stdout};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use rig_cli::exit::StoppedByUser;
use rig_cli::streams::{note, print};
use rig_load::driver::Cancel;
use rig_load::plan::{Load, Role, WorkerPlan};
use rig_run::run::turns::{Starter, TurnMessage};
use rig_sys::cpu::CpuSet;
use rig_sys::socket::{self, NamedAddress, ZonedAddress};
use rig_testbed::host;
use serde_json::json;

pub use self::iperf3::of_iperf3;
use self::live::IntervalDisplay;
pub use self::options::{RrArgs, ServeArgs, StreamArgs, UdpArgs, cool_down_after, of_one_role};
use self::recorder::TrialRecorder;
pub(super) use self::recorder::document_of;
use netrig_ends::client::{self, Target};
use netrig_ends::client_session::{NAME, Test};
use netrig_ends::limits::Limits;
use netrig_ends::report;
use netrig_ends::seal::Key;
use netrig_ends::server::{ListenScope, Server, listen};
use rig_cli::exit::{Exit, ExitContext, Failure, FailureChain, both, in_words};
use rig_report::Format;

use self::options::{AddressOptions, CommonOptions, RoleOptions, ServerOptions, StoreOptions};
use super::arguments::OutputArgs;
use super::compare::ReferenceRun;
use super::hosts::named;
use super::output::Output;
use super::remote_server::ServingHost;
use super::{cancel_on_signal, usable_cpus};
use crate::BUILD;

pub fn stream(args: StreamArgs) -> Result<Exit, Failure> {
    let StreamArgs { role, address, direction, load, common, output, keeping, serving } = args;
    match role.server {
        false => client(role, &address, &common, load.load(&direction, &common), &output, &keeping),
        true => server(&address, &serving),
    }
}

pub fn rr(args: RrArgs) -> Result<Exit, Failure> {
    let RrArgs { role, address, load, common, output, keeping, serving } = args;
    match role.server {
        false => client(role, &address, &common, load.load(&common), &output, &keeping),
        true => server(&address, &serving),
    }
}

pub fn udp(args: UdpArgs) -> Result<Exit, Failure> {
    let UdpArgs { role, address, direction, load, common, output, keeping, serving } = args;
    match role.server {
        false => client(role, &address, &common, load.load(&direction, &common), &output, &keeping),
        true => server(&address, &serving),
    }
}

pub fn serve(args: &ServeArgs) -> Result<Exit, Failure> {
    server(&args.address, &args.serving)
}

fn server(address: &AddressOptions, serving: &ServerOptions) -> Result<Exit, Failure> {
    let limits = Limits {
        cpus: usable_cpus(address.cpus.as_ref())?.as_slice().to_vec(),
        congestion_controls: socket::congestion_controls().unwrap_or_default(),
        ..serving.limits()
    };
    if let Some(cpus) = &address.cpus {
        // The workers inherit it.
        cpus.apply().or_exit(Exit::Failed)?;
    }
    let key = key(address)?;
    let reach = if key.is_some() { ListenScope::AnyMachine } else { ListenScope::OwnMachine };
    let listeners = listen(serving.listen, address.port(), address.family(), reach).or_exit(Exit::Failed)?;
    let stop = cancel_on_signal()?;
    if serving.on_stdio {
        say_where(&listeners)?;
        let ended = stop.clone();
        thread::spawn(move || {
            // Also where it cannot be read, nobody is there any more.
            let _ = io::copy(&mut stdin().lock(), &mut io::sink());
            ended.cancel();
        });
    }
    for listener in &listeners {
        let address = listener.local_addr().context("find the server's own address").or_exit(Exit::Failed)?;
        let address = NamedAddress::from(address);
        note(format_args!("netrig {} serves on {address}", env!("CARGO_PKG_VERSION")));
    }
    match (&key, serving.listen) {
        (Some(_), _) => note("only clients with the key of --key-file are served"),
        (None, None) => note(
            "only this machine can reach it: --key-file FILE serves all clients that have the key, --listen ADDRESS (`::` for \
             all) all clients that reach that address",
        ),
        (None, Some(address)) if address.ip().is_loopback() => {}
        (None, Some(_)) => note(
            "without --key-file any client that reaches it can make this machine send and receive as much as the limits allow",
        ),
    }
    let environment = host::environment(BUILD);
    let mut server = Server::new(listeners, limits, environment, program()?, key, stop).or_exit(Exit::Failed)?;
    server.run().or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

fn client(
    role: RoleOptions,
    address: &AddressOptions,
    common: &CommonOptions,
    load: Load,
    output_args: &OutputArgs,
    keeping: &StoreOptions,
) -> Result<Exit, Failure> {
    let own_cpus = match &address.cpus {
        Some(_) => usable_cpus(address.cpus.as_ref())?.as_slice().to_vec(),
        None => Vec::new(),
    };
    let test = Test {
        client: load.clone(),
        client_cpus: own_cpus,
        source: common.sockets.source(),
        server: load,
        server_cpus: common.server_cpus.as_ref().map(CpuSet::as_slice).unwrap_or_default().to_vec(),
        phases: common.phases(role.is_on_one_machine()),
    };
    check(&test)?;
    let output = Output::choose(output_args.output.as_deref())?;
    let (suite, scenario) = (rig_suite::ends::suite(&test.client), test.client.name());
    let against = keeping.against.as_deref();
    let against = ReferenceRun::choose(against, &keeping.judge, &keeping.store, suite, &[scenario])?;
    let cancel = cancel_on_signal()?;
    let program = program()?;
    let as_json = output_args.format == Format::Json && keeping.in_turn.is_none();
    let host = role.client.clone().or_else(|| role.on.clone()).unwrap_or_default();
    let (target, server) = match target(role, address, common, &program, &cancel) {
        Ok(target) => target,
        Err(failure) if as_json => return Err(told(failure, &host, &test, common.trials, output)),
        Err(failure) => return Err(failure),
    };
    let live = IntervalDisplay::new(&test, common.trials, common.quiet);
    let labels = server.as_ref().map(|server| server.labels.clone()).unwrap_or_default();
    let mut recorder = match TrialRecorder::new(&target.host, &test, common.trials, live, keeping, labels) {
        Ok(recorder) => recorder,
        Err(failure) if as_json => return Err(told(failure, &host, &test, common.trials, output)),
        Err(failure) => return Err(failure),
    };
    let result = match keeping.in_turn {
        None => client::run(&target, &test, common.trials, &program, &cancel, &mut recorder),
        Some(_) => in_turn(&target, &test, common.trials, &program, &cancel, &mut recorder),
    };
    let closed = recorder.finish(&result);
    let stopped = result.as_ref().is_err_and(anyhow::Error::is::<StoppedByUser>);
    if keeping.in_turn.is_some() {
        // The process that started both runs compares and reports.
        let ended = match result {
            Err(_) if stopped => Ok(Exit::Stopped),
            ended => ended.map(|()| Exit::Done).map_err(Failure::from),
        };
        let ended = both(ended, closed)?;
        if ended == Exit::Done {
            print(&format!("{}\n", TurnMessage::Over))?;
        }
        return Ok(ended);
    }
    let partial = Some(recorder.live.partial()).filter(|partial| stopped && !partial.is_empty());
    let nothing = "stopped before an interval of the window was over: nothing was measured";
    let has_nothing = recorder.trials.is_empty() && partial.is_none();
    if stopped && has_nothing {
        note(format_args!("netrig: {nothing}"));
    }
    let is_whole = result.is_ok();
    let is_kept = closed.is_ok() && recorder.has_stored_all();
    // What was measured is told before what could not be done with it.
    let ended = both(if stopped { Ok(()) } else { result.map_err(Failure::from) }, closed);
    let failure = match &ended {
        Err(failure) => Some(in_words(&failure.error)),
        Ok(()) => has_nothing.then(|| nothing.to_owned()).filter(|_| stopped),
    };
    let (mut compared, mut written) = (Ok(None), Ok(()));
    if !has_nothing || as_json {
        let number = recorder.number();
        let mut outcome = report::TestResult {
            host: &target.host,
            run: number.as_deref(),
            test: &test,
            source: recorder.source.as_deref(),
            trials: &recorder.trials,
            partial,
            planned: common.trials,
            started_unix_ms: recorder.started_unix_ms,
            server: recorder.live.server(),
            client: &recorder.environment,
            turns: None,
            failure: None,
        };
        let view = report::view(&outcome);
        outcome.failure = failure.as_deref();
        let mut document = report::document(&outcome);
        let against = against.filter(|_| is_whole);
        compared = against.map(|against| against.add_to(&mut document, &view, &keeping.store)).transpose();
        if output_args.format == Format::Terminal && output.is_standard() {
            document = document.without_details();
        }
        written = output.write(&document, output_args.format);
        if let Some(number) = number.filter(|_| is_kept && written.is_ok() && !common.quiet) {
            note(format_args!("Kept as run {number}: {} --all", super::report::again(&number, &keeping.store)));
        }
    }
    let done = recorder.trials.len();
    let ended = ended.map_err(|failure| match failure {
        Failure { exit, error, next } if !is_whole && !stopped && done > 0 => {
            Failure { exit, error: anyhow!("after {done} of {} trials: {}", common.trials, in_words(&error)), next }
        }
        failure => failure,
    });
    let judged = match compared {
        Ok(compared) => ended.map(|()| compared.map(|(_, judged)| judged)),
        Err(failure) => both(ended, Err(failure)).map(|()| None),
    };
    let judged = both(judged, written)?;
    Ok(judged.unwrap_or(if stopped { Exit::Stopped } else { Exit::Done }))
}

/// A test that failed before there was a server to ask, as JSON for who reads that: the failure again, with that of writing it.
fn told(failure: Failure, host: &str, test: &Test, planned: u32, output: Output) -> Failure {
    let why = in_words(&failure.error);
    let source = Some(&test.source).filter(|source| !source.is_default()).map(ToString::to_string);
    let outcome = report::TestResult {
        host,
        run: None,
        test,
        source: source.as_deref(),
        trials: &[],
        partial: None,
        planned,
        started_unix_ms: Timestamp::now().as_millisecond(),
        server: None,
        client: &host::environment(BUILD),
        turns: None,
        failure: Some(&why),
    };
    match output.write(&report::document(&outcome), Format::Json) {
        Ok(()) => failure,
        Err(unwritten) => failure.then(unwritten),
    }
}

/// Where the server is, and the host that it was started on, which has it as long as this is there.
fn target(
    role: RoleOptions,
    address: &AddressOptions,
    common: &CommonOptions,
    program: &Path,
    cancel: &Cancel,
) -> Result<(Target, Option<ServingHost>), Failure> {
    let RoleOptions { client, on, .. } = role;
    let family = address.family();
    let Some(name) = on else {
        // One of the two is given.
        let host = client.unwrap_or_default();
        return Ok((Target { host, port: address.port(), family, key: key(address)? }, None));
    };
    let named = named(&name, common.hosts.as_deref()).or_exit(Exit::BadInput)?;
    let text = Key::new_text().context("draw a random number").or_exit(Exit::Failed)?;
    let key = Key::new(text.as_bytes()).or_exit(Exit::Failed)?;
    let started = ServingHost::start(&named, program, address.port_on_host(), &text, cancel)?;
    let host = match client {
        Some(host) => host,
        None => started.address(&named, family).or_exit(Exit::Failed)?.to_string(),
    };
    Ok((Target { host, port: started.server.port, family, key: Some(key) }, Some(started)))
}

/// Makes a trial whenever the process that started this run and another one says so. Each trial has a control connection of its
/// own: a server closes one that is silent for as long as the other run may take.
fn in_turn(
    target: &Target,
    test: &Test,
    trials: u32,
    program: &Path,
    cancel: &Cancel,
    recorder: &mut TrialRecorder<'_>,
) -> anyhow::Result<()> {
    let mut starter = Starter { from: stdin().lock(), to: stdout().lock(), cancel: cancel.clone() };
    client::run(target, test, 0, program, cancel, recorder)?;
    let number = recorder.number().context("a run that takes turns has to be stored")?;
    starter.say(&TurnMessage::Run(number))?;
    for _ in 0..trials {
        if !starter.turn()? {
            break;
        }
        client::run(target, test, 1, program, cancel, recorder)?;
    }
    Ok(())
}

/// Refuses before anything is done what neither end could carry out.
fn check(test: &Test) -> Result<(), Failure> {
    let is_ipv6 = test.source.address.is_some_and(ZonedAddress::is_ipv6);
    let to = if is_ipv6 { (Ipv6Addr::LOCALHOST, 1).into() } else { (Ipv4Addr::LOCALHOST, 1).into() };
    let roles = [
        (Role::Connect { to, source: test.source.clone() }, &test.client, &test.client_cpus),
        (Role::Listen { address: to, only_from: None }, &test.server, &test.server_cpus),
    ];
    for (role, load, cpus) in roles {
        let (load, cpus) = (load.clone(), cpus.clone());
        WorkerPlan { name: NAME.into(), cpus, role, load, phases: test.phases, ceiling: None, peer_clock_ns: 0 }
            .validate()
            .or_exit(Exit::BadInput)?;
    }
    Ok(())
}

/// Tells the process that has started this one where clients find it.
fn say_where(listeners: &[TcpListener]) -> Result<(), Failure> {
    let first = listeners.first().context("listen nowhere").or_exit(Exit::Failed)?;
    let port = first.local_addr().context("find the server's own address").or_exit(Exit::Failed)?.port();
    print(&format!("{}\n", json!({ "port": port })))
}

fn key(address: &AddressOptions) -> Result<Option<Key>, Failure> {
    let Some(path) = &address.key_file else { return Ok(None) };
    if path == Path::new("-") {
        let mut line = String::new();
        let read = stdin().lock().take(Key::LONGEST).read_line(&mut line).context("read the key from standard input");
        read.or_exit(Exit::BadInput)?;
        return Key::new(line.as_bytes()).context("--key-file -").or_exit(Exit::BadInput).map(Some);
    }
    Key::read(path).with_context(|| format!("--key-file {}", path.display())).or_exit(Exit::BadInput).map(Some)
}

fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)
}
