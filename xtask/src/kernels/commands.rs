//! docs/MACHINES.md: commands over two machines with what they print, as they were run between two guests.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::pair::{LIMIT, Pair};
use super::suite::{HOSTS, NOTHING_LEFT, serve, standing, wait_for_load};
use crate::command::root;

/// Each command, as in docs/MACHINES.md, and what it has to say.
const COMMANDS: [(&str, &str); 4] = [
    ("hosts check a=web1 b=web2", "a and b reach each other by eth0 and eth0"),
    ("run layers --on a=web1 --on b=web2 --only A,C,D,D-vxlan --trials 1 --window 1s", "D-vxlan"),
    (
        "run overlay --on a=web1:eth1 --on b=web2:eth1 --only stream-none,stream-bridge,stream-vxlan --trials 1 --window 1s",
        "stream-bridge",
    ),
    ("run pairs --hosts hosts.toml", "web1>web2"),
];
/// Of one that builds several testbeds.
const LONG: Duration = Duration::from_secs(600);
/// The kernel of the document's pair.
const DOCUMENTED: &str = "6.1.";

/// Runs them, writes what they print between the document's pair into it, and finds both machines as they were.
pub fn run(pair: &mut Pair) -> Result<String> {
    let server = serve(pair)?;
    let before = [standing(&mut pair.near)?, standing(&mut pair.far)?];
    let mut shown = Vec::new();
    for (command, says) in COMMANDS {
        // Names of the user's own configuration are not written out.
        let written = command.replace("hosts.toml", HOSTS);
        let hosts = if written.contains(HOSTS) { "" } else { &format!(" --hosts {HOSTS}") };
        let text = pair.near.run(&pair.command(&format!("{written}{hosts}")), LONG)?;
        if !text.contains(says) {
            bail!("`netrig {command}` does not say '{says}': {text}");
        }
        shown.push((command, text.replace(&pair.netrig, "netrig").replace(&format!(" --hosts {HOSTS}"), "")));
    }
    same(pair, &before)?;
    pair.far.end(server)?;
    if pair.near.release().starts_with(DOCUMENTED) {
        write(&shown)?;
    }
    Ok(format!("{} commands with Linux {}", shown.len(), pair.far.release()))
}

fn same(pair: &mut Pair, before: &[String; 2]) -> Result<()> {
    let after = [standing(&mut pair.near)?, standing(&mut pair.far)?];
    if after != *before {
        bail!("left behind: {after:?}, and before {before:?}");
    }
    Ok(())
}

/// Kills the runner, and then the other machine's host, while nodes have the machines' second cards: the next netrig there gives them back.
pub fn killed(pair: &mut Pair) -> Result<String> {
    const STATE: &str = "ip -o link show eth1 | sed 's/qlen.*//'; ip -4 -o addr show dev eth1 | sed 's/valid.*//'";
    let server = serve(pair)?;
    for (machine, address) in [(&mut pair.near, "192.0.2.1"), (&mut pair.far, "192.0.2.2")] {
        let prepare = "ip link set eth1 mtu 1450; ip link set eth1 up";
        machine.run(&format!("{prepare}; ip address add {address}/24 dev eth1"), LIMIT)?;
    }
    let before = [pair.near.run(STATE, LIMIT)?, pair.far.run(STATE, LIMIT)?];
    let only = "run overlay --on a=web1:eth1 --on b=web2:eth1 --only stream-none --trials 9 --window 20s --no-aa --quiet --hosts";
    for whom in ["pkill -9 -f 'netrig run overlay'", "pkill -9 -f 'netrig host'"] {
        let run = pair.near.start(&pair.command(&format!("{only} {HOSTS}")))?;
        wait_for_load(pair, run)?;
        if pair.far.run("ip -o link", LIMIT)?.contains("eth1") {
            bail!("the other machine still has its second card while a node has it");
        }
        let machine = if whom.contains("run") { &mut pair.near } else { &mut pair.far };
        machine.run(whom, LIMIT)?;
        pair.near.wait(run, LIMIT)?;
        let killed = Instant::now();
        loop {
            // Who is killed leaves it to the next one there.
            let check = pair.command(&format!("hosts check a=web1 b=web2 --hosts {HOSTS} >/dev/null 2>&1; true"));
            pair.near.run(&check.replacen("exec ", "", 1), LIMIT)?;
            let after = [pair.near.run(STATE, LIMIT)?, pair.far.run(STATE, LIMIT)?];
            if after == before {
                break;
            }
            if killed.elapsed() > NOTHING_LEFT {
                bail!("after `{whom}`: {after:?}, and before {before:?}");
            }
        }
    }
    pair.far.end(server)?;
    Ok("cards are given back".to_owned())
}

/// Puts what the commands print behind them in the document.
fn write(shown: &[(&str, String)]) -> Result<()> {
    let file = root().join("docs/MACHINES.md");
    let mut document = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    for (command, text) in shown {
        let begin = format!("```console\n$ netrig {command}\n");
        let at = document.find(&begin).with_context(|| format!("docs/MACHINES.md has no `{command}`"))? + begin.len();
        let end = at + document[at..].find("```\n").context("a block of docs/MACHINES.md does not end")?;
        document.replace_range(at..end, &format!("{}\n", text.trim_end()));
    }
    fs::write(&file, document).with_context(|| format!("write {}", file.display()))?;
    eprintln!("written: docs/MACHINES.md");
    Ok(())
}
