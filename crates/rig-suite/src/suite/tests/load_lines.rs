//! What is wrong with a load is told at the line that says it.

use super::*;

/// A value that the scenario has from elsewhere is wrong there.
#[test]
fn a_wrong_default_is_told_at_its_own_line() {
    let with = |defaults: &str, load: &str| {
        let text = format!(
            "name = 'small'\ntitle = 'Small'\n[defaults]\nwindow = '1s'\nwarm_up = '100ms'\ncool_down = '50ms'\n\
             [defaults.load]\nkind = 'tcp-stream'\n{defaults}\n[testbed.two]\nnodes = ['a', 'b']\nwire = {{}}\n\
             [[scenario]]\nid = 'A'\nname = 'Raw'\ntestbed = 'two'\npath = 'raw'\nfrom = 'a'\nto = 'b'\nload = {{ {load} }}\n"
        );
        Suite::parse("small.toml", &text).unwrap_err()
    };
    let packets = "kind = 'packets', protocol = 'tcp', connections_per_second = 100";
    for (defaults, load, line, said) in [
        ("message = '128k'\nthreads = 0", "", 10, "threads is 0"),
        ("message = '5G'\nthreads = 2", "", 9, "less than 4 GiB"),
        ("message = '128k'\nthreads = 2000", "connections = 2", 10, "threads is 2000"),
        // The load's own.
        ("message = '128k'\nthreads = 2", "threads = 0", 21, "threads is 0"),
        ("message = '128k'\nthreads = 0", "threads = 2000", 21, "threads is 2000"),
        ("threads = 2\nconnections = 3", "", 21, "no message"),
        ("threads = 2\nmessage = '128k'", "kind = 'tcp-rr', arrivals = 'poisson'", 21, "'arrivals' without a rate"),
        // Found out on the testbed only.
        ("message = '128k'\nramp = '9s'", packets, 10, "a ramp of 9s"),
        ("message = '128k'\nclient_addresses = 0", packets, 10, "client_addresses"),
        ("message = '128k'\nworkers = 9", packets, 10, "workers"),
        ("message = '128k'\nramp = '50ms'", &format!("{packets}, ramp = '9s'"), 21, "a ramp of 9s"),
    ] {
        let error = with(defaults, load);
        assert_eq!(error.line, Some(line), "{defaults:?}, {load:?}: {error}");
        assert!(error.to_string().contains(said), "{error} lacks '{said}'");
    }
}

#[test]
fn a_misspelt_key_is_answered_with_the_one_that_was_meant() {
    let error = parse_with("message = \"128k\"", "message = \"128k\", arival = \"poisson\"").unwrap_err();
    assert_eq!(error.to_string(), "small.toml:18: unknown field `arival`\n  did you mean `arrivals`?");
    let error = parse_with("kind = \"tcp-stream\"", "kind = \"tcp-steam\"").unwrap_err();
    assert!(error.to_string().ends_with("did you mean `tcp-stream`?"), "{error}");
    let error = parse_with("kind = \"tcp-stream\"", "kind = \"tcp-stream\", reqest = \"1\"").unwrap_err();
    assert!(error.to_string().ends_with("did you mean `request`?"), "{error}");
}

/// Also where a load is a table of many lines, or has one.
#[test]
fn a_mistake_in_a_load_is_told_at_its_own_line() {
    let load = "load = { kind = \"tcp-stream\", message = \"128k\" }";
    for (lines, line, said) in [
        ("kind = 'tcp-stream'\nmessage = '12 parsec'", 20, "`12 parsec` is not a number of bytes"),
        ("kind = 'tcp-stream'\nmessage = '1k'\nthreads = 'two'", 21, "invalid type: string \"two\""),
        ("kind = 'tcp-stream'\nmessage = '1k'\nbatch = 2", 21, "no 'batch'"),
        ("kind = 'tcp-stream'\nmessage = '1k'\noutstanding.send = 2\noutstanding.receiv = 2", 22, "`receiv`"),
        ("message = '1k'\nkind = 'tcp-steam'", 20, "did you mean `tcp-stream`?"),
        ("kind = 'packets'\nprotocol = 'tcp'\n[scenario.load.search]\ngoal = 'lossy'", 22, "it is one of `loss-free`"),
        ("kind = 'tcp-rr'\n[scenario.under]\nkind = 'tcp-rr'\nfrom = 'b'\nto = 5", 23, "expected a string or a list"),
    ] {
        let error = parse_with(load, &format!("[scenario.load]\n{lines}")).unwrap_err();
        assert_eq!(error.line, Some(line), "{lines}: {error}");
        assert!(error.to_string().contains(said), "{error} lacks '{said}'");
    }
    // A default that no load makes use of has to say something all the same.
    let defaults = "cool_down = \"50ms\"";
    let error = parse_with(defaults, &format!("{defaults}\nload.message = '12 parsec'")).unwrap_err();
    assert_eq!(error.line, Some(7), "{error}");
    let error = parse_with(load, "load = \"tcp-stream\"").unwrap_err();
    assert_eq!(error.line, Some(18), "{error}");
}

/// What is wrong with the meaning of a load is told at the key that says it, wherever it is; where a key is missing, at the load.
#[test]
fn what_a_load_cannot_be_is_told_at_its_key() {
    let load = "load = { kind = \"tcp-stream\", message = \"128k\" }";
    let stream = "kind = 'tcp-stream'\nmessage = '128k'";
    let datagrams = "kind = 'udp-stream'\nmessage = '1400'";
    let exchange = "kind = 'udp-rr'\nconnections = 2";
    let packets = "kind = 'packets'\nprotocol = 'tcp'\nconnections_per_second = 1000";
    let udp = "kind = 'packets'\nprotocol = 'udp'\nconnections_per_second = 1000";
    let searched = "kind = 'packets'\nprotocol = 'tcp'\nhold = 100\ninterval = '1s'";
    for (first, key, said) in [
        (stream, "threads = 0", "threads is 0"),
        (stream, "connections = 20001", "connections"),
        (stream, "send_buffer = '1G'", "the send buffer"),
        (stream, "receive_buffer = '5G'", "less than 4 GiB"),
        (stream, "throttle = '0B/s'", "the throttle is 0"),
        (stream, "congestion_control = 'a b'", "congestion control"),
        (stream, "outstanding = { send = 0 }", "outstanding"),
        (stream, "receive_message = '0'", "at the receiver, the message is 0"),
        ("kind = 'tcp-stream'\nmessage = '1k'\noutstanding.send = 2", "send_mode = 'sendfile'", "sendfile"),
        ("kind = 'tcp-stream'\nmessage = '1k'\nflow = 'both'", "receive_message = '2k'", "both ways"),
        ("kind = 'tcp-stream'", "message = '0'", "the message is 0"),
        (datagrams, "batch = 0", "the batch is 0"),
        (datagrams, "segments = 65", "the segments is 65"),
        (datagrams, "pacing = 'thread'", "'pacing' without a throttle"),
        (datagrams, "throttle = '1B/s'", "a datagram leaves each"),
        (exchange, "request = '65k'", "65507"),
        (exchange, "response = '65k'", "65507"),
        (exchange, "in_flight = 1025", "in flight"),
        (exchange, "timeout = '2h'", "the timeout"),
        (exchange, "rate = 1e9", "the rate is"),
        (exchange, "rate = 0.5", "a transaction leaves each"),
        (exchange, "arrivals = 'poisson'", "'arrivals' without a rate"),
        (packets, "hold = 10", "'hold' without 'interval'"),
        (packets, "requests_per_second = 10", "without 'hold'"),
        (packets, "client_addresses = 254", "client_addresses = 254"),
        (packets, "server_addresses = 0", "server_addresses = 0"),
        (packets, "client_ports = [90, 80]", "source ports"),
        (packets, "server_ports = [90, 80]", "ports"),
        (packets, "request = '2k'", "request"),
        (packets, "response = '2G'", "response"),
        (packets, "retransmit = '1us'", "retransmission"),
        (packets, "retries = 16", "retransmissions of 16"),
        (packets, "send_window = 0", "a window of 0"),
        (packets, "launch = 0", "opened together"),
        (packets, "ramp = '9s'", "a ramp of 9s"),
        (packets, "timeout = '1s'", "no 'timeout'"),
        (packets, "workers = 9", "9 workers"),
        (udp, "close = 'reset'", "no 'close'"),
        (udp, "timeout = '1us'", "time-out"),
        (udp, "pipeline = 101", "back to back"),
        (searched, "search = { goal = 'loss-free', raise = 'hold' }", "a rate at which connections are opened"),
    ] {
        let error = parse_with(load, &format!("[scenario.load]\n{first}\n{key}")).expect_err(key);
        let line = 19 + first.lines().count();
        assert!(error.to_string().contains(said), "{key}: '{error}' lacks '{said}'");
        assert_eq!(error.line, Some(line), "{key}: {error}");
    }
    for (keys, line, said) in [
        ("goal = 'loss-free'\ngrowth = 17", 23, "a growth of 17"),
        ("goal = 'loss-free'\n\nprecision = '60%'", 24, "a precision of"),
        ("goal = 'loss-free'\nstart = 10\nmost = 5", 24, "a highest rate of 5"),
        ("goal = 'loss-free'\nstep = '1ms'", 23, "steps of"),
        ("goal = 'loss-free'\nmeasure_at = '0%'", 23, "a window at 0 %"),
        ("goal = 'loss-free'\nraise = 'requests_per_second'", 23, "which the load has not"),
        ("goal = 'loss-free'\ngrowht = 2", 23, "did you mean `growth`?"),
    ] {
        let load_file = format!("[scenario.load]\nkind = 'packets'\nprotocol = 'tcp'\n[scenario.load.search]\n{keys}");
        let error = parse_with(load, &load_file).expect_err(keys);
        assert!(error.to_string().contains(said), "{keys}: '{error}' lacks '{said}'");
        assert_eq!(error.line, Some(line), "{keys}: {error}");
    }
}
