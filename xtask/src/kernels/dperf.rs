//! dperf between guests: each end is a machine whose card it has for itself.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::machine::{Machine, Task};
use super::pair::LIMIT;

const DURATION: Duration = Duration::from_secs(5);
const CONNECTIONS_PER_SECOND: u64 = 50;

/// A client's configuration file. `addresses` are its card's and its gateway's, `flows` the lines `client` and `server`.
pub fn client(addresses: &str, flows: &str) -> String {
    let load = format!("wait 0\nslow_start 0\ncps {CONNECTIONS_PER_SECOND}\nduration {}\n", DURATION.as_secs());
    format!("mode client\ncpu 1\nport eth0 {addresses}\n{flows}{load}")
}

/// A server's, as a client's.
pub fn server(addresses: &str, flows: &str) -> String {
    format!("mode server\ncpu 1\nport eth0 {addresses}\n{flows}duration 10m\n")
}

/// Runs it with a configuration file.
pub fn command(netrig: &str, file: &str) -> String {
    let file = file.replace('\n', "\\n");
    format!("cd /run/checks; printf '{file}' > dperf.conf; exec {netrig} dperf -c dperf.conf --json dperf.json")
}

/// Starts a server, and waits until it has its card.
pub fn start_server(machine: &mut Machine, netrig: &str, file: &str) -> Result<Task> {
    let serving = machine.start(&command(netrig, file))?;
    let attached = "for i in $(seq 60); do ip link show eth0 | grep -q xdp && exit 0; sleep 1; done; exit 1";
    match machine.run(attached, LIMIT) {
        Ok(_) => Ok(serving),
        Err(error) => bail!("{error:#}: {}", machine.log(serving)),
    }
}

/// The connections that client and server have counted.
///
/// # Errors
/// Where not every one that was to be was opened, served and closed at both ends.
pub fn connections(asked: &str, served: &str) -> Result<u64> {
    let wanted = CONNECTIONS_PER_SECOND * DURATION.as_secs();
    for field in ["skOpen", "skClose", "httpGet"] {
        let both = [total(asked, field)?, total(served, field)?];
        if both != [wanted; 2] {
            bail!("{field}: {both:?} of {wanted} at client and server: {asked}{served}");
        }
    }
    Ok(wanted)
}

fn total(text: &str, field: &str) -> Result<u64> {
    let totals = text.split("Total Numbers:").nth(1).with_context(|| format!("no totals: {text}"))?;
    let mut words = totals.split_whitespace().skip_while(|word| *word != field);
    Ok(words.nth(1).with_context(|| format!("no {field}: {totals}"))?.replace(',', "").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_to_have_counted_all_connections() {
        let text = |opened: &str| format!("...\nTotal Numbers:\nskOpen {opened}   skClose 250\nhttpGet 250\n");
        assert_eq!(connections(&text("250"), &text("250")).unwrap(), 250);
        assert!(connections(&text("250"), &text("249")).is_err());
        assert!(connections(&text("1,250"), &text("1,250")).is_err());
        assert!(connections("", &text("250")).is_err());
    }
}
