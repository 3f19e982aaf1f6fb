//! netperf and netserver of the netperf 2.7 benchmark: their command lines, layouts and wire protocol.
//!
//! Its tests are carried by the control protocol that netperf calls omni (2.6 and later); what other test types it had before are
//! refused. Both ends work with the originals.

mod buffers;
mod classic;
mod client;
mod command_line;
mod connections;
mod control;
mod data;
mod figures;
mod getopt;
mod help;
mod interim;
mod layouts;
mod options;
mod phase;
#[cfg(test)]
mod recorded;
mod rounds;
pub(crate) mod selectors;
mod server;
mod sockets;
#[cfg(test)]
mod tests;
pub(crate) mod told;
pub(crate) mod units;
mod usage;
pub(crate) mod values;
mod wire;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams;
use rig_load::driver::Cancel;
use rig_sys::{process, socket};
use socket2::{Domain, SockAddr, Socket, Type};

use self::getopt::CommandLine;
use self::options::{DataAddress, Request};
use self::server::ServerSettings;
use self::values::{Family, leading_number};
use crate::store_run::{self, RunKeeper};

/// Where netserver listens.
pub const PORT: u16 = 12_865;
/// Payload of the longest datagram over IPv4, bytes.
pub const LONGEST_DATAGRAM: u32 = 65_507;
/// The version that both are like.
const VERSION: &str = "2.7.1";

/// A run that the user asked for and that is not there, with netperf's status.
fn not_stored(failure: Failure) -> Failure {
    failed(failure.error.context("--store-run"))
}

/// A failure of a test, with netperf's status.
fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::new(Exit::MinusOne, error)
}

/// As netperf; `keeper` has what `--store-run` keeps.
///
/// # Errors
/// What keeps a test from being made.
pub fn execute_netperf(arguments: &[OsString], keeper: &mut dyn RunKeeper) -> Result<Exit, Failure> {
    let (arguments, store_run) = store_run::take(arguments);
    let arguments = arguments.as_slice();
    let usage = |text: &str| {
        streams::print(text)?;
        Ok(Exit::Refuted)
    };
    if arguments == ["--help"] {
        streams::print(help::NETPERF)?;
        return Ok(Exit::Done);
    }
    match command_line::parse(arguments).map_err(failed)? {
        Request::Version => {
            streams::print(&format!("Netperf version {VERSION} (netrig {})\n", env!("CARGO_PKG_VERSION")))?;
            Ok(Exit::Done)
        }
        Request::Usage(error) => {
            error.iter().for_each(streams::note);
            usage(help::NETPERF)
        }
        Request::TestUsage => usage(help::TEST),
        Request::Selectors { lines } => {
            let names: Vec<&str> = selectors::names().collect();
            usage(&(names.join(if lines { "\n" } else { "," }) + "\n"))
        }
        Request::Uuid(uuid) => {
            streams::print(&uuid)?;
            Ok(Exit::Done)
        }
        Request::Test(options) => {
            for remark in &options.remarks {
                streams::tell(format!("netperf: {remark}"));
            }
            socket::ignore_sigpipe();
            process::raise_file_limit();
            if store_run.is_asked {
                keeper.prepare(store_run.label.as_deref()).map_err(not_stored)?;
            }
            let cancel = Cancel::on_stop_signal().or_exit(Exit::Failed)?;
            client::run(&options, &cancel, store_run.is_asked.then_some(keeper))?;
            Ok(Exit::Done)
        }
    }
}

/// What fuzzing plays: a control message as each of its kinds, and its text as a command line.
///
/// # Panics
/// Where a message is not what it is written back as.
pub fn fuzz(data: &[u8]) {
    let mut bytes = [0; wire::MESSAGE];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    let message = wire::Message::from_bytes(bytes);
    let request = wire::OmniRequest::decode(&message);
    assert_eq!(wire::OmniRequest::decode(&request.encode()).length, request.length, "a request is what it was");
    server::fuzz(&request);
    let _ = (wire::OmniResponse::decode(&message), wire::OmniResults::decode(&message), message.text());
    let words: Vec<OsString> = String::from_utf8_lossy(data).split_whitespace().map(OsString::from).collect();
    if let Ok(Request::Test(options)) = command_line::parse(&words) {
        assert!(options.request.is_some() == (options.direction.transmits && options.direction.receives));
    }
}

/// A UUID of random bytes (RFC 9562, 5.4).
fn uuid() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

const SERVER: &str = "DdfhL:n:Np:v:VZ:46";
/// Says that this is the process in the background, which tells its starter when it listens.
const IN_BACKGROUND: &str = "NETRIG_NETSERVER_IN_BACKGROUND";

/// The command line of netserver.
#[derive(Debug, Default)]
struct ServerOptions {
    settings: ServerSettings,
    listen: DataAddress,
    port: Option<u16>,
    stays: bool,
}

/// As netserver.
///
/// # Errors
/// When it cannot listen.
pub fn execute_netserver(arguments: &[OsString]) -> Result<Exit, Failure> {
    if arguments == ["--help"] {
        streams::print(help::NETSERVER)?;
        return Ok(Exit::Done);
    }
    if store_run::take(arguments).1.is_asked {
        return Err(failed(anyhow!("--store-run: a server's tests are its clients': netperf stores its own")));
    }
    let Some(options) = server_options(arguments)? else { return Ok(Exit::Refuted) };
    if !options.stays && env::var_os(IN_BACKGROUND).is_none() {
        return go_into_background(arguments);
    }
    process::raise_file_limit();
    socket::ignore_sigpipe();
    let cancel = Cancel::on_stop_signal().or_exit(Exit::Failed)?;
    let port = options.port.unwrap_or(PORT);
    let listeners = listen(&options.listen, port)?;
    let (host, family) = (options.listen.host.as_deref().unwrap_or("IN(6)ADDR_ANY"), options.listen.family);
    streams::print(&format!("Starting netserver with host '{host}' port '{port}' and family {family}\n"))?;
    if env::var_os(IN_BACKGROUND).is_some() {
        process::close_standard_streams().context("let go of the terminal").or_exit(Exit::Failed)?;
    }
    server::serve(&listeners, &options.settings, &cancel).context("take control connections").or_exit(Exit::Failed)?;
    Ok(Exit::Done)
}

/// `None` where there is nothing to do but what was said already.
fn server_options(arguments: &[OsString]) -> Result<Option<ServerOptions>, Failure> {
    let mut options = ServerOptions::default();
    let mut words = CommandLine::new(arguments);
    loop {
        let option = match words.option(SERVER) {
            Ok(Some(option)) => option,
            Ok(None) => break,
            Err(error) => {
                streams::note(format!("netserver: {error}\n{}", help::NETSERVER));
                return Ok(None);
            }
        };
        let value = option.value.as_str();
        match option.letter {
            'D' => options.stays = true,
            'd' | 'v' => options.settings.verbose = option.letter == 'd' || leading_number(value) > 1,
            'f' => options.settings.serial = true,
            'L' => {
                let (host, family) = values::explicit_pair(value);
                options.listen.host = host.map(str::to_owned);
                options.listen.family = family.and_then(Family::of).unwrap_or(options.listen.family);
            }
            'p' => {
                let port = u16::try_from(leading_number(value)).ok().filter(|&port| port > 0);
                options.port = Some(port.ok_or_else(|| failed(anyhow!("-p {value}: a port from 1 to 65535")))?);
            }
            'Z' => options.settings.passphrase = Some(value.to_owned()),
            '4' => options.listen.family = Family::Inet,
            '6' => options.listen.family = Family::Inet6,
            'V' => {
                streams::print(&format!("Netserver version {VERSION} (netrig {})\n", env!("CARGO_PKG_VERSION")))?;
                return Ok(None);
            }
            'h' => {
                streams::note(help::NETSERVER);
                return Ok(None);
            }
            // -n: how many CPUs there are, which Linux tells; -N: nothing is written for a client that asks for it.
            _ => {}
        }
    }
    for stray in &words.strays {
        streams::tell(format!("netserver: '{stray}' belongs to no option and changes nothing"));
    }
    Ok(Some(options))
}

/// Listens where it is asked to, or everywhere: for IPv4 and IPv6 by a socket each.
fn listen(at: &DataAddress, port: u16) -> Result<Vec<TcpListener>, Failure> {
    let addresses = match &at.host {
        Some(host) => control::addresses(host, at.family).map_err(|error| failed(anyhow!(error)))?[..1].to_vec(),
        None => {
            let any: [std::net::SocketAddr; 2] = [([0; 4], 0).into(), ([0_u16; 8], 0).into()];
            any.map(Into::into).to_vec()
        }
    };
    let fits = |ipv6: bool| match at.family {
        Family::Unspecified => true,
        Family::Inet => !ipv6,
        Family::Inet6 => ipv6,
    };
    let mut listeners = Vec::new();
    let mut last = None;
    for address in addresses.into_iter().filter(|address| fits(address.is_ipv6())) {
        let address = address.at(port);
        let open = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_reuse_address(true)?;
            socket.bind(&SockAddr::from(address))?;
            socket.listen(1024)?;
            Ok(socket.into())
        };
        match open() {
            Ok(listener) => listeners.push(listener),
            Err(error) => last = Some((address, error)),
        }
    }
    match last {
        // A kernel without IPv6 has one of the two.
        Some((_, error)) if !listeners.is_empty() && error.kind() != io::ErrorKind::AddrInUse => Ok(listeners),
        Some((address, error)) => {
            let in_use = error.kind() == io::ErrorKind::AddrInUse;
            let advice = if in_use { ": is a netserver running already? -p takes another port" } else { "" };
            Err(failed(anyhow!("Unable to start netserver with '{address}': {error}{advice}")))
        }
        None => Ok(listeners),
    }
}

/// Starts the same again without a terminal, and ends when that listens, so that a client finds it.
fn go_into_background(arguments: &[OsString]) -> Result<Exit, Failure> {
    let program = env::current_exe().context("find this program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    command.arg("netserver").args(arguments).env(IN_BACKGROUND, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child =
        process::in_own_session(&mut command).spawn().context("start in the background").or_exit(Exit::Failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("hear of netserver").or_exit(Exit::Failed)?;
    }
    if line.is_empty() {
        // It has said why on standard error.
        let status = child.wait().context("wait for netserver").or_exit(Exit::Failed)?;
        return Err(failed(anyhow!("netserver did not start ({status})")));
    }
    streams::print(&line)?;
    Ok(Exit::Done)
}
