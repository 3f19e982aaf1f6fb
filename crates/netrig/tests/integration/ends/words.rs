//! Reports as a user reads them who knows other tools of the kind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::lab::{SHORT, Server};

/// Keeps a CPU busy until it is dropped, so that a machine is doubted.
struct BusyCpu<'a>(&'a AtomicBool);

impl Drop for BusyCpu<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Of a test over loopback, whose ends are one machine.
#[track_caller]
fn report(arguments: &[&str]) -> String {
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let mut client = server.client(arguments);
    client.args(["--trials", "3", "--quiet", "--format", "markdown"]).args(SHORT);
    let output = client.env("NETRIG_STORE", dir.path().join("runs")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_report_of_one_machine_says_each_thing_once() {
    for test in [&["stream"][..], &["rr", "--connections", "2"], &["udp", "--rate", "16mbit"]] {
        let over = AtomicBool::new(false);
        let said = thread::scope(|scope| {
            let _busy = BusyCpu(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            report(&[test, &["--client", "127.0.0.1"]].concat())
        });
        let times = |words: &str| said.matches(words).count();
        assert_eq!(times("Client and server 127.0.0.1:"), 1, "{said}");
        assert_eq!(times("| Kernel build "), 1, "the machine is described once: {said}");
        assert_eq!(times("Both ends are this machine"), 1, "{said}");
        assert_eq!(times(" 1 thread with "), 1, "the load is described once: {said}");
        assert!(times("it is in these figures") <= 1 && times("counted by eBPF") <= 1, "{said}");
        // Names that records have, and units that repeat what is counted.
        for private in
            ["node client", "node server", "CPUs that receive", "(CPUs)", "sending copy", " irq", " 1 thread, "]
        {
            assert_eq!(times(private), 0, "{private}: {said}");
        }
        let rows = || said.lines().filter(|line| line.starts_with("| "));
        assert!(rows().any(|row| row.starts_with("| CPUs with receive work ")), "{said}");
        let first = rows().find(|row| row.contains('(')).unwrap_or_default();
        let rate = if test[0] == "rr" { "| Transactions (" } else { "| Throughput (" };
        assert!(first.starts_with(rate), "what was asked for comes first: {first}");
        // What is doubted of a machine is doubted once, in whole sentences.
        let doubts: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("> ")).collect();
        assert!(!doubts.is_empty(), "a machine with another busy program is doubted: {said}");
        assert!(!doubts.iter().any(|doubt| doubt.contains("the server's CPU")), "{doubts:?}");
        let begins = |doubt: &&str| doubt.starts_with(|first: char| !first.is_lowercase());
        assert!(doubts.iter().all(begins), "{doubts:?}");
    }
}
