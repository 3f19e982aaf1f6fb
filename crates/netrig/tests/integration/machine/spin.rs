//! A known time for each packet that a node receives.

use rig_cli::mistakes::FileError;
use rig_run::run::Execute;
use rig_suite::suite::Suite;

use super::world;

fn suite(settings: &str) -> Result<Suite, FileError> {
    let text = format!(
        "name = \"s\"\ntitle = \"S\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
         load = {{ kind = \"udp-rr\", request = \"1\", response = \"1\" }}\n\
         [[scenario.datapath]]\nname = \"spin\"\nnodes = [\"b\"]\n{settings}\n"
    );
    let suite = Suite::parse("s.toml", &text)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

#[test]
fn each_packet_takes_its_time_and_arrives() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let suite = suite("time_ns = 2000").unwrap_or_else(|error| panic!("{error}"));
        let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
        let record = record.unwrap_or_else(|error| panic!("{error:#}"));
        let agent = record.agents.iter().find(|agent| agent.name == "spin").unwrap();
        let [packets, spun_ns] = ["packets", "spun_ns"].map(|name| agent.counters.counts[name]);
        // Requests come to b, each a packet, and none is answered that has not come; a window's edges are not one moment at
        // both ends.
        let sender = record.workers.iter().find(|worker| worker.name == "a").unwrap();
        let sent = sender.transactions.as_ref().unwrap().completed;
        assert!(packets + packets / 10 >= sent && sent > 0, "{packets} packets, {sent} transactions");
        assert!(spun_ns >= 2000 * packets, "{spun_ns} ns for {packets} packets");
    });
}

#[test]
fn a_time_that_cannot_be_spent_is_refused() {
    for (settings, says) in [
        ("time_ns = 0", "0 ns for each packet cannot be spent"),
        ("time_ns = 100001", "choose 1 to 100000 ns"),
        ("", "time_ns"),
        ("time_ns = 5\ntime = 5", "time"),
    ] {
        let refused = suite(settings).unwrap_err().to_string();
        assert!(refused.contains(says), "{settings}: {refused}");
    }
}
