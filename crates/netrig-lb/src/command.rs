//! What may follow `netrig lb`, and which part does it: an option is ipvsadm's command line, a word is a command here.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use rig_cli::exit::{Exit, Failure};
use rig_cli::help;

use super::{capture, control, import, ipvs, ipvsadm, receive, views};

const EXAMPLES: &str = "\
Examples:
  netrig lb check lb.toml && netrig lb run lb.toml
  netrig lb status
  netrig lb trace 'tcp 198.51.100.9:40000 > 192.0.2.1:80'
Or by the options of ipvsadm, which `netrig lb help` lists:
  netrig lb -A -t 192.0.2.1:80 -s wlc
  netrig lb -a -t 192.0.2.1:80 -r 10.0.0.2:80 -b
  netrig lb -L -n --stats";

/// The layer-4 balancer
#[derive(Debug, Parser)]
#[command(name = "netrig lb", bin_name = "netrig lb", max_term_width = 110, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", ipvsadm::AFTER_HELP))]
struct Lb {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Control(control::Control),
    #[command(flatten)]
    View(views::View),
    /// Packets that are dropped or left to the kernel, with the reason
    ///
    /// Packets are as they came in, but for those whose sender is answered: of these it is the answer. Packets that go through cost the same
    /// meanwhile. Ends after --count packets, after --time or with Ctrl-C; however it ends, the balancer stops with it.
    #[command(
        after_help = "Examples:\n  netrig lb capture --reason no_backend,backends_full\n  netrig lb capture --reason all --time 30s --write drops.pcapng\n  netrig lb capture --reason no_connection --service 192.0.2.1:80 --write - | wireshark -k -i -"
    )]
    Capture(capture::CaptureArgs),
    /// Run keepalived or ipvsadm upon the running balancer, as upon IPVS
    ///
    /// What the command asks the kernel's IPVS by netlink, this balancer answers; all else it does as without netrig. What the balancer does
    /// not have is refused, and the log says why. Ends as the command does. Needs root.
    #[command(
        after_help = "Examples:\n  netrig lb ipvs -- ipvsadm -L -n\n  netrig lb ipvs --local 10.0.0.200-10.0.0.207 -- keepalived --dont-fork --log-console"
    )]
    Ipvs(ipvs::IpvsArgs),
    /// Make a file for `run` of ipvsadm-save's lines or a keepalived.conf
    ///
    /// The file is printed. What has no equal is named in comments at its top.
    #[command(
        after_help = "Examples:\n  ipvsadm-save -n | netrig lb import ipvsadm - > lb.toml\n  netrig lb import keepalived keepalived.conf > lb.toml"
    )]
    Import(import::ImportArgs),
    /// At a backend: show programs the addresses that a balancer tells of
    ///
    /// Where a service has client_address = "toa", programs of this machine see the client's address in place of the balancer's, without a
    /// kernel module and without a change of theirs: accept(2) and getpeername(2) answer with it. With client_address = "uoa" and --device,
    /// recvmsg(2) does, of UDP, and what is sent to the client goes by the balancer. Stays in the foreground; ends with SIGINT or SIGTERM, and
    /// with it what was told. Needs root or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, Linux 5.10 and cgroup v2.
    #[command(
        after_help = "Examples:\n  netrig lb receive --from 10.0.0.200/29\n  netrig lb receive --from 10.0.0.200/29 --device eth0\n  netrig lb receive --from 10.0.0.200/29 --cgroup /sys/fs/cgroup/system.slice/nginx.service"
    )]
    Receive(receive::ReceiveArgs),
}

/// What may be said, for man pages and completions.
pub fn command_line() -> clap::Command {
    help::on_a_screen(Lb::command())
}

/// The words that say which balancer is meant, where a line begins with them: `--name NAME` or `--name=NAME`.
fn leading_name(arguments: &[OsString]) -> &[OsString] {
    let count = match arguments.first().map(|word| word.as_encoded_bytes()) {
        Some(b"--name") => 2,
        Some(word) if word.starts_with(b"--name=") => 1,
        _ => 0,
    };
    &arguments[..count.min(arguments.len())]
}

/// Whether a line is a command of `netrig lb`, and none of ipvsadm's options: its first word beside `--name` is no option.
pub fn is_command(arguments: &[OsString]) -> bool {
    let first = arguments.get(leading_name(arguments).len());
    first.is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"))
}

/// Does what the arguments after `netrig lb` say.
pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let first = arguments.first().map_or("", |word| word.to_str().unwrap_or_default());
    if first.starts_with('-') && !matches!(first, "-h" | "--help") && !is_command(arguments) {
        return ipvsadm::execute(arguments);
    }
    match parse(arguments).command {
        Command::View(view) => views::execute(&view),
        Command::Control(control) => control::execute(control),
        Command::Ipvs(arguments) => ipvs::execute(arguments),
        Command::Import(arguments) => import::execute(&arguments),
        Command::Receive(arguments) => receive::execute(&arguments),
        Command::Capture(arguments) => capture::execute(&arguments),
    }
}

fn parse(arguments: &[OsString]) -> Lb {
    help::parse::<Lb>(line(arguments))
}

/// What clap is given: the command first, since `--name` is an option of each command.
fn line(arguments: &[OsString]) -> Vec<OsString> {
    let name = leading_name(arguments);
    let mut words = vec![OsString::from("netrig lb")];
    match arguments[name.len()..].split_first().filter(|_| is_command(arguments)) {
        Some((command, rest)) => words.extend([std::slice::from_ref(command), name, rest].concat()),
        None => words.extend_from_slice(arguments),
    }
    words
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_name_may_stand_before_each_command() {
        for command in Lb::command().get_subcommands() {
            let name = command.get_name();
            // What asks no balancer has no option for one.
            let asks = command.get_arguments().any(|argument| argument.get_id() == "name");
            assert_eq!(asks, !matches!(name, "check" | "import" | "receive"), "{name}");
            let needed = match name {
                "check" => "lb.toml",
                "trace" => "tcp 198.51.100.9:40000 > 192.0.2.1:80",
                "ipvs" => "-- ipvsadm -L",
                "import" => "ipvsadm -",
                "capture" => "--reason all",
                "receive" => "--from 10.0.0.200/29",
                _ => "",
            };
            for before in ["--name b2", "--name=b2"] {
                let line = self::line(&words(&format!("{before} {name} {needed}")));
                let after = words(&format!("{name} {before} {needed}"));
                assert_eq!(line, [vec!["netrig lb".into()], after].concat());
                assert_eq!(Lb::try_parse_from(line).is_ok(), asks, "{before} {name}");
            }
        }
    }

    #[test]
    fn options_without_a_command_are_those_of_ipvsadm() {
        for line in ["--name b2 -L -n", "-L --name b2", "--name=b2 --set 900 120 300", "--name b2", "--name", "-h", ""]
        {
            assert!(!is_command(&words(line)), "{line}");
        }
        assert!(is_command(&words("status")) && is_command(&words("--name b2 status")));
    }
}
