use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::super::ntttcp::process::{Process, until_listening};
use super::super::world::{own, processes, until};
use super::{HERE, PORT, give_addresses, link_to_another, netrig, numbers, run, server, value};

const MESSAGE: usize = 656;

fn connect() -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn message(kind: u32) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[..4].copy_from_slice(&kind.to_be_bytes());
    message[4..8].copy_from_slice(&(-1_i32).to_be_bytes());
    message
}

#[test]
fn each_test_has_its_rows() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        // Rows, and where in the last row but those below it the result stands.
        for (options, rows, at) in [
            // A second at full speed each way that ends by the clock; the others end by what they have done, or are paced.
            ("-t TCP_STREAM -l 1", 1, 4),
            ("-t TCP_STREAM -l -10000000 -c -C", 1, 4),
            ("-t TCP_MAERTS -l 1", 1, 4),
            ("-t TCP_SENDFILE -l -10000000", 1, 4),
            ("-t TCP_RR -l 1", 2, 5),
            ("-t TCP_RR -l -1000 -- -b 4 -r 100,1000", 2, 5),
            ("-t TCP_CRR -l 1 -b 1 -w 10ms", 2, 5),
            ("-t TCP_CC -l 1 -b 1 -w 10ms", 2, 5),
            ("-t UDP_STREAM -l 1 -- -m 1400", 2, 5),
            ("-t UDP_STREAM -l 1 -b 1 -w 1ms -- -m 100", 2, 5),
            ("-t UDP_RR -l 1 -c -b 1 -w 10ms", 2, 5),
            ("-t UDP_RR -l 1 -b 1 -w 10ms -- -n -N -e 1", 2, 5),
            ("-6 -t TCP_STREAM -l -10000000", 1, 4),
            ("-6 -t UDP_RR -l 1 -b 1 -w 10ms", 2, 5),
            ("-t TCP_STREAM -l -10000000", 1, 4),
            ("-t TCP_MAERTS -l -10000000", 1, 4),
            ("-t TCP_RR -l -1000", 2, 5),
            ("-t TCP_CRR -l -100", 2, 5),
        ] {
            let host = if options.starts_with("-6") { "::1" } else { "127.0.0.1" };
            let output = run(netrig("netperf"), &format!("-H {host} {options}")).succeeded();
            let found = numbers(&output);
            assert_eq!(found.len(), rows, "{options}: {output:#?}");
            assert!(found[0][at] > 0.0, "{options}: {output:#?}");
        }
    });
}

#[test]
fn selectors_agree_with_each_other() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        let list = "THROUGHPUT,THROUGHPUT_UNITS,DIRECTION,PROTOCOL,LOCAL_BYTES_SENT,REMOTE_BYTES_RECVD,LOCAL_SEND_SIZE,LOCAL_SEND_CALLS,\
                    LOCAL_BYTES_RECVD,REMOTE_BYTES_SENT,TRANSPORT_MSS,LOCAL_CONG_CONTROL,REMOTE_CONG_CONTROL,P99_LATENCY,MIN_LATENCY,\
                    MAX_LATENCY,LOCAL_SOCKET_TOS,REMOTE_SOCKET_TOS,ELAPSED_TIME";
        let of = |options: &str| {
            let (global, test) = options.split_once(" -- ").unwrap_or((options, ""));
            run(netrig("netperf"), &format!("-H 127.0.0.1 -P 0 {global} -- {test} -k {list}")).succeeded()
        };
        let stream = of("-t TCP_STREAM -l 1 -Y CS1,EF -- -m 1000 -K reno,reno");
        assert_eq!(value(&stream, "LOCAL_BYTES_SENT"), value(&stream, "REMOTE_BYTES_RECVD"));
        assert_eq!((value(&stream, "LOCAL_SEND_SIZE"), value(&stream, "DIRECTION")), ("1000", "Send"));
        assert_eq!((value(&stream, "LOCAL_CONG_CONTROL"), value(&stream, "REMOTE_CONG_CONTROL")), ("reno", "reno"));
        assert_eq!((value(&stream, "LOCAL_SOCKET_TOS"), value(&stream, "REMOTE_SOCKET_TOS")), ("0x20", "0xb8"));
        let latency = |name: &str| -> i64 { value(&stream, name).parse().unwrap() };
        assert!(
            latency("MIN_LATENCY") <= latency("P99_LATENCY") && latency("P99_LATENCY") <= latency("MAX_LATENCY"),
            "{stream:#?}"
        );
        let datagrams = of("-t UDP_STREAM -l 1 -b 1 -w 10ms -- -m 1000");
        let counted = |name: &str| -> u64 { value(&datagrams, name).parse().unwrap() };
        assert_eq!(counted("LOCAL_BYTES_SENT"), 1000 * counted("LOCAL_SEND_CALLS"));
        let seconds: f64 = value(&datagrams, "ELAPSED_TIME").parse().unwrap();
        assert!(counted("LOCAL_SEND_CALLS") as f64 <= seconds * 100.0 + 2.0, "one each 10 ms: {datagrams:#?}");
        let transactions = of("-t UDP_RR -l 1 -- -r 10,20");
        let counted = |name: &str| -> u64 { value(&transactions, name).parse().unwrap() };
        assert_eq!(counted("LOCAL_BYTES_SENT") * 2, counted("REMOTE_BYTES_SENT"), "{transactions:#?}");
        assert_eq!(value(&transactions, "THROUGHPUT_UNITS"), "Trans/s");
    });
}

#[test]
fn interim_results_come_between() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        let keys = run(netrig("netperf"), "-H 127.0.0.1 -P 0 -l 1 -D -0.20 -t TCP_MAERTS -- -k THROUGHPUT").succeeded();
        for part in ["INTERIM_RESULT", "UNITS", "INTERVAL", "ENDING"] {
            assert!(keys.out.contains(&format!("NETPERF_{part}[1]=")), "{keys:#?}");
        }
        assert!(keys.out.lines().last().unwrap().starts_with("THROUGHPUT="), "{keys:#?}");
        let text = run(netrig("netperf"), "-H 127.0.0.1 -l 1 -D 0.3 -t TCP_RR").succeeded();
        assert!(
            text.out
                .lines()
                .filter(|line| line.starts_with("Interim result: ") && line.contains(" Trans/s over "))
                .count()
                >= 2
        );
    });
}

#[test]
fn the_confidence_loop_makes_its_rounds() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        let list = "-- -k CONFIDENCE_ITERATION,CONFIDENCE_LEVEL,CONFIDENCE_INTERVAL";
        let wide =
            run(netrig("netperf"), &format!("-H 127.0.0.1 -P 0 -l 1 -t TCP_RR -I 95,1000 -i 5,3 {list}")).succeeded();
        assert_eq!(value(&wide, "CONFIDENCE_ITERATION"), "3");
        assert_eq!(value(&wide, "CONFIDENCE_INTERVAL"), "1000.000000");
        let narrow = run(netrig("netperf"), "-H 127.0.0.1 -l 1 -t TCP_RR -I 99,0.0001 -i 3").succeeded();
        assert!(narrow.out.contains("!!! Desired confidence was not achieved"), "{narrow:#?}");
    });
}

#[test]
fn a_server_in_the_background_listens_when_its_starter_ends() {
    own(|| {
        give_addresses();
        let started = run(netrig("netserver"), "").succeeded();
        assert_eq!(started.out, "Starting netserver with host 'IN(6)ADDR_ANY' port '12865' and family AF_UNSPEC\n");
        for host in HERE {
            run(netrig("netperf"), &format!("-H {host} -t TCP_RR -l -10")).succeeded();
        }
        let again = run(netrig("netserver"), "");
        assert_eq!(again.status, Some(255), "{again:#?}");
        assert!(again.err.contains("is a netserver running already?"), "{again:#?}");
        let [one] = &processes()[..] else { panic!("{:?}", processes()) };
        kill_process(Pid::from_raw(one.pid as i32).unwrap(), Signal::TERM).unwrap();
        assert!(until(Duration::from_secs(20), || processes().is_empty().then_some(())).is_some(), "SIGTERM ends it");
    });
}

#[test]
fn a_passphrase_is_asked_for_and_a_wrong_one_hears_nothing() {
    own(|| {
        let _server = server(netrig("netserver"), "-Z secret");
        run(netrig("netperf"), "-H 127.0.0.1 -Z secret -t TCP_RR -l -10").succeeded();
        for wrong in ["-Z sesame", ""] {
            let output = run(netrig("netperf"), &format!("-H 127.0.0.1 {wrong} -t TCP_RR -l -10"));
            assert_eq!(output.status, Some(255), "{output:#?}");
            assert!(output.err.contains("netserver closed the control connection"), "{output:#?}");
        }
    });
}

#[test]
fn failures_say_why() {
    own(|| {
        for (options, said) in [
            ("-H 127.0.0.1 -p 1", "are you sure there is a netserver listening on 127.0.0.1 at port 1?"),
            ("-H 127.0.0.1 -6", "no address of family AF_INET6"),
            ("-t NONSENSE", "is unknown to this netperf"),
            ("-T 4095", "no CPU 4095"),
        ] {
            let output = run(netrig("netperf"), options);
            assert_eq!(output.status, Some(255), "{options}: {output:#?}");
            assert!(output.err.contains(said), "{options}: {output:#?}");
        }
        let usage = run(netrig("netperf"), "-0");
        assert_eq!(usage.status, Some(1));
        assert!(usage.err.contains("netperf: invalid option -- '0'"), "{usage:#?}");
        let _server = server(netrig("netserver"), "");
        for (options, said) in [
            ("-- -K reno,nonsense", "remote error 2: No such file or directory"),
            ("-F /dev/zero,/etc/shadow", "remote error 1: Operation not permitted"),
            ("-T ,4000", "remote error 22: Invalid argument"),
            ("-F /no/such/file", "read /no/such/file"),
        ] {
            let output = run(netrig("netperf"), &format!("-H 127.0.0.1 -l 1 {options}"));
            assert_eq!(output.status, Some(255), "{options}: {output:#?}");
            assert!(output.err.contains(said), "{options}: {output:#?}");
        }
    });
}

/// Clients that say nothing, half of something, or nonsense are no matter for others, and one that is killed leaves nothing.
#[test]
fn odd_clients_harm_nobody() {
    own(|| {
        let server = server(netrig("netserver"), "");
        let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        let pid = server.0.as_ref().unwrap().id();
        let alone = threads(pid);
        let silent: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
        let halves: Vec<TcpStream> = (0..300)
            .map(|_| {
                let mut stream = connect();
                stream.write_all(&message(97)[..300]).unwrap();
                stream
            })
            .collect();
        let mut odd = connect();
        odd.write_all(&message(10)).unwrap();
        let mut answer = [0; MESSAGE];
        odd.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4..8], 998_u32.to_be_bytes(), "a test of before omni");
        odd.write_all(&message(1)).unwrap();
        odd.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], 3_u32.to_be_bytes(), "debugging is answered");
        odd.write_all(&message(97)).unwrap();
        odd.read_exact(&mut answer).unwrap();
        assert_ne!(answer[4..8], [0; 4], "a test without a protocol");
        let output = run(netrig("netperf"), "-H 127.0.0.1 -t TCP_RR -l 1").succeeded();
        assert!(numbers(&output)[0][5] > 0.0, "{output:#?}");
        drop((silent, halves, odd));
        let gone = || until(Duration::from_secs(30), || (threads(pid) == alone).then_some(()));
        assert!(gone().is_some(), "odd clients have gone");
        let client = Process::start(&mut netrig("netperf"), "-H 127.0.0.1 -t TCP_RR -l 60", Path::new("/"));
        assert!(
            until(Duration::from_secs(30), || (threads(pid) > alone).then_some(())).is_some(),
            "a client is served"
        );
        thread::sleep(Duration::from_millis(300));
        drop(client);
        assert!(
            until(Duration::from_secs(30), || (threads(pid) == alone).then_some(())).is_some(),
            "all clients have gone"
        );
    });
}

#[test]
fn a_server_that_goes_ends_the_test() {
    own(|| {
        let server = server(netrig("netserver"), "");
        let client = Process::start(&mut netrig("netperf"), "-H 127.0.0.1 -t UDP_STREAM -l 1000", Path::new("/"));
        thread::sleep(Duration::from_millis(700));
        drop(server);
        let output = client.end();
        assert_eq!(output.status, Some(255), "{output:#?}");
        assert!(output.err.contains("closed the control connection"), "{output:#?}");
    });
}

/// An interrupted test says what it has found so far, also one that receives and one that sleeps.
#[test]
fn ctrl_c_ends_a_test_with_its_result() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        for (options, at) in [("-l 0", 4), ("-t TCP_MAERTS -l 1000", 4), ("-t TCP_RR -l 1000 -b 1 -w 1h", 5)] {
            let client =
                Process::start(&mut netrig("netperf"), &format!("-H 127.0.0.1 -P 0 {options}"), Path::new("/"));
            thread::sleep(Duration::from_secs(1));
            client.interrupt();
            let output = client.end().succeeded();
            assert!(numbers(&output)[0][at] > 0.0, "{options}: {output:#?}");
        }
    });
}

/// Datagrams that are longer than the path's packets are cut on their way, as they are for anybody.
#[test]
fn datagrams_of_any_size_pass_a_link() {
    own(|| {
        give_addresses();
        let there = link_to_another();
        let _server = server(netrig("netserver"), "");
        for size in [64, 1400, 4096, 8192, 16_384, 65_507] {
            let mut client = netrig("netperf");
            let line = format!("-H 10.8.0.1 -P 0 -t UDP_STREAM -l 1 -b 1 -w 10ms -- -m {size} -R 1");
            client.args(line.split_whitespace());
            let output = there.run(|| client.output().unwrap()).unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{size}: {}", String::from_utf8_lossy(&output.stderr));
            let received = said.lines().nth(1).and_then(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
            assert!(received.is_some_and(|received| received > 0), "{size}: {said}");
        }
    });
}

/// DO_OMNI as netperf sends it, with words of its own.
fn request(words: &[(usize, u32)]) -> [u8; MESSAGE] {
    let mut request = message(97);
    let all = [-1, -1, 8, 0, 1, 1, -1, -1, 8, 0, 1, 1, 0x20, 0, 5, 0, 0, -1, -1, -1, 0, 4, 2, 17, 6];
    let given = all.iter().map(|word| *word as u32).enumerate().chain([(36, u32::MAX), (37, u32::MAX)]);
    for (index, word) in given.chain(words.iter().copied()) {
        request[8 + 4 * index..][..4].copy_from_slice(&word.to_be_bytes());
    }
    request
}

fn word(message: &[u8; MESSAGE], index: usize) -> u32 {
    u32::from_be_bytes(message[8 + 4 * index..][..4].try_into().unwrap())
}

/// A test of datagrams is its client's: others get no answer, begin nothing, and are no target.
#[test]
fn datagrams_of_others_are_not_answered() {
    own(|| {
        give_addresses();
        let _server = server(netrig("netserver"), "");
        let socket = |address: &str| {
            let socket = std::net::UdpSocket::bind((address, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        };
        let (own, stranger) = (socket("127.0.0.1"), socket(HERE[0]));
        let mut control = connect();
        let mut answer = [0; MESSAGE];
        control.write_all(&request(&[])).unwrap();
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4..8], [0; 4], "a test of transactions over UDP");
        let port = word(&answer, 11) as u16;
        // The stranger is first.
        stranger.send_to(b"x", ("127.0.0.1", port)).unwrap();
        assert!(stranger.recv(&mut [0; 10]).is_err(), "nothing comes back");
        own.send_to(b"x", ("127.0.0.1", port)).unwrap();
        assert_eq!(own.recv(&mut [0; 10]).unwrap(), 1, "the client is answered");
        drop(control);
        // Where it is not clear who the client is, nothing goes back that is more than what came.
        for (response, answered) in [(1, true), (1000, false)] {
            let mut control = connect();
            control.write_all(&request(&[(11, response), (32, u32::from(Ipv4Addr::LOCALHOST))])).unwrap();
            control.read_exact(&mut answer).unwrap();
            stranger.send_to(b"x", ("127.0.0.1", word(&answer, 11) as u16)).unwrap();
            assert_eq!(stranger.recv(&mut [0; 2000]).is_ok(), answered, "{response} bytes for one");
        }
        // A client that wants datagrams has them sent to itself alone.
        let port = stranger.local_addr().unwrap().port();
        let victim = HERE[0].parse::<Ipv4Addr>().unwrap();
        let mut control = connect();
        control
            .write_all(&request(&[(24, 2), (5, u32::MAX), (11, u32::MAX), (25, port.into()), (28, victim.into())]))
            .unwrap();
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4..8], [0; 4]);
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[4..8], 1_u32.to_be_bytes(), "EPERM");
        assert!(stranger.recv(&mut [0; 2000]).is_err(), "it was not flooded");
        until_listening(PORT);
    });
}

/// What programs that drive netperf say to it, and how they read what it says.
#[test]
fn drivers_find_what_they_look_for() {
    own(|| {
        let _server = server(netrig("netserver"), "");
        // Kubernetes' perf-tests: three whole numbers, a word and the rate, wherever that comes first.
        let plain = run(netrig("netperf"), "-H 127.0.0.1 -l 1").succeeded();
        let tokens: Vec<&str> = plain.out.split_whitespace().collect();
        let is_row = |five: &&[&str]| five[..3].iter().all(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let row = tokens.windows(5).find(is_row).unwrap_or_else(|| panic!("{plain:#?}"));
        assert_eq!(row[4].parse::<f64>().ok(), Some(numbers(&plain)[0][4]), "{plain:#?}");
        // cilium: one line that begins with a digit, of nine values, the last of them a unit.
        let list = "MIN_LATENCY,MEAN_LATENCY,MAX_LATENCY,P50_LATENCY,P90_LATENCY,P99_LATENCY,TRANSACTION_RATE,THROUGHPUT,THROUGHPUT_UNITS";
        for (test, unit) in [
            ("TCP_STREAM", "10^6bits/s"),
            ("UDP_STREAM", "10^6bits/s"),
            ("TCP_RR", "Trans/s"),
            ("UDP_RR", "Trans/s"),
            ("TCP_CRR", "Trans/s"),
        ] {
            let said =
                run(netrig("netperf"), &format!("-H 127.0.0.1 -l 1s -b 1 -w 10ms -t {test} -- -R 1 -m 1024 -o {list}"))
                    .succeeded();
            let rows: Vec<&str> =
                said.out.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).collect();
            let [row] = rows[..] else { panic!("{test}: {said:#?}") };
            let values: Vec<&str> = row.split(',').collect();
            assert_eq!((values.len(), values[8]), (9, unit), "{test}: {said:#?}");
            let number = |at: usize| values[at].parse::<f64>().unwrap();
            assert!(
                number(7) > 0.0 && number(0) <= number(3) && number(3) <= number(5) && number(5) <= number(2),
                "{test}: {said:#?}"
            );
        }
        // PerfKitBenchmarker: the banner, a line of names, and one of values for them.
        let list =
            "THROUGHPUT,THROUGHPUT_UNITS,P50_LATENCY,P99_LATENCY,STDDEV_LATENCY,CONFIDENCE_ITERATION,THROUGHPUT_CONFID";
        let table = run(netrig("netperf"), &format!("-p 12865 -j -t TCP_RR -H 127.0.0.1 -l 1 -- -P ,5001 -o {list}"))
            .succeeded();
        let lines: Vec<&str> = table.out.lines().collect();
        assert_eq!(lines.len(), 3, "{table:#?}");
        let names = "Throughput,Throughput Units,50th Percentile Latency Microseconds,99th Percentile Latency Microseconds,Stddev Latency \
                     Microseconds,Confidence Iterations Run,Throughput Confidence Width (%)";
        assert_eq!(lines[1], names);
        assert_eq!(lines[2].split(',').count(), 7);
    });
}
