//! A suite whose nodes are on two guests: one is the runner's own machine, the other is reached by ssh.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::machine::{Machine, Task};
use super::pair::{End, LIMIT, Pair};

/// What can be made over an interface that the machine goes on using: it carries the ssh session.
const SCENARIOS: [&str; 4] = ["A", "C", "D", "D-vxlan"];
const PORT: &str = "2222";
/// The runner's own machine is web1, the other one web2.
pub const HOSTS: &str = "/tmp/hosts.toml";
/// From the runner's end to that of everything it had on the other machine.
pub const NOTHING_LEFT: Duration = Duration::from_secs(30);

/// A server of SSH on one guest, which the other one may log into.
pub fn serve(pair: &mut Pair) -> Result<Task> {
    let key = pair.near.run("rm -f /tmp/id*; ssh-keygen -q -t ed25519 -N '' -f /tmp/id && cat /tmp/id.pub", LIMIT)?;
    let server = format!(
        "mkdir -p ~root/.ssh && chmod 700 ~root ~root/.ssh && echo '{}' > ~root/.ssh/authorized_keys && chmod 600 \
         ~root/.ssh/authorized_keys && rm -f /tmp/host && dropbearkey -t ed25519 -f /tmp/host && exec dropbear -F -E -s -r /tmp/host -p {PORT}",
        key.trim()
    );
    let server = pair.far.start(&server)?;
    pair.far.wait_for(server, "Not backgrounding", LIMIT)?;
    let options = [
        "-i",
        "/tmp/id",
        "-p",
        PORT,
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
    ];
    let destination = format!("root@{}", End::Far.address());
    let words = options.into_iter().chain([destination.as_str()]).map(|word| format!("{word:?}"));
    let ssh = words.collect::<Vec<_>>().join(", ");
    let near = format!("[host.web1]\ncommand = [\"env\"]\nprogram = {:?}\n", pair.netrig);
    let far = format!("[host.web2]\nssh = [{ssh}]\nprogram = {:?}\n", pair.netrig);
    pair.near.run(&format!("cat > {HOSTS} <<'END'\n{near}{far}END"), LIMIT)?;
    Ok(server)
}

fn command(pair: &Pair, arguments: &str) -> String {
    pair.command(&format!(
        "run layers --quick --no-aa --only {} --on a=child --on b=web2 --hosts {HOSTS} --quiet {arguments}",
        SCENARIOS.join(",")
    ))
}

/// Names of the links, and programs of netrig's, that a machine has.
pub fn standing(machine: &mut Machine) -> Result<String> {
    machine.run("ip -o link | sed 's/^[0-9]*: //; s/[@:].*//'; pgrep -a netrig || true", LIMIT)
}

/// Checks the hosts, runs the suite, and finds both machines in its report.
pub fn run(pair: &mut Pair) -> Result<String> {
    let before = [standing(&mut pair.near)?, standing(&mut pair.far)?];
    let server = serve(pair)?;
    let check = pair.command(&format!("hosts check a=child b=web2 --hosts {HOSTS}"));
    let checked = pair.near.run(&check, 2 * LIMIT)?;
    if !checked.contains("a and b reach each other by eth0 and eth0") {
        bail!("the hosts do not reach each other: {checked}");
    }
    let text = pair.near.run(&command(pair, "--trials 1 --window 1s --format json"), 2 * LIMIT)?;
    let report: Value =
        serde_json::from_str(text.find("\n{").map_or(&*text, |at| &text[at..])).with_context(|| text.clone())?;
    let data = &report["data"];
    for (node, end) in [("a", End::Near), ("b", End::Far)] {
        let kernel = data["environment"]["machines"][node]["kernel"].as_str().unwrap_or_default().to_owned();
        if !kernel.starts_with(pair.at(end).release()) {
            bail!("node {node} is on Linux '{kernel}'");
        }
    }
    let scenarios = data["scenarios"].as_array().map_or(&[][..], Vec::as_slice);
    let made: Vec<&str> = scenarios.iter().filter_map(|scenario| scenario["id"].as_str()).collect();
    // Scenarios of one node have nothing on the other machine.
    let of_far = scenarios.iter().map(|scenario| (scenario, &scenario["trials"][0]["hosts"][1]));
    for (scenario, far) in of_far.filter(|(_, far)| !far.is_null()) {
        let clock = &far[1]["clock_at_begin"];
        let (offset, bound) =
            (clock["ns"].as_i64().unwrap_or_default(), clock["bound_ns"].as_u64().unwrap_or_default());
        if offset.unsigned_abs() <= bound {
            bail!("scenario {}: both clocks are one, {offset} ns apart to within {bound} ns", scenario["id"]);
        }
    }
    if made.len() < 3 {
        bail!("only {made:?}: {}", data["run"]["options"]);
    }
    let after = [standing(&mut pair.near)?, standing(&mut pair.far)?];
    pair.far.end(server)?;
    if after != before {
        bail!("left behind: {after:?}, and before {before:?}");
    }
    Ok(format!("scenarios {} with Linux {}", made.join(", "), pair.far.release()))
}

/// Until the other machine has a worker of the run.
pub fn wait_for_load(pair: &mut Pair, run: Task) -> Result<()> {
    let begin = Instant::now();
    while !standing(&mut pair.far)?.contains(" worker") {
        if begin.elapsed() > LIMIT {
            bail!("no load begins: {}", pair.near.log(run));
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Kills the runner while a load runs, and waits for the other machine to be as before.
pub fn killed(pair: &mut Pair) -> Result<String> {
    let before = standing(&mut pair.far)?;
    let server = serve(pair)?;
    let run = pair.near.start(&command(pair, "--trials 9 --window 20s"))?;
    wait_for_load(pair, run)?;
    pair.near.run("pkill -9 -f 'netrig run layers'", LIMIT)?;
    let killed = Instant::now();
    loop {
        let now = standing(&mut pair.far)?;
        if now == before {
            break;
        }
        if killed.elapsed() > NOTHING_LEFT {
            bail!("left behind: {now}");
        }
        thread::sleep(Duration::from_millis(200));
    }
    pair.near.wait(run, LIMIT)?;
    pair.far.end(server)?;
    Ok("nothing is left on the other machine".to_owned())
}
