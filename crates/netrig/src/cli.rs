//! The command line: what may be said, and which part does it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use netrig_tools::{dperf, ntttcp};
use rig_cli::exit::{Exit, Failure};
use rig_cli::help;
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;

use crate::command::ab::AbArgs;
use crate::command::calibrate::CalibrateArgs;
use crate::command::compare::CompareArgs;
use crate::command::hosts::NodeOnHost;
use crate::command::hosts::labels::HostLabel;
use crate::command::k8s::{ManifestArgs, hidden_in_short_help};
use crate::command::report::{HistoryArgs, ReportArgs, SeriesArgs};
use crate::command::run::RunArgs;
use crate::command::tool_runs::ImportArgs;
use crate::command::{self, ends, examples};
use crate::manual::{self, names};
use crate::tool::Tool;

/// What to write for a word that is no command but names something of netrig, and for an option that `command` has by another
/// name than iperf3.
pub fn instead(command: &str, word: &str) -> Option<String> {
    if ["stream", "rr", "udp"].contains(&command) && word.starts_with('-') {
        return ends::of_iperf3(command, word);
    }
    if Suite::is_built_in(word) {
        return Some(format!("a suite's name stands after `run`: netrig run {word}"));
    }
    (word == "ipvsadm").then(|| "netrig takes ipvsadm's options as `netrig lb`, or by a link of that name".to_owned())
}

/// A test rig for virtual network datapaths: what each layer costs, and its limit
///
/// Exit status: 0 done, nothing compared is worse; 1 something is worse, or a claim does not hold and --gate or the suite
/// makes that an error; 2 bad input; 3 the machine lacks something; 4 a trial or the store failed; 5 nothing is worse, but
/// --fail-on-undecided was given and something is undecided; 130 stopped by Ctrl-C.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = examples::NETRIG)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// What a run over these hosts would find
    ///
    /// Whether they are reached and reach each other, their kernels, interfaces and clocks, and what of each suite can be made.
    #[command(after_help = examples::HOSTS_CHECK)]
    Check {
        /// A node and its host, as `netrig run --on` takes them
        #[arg(required_unless_present = "host_label", value_name = "NODE=HOST[:INTERFACES]")]
        nodes: Vec<NodeOnHost>,
        /// Hosts that have this label in the hosts file, as nodes a, b, c ...; of several labels all have to hold
        #[arg(long, value_name = "KEY=VALUE", conflicts_with = "nodes")]
        host_label: Vec<HostLabel>,
        /// How hosts are reached [default: ~/.config/netrig/hosts.toml]
        #[arg(long, value_name = "FILE")]
        hosts: Option<PathBuf>,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
enum K8sCommand {
    /// Print what is asked of the cluster, as YAML
    #[command(after_help = examples::K8S_MANIFEST)]
    Manifest(ManifestArgs),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What this machine can do, what is missing and how to get it
    #[command(after_help = examples::DOCTOR)]
    Doctor {
        /// Print findings as JSON
        #[arg(long)]
        json: bool,
    },
    /// Other machines, as nodes of testbeds
    #[command(after_help = examples::HOSTS)]
    Hosts {
        #[command(subcommand)]
        command: HostsCommand,
    },
    /// The built-in suites
    #[command(after_help = examples::LIST)]
    List {
        /// The scenarios of each, too
        #[arg(long)]
        scenarios: bool,
    },
    /// One suite: its scenarios with their topologies, loads and claims
    #[command(after_help = examples::SHOW)]
    Show {
        /// A built-in suite's name or a suite file's path
        suite: OsString,
        /// Everything, of suites longer than a screen too: each scenario's testbed and load, each claim's expression
        #[arg(long)]
        all: bool,
    },
    /// JSON Schemas of suite files and of what netrig writes
    #[command(hide = true, after_help = examples::SCHEMA)]
    Schema {
        /// Which one, e.g. `suite`; without it, what there is
        name: Option<String>,
    },
    /// Run a suite: build testbeds, drive them, measure, report
    #[command(after_help = examples::RUN, mut_args = hidden_in_short_help)]
    Run(RunArgs),
    /// Pods of Kubernetes: what `netrig run pods` makes
    #[command(after_help = examples::K8S)]
    K8s {
        #[command(subcommand)]
        command: K8sCommand,
    },
    /// Report a stored run again, without running anything
    #[command(after_help = examples::REPORT)]
    Report(ReportArgs),
    /// What a stored run counted over time, as CSV
    ///
    /// One line for each counter of each reading. Columns: scenario, trial, phase, of (worker, background worker, node or
    /// datapath), name, counter, begin_s and end_s (seconds from the window's begin), value (what the counter rose by in that
    /// time, or a percentile in nanoseconds), per_second. A
    /// counter that stayed zero for a whole trial is left out. docs/REFERENCE.md lists the counters.
    #[command(after_help = examples::SERIES)]
    Series(SeriesArgs),
    /// Compare two runs, figure by figure
    ///
    /// Each is better, worse, the same or undecided.
    ///
    /// Exit status: 0 nothing is worse; 1 something is worse; 2 bad input; 4 the store or the output failed; 5 nothing is
    /// worse, but --fail-on-undecided was given and something is undecided.
    #[command(after_help = examples::COMPARE)]
    Compare(CompareArgs),
    /// Measure two variants in turn, and compare them
    ///
    /// A trial of one, the same trial of the other, so that what the machine does meanwhile is done to both: two settings of this
    /// machine or of the testbed, or two builds of netrig. Both are stored as runs of their own. Each command is run by `sh` before
    /// each trial of its variant: those of --old and --new outside the testbed, those of --old-in and --new-in inside one of its
    /// nodes.
    ///
    /// Exit status: as of `netrig compare`; 3 the machine lacks something; 130 stopped by Ctrl-C.
    #[command(after_help = examples::AB)]
    Ab(AbArgs),
    /// How small a change this machine can tell
    ///
    /// The same load twice, and with a known change, for a stream, transactions and packets.
    #[command(after_help = examples::CALIBRATE)]
    Calibrate(CalibrateArgs),
    /// The stored runs
    #[command(after_help = examples::HISTORY)]
    History(HistoryArgs),
    /// Store what other tools wrote: iperf3, netperf, wrk, dperf
    ///
    /// As a run that `report`, `compare` and `history` know. iperf3's JSON (-J, --json-stream), netperf's outputs by selectors (-o, -k)
    /// and the text of its six tests, what wrk and wrk2 print, and dperf's statistics. docs/IMPORT.md says what is taken of each.
    ///
    /// Exit status: 0 stored; 2 what a file holds is not known, or its tests are not of one kind; 4 the store failed.
    #[command(after_help = examples::IMPORT)]
    Import(ImportArgs),
    /// Keep the testbed of a scenario up, to try things by hand
    #[command(after_help = examples::UP)]
    Up {
        /// Which one, as SUITE/SCENARIO, e.g. layers/D
        scenario: OsString,
        /// Name for `shell` and `down`, so that several can be up
        #[arg(long, default_value = "testbed")]
        name: String,
        /// CPUs that the nodes may own, e.g. 0-3
        #[arg(long, value_name = "LIST")]
        cpus: Option<CpuSet>,
    },
    /// Run a command or a shell in a node or container that is up
    #[command(after_help = examples::SHELL)]
    Shell {
        /// Where, e.g. `a` or `a/sender`
        place: String,
        /// The testbed's name, when several are up
        #[arg(long)]
        name: Option<String>,
        /// The command and its arguments; without it, $SHELL
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Take testbeds down
    #[command(after_help = examples::DOWN)]
    Down {
        /// The testbed's name; without it, all that are up
        name: Option<String>,
    },
    /// A bulk TCP stream between two machines
    #[command(after_help = examples::STREAM, mut_args = ends::of_one_role)]
    Stream(ends::StreamArgs),
    /// Requests and responses between two machines, over TCP or UDP
    #[command(after_help = examples::RR, mut_args = ends::of_one_role)]
    Rr(ends::RrArgs),
    /// A stream of UDP datagrams between two machines
    #[command(after_help = examples::UDP, mut_args = ends::of_one_role)]
    Udp(ends::UdpArgs),
    /// Serve `stream`, `rr` and `udp` of other machines
    #[command(after_help = examples::SERVE)]
    Serve(ends::ServeArgs),
    /// NTttcp: its command lines, its layouts and its protocol
    ///
    /// The command lines of Linux and of Windows, and the protocol of NTttcp for Linux. A link named `ntttcp` to this program
    /// does the same. `netrig ntttcp -h` lists the options.
    #[command(disable_help_flag = true)]
    Ntttcp {
        /// The original's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// netperf: its tests, selectors and layouts, and its protocol
    ///
    /// A link named `netperf` to this program does the same. `netrig netperf -h` lists the options, and `netrig netperf -- -h` those of
    /// a test. Exit status: 0 done, 1 usage, 255 the test failed. `netrig netserver` is its other end.
    #[command(disable_help_flag = true)]
    Netperf {
        /// The original's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// netserver: what `netrig netperf` and netperf ask for tests
    ///
    /// A link named `netserver` to this program does the same. `netrig netserver -h` lists the options.
    #[command(disable_help_flag = true, hide = true)]
    Netserver {
        /// The original's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// iperf3: its command line, layouts and protocol, client and server
    ///
    /// With any client or server from 3.12 to 3.21. A link named `iperf3` to this program does the same. `netrig iperf3 -h` lists the
    /// options.
    #[command(disable_help_flag = true)]
    Iperf3 {
        /// The original's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// Packet load in dperf's configuration language
    ///
    /// Its keywords and its statistics, over AF_XDP or AF_PACKET. A link named `dperf` to this program does the same. Exit
    /// status: 0 everything answered; 1 connections failed or had no answer; 2 the file asks for what cannot be done; 3 the
    /// machine lacks something; 4 the gateway did not answer, or a worker failed; 130 stopped by Ctrl-C before it began.
    #[command(after_help = examples::DPERF)]
    Dperf(dperf::DperfArgs),
    /// The layer-4 balancer, also by ipvsadm's command line
    ///
    /// Run it, change it, list it, watch it. `netrig lb --help` lists its commands. A link named `ipvsadm` to this program
    /// takes ipvsadm's options.
    #[command(disable_help_flag = true)]
    Lb {
        /// A command, or ipvsadm's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// The overlay router of containers, with Contrail's listings
    ///
    /// Run it on each node with one file. `netrig vrouter --help` lists its commands. A link named as Contrail's `vif`, `nh`,
    /// `rt`, `mpls`, `vxlan`, `flow` or `dropstats` to this program does the same as the command of that name.
    #[command(disable_help_flag = true)]
    Vrouter {
        /// A command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// The receive spreader: which CPUs process what arrives
    ///
    /// What an interface receives is spread over CPUs under load, and coalesced when one is enough. `netrig spread --help`
    /// lists its commands.
    #[command(disable_help_flag = true)]
    Spread {
        /// A command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// What receives packets, live
    ///
    /// CPUs, interfaces, the spreader's entries, the balancer, the vRouter. Without arguments, the spreader of this network
    /// namespace, or all its interfaces where none runs. docs/TOP.md describes the screen; ? lists the keys. Exit status: 0
    /// done; 2 bad input; 3 what was asked for does not run here; 4 it ended, the kernel does not tell, or a host was lost.
    #[command(version, display_name = "netrig top", after_help = examples::TOP)]
    Top(netrig_top::command::TopArgs),
    /// Completions of command lines, for a shell
    #[command(hide = true, after_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
        /// For netrig called by the name of another tool
        #[arg(long, value_name = "NAME", value_parser = names())]
        tool: Option<String>,
    },
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man { directory: PathBuf },
    /// One end of a load, driven by another netrig process over standard input and output
    #[command(hide = true)]
    Worker,
    /// A host of nodes, asked by another netrig process over standard input and output
    #[command(hide = true)]
    Host,
    /// A datapath at work on the node that this process is started in, asked by another netrig process over standard input and
    /// output
    #[command(hide = true)]
    Agent { name: String },
    /// The first process of a container, which ends with its standard input
    #[command(hide = true)]
    Pause,
    /// A program in a container of the engine at a socket
    #[command(hide = true)]
    InContainer {
        socket: PathBuf,
        container: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// A command before a trial, in the network namespace that this process is started in
    #[command(hide = true)]
    Inside { command: String },
    /// How far the clocks of two nodes are apart: `answer` at an address of one, `ask` it from the other
    #[command(hide = true)]
    Clock {
        #[arg(value_parser = ["answer", "ask"])]
        what: String,
        address: SocketAddr,
    },
    /// Keeps a testbed open for `up`
    #[command(hide = true)]
    Hold {
        scenario: OsString,
        name: String,
        #[arg(long)]
        cpus: Option<CpuSet>,
    },
}

impl Cli {
    /// Does what the command line says.
    pub fn execute(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Doctor { json } => command::doctor::doctor(json),
            Command::Hosts { command: HostsCommand::Check { nodes, host_label, hosts, json } } => {
                command::hosts::check::check(&nodes, &host_label, hosts.as_deref(), json)
            }
            Command::List { scenarios } => command::suites::list(scenarios),
            Command::Show { suite, all } => command::suites::show(&suite, all),
            Command::Schema { name } => command::schema::schema(name.as_deref()),
            Command::Run(args) => command::run::run(&args),
            Command::K8s { command: K8sCommand::Manifest(args) } => command::k8s::manifest(&args),
            Command::Report(args) => command::report::report(&args),
            Command::Series(args) => command::report::series(&args),
            Command::Compare(args) => command::compare::compare(&args),
            Command::Ab(args) => command::ab::ab(&args),
            Command::Calibrate(args) => command::calibrate::calibrate(&args),
            Command::History(args) => command::report::history(&args),
            Command::Import(args) => command::tool_runs::import(&args),
            Command::Up { scenario, name, cpus } => command::keep::up(&scenario, &name, cpus.as_ref()),
            Command::Shell { place, name, command } => command::keep::shell(&place, name.as_deref(), &command),
            Command::Down { name } => command::keep::down(name.as_deref()),
            Command::Stream(args) => ends::stream(args),
            Command::Rr(args) => ends::rr(args),
            Command::Udp(args) => ends::udp(args),
            Command::Serve(args) => ends::serve(&args),
            Command::Ntttcp { arguments } => Tool::Ntttcp(ntttcp::ProgramName::Plain).execute(&arguments),
            Command::Netperf { arguments } => Tool::Netperf.execute(&arguments),
            Command::Netserver { arguments } => Tool::Netserver.execute(&arguments),
            Command::Iperf3 { arguments } => Tool::Iperf3.execute(&arguments),
            Command::Dperf(options) => dperf::execute(&options),
            Command::Lb { arguments } => netrig_lb::command::execute(&arguments),
            Command::Vrouter { arguments } => netrig_vrouter::command::execute(&arguments),
            Command::Spread { arguments } => netrig_spread::command::execute(&arguments),
            Command::Top(args) => command::top::top(&args),
            Command::Completions { shell, tool } => {
                manual::completions(help::on_a_screen(Self::command()), shell, tool.as_deref())
            }
            Command::Man { directory } => manual::write(help::on_a_screen(Self::command()), &directory),
            Command::Worker => command::worker(),
            Command::Host => command::host(),
            Command::Agent { name } => command::agent(&name),
            Command::Pause => command::pause(),
            Command::InContainer { socket, container, command } => command::in_container(&socket, &container, &command),
            Command::Inside { command } => command::inside(&command),
            Command::Clock { what, address } => command::clock(what == "answer", address),
            Command::Hold { scenario, name, cpus } => command::keep::hold(&scenario, &name, cpus.as_ref()),
        }
    }
}
