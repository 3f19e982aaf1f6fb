use super::*;
use crate::message::{
    BackendOptions, ForwardingMethod, Protocol, RuleChange, ServiceKey, ServiceLimits, ServiceOptions,
    ServicePersistence, Tunnel,
};

fn parse(text: &str) -> Result<Line, UsageError> {
    Line::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

fn edit(text: &str) -> RuleChange {
    match parse(text) {
        Ok(Line { name: None, command: Command::Edit { edit, device: None } }) => edit,
        other => panic!("{text}: {other:?}"),
    }
}

fn listed(text: &str) -> Listing {
    match parse(text).map(|line| line.command) {
        Ok(Command::List(listing)) => listing,
        other => panic!("{text}: {other:?}"),
    }
}

fn tcp(address: &str) -> ServiceKey {
    ServiceKey { protocol: Protocol::Tcp, address: address.parse().unwrap() }
}

fn udp(address: &str) -> ServiceKey {
    ServiceKey { protocol: Protocol::Udp, ..tcp(address) }
}

fn scheduled(scheduler: &str) -> ServiceOptions {
    ServiceOptions { scheduler: Some(scheduler.to_owned()), ..ServiceOptions::default() }
}

#[test]
fn services_are_added_changed_and_removed() {
    let add = |service, options| RuleChange::AddService { service, options };
    assert_eq!(edit("-A -t 192.0.2.1:80"), add(tcp("192.0.2.1:80"), ServiceOptions::default()));
    assert_eq!(edit("-A -u [2001:db8::53]:53 -s mh"), add(udp("[2001:db8::53]:53"), scheduled("mh")));
    assert_eq!(
        edit("--add-service --tcp-service=192.0.2.1:80 --scheduler=rr"),
        add(tcp("192.0.2.1:80"), scheduled("rr"))
    );
    let timeout = ServiceOptions { timeout: Some(30), ..ServiceOptions::default() };
    assert_eq!(edit("-A -t 192.0.2.1:80 --conn-timeout 30"), add(tcp("192.0.2.1:80"), timeout));
    let options = ServiceOptions {
        limit: Some(0),
        expire: Some("removed".to_owned()),
        sloppy_tcp: Some(true),
        reuse: Some("keep".to_owned()),
        dscp: Some("ef".to_owned()),
        syn_proxy: Some("enable".to_owned()),
        limits: ServiceLimits {
            source_limit: Some(5),
            source_rate: Some(0),
            source_burst: None,
            source_prefix4: Some(24),
            source_prefix6: Some(48),
            new_rate: Some(1000),
            new_burst: Some(50),
        },
        ..ServiceOptions::default()
    };
    let service = tcp("192.0.2.1:80");
    let line = "-E -t 192.0.2.1:80 --limit 0 --expire removed --sloppy-tcp on --reuse keep --dscp 46 -j enable \
                --source-limit 5 --source-rate 0 --source-prefix4 24 --source-prefix6=48 --new-rate 1000 --new-burst 50";
    assert_eq!(edit(line), RuleChange::EditService { service, options });
    for (line, what) in [
        ("-E -t 192.0.2.1:80 --dscp af51", "'af51' is no DSCP"),
        ("-E -t 192.0.2.1:80 --dscp", "--dscp"),
        ("-E -t 192.0.2.1:80 --expire later", "choose one of never, removed, quiescent"),
        ("-A -t 192.0.2.1:80 --sloppy-tcp yes", "choose one of on, off"),
        ("-A -t 192.0.2.1:80 --reuse maybe", "choose one of reschedule, keep"),
        ("-D -t 192.0.2.1:80 --limit 5", "--limit does not belong to -D"),
        ("-e -t 192.0.2.1:80 -r 10.0.0.1 --source-limit 5", "--source-limit does not belong to -e"),
        ("-E -t 192.0.2.1:80 --source-prefix4 33", "33"),
        ("-A -t 192.0.2.1:80 -j maybe", "choose one of auto, always, off, enable, disable"),
        ("-A -u 192.0.2.1:53 -j always", "--synproxy does not belong to a UDP service"),
        ("-A -u 192.0.2.1:53 --reuse keep", "--reuse does not belong to a UDP service"),
        ("-E -u 192.0.2.1:53 --reuse reschedule", "--reuse does not belong to a UDP service"),
        ("-A -t 192.0.2.1:53 -o", "one_packet of a TCP service"),
        ("-A -u 192.0.2.1:53 -o --one-packet off", "say the same"),
        ("-D -u 192.0.2.1:53 -o", "does not belong to -D"),
        ("-A -u 192.0.2.1:53 --sloppy-tcp on", "--sloppy-tcp does not belong to a UDP service"),
    ] {
        let error = Line::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let once = |one_packet| ServiceOptions { one_packet, ..scheduled("rr") };
    for line in
        ["-A -u 192.0.2.1:53 -s rr -o", "-A -u 192.0.2.1:53 --ops -s rr", "-A -u 192.0.2.1:53 -s rr --one-packet on"]
    {
        assert_eq!(edit(line), add(udp("192.0.2.1:53"), once(Some(true))));
    }
    let off = RuleChange::EditService { service: udp("192.0.2.1:53"), options: once(Some(false)) };
    assert_eq!(edit("-E -u 192.0.2.1:53 -s rr --one-packet off"), off);
    assert_eq!(edit("-E -t 192.0.2.1:80 -s sh"), RuleChange::EditService { service, options: scheduled("sh") });
    assert_eq!(edit("-D -t 192.0.2.1:80"), RuleChange::DeleteService { service });
    assert_eq!(edit("-C"), RuleChange::Clear);
    assert_eq!(edit("--set 90 0 300"), RuleChange::Timeouts { tcp: 90, tcp_fin: 0, udp: 300 });
}

#[test]
fn servers_are_added_changed_and_removed() {
    let service = tcp("192.0.2.1:80");
    let add = |backend: &str, options| RuleChange::AddBackend { service, backend: backend.parse().unwrap(), options };
    let by = |forward| BackendOptions { forward: Some(forward), ..BackendOptions::default() };
    for (option, forward) in [
        ("-b", ForwardingMethod::FullNat),
        ("-m", ForwardingMethod::Nat),
        ("-g", ForwardingMethod::Route),
        ("-i", ForwardingMethod::Tunnel),
    ] {
        let line = format!("-a -t 192.0.2.1:80 -r 10.0.0.1 {option}");
        assert_eq!(edit(&line), add("10.0.0.1:80", by(forward)), "{line}");
    }
    for (option, forward) in [("--masquerading", ForwardingMethod::Nat), ("--fullnat", ForwardingMethod::FullNat)] {
        let line = format!("-a -t 192.0.2.1:80 -r 10.0.0.1:8080 {option} -w 5 -x 100 -y 80");
        let options = BackendOptions {
            forward: Some(forward),
            weight: Some(5),
            limit: Some(100),
            lower_limit: Some(80),
            tunnel: None,
            quic_id: None,
            local: Vec::new(),
            drain_ms: None,
        };
        assert_eq!(edit(&line), add("10.0.0.1:8080", options), "{line}");
    }
    // What is not said is the balancer's to decide: it knows the service.
    assert_eq!(edit("-a -t 192.0.2.1:80 -r 10.0.0.1"), add("10.0.0.1:80", BackendOptions::default()));
    let backend = "10.0.0.1:8080".parse().unwrap();
    let options = BackendOptions { weight: Some(0), ..BackendOptions::default() };
    assert_eq!(edit("-e -t 192.0.2.1:80 -r 10.0.0.1:8080 -w 0"), RuleChange::EditBackend { service, backend, options });
    assert_eq!(edit("-d -t 192.0.2.1:80 -r 10.0.0.1:8080"), RuleChange::DeleteBackend { service, backend });
}

#[test]
fn kinds_of_tunnels_are_said_of_servers() {
    let service = tcp("192.0.2.1:80");
    let port = |port| std::num::NonZeroU16::new(port).unwrap();
    for (said, tunnel) in [
        ("--tun-type ipip", Tunnel::Ipip),
        ("--tun-type gue --tun-port 6080", Tunnel::Gue { port: port(6080), checksum: false }),
        ("--tun-type=gue --tun-port=5555 --tun-csum", Tunnel::Gue { port: port(5555), checksum: true }),
        ("--tun-type gre --tun-nocsum", Tunnel::Gre),
    ] {
        let options = BackendOptions {
            forward: Some(ForwardingMethod::Tunnel),
            tunnel: Some(tunnel),
            ..BackendOptions::default()
        };
        let backend = "10.0.0.1:80".parse().unwrap();
        let line = format!("-a -t 192.0.2.1:80 -r 10.0.0.1 -i {said}");
        assert_eq!(edit(&line), RuleChange::AddBackend { service, backend, options }, "{line}");
    }
    assert_eq!(listed("-L --tun-info").what, ListingKind::Tunnels);
    for (line, next) in [
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gue", "--tun-port 6080"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gue --tun-port 0", "1 to 65535"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gre --tun-port 6080", "for gue"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gre --tun-csum", "choose gue"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type ipip --tun-nocsum", "IP in IP has none"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-port 6080", "add --tun-type gue"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gue --tun-port 1 --tun-csum --tun-nocsum", "one of them"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -g --tun-type gre", "-i"),
        ("-A -t 1.1.1.1:1 --tunnel-source 172.16.0.0", "172.16.0.0/16"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(next), "{line}: {error}");
    }
}

#[test]
fn local_addresses_are_those_of_dpvs() {
    let (service, address) = (tcp("192.0.2.1:80"), "10.0.0.200".parse().unwrap());
    assert_eq!(edit("-P -t 192.0.2.1:80 -z 10.0.0.200"), RuleChange::AddLocal { service, address });
    assert_eq!(edit("--del-laddr -t 192.0.2.1:80 --laddr 10.0.0.200"), RuleChange::DeleteLocal { service, address });
    let line = parse("--add-laddr -z 10.0.0.200 -t 192.0.2.1:80 -F dpdk0").unwrap();
    let device = Some("dpdk0".to_owned());
    assert_eq!(line.command, Command::Edit { edit: RuleChange::AddLocal { service, address }, device });
    assert_eq!(parse("-G").unwrap().command, Command::Locals { service: None, json: false });
    let six = edit("-P -t [2001:db8::1]:80 -z 2001:db8::2");
    assert_eq!(six, RuleChange::AddLocal { service: tcp("[2001:db8::1]:80"), address: "2001:db8::2".parse().unwrap() });
}

#[test]
fn listings_are_chosen() {
    let Listing { what, service, numeric, exact, sorted, json } = listed("-Ln");
    assert_eq!((what, service, numeric, exact, sorted, json), (ListingKind::Rules, None, true, false, true, false));
    assert_eq!(listed("-L -n --stats --exact").what, ListingKind::Stats);
    assert!(listed("-l -X --rate").exact);
    assert_eq!(listed("-L --thresholds -u 192.0.2.1:53").service, Some(udp("192.0.2.1:53")));
    assert!(!listed("-L --nosort").sorted && listed("-L --sort").sorted);
    assert_eq!(listed("--list --timeout").what, ListingKind::Timeout);
    let filter = Filter {
        service: Some(tcp("192.0.2.1:80")),
        client: Some("198.51.100.9".parse().unwrap()),
        backend: Some("10.0.0.1:80".parse().unwrap()),
        most: Some(10),
    };
    let line = "-Lnc -t 192.0.2.1:80 --client 198.51.100.9 --backend 10.0.0.1 --most 10";
    assert_eq!(listed(line).what, ListingKind::Connections(filter));
    assert_eq!(listed("-lnc").what, ListingKind::Connections(Filter::default()));
    assert_eq!(parse("-Z -t 192.0.2.1:80").unwrap().command, Command::Zero(Some(tcp("192.0.2.1:80"))));
    assert_eq!(parse("-S -n").unwrap().command, Command::Save { numeric: true });
    let named = parse("-L --name edge").unwrap();
    assert_eq!(named.name, Some("edge".parse().unwrap()));
}

#[test]
fn port_0_is_any_port() {
    let any = tcp("1.1.1.1:0");
    let options = ServiceOptions::default();
    assert_eq!(edit("-A -t 1.1.1.1:0"), RuleChange::AddService { service: any, options });
    for server in ["2.2.2.2", "2.2.2.2:0"] {
        let RuleChange::AddBackend { service, backend, .. } = edit(&format!("-a -t 1.1.1.1:0 -r {server} -m")) else {
            panic!("{server}");
        };
        assert_eq!((service, backend.to_string().as_str()), (any, "2.2.2.2:0"));
    }
    // What it cannot have is told by the rules, whichever way it forwards.
    for way in ["-g", "-m"] {
        let RuleChange::AddBackend { backend, .. } = edit(&format!("-a -t 1.1.1.1:0 -r 2.2.2.2:81 {way}")) else {
            panic!("{way}");
        };
        assert_eq!(backend.to_string(), "2.2.2.2:81");
    }
    let RuleChange::DeleteBackend { service, .. } = edit("-d -u [2001:db8::1]:0 -r [2001:db8::2]") else { panic!() };
    assert_eq!(service, udp("[2001:db8::1]:0"));
}

#[test]
fn what_cannot_be_is_refused_with_the_next_step() {
    for (line, what, next) in [
        ("", "no command", "-L"),
        ("-n", "no command", "-A"),
        ("-A", "-A needs a service", "-t ADDRESS:PORT"),
        ("-A -s rr", "-A needs a service", "-u ADDRESS:PORT"),
        ("-A -D -t 1.1.1.1:1", "-A and -D", "choose one"),
        ("-A -t 1.1.1.1:1 -t 1.1.1.1:2", "-t is given twice", "once"),
        ("-A -t 1.1.1.1:1 -u 1.1.1.1:1", "-t and -u", "line of its own"),
        ("-A -t 1.1.1.1", "has no port", "ADDRESS:PORT"),
        ("-A -t 1.1.1.1:http!", "'http!' is neither a port", "ADDRESS:PORT"),
        ("-A -t 80", "'80' is neither an address", "ADDRESS:PORT"),
        ("-A -t [2001:db8::1]80", "neither a port", "brackets"),
        ("-A -t 2001:db8::1", "has no port", "ADDRESS:PORT"),
        ("-A -t 1.1.1.1:1 -s lblc", "no scheduler 'lblc'", "by its destination"),
        ("-A -t 1.1.1.1:1 -s conhash", "no scheduler 'conhash'", "hash consistently"),
        ("-A -t 1.1.1.1:1 -r 2.2.2.2", "-r does not belong to -A", "leave it out"),
        ("-A -t 1.1.1.1:1 --conn-timeout 0", "--conn-timeout 0", "1 to 2592000"),
        ("-E -t 1.1.1.1:1", "-E changes nothing", "-s SCHEDULER"),
        ("-D -t 1.1.1.1:1 -s rr", "-s does not belong to -D", "leave it out"),
        ("-a -t 1.1.1.1:1", "-a needs a server", "-r ADDRESS"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -m -g", "-m and -g", "the same way"),
        ("-a -t 1.1.1.1:80 -r 2.2.2.2:81 -g", "-g keeps the port", "-b or -m"),
        ("-a -t 1.1.1.1:80 -r 2.2.2.2:81 -i", "-i keeps the port", "-b or -m"),
        ("-a -t 1.1.1.1:80 -r 2.2.2.2 -w 65536", "-w 65536", "0 to 65535"),
        ("-a -t 1.1.1.1:80 -r 2.2.2.2 -w -1", "-w -1", "0 to 65535"),
        ("-a -t 1.1.1.1:80 -r 2.2.2.2 -x many", "-x many", "0 to"),
        ("-e -t 1.1.1.1:80 -r 2.2.2.2", "-e changes nothing", "-w WEIGHT"),
        ("-d -t 1.1.1.1:80 -r 2.2.2.2 -m", "-m does not belong to -d", "leave it out"),
        ("-P -t 1.1.1.1:80", "-P needs a local address", "-z ADDRESS"),
        ("-C -t 1.1.1.1:80", "-t does not belong to -C", "leave it out"),
        ("-L --stats --rate", "--stats and --rate", "one after the other"),
        ("-L -c --stats", "--stats and -c", "one after the other"),
        ("-L --client 1.1.1.1", "--client selects connections", "add -c"),
        ("-L -c --sort", "--sort is refused", "leave it out"),
        ("-L --sort --nosort", "--sort is refused", "leave it out"),
        ("-L --timeout -t 1.1.1.1:1", "--timeout", "leave the service out"),
        ("-L -c --backend 1.1.1.1", "has no port", "ADDRESS:PORT"),
        ("-L extra", "'extra' belongs to no option", "leave it out"),
        ("-L --stats=1", "--stats takes no value", "leave the value out"),
        ("-A -t", "-t needs a value", "after the option"),
        ("--set 1 2", "three timeouts", "0 to keep one"),
        ("--set 1 2 x", "--set x", "0 to 2592000"),
        ("-R -n", "-n does not belong to -R", "leave it out"),
        ("-L --what", "no option --what", "`netrig lb help`"),
        ("-L -K", "no option -K", "`netrig lb help`"),
        ("-L --name a.b", "'a.b'", "letters"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(next), "{line}: {error}");
    }
}

#[test]
fn persistence_is_for_a_time_and_by_a_mask() {
    let said = |line: &str| match edit(line) {
        RuleChange::AddService { options, .. } | RuleChange::EditService { options, .. } => options.persistence,
        other => panic!("{other:?}"),
    };
    let of = |timeout, prefix4, prefix6| ServicePersistence { timeout, prefix4, prefix6, group: None };
    for line in ["-A -t 1.1.1.1:1 -p", "-A -p -t 1.1.1.1:1", "-At 1.1.1.1:1 --persistent", "-A -t 1.1.1.1:1 -p300"] {
        assert_eq!(said(line), of(Some(300), None, None), "{line}");
    }
    assert_eq!(said("-A -t 1.1.1.1:1 -p 60 -M 255.255.255.0"), of(Some(60), Some(24), None));
    assert_eq!(said("-A -t 1.1.1.1:1 --persistent=60 --netmask 24"), of(Some(60), Some(24), None));
    assert_eq!(said("-A -u [2001:db8::1]:53 -p 60 -M 56"), of(Some(60), None, Some(56)));
    assert_eq!(said("-E -t 1.1.1.1:1 --netmask=255.0.0.0"), of(None, Some(8), None));
    assert_eq!(said("-E -t 1.1.1.1:1 -p 0"), of(Some(0), None, None));
    let group = ServicePersistence { group: Some(7), ..of(Some(300), None, None) };
    assert_eq!(said("-A -t 1.1.1.1:1 -p --persistence-group 7"), group);
    for (line, reason) in [
        ("-A -t 1.1.1.1:1 --persistence-group 7", "without -p"),
        ("-A -t 1.1.1.1:1 -M 255.0.0.0", "-M without -p"),
        ("-A -t 1.1.1.1:1 -p -M 255.0.255.0", "a mask of ones, then zeros"),
        ("-A -t 1.1.1.1:1 -p -M 0.0.0.0", "a mask of ones, then zeros"),
        ("-A -t [2001:db8::1]:53 -p -M 129", "-M"),
        ("-A -t 1.1.1.1:1 -p 2592001", "-p"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -p", "-p does not belong to -a"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(reason), "{line}: {error}");
    }
}

/// Each option of the originals that is not honoured is refused by its name, with the reason.
#[test]
fn what_is_not_there_is_refused_by_name() {
    for (line, reason) in [
        ("-A -f 1", "--persistence-group"),
        ("-A --fwmark-service 1", "-t or -u"),
        ("-A -f 1 -6", "-t or -u"),
        ("-A -t 1.1.1.1:1 -6", "[2001:db8::1]:80"),
        ("-A --sctp-service 1.1.1.1:1", "SCTP"),
        ("-A -t 1.1.1.1:1 -p --pe sip", "by the client's address"),
        ("-A -t 1.1.1.1:1 -s mh -b mh-port", "address and port"),
        ("-A -t 1.1.1.1:1 -s sh --sched-flags sh-fallback", "address and port"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -i --tun-type gue --tun-port 1 --tun-remcsum", "checksum"),
        ("-L --daemon", "[sync]"),
        ("--start-daemon master", "[sync]"),
        ("--stop-daemon=backup", "[sync]"),
        ("-a -t 1.1.1.1:1 -r 2.2.2.2 -J", "SNAT"),
        ("-U -t 1.1.1.1:1 -k 2.2.2.2", "netrig lb access"),
        ("-L -c --sockpair tcp:1.1.1.1:1:2.2.2.2:2", "--client"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains("is refused") && error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn a_device_that_the_balancer_does_not_run_on_is_refused() {
    let status = crate::fixture::status();
    assert!(refuse_unless_ours("eth0", &status).is_ok());
    let error = refuse_unless_ours("dpdk0", &status).unwrap_err().to_string();
    assert!(error.contains("dpdk0") && error.contains("eth0"), "{error}");
}

#[test]
fn a_server_drains_for_a_time() {
    let line = "-e -t 192.0.2.1:80 -r 10.0.0.1 --drain";
    let drain_ms = |span: &str| match parse(&format!("{line} {span}")).unwrap().command {
        Command::Edit { edit: RuleChange::EditBackend { options, .. }, .. } => options.drain_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!([drain_ms("60s"), drain_ms("1.5s"), drain_ms("24h")], [Some(60_000), Some(1500), Some(86_400_000)]);
    for (line, reason) in [
        (format!("{line} 25h"), "up to 24 hours"),
        (format!("{line} soon"), "is no time to drain"),
        (format!("{line} 60s -w 3"), "--drain and -w are opposites"),
        ("-a -t 192.0.2.1:80 -r 10.0.0.1 --drain 60s".to_owned(), "--drain does not belong to -a"),
    ] {
        let error = parse(&line).unwrap_err().to_string();
        assert!(error.contains(reason), "{line}: {error}");
    }
}
