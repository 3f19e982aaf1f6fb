use super::*;
use crate::fixture;
use crate::listing::ListingKind;
use crate::message::VlanTag;

fn asked(what: ListingKind) -> Listing {
    Listing { what, service: None, numeric: true, exact: false, sorted: true, json: false }
}

fn listed(style: Style, exact: bool) -> String {
    let listing = Listing { exact, ..asked(ListingKind::Rules) };
    services(&fixture::status(), &listing, style, Names::Numeric)
}

/// Byte by byte what ipvsadm 1.31 writes of the same services, but for the version and for DPVS's words. One that is down has no weight, as
/// where keepalived inhibits it.
#[test]
fn the_layout_is_ipvsadms() {
    let expected = "\
IP Virtual Server version 0.1.0 (size=8650752)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  192.0.2.1:80 wlc
  -> 10.0.0.9:8080                FullNat 0      4096       17        \n  \
  -> 10.0.0.12:8080               FullNat 1      2048       17        \n\
UDP  [2001:db8::53]:53 sh conn-timeout 10
  -> [2001:db8:0:1::53]:53        Route   0      0          17        \n";
    assert_eq!(listed(Style::Rules, false), expected);
}

#[test]
fn a_syn_proxy_is_a_flag_where_it_answers() {
    let listed = |mode: &str, answers| {
        let mut status = fixture::status();
        (status.services[1].syn_proxy, status.services[1].syn_proxy_answers) = (mode.to_owned(), answers);
        let listing = Listing { exact: false, ..asked(ListingKind::Rules) };
        services(&status, &listing, Style::Rules, Names::Numeric).contains("TCP  192.0.2.1:80 wlc synproxy\n")
    };
    assert!(listed("always", false) && listed("auto", true) && !listed("auto", false) && !listed("off", false));
}

#[test]
fn how_clients_addresses_are_told_is_a_flag() {
    let mut status = fixture::status();
    status.services[1].syn_proxy = "always".to_owned();
    status.services[1].client_address = "proxy_v2".to_owned();
    let listing = Listing { exact: false, ..asked(ListingKind::Rules) };
    let text = services(&status, &listing, Style::Rules, Names::Numeric);
    assert!(text.contains("TCP  192.0.2.1:80 wlc synproxy proxy_v2\n"), "{text}");
}

#[test]
fn counters_are_rounded_down_to_nine_columns() {
    let expected = "\
IP Virtual Server version 0.1.0 (size=8650752)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  192.0.2.1:80                  1234567  123456K 99999999   98765M    1234G
  -> 10.0.0.9:8080                 1234567  123456K 99999999   98765M    1234G
  -> 10.0.0.12:8080                1234567  123456K 99999999   98765M    1234G
UDP  [2001:db8::53]:53                   0        0        0        0        0
  -> [2001:db8:0:1::53]:53         1234567  123456K 99999999   98765M    1234G
";
    assert_eq!(listed(Style::Stats, false), expected);
    let exact = listed(Style::Stats, true);
    let row = "TCP  192.0.2.1:80                  1234567 123456789 99999999 98765432109 1234567890123";
    assert!(exact.lines().any(|line| line == row), "{exact}");
    let columns = |number| [column(number, false), column(number, true)];
    assert_eq!(columns(99_999_999), [" 99999999", " 99999999"]);
    assert_eq!(columns(100_000_000), ["  100000K", " 100000000"]);
    assert_eq!(column(999_999_999, false), "  999999K");
    assert_eq!(column(1_000_000_000, false), "    1000M");
    assert_eq!(column(99_999_999_999, false), "   99999M");
    assert_eq!(column(100_000_000_000, false), "     100G");
    assert_eq!(column(100_000_000_000_000, false), "     100T");
}

#[test]
fn rates_count() {
    let expected = "\
Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS
  -> RemoteAddress:Port
TCP  192.0.2.1:80                     1021   102142   100000  8100000  120000K
  -> 10.0.0.9:8080                    1021   102142   100000  8100000  120000K
";
    let text = listed(Style::Rate, false);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn thresholds_are_the_limits() {
    let expected = "\
Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn \n  \
  -> RemoteAddress:Port
TCP  192.0.2.1:80 wlc
  -> 10.0.0.9:8080                50000      0          4096       17        \n  \
  -> 10.0.0.12:8080               0          0          2048       17        \n";
    let text = listed(Style::Thresholds, false);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn health_has_its_reasons() {
    let text = services(&fixture::status(), &asked(ListingKind::Health), Style::Health, Names::Numeric);
    let rows: Vec<&str> = text.lines().skip(1).map(str::trim_end).collect();
    let expected = [
        "Prot LocalAddress:Port            State       For         Weight  Took      Reason",
        "  -> RemoteAddress:Port",
        "TCP  192.0.2.1:80 https, healthy weight 1, quorum 2, MISSED",
        "  -> 10.0.0.9:8080                down        1 min 15 s  0       0.8 ms    status 503, expected 200-399",
        "  -> 10.0.0.12:8080               up          1 min 15 s  1       0.8 ms    certificate until 2100-01-01 00:00 UTC",
        "UDP  [2001:db8::53]:53 not checked",
        "  -> [2001:db8:0:1::53]:53        -           -           0       -         -",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn one_that_is_taken_out_says_why() {
    let text = services(&fixture::status_with_an_outlier(), &asked(ListingKind::Health), Style::Health, Names::Numeric);
    let row = "  -> 10.0.0.12:8080               ejected     12 s        0       0.8 ms    7 connections refused, and the balancer's own: connection refused";
    assert!(text.lines().any(|line| line == row), "{text}");
    assert!(text.contains("TCP  192.0.2.1:80 https and outliers, healthy weight 1"), "{text}");
}

#[test]
fn next_hops_have_their_states() {
    let mut status = fixture::status();
    let [udp, tcp] = &mut status.services[..2] else { panic!("{:?}", status.services) };
    udp.backends[0].next_hop = None;
    let several = tcp.backends[0].next_hop.as_mut().unwrap();
    let hop = |address: &str, state| {
        let vlan = address.contains(':').then(|| VlanTag { parent: "eth0".to_owned(), id: 20 });
        Hop { address: address.parse().unwrap(), device: "eth1".to_owned(), vlan, state }
    };
    several.state = NextHopState::NotCarried;
    several.hops = vec![hop("10.0.1.1", NextHopState::Ok), hop("fe80::1", NextHopState::NotCarried)];
    let text = services(&status, &asked(ListingKind::NextHops), Style::NextHops, Names::Numeric);
    insta::assert_snapshot!(text);
}

/// As ipvsadm does, which sorts only when it is not told otherwise, and has no version line for a single service.
#[test]
fn order_and_choice() {
    let status = fixture::status();
    let unsorted = Listing { sorted: false, ..asked(ListingKind::Rules) };
    let text = services(&status, &unsorted, Style::Rules, Names::Numeric);
    assert!(text.find("UDP").unwrap() < text.find("TCP").unwrap(), "{text}");
    assert!(text.find("10.0.0.12").unwrap() < text.find("10.0.0.9").unwrap(), "{text}");
    assert!(!text.contains("10.0.0.10") && !text.contains("192.0.2.1:81"), "removed ones are not listed: {text}");
    let one = Listing { service: Some(status.services[1].key), ..asked(ListingKind::Rules) };
    assert!(services(&status, &one, Style::Rules, Names::Numeric).starts_with("Prot LocalAddress"));
}

#[test]
fn long_names_are_cut_where_ipvsadm_cuts_them() {
    let mut status = fixture::status();
    status.services.retain(|service| service.key.address.is_ipv4());
    let ip = status.services[0].backends[0].address.ip();
    let name = "a-host-with-a-very-long-name.example".to_owned();
    let hosts = HashMap::from([(ip, Some(name.clone())), (status.services[0].key.address.ip(), Some(name))]);
    let ports = [(Protocol::Tcp, 80), (Protocol::Tcp, 8080)].map(|port| (port, "www".to_owned()));
    let names = Names::Looked { hosts, services: HashMap::from(ports), left: std::time::Duration::ZERO };
    let text = services(&status, &asked(ListingKind::Rules), Style::Rules, names);
    assert!(text.contains("\nTCP  a-host-with-a-very-long-name wlc\n"), "{text}");
    assert!(text.contains("\n  -> a-host-with-a-very-long-name FullNat 1 "), "{text}");
}

#[test]
fn timeouts_are_in_ipvsadms_words() {
    assert_eq!(timeouts(&fixture::status()), "Timeout (tcp tcpfin udp): 90 7 300\n");
}

fn entry(local: Option<&str>) -> ConnectionEntry {
    ConnectionEntry {
        protocol: Protocol::Tcp,
        state: "ESTABLISHED".to_owned(),
        expires: 89,
        client: "198.51.100.9:40000".parse().unwrap(),
        service: "192.0.2.1:80".parse().unwrap(),
        local: local.map(|local| local.parse().unwrap()),
        backend: "10.0.0.12:8080".parse().unwrap(),
    }
}

#[test]
fn connections_have_ipvsadms_columns_and_the_local_address() {
    let mut names = Names::Numeric;
    let text = [CONNECTIONS_TITLE, &connection(&entry(Some("10.0.0.200:1025")), &mut names)].concat();
    let expected = "\
IPVS connection entries
pro expire state       source             virtual            destination        local
TCP 01:29  ESTABLISHED 198.51.100.9:40000 192.0.2.1:80       10.0.0.12:8080     10.0.0.200:1025
";
    assert_eq!(text, expected);
    let long = ConnectionEntry { expires: 6000, ..entry(None) };
    let expected = "TCP 100:00 ESTABLISHED 198.51.100.9:40000 192.0.2.1:80       10.0.0.12:8080\n";
    assert_eq!(connection(&long, &mut names), expected);
}

#[test]
fn local_addresses_are_listed_with_their_connections() {
    let mut counts = LocalCounts::default();
    for local in [Some("10.0.0.200:1025"), Some("10.0.0.200:1026"), Some("10.0.0.201:1025"), None] {
        counts.count(&entry(local));
    }
    let of = counts.of(&fixture::status());
    let expected = "\
VIP:VPORT            TOTAL    SNAT_IP              CONFLICTS  CONNS
192.0.2.1:80         2
                              10.0.0.200           -          2
                              10.0.0.201           -          1
[2001:db8::53]:53    0
";
    assert_eq!(locals(&of), expected);
    let json = serde_json::to_value(&of).unwrap();
    assert_eq!(json[0]["local"][0]["connections"], 2, "{json}");
    assert_eq!(json[0]["address"], "192.0.2.1:80", "{json}");
}

#[test]
fn tunnels_are_listed_as_ipvsadm_has_them() {
    let mut status = fixture::status();
    let port = std::num::NonZeroU16::new(6080).unwrap();
    let service = status.services.iter_mut().find(|service| service.key.address.port() == 80).unwrap();
    service.forward = ForwardingMethod::Tunnel;
    service.backends[0].tunnel = Some(Tunnel::Gue { port, checksum: true });
    service.backends[1].tunnel = Some(Tunnel::Gre);
    let text = services(&status, &asked(ListingKind::Tunnels), Style::Tunnels, Names::Numeric);
    assert!(text.contains("Forward TunnelInfo    Weight ActiveConn InActConn\n"), "{text}");
    assert!(text.contains(" Tunnel  gue:6080:+c   ") && text.contains(" Tunnel  gre:-c        "), "{text}");
}
