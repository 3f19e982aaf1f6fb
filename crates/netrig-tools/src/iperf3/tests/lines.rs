//! Command lines.

use super::super::error::Code;
use super::super::options::{Argument, OptionError, Parsed, Scope, TABLE, help, parse};
use super::super::settings::{Family, Flow, KeepAlive, Protocol, Role, Settings};
use super::super::units::Format;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn settings(line: &str) -> Settings {
    match parse(&words(line)) {
        Ok(Parsed::Run(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    parse(&words(line)).expect_err(line).to_string()
}

#[test]
fn defaults_are_those_of_the_original() {
    let client = settings("-c host");
    assert_eq!((client.role, client.host.as_str(), client.network.port), (Role::Client, "host", 5201));
    let test = &client.test;
    assert_eq!((test.protocol, test.flow, test.time, test.length), (Protocol::Tcp, Flow::Forward, 10, 128 << 10));
    assert_eq!((test.parallel, test.rate, test.omit, test.pacing_timer), (1, 0, 0, 1000));
    assert_eq!((client.interval, client.network.receive_timeout_ms), (1.0, 120_000));
    let udp = settings("-c host -u");
    // The length is the path's, which is not known yet.
    assert_eq!((udp.test.rate, udp.test.length), (1_048_576, 0));
    let server = settings("-s");
    assert_eq!((server.role, server.server.limit_interval), (Role::Server, 5.0));
    assert!(!server.server.one_off && !server.server.one_at_a_time);
}

#[test]
fn each_option_sets_what_it_says() {
    let all = settings(
        "-c 10.0.0.1%eth0 -p 5001 -f m -i 0.5 -P 4 -R -O 2 -b 10M/5 -w 512K -M 1400 -N -C bbr -Z -S 0x20 -6 -B ::1 \
         --cport 6000 -A 1,2 -V -J --logfile log --timestamps=%H -T title --extra-data extra --get-server-output \
         --udp-counters-64bit --repeating-payload --dont-fragment -L 0xff --fq-rate 1G --pacing-timer 2K \
         --connect-timeout 300 --rcv-timeout 500 --snd-timeout 600 --cntl-ka=10/2/3 -m --skip-rx-copy --gsro -n 1G -l 64K",
    );
    let test = &all.test;
    assert_eq!((all.host.as_str(), all.network.device.as_deref(), all.network.port), ("10.0.0.1", Some("eth0"), 5001));
    assert_eq!((all.output.format, all.interval, test.parallel, test.flow), (Format::Bits(2), 0.5, 4, Flow::Reverse));
    assert_eq!((test.omit, test.rate, test.burst, test.window, test.mss), (2, 10_000_000, 5, 512 << 10, 1400));
    assert!(test.no_delay && test.zerocopy && test.mptcp && test.skip_rx_copy && test.gsro && test.dont_fragment);
    assert!(test.get_server_output && test.udp_counters_64bit && test.repeating_payload);
    assert_eq!((test.congestion.as_deref(), test.tos, test.flow_label), (Some("bbr"), 32, 255));
    assert_eq!((all.network.family, all.network.bind.as_deref()), (Some(Family::V6), Some("::1")));
    assert_eq!((all.network.client_port, all.affinity, test.server_affinity), (Some(6000), Some(1), Some(2)));
    assert!(all.output.verbose && all.output.json && !all.output.json_stream);
    assert_eq!((all.output.log_file.as_deref(), all.output.timestamps.as_deref()), (Some("log"), Some("%H")));
    assert_eq!((test.title.as_deref(), test.extra_data.as_deref()), (Some("title"), Some("extra")));
    assert_eq!((test.fq_rate, test.pacing_timer), (1_000_000_000, 2048));
    assert_eq!(
        (all.network.connect_timeout_ms, all.network.receive_timeout_ms, all.network.send_timeout_ms),
        (Some(300), 500, 600)
    );
    assert_eq!(all.network.keep_alive, Some(KeepAlive { idle: 10, interval: 2, count: 3 }));
    assert_eq!((test.bytes, test.time, test.length), (1 << 30, 0, 64 << 10));
    assert_eq!(all.warnings.len(), 5, "-f and -V beside -J, and what only UDP has: {:?}", all.warnings);
    let user = settings("-c h --username mario --rsa-public-key-path key --use-pkcs1-padding").authentication;
    assert_eq!((user.username.as_deref(), user.public_key.as_deref()), (Some("mario"), Some("key")));
    assert!(user.pkcs1_padding);
    let users =
        settings("-s --rsa-private-key-path key --authorized-users-path users --time-skew-threshold 3").authentication;
    assert_eq!((users.private_key.as_deref(), users.users.as_deref()), (Some("key"), Some("users")));
    assert_eq!((users.skew, users.pkcs1_padding), (Some(3), false));
    let over_udp = settings("-c h -u -Z -C bbr -M 1000 -N").warnings;
    assert_eq!(over_udp.len(), 4, "{over_udp:?}");
    let server = settings("-sD1p5002 --server-bitrate-limit 1G/10 --server-max-duration 30 --idle-timeout 9 -I pid -4");
    assert!(server.server.daemon && server.server.one_off);
    assert_eq!((server.server.bitrate_limit, server.server.limit_interval), (1_000_000_000, 10.0));
    assert_eq!((server.server.max_duration, server.server.idle_timeout, server.network.port), (30, Some(9), 5002));
    assert_eq!(server.pid_file.as_deref(), Some("pid"));
    // What belongs to no option is passed over, a beginning will do, and a link-local address keeps its interface.
    let odd = settings("-s host --verb --json-stream");
    assert!(odd.output.verbose && odd.output.json && odd.output.json_stream);
    assert_eq!(settings("-c fe80::1%eth0").host, "fe80::1%eth0");
    assert_eq!(settings("-c h -b0 -u --bandwidth 5K").test.rate, 5000);
}

#[test]
fn code_points_have_names() {
    let tos = |value: &str| settings(&format!("-c h --dscp {value}")).test.tos;
    assert_eq!(
        ["ef", "AF11", "af43", "cs1", "cs7", "va", "46", "0x2e", "056"].map(tos),
        [184, 40, 152, 32, 224, 176, 184, 184, 184]
    );
    for wrong in ["af14", "af51", "cs8", "64", "-1", "x"] {
        assert!(refusal(&format!("-c h --dscp {wrong}")).contains("bad DSCP value"), "{wrong}");
    }
}

#[test]
fn mistakes_are_told_in_the_originals_words() {
    for (line, words) in [
        ("", "must either be a client (-c) or server (-s)"),
        ("-s -c h", "cannot be both server and client"),
        ("-s -u", "some option you are trying to set is client only"),
        ("-s -A 1,2", "some option you are trying to set is client only"),
        ("-c h -1", "some option you are trying to set is server only"),
        ("-c h --one-at-a-time", "some option you are trying to set is server only"),
        ("-c h -p 0", "port number must be between 1 and 65535 inclusive"),
        ("-c h -P 129", "invalid number of parallel streams (min = 1, max = 128)"),
        ("-c h -t 86401", "test duration valid values are 0 to 86400 seconds"),
        ("-c h -i 0.05", "invalid report interval (min = 0.1, max = 60 seconds)"),
        ("-c h -l 2M", "block size too large (maximum = 1048576 bytes)"),
        ("-c h -u -l 8", "block size invalid (minimum = 16 bytes, maximum = 65507 bytes)"),
        ("-c h -w 1G", "socket buffer size too large (maximum = 536870912 bytes)"),
        ("-c h -R --bidir", "cannot be both reverse and bidirectional"),
        ("-c h -t 1 -n 1", "only one test end condition (-t, -n, -k) may be specified"),
        ("-c h -n 1 -k 1", "only one test end condition (-t, -n, -k) may be specified"),
        ("-c h -b 1M/0", "invalid burst count (maximum = 1000)"),
        ("-c h -b 1Q", "invalid unit value or suffix: '1Q'"),
        ("-c h -S 256", "bad TOS value (must be between 0 and 255 inclusive)"),
        ("-c h -f x", "bad format specifier (valid formats are in the set [kmgtKMGT])"),
        ("-c h --rcv-timeout 200", "client receive timeout is valid only in receiving mode"),
        ("-c h --cntl-ka=5/2/3", "control connection Keepalive period should be larger"),
        ("-c h -O 601", "bogus value for --omit (maximum = 600 seconds)"),
        ("-c h -M 40000", "TCP MSS too large (maximum = 32767 bytes)"),
    ] {
        let said = refusal(line);
        assert!(said.starts_with("parameter error - ") && said.contains(words), "{line}: {said}");
    }
    for (line, words) in [
        ("-c h --no-such", "unrecognized option '--no-such'"),
        ("-c h --json-", "option '--json-' is ambiguous"),
        ("-c", "option requires an argument -- 'c'"),
        ("-c h --parallel", "option '--parallel' requires an argument"),
        ("-c h --udp=1", "option '--udp' doesn't allow an argument"),
        ("-c h -y", "invalid option -- 'y'"),
    ] {
        assert_eq!(refusal(line), words, "{line}");
    }
}

/// Options are honoured or refused with the reason; none is taken and forgotten.
#[test]
fn what_does_not_work_is_refused_by_name() {
    for spec in TABLE {
        let value = if spec.argument == Argument::None { "" } else { " 1" };
        let line = format!("-c h --{}{value}", spec.long);
        let refused = matches!(parse(&words(&line)), Err(OptionError::Refused { .. }));
        assert_eq!(refused, matches!(spec.scope, Scope::Refused(_)), "{line}");
        assert!(help().contains(&format!("--{}", spec.long)));
    }
    let warned = |line: &str| match parse(&words(line)) {
        Ok(Parsed::Run(settings)) => settings.warnings.concat(),
        other => panic!("{line}: {other:?}"),
    };
    assert!(warned("-c h --sctp -M 100").contains("512 bytes"));
    assert!(warned("-c h --sctp -M 600 -R").contains("what the client sends"));
    assert!(warned("-c h --sctp --snd-timeout 5").contains("control connection alone"));
    assert!(warned("-c h --nstreams 4").contains("--nstreams has a meaning over SCTP only"));
    assert_eq!(warned("-c h --sctp -M 600 -N"), "");
    assert!(refusal("-c h -F x").starts_with("parameter error - --file is not honoured: "));
    assert!(refusal("-c h --sctp --nstreams 0").starts_with("parameter error - unable to set SCTP_INIT"));
    assert!(matches!(parse(&words("-h")), Ok(Parsed::Help)) && matches!(parse(&words("-v")), Ok(Parsed::Version)));
    assert!(help().lines().all(|line| line.len() <= 160));
    assert_eq!(Code(9999).to_string(), "int_errno=9999");
}
