//! NTttcp: the command lines and layouts of NTttcp for Linux and for Windows, and the wire protocol of the former.

mod console;
mod dialect;
mod help;
mod linux;
mod linux_file;
mod linux_text;
mod options;
mod receiver;
mod report;
mod sender;
pub mod sync;
mod test_plan;
#[cfg(test)]
mod tests;
mod windows;
mod windows_text;

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::anyhow;
use rig_load::driver::Cancel;
use rig_sys::cpu::{self, CpuSet};
use rig_sys::socket::{ZonedAddress, resolve};

use self::console::Console;
pub use self::dialect::Dialect;
pub use self::help::text as help;
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser};
use rig_cli::streams;
use rig_testbed::accounting::CpuAccounting;

use self::options::OptionError;
use self::sync::Cycle;
use self::test_plan::{Layout, Length, Role, TestPlan};
use super::counters::CounterSelection;
use super::test_run::Times;

/// Set for the process that `-D` leaves in the background.
const IN_BACKGROUND: &str = "NETRIG_NTTTCP_IN_BACKGROUND";

/// The name that the program was called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramName {
    Plain,
    /// `ntttcps`: Windows' sender.
    Sender,
    /// `ntttcpr`: Windows' receiver.
    Receiver,
}

impl ProgramName {
    /// By a name in lower case without a suffix.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "ntttcp" => Some(Self::Plain),
            "ntttcps" => Some(Self::Sender),
            "ntttcpr" => Some(Self::Receiver),
            _ => None,
        }
    }

    fn role(self) -> Option<Role> {
        match self {
            Self::Plain => None,
            Self::Sender => Some(Role::Sender),
            Self::Receiver => Some(Role::Receiver),
        }
    }
}

/// Does what the arguments say.
pub fn execute(called: ProgramName, arguments: &[OsString]) -> Result<Exit, Failure> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| OptionError::NotText(word.to_string_lossy().into()))
    };
    let words = arguments.iter().map(text).collect::<Result<Vec<_>, _>>().or_exit(Exit::BadInput)?;
    if help::is_of_version(&words) {
        streams::print(&help::version())?;
        return Ok(Exit::Done);
    }
    let allowed = CpuSet::allowed().or_exit(Exit::Failed)?;
    // A call by one of the names of the Windows program has its dialect.
    let dialect = match called {
        ProgramName::Plain => dialect::choose(&words).or_exit(Exit::BadInput)?,
        _ => Dialect::Windows,
    };
    let parsed = match dialect {
        Dialect::Linux => linux::parse(&words, allowed.as_slice()),
        Dialect::Windows => windows::parse(&words, called.role(), allowed.as_slice()),
    };
    let Some(plan) = parsed.or_exit(Exit::BadInput)? else {
        streams::print(&help::text(dialect))?;
        return Ok(Exit::Done);
    };
    if plan.daemon && env::var_os(IN_BACKGROUND).is_none() {
        let arguments = [&[OsString::from("--dialect=linux")], arguments].concat();
        return super::go_into_background("ntttcp", &arguments, IN_BACKGROUND);
    }
    run(&plan)
}

fn run(plan: &TestPlan) -> Result<Exit, Failure> {
    cpu::set_affinity(&plan.cpus).or_exit(Exit::Failed)?;
    let cancel = Cancel::on_stop_signal().or_exit(Exit::Failed)?;
    let console = Console::open(plan)?;
    report::opening(plan, &console);
    let result = match plan.role {
        Role::Sender => sender::run(plan, &cancel, &console),
        Role::Receiver => receiver::run(plan, &cancel, &console),
    };
    match result {
        // Said where the rest of the run is said, the log included.
        Err(failure) => {
            console.error(&failure.to_string());
            Ok(failure.exit)
        }
        Ok(exit) => Ok(exit),
    }
}

/// The addresses that the job's mappings name, one for each.
fn hosts(plan: &TestPlan, cancel: &Cancel) -> Result<Vec<ZonedAddress>, Failure> {
    let (names, ipv6): (Vec<String>, bool) = (plan.mappings.iter().map(|one| one.host.clone()).collect(), plan.ipv6);
    let found = cancel.unless_cancelled(move || names.iter().map(|host| address_of(host, ipv6)).collect());
    found.or_exit(Exit::Failed)?.unwrap_or_else(|| Err(StoppedByUser).or_exit(Exit::Stopped))
}

fn address_of(host: &str, ipv6: bool) -> Result<ZonedAddress, Failure> {
    let (family, other) = if ipv6 { ("IPv6", "without -6") } else { ("IPv4", "with -6") };
    let addresses = resolve(host).or_exit(Exit::BadInput)?;
    let address = addresses.into_iter().find(|address| address.is_ipv6() == ipv6);
    let none = || anyhow!("'{host}' has no {family} address: give another, or try {other}");
    address.ok_or_else(none).or_exit(Exit::BadInput)
}

/// The receiver's data ports in order, each with the CPU of its threads.
fn data_ports(plan: &TestPlan, hosts: &[ZonedAddress]) -> Vec<(SocketAddr, Option<u32>)> {
    let each = plan
        .mappings
        .iter()
        .zip(hosts)
        .flat_map(|(mapping, &host)| (0..mapping.ports).map(move |_| (host, mapping.cpu)));
    // That the last is a port was found out when the options were read.
    each.zip(plan.port..=u16::MAX).map(|((host, cpu), port)| (host.at(port), cpu)).collect()
}

/// Where the sync connections go: each receiver once, at the port below the data ports.
fn sync_ports(plan: &TestPlan, hosts: &[ZonedAddress]) -> Vec<SocketAddr> {
    let mut distinct: Vec<SocketAddr> = Vec::new();
    for &host in hosts {
        let at = host.at(plan.port - 1);
        if plan.sync && !distinct.contains(&at) {
            distinct.push(at);
        }
    }
    distinct
}

/// The times of a test whose whole length is agreed.
fn times(plan: &TestPlan, agreed: Cycle) -> Times {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let total = match agreed {
        Cycle::Seconds(total) => Some(seconds(total)),
        Cycle::Endless => None,
    };
    let window = match (plan.length, agreed) {
        // When the other end wants no end, there is none.
        (Length::Endless | Length::AsSender, _) | (Length::Seconds(_), Cycle::Endless) => None,
        (Length::Seconds(length), _) => Some(seconds(length)),
        (Length::Messages { at_most, .. }, _) => Some(seconds(at_most)),
    };
    Times { warm_up: seconds(plan.warm_up), window, total, stall: plan.stall_timeout }
}

/// What is counted beside the bytes; CPU time from now on.
fn chosen(plan: &TestPlan) -> CounterSelection {
    let cpu_accounting = Some(Rc::new(CpuAccounting::start()));
    match &plan.layout {
        Layout::Linux(output) => CounterSelection {
            interface: output.interface.clone(),
            interrupts: output.interrupts.clone(),
            cpu_accounting,
        },
        Layout::Windows(_) => CounterSelection { cpu_accounting, ..CounterSelection::default() },
    }
}
