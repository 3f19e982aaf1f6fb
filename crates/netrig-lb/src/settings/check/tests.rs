use super::super::{Completeness, Settings, changes};
use super::*;

fn file(service: &str, check: &str) -> String {
    format!("[[service]]\nlisten = 'tcp 192.0.2.1:80'\n{service}\n[service.check]\n{check}\n")
}

const NAT: &str = "forward = 'nat'\nbackend = ['10.0.0.1', { address = '10.0.0.9', sorry = true }]";
const ROUTE: &str = "forward = 'route'\nbackend = ['10.0.0.1']";

fn check(service: &str, text: &str) -> Check {
    let text = file(service, text);
    let settings = Settings::parse("lb.toml", &text, Completeness::Required).unwrap_or_else(|error| panic!("{error}"));
    // What is written is read as the same.
    let written = settings.to_toml();
    let again = Settings::parse("lb.toml", &written, Completeness::Optional);
    assert_eq!(again.unwrap_or_else(|error| panic!("{error}\n{written}")), settings, "{written}");
    *settings.rules.services[0].check.clone().unwrap()
}

#[track_caller]
fn refused(service: &str, text: &str) -> String {
    Settings::parse("lb.toml", &file(service, text), Completeness::Required).unwrap_err().to_string()
}

#[test]
fn what_is_not_said_is_as_by_default() {
    let tcp = check(NAT, "kind = 'tcp'");
    assert_eq!(tcp, Check::new(Probe::Tcp(Exchange::default()), Destination::Backend));
    assert_eq!((tcp.interval.as_secs(), tcp.timeout.as_secs(), tcp.rise, tcp.fall, tcp.jitter), (2, 1, 2, 3, 10));
    assert_eq!(check(ROUTE, "kind = 'tcp'").to, Destination::Service);
    assert_eq!(check(ROUTE, "kind = 'tcp'\nto = 'backend'").to, Destination::Backend);
    assert_eq!(check(ROUTE, "kind = 'command'\ncommand = ['/bin/true']").to, Destination::Backend);
}

#[test]
fn all_keys_are_read_and_written() {
    let http = check(
        &NAT.replace("'10.0.0.1'", "{ address = '10.0.0.1', weight = 4 }"),
        "kind = 'http'\nport = 8080\nsource = '10.0.0.7'\ninterval = '500ms'\ninterval_down = '5s'\ntimeout = '200ms'\nrise = 4\n\
         fall = 5\njitter = '0%'\nbegin = 'down'\nfailed = 'remove'\nquorum = 3\nhysteresis = 1\nbelow_quorum = 'all'\n\
         slow_start = '1m'\npath = '/health?a=b'\nhost = 'www.example.com'\nstatus = '200-299, 304'\nbody = 'all \"good\"'",
    );
    let wanted = Check {
        probe: Probe::Http(HttpRequest {
            path: "/health?a=b".into(),
            host: Some("www.example.com".into()),
            status: vec![(200, 299), (304, 304)],
            body: Some("all \"good\"".into()),
        }),
        to: Destination::Backend,
        port: Some(8080),
        source: Some([10, 0, 0, 7].into()),
        interval: Duration::from_millis(500),
        interval_down: Duration::from_secs(5),
        timeout: Duration::from_millis(200),
        rise: 4,
        fall: 5,
        jitter: 0,
        begin: Beginning::Down,
        failed: OnFailure::Remove,
        pool: PoolRules {
            quorum: 3,
            hysteresis: 1,
            below_quorum: Some(BelowQuorum::All),
            slow_start: Duration::from_secs(60),
        },
    };
    assert_eq!(http, wanted);
    let https = |text: &str| match check(NAT, &format!("kind = 'https'\n{text}")).probe {
        Probe::Https(request, tls) => (request, tls),
        other => panic!("{other:?}"),
    };
    let (request, tls) =
        https("host = 'www.example.com'\npath = '/up'\nca = '/etc/ca.pem'\nserver_name = 'a.example.com'");
    assert_eq!((request.path.as_str(), request.host.as_deref()), ("/up", Some("www.example.com")));
    let name = Some("a.example.com".to_owned());
    assert_eq!(tls, TlsRules { verify: true, ca: Some("/etc/ca.pem".into()), server_name: name });
    assert_eq!(https("").1, TlsRules::default());
    assert_eq!(https("verify = true").1, TlsRules { verify: true, ..TlsRules::default() });
    let dns = check(NAT, "kind = 'dns'\nname = 'example.com.'\nrecord = 'AAAA'");
    assert_eq!(dns.probe, Probe::Dns(DnsQuestion { name: "example.com".into(), record: RecordType(28) }));
    let udp = check(NAT, "kind = 'udp'\nsend = '0x00ff10'\nexpect = 'pong'");
    assert_eq!(udp.probe, Probe::Udp(Exchange { send: vec![0, 255, 16], expect: b"pong".to_vec() }));
    let command =
        check(NAT, "kind = 'command'\ncommand = ['/bin/sh', '-c', 'exit 0']\nenvironment = { LEVEL = 'a b' }");
    let words = ["/bin/sh", "-c", "exit 0"].map(str::to_owned).to_vec();
    let environment = vec![("LEVEL".to_owned(), "a b".to_owned())];
    assert_eq!(command.probe, Probe::Command(ProgramCall { words, environment }));
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_a_way_out() {
    let cases = [
        (NAT, "kind = 'http'\nverify = true", "'verify' of a check by http", "checks by https"),
        (NAT, "kind = 'https'\nverify = false\nca = '/etc/ca.pem'", "'ca' of a check that does not verify", "remove"),
        (NAT, "kind = 'https'\nca = 'ca.pem'", "'ca.pem' is not a file's whole path", "from /"),
        (NAT, "kind = 'https'\nserver_name = 'a.example.com:443'", "is not a name of a server", "without a port"),
        (NAT, "kind = 'smtp'", "there is no check by 'smtp'", "tcp, http, https, udp, dns, icmp, command"),
        (NAT, "kind = 'tcp'\npath = '/'", "'path' of a check by tcp", "checks by http and https"),
        (NAT, "kind = 'tcp'\nto = 'service'", "checks to the service's own address", "route and tunnel"),
        (ROUTE, "kind = 'command'\ncommand = ['/x']\nto = 'service'", "service's own address", "its own"),
        (NAT, "kind = 'icmp'\nport = 7", "'port' of a check by icmp", "no port"),
        (NAT, "kind = 'command'", "without 'command'", "/usr/local/bin"),
        (NAT, "kind = 'command'\ncommand = ['true']", "a program's whole path", "/usr/local/bin"),
        (NAT, "kind = 'command'\ncommand = ['/x']\nenvironment = { NETRIG_X = '' }", "'NETRIG_X'", "netrig's"),
        (NAT, "kind = 'tcp'\ninterval = '10ms'", "'interval' of 10ms", "100ms"),
        (NAT, "kind = 'tcp'\nfall = 0", "'fall' of 0", "1 to 100"),
        (NAT, "kind = 'tcp'\njitter = '60%'", "a jitter of 60%", "0% to 50%"),
        (NAT, "kind = 'tcp'\nquorum = 2\nhysteresis = 2", "a hysteresis of 2 with a quorum of 2", "less"),
        (ROUTE, "kind = 'tcp'\nbelow_quorum = 'sorry'", "no backend is a sorry server", "sorry = true"),
        (NAT, "kind = 'tcp'\nsource = 'fd00::1'", "checks from fd00::1", "family"),
        (NAT, "kind = 'http'\nstatus = '20-300'", "are not status codes", "200-399"),
        (NAT, "kind = 'http'\npath = '/a b\\n'", "is not a path", "percent"),
        (NAT, "kind = 'http'\nhost = \"a\\r\\nX: y\"", "is not a host", "name"),
        (NAT, "kind = 'tcp'\nsend = 'PING'", "'send' without 'expect'", "+PONG"),
        (NAT, "kind = 'dns'\nname = 'a..b'", "is not a name of DNS", "example.com"),
        (NAT, "kind = 'udp'\nsend = '0x0'", "'0x0'", "bytes"),
        (NAT, "kind = 'tcp'\nwarmup = 1", "unknown field `warmup`", ""),
    ];
    for (service, text, what, hint) in cases {
        let error = refused(service, text);
        assert!(error.contains(what) && error.contains(hint) && error.contains("lb.toml:"), "{text}: {error}");
    }
    let with = |backend: &str| NAT.replace("'10.0.0.1'", backend);
    let cases = [
        (with("'10.0.0.1-10.0.0.3'"), "kind = 'tcp'\nquorum = 3\nhysteresis = 1", "a quorum of 3", "never met"),
        (with("{ address = '10.0.0.1', check = ':7' }"), "kind = 'icmp'", "a port in 'check'", "no port"),
        (with("{ address = '10.0.0.1', check = 'fd00::1' }"), "kind = 'tcp'\nsource = '10.0.0.7'", "fd00::1", "family"),
        (with("{ address = '10.0.0.2', sorry = true, check = ':7' }"), "kind = 'tcp'", "a sorry server", "remove"),
        (ROUTE.to_owned(), "kind = 'tcp'\nsource = '192.0.2.1'", "own address 192.0.2.1", "another address"),
    ];
    for (service, text, what, hint) in &cases {
        let error = refused(service, text);
        assert!(error.contains(what) && error.contains(hint) && error.contains("lb.toml:"), "{text}: {error}");
    }
    check(&with("'10.0.0.1-10.0.0.3'"), "kind = 'tcp'\nquorum = 2\nhysteresis = 1");
    let many = "[[service]]\nlisten = '192.0.2.0-192.0.3.144:80'\nforward = 'route'\nbackend = ['10.0.0.1']\n[service.check]\nkind = 'tcp'\n";
    let settings = |text: &str| {
        Settings::parse("lb.toml", &format!("room = {{ services = 500 }}\n{text}"), Completeness::Required)
    };
    let error = settings(many).unwrap_err().to_string();
    assert!(error.contains("more than 400 services' own addresses"), "{error}");
    assert!(settings(&many.replace(".144", ".143")).is_ok());
    let rr = format!("{NAT}\nscheduler = 'rr'");
    assert!(refused(&rr, "kind = 'tcp'\nslow_start = '9s'").contains("scheduler ignores weights"));
    let unchecked =
        "[[service]]\nlisten = '192.0.2.1:80'\nforward = 'nat'\nbackend = [{ address = '10.0.0.1', sorry = true }]";
    let error = Settings::parse("lb.toml", unchecked, Completeness::Required).unwrap_err().to_string();
    assert!(error.contains("whose service has no check"), "{error}");
}

#[test]
fn backends_say_where_they_are_checked() {
    let said = |text: &str| backend_check(&BackendCheckFile::At(text.to_owned()));
    let at =
        |address: Option<&str>, port| BackendCheck::At { address: address.map(|text| text.parse().unwrap()), port };
    assert_eq!(said("10.1.0.1:9000"), Ok(at(Some("10.1.0.1"), Some(9000))));
    assert_eq!(said("[fd00::1]:9000"), Ok(at(Some("fd00::1"), Some(9000))));
    assert_eq!((said("::1"), said(":9000")), (Ok(at(Some("::1"), None)), Ok(at(None, Some(9000)))));
    for wrong in ["", ":", ":0", "10.1.0.1:0", "name:80", ":70000"] {
        assert!(said(wrong).is_err(), "{wrong}");
    }
    for check in [at(Some("fd00::1"), Some(1)), at(Some("10.0.0.1"), None), at(None, Some(80))] {
        let text = backend_check_text(check).unwrap();
        assert_eq!(said(text.trim_matches('"')), Ok(check), "{text}");
    }
}

#[test]
fn changes_of_checks_are_told() {
    let rules = |service: &str, check: &str| {
        Settings::parse("lb.toml", &file(service, check), Completeness::Required).unwrap().rules
    };
    let (tcp, icmp) = (rules(NAT, "kind = 'tcp'"), rules(NAT, "kind = 'icmp'"));
    assert_eq!(changes(&tcp, &tcp), Vec::<String>::new());
    assert_eq!(changes(&tcp, &icmp), ["tcp 192.0.2.1:80: the check has changed; what is known of backends stays"]);
    let moved = rules(&NAT.replace("'10.0.0.1'", "{ address = '10.0.0.1', check = ':81' }"), "kind = 'tcp'");
    assert_eq!(changes(&tcp, &moved), ["tcp 192.0.2.1:80: backend 10.0.0.1:80: it is checked in another way"]);
}
