//! An Ethernet segment inside this machine: a bridge in a network namespace of its own, which nothing leads out of.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Gone when it is dropped, and when this program ends in whatever way.
#[derive(Debug)]
pub struct Segment {
    holder: Child,
}

impl Segment {
    /// With a tap for each card, of as many queues as that has.
    pub fn new(taps: &[Tap]) -> Result<Self> {
        // Queries for groups would wake guests for nothing.
        let mut script = String::from(
            "set -e\nsysctl -qw net.ipv6.conf.default.disable_ipv6=1\n\
             ip link add bridge type bridge mcast_snooping 0\nip link set bridge up\n",
        );
        for Tap { name, queues } in taps {
            let multiple = if *queues > 1 { " multi_queue" } else { "" };
            script += &format!(
                "ip tuntap add dev {name} mode tap{multiple}\nip link set {name} master bridge\nip link set {name} up\n"
            );
        }
        script += "echo ready\nexec sleep infinity\n";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", &script]);
        let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start setpriv")?;
        let mut line = String::new();
        let read = holder.stdout.take().map(|output| BufReader::new(output).read_line(&mut line));
        let segment = Self { holder };
        match read {
            Some(Ok(_)) if line.trim() == "ready" => Ok(segment),
            _ => bail!("cannot make a network namespace with a bridge and taps: that needs root"),
        }
    }

    /// What a program is started by that shall be inside.
    pub fn entrance(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.holder.id())]
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// What a card of a guest is plugged into.
#[derive(Debug, Clone, Copy)]
pub struct Tap {
    pub name: &'static str,
    pub queues: u32,
}
