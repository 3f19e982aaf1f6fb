#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use proptest::prelude::*;

use super::tree::Files;
use super::{Imported, keepalived, lines, play};
use crate::health::check::{HttpRequest, Probe, ProgramCall, TlsRules};
use crate::ipvs::Forwarding;
use crate::message::{ForwardingMethod, Protocol, Tunnel};
use crate::names::NameResolution;
use crate::settings::{Completeness, Settings};

fn nat() -> Forwarding {
    crate::ipvs::stand::forwarding(false)
}

fn conf(text: &str) -> Imported {
    keepalived(text, &nat(), &mut Files::none()).unwrap()
}

#[test]
fn what_ipvsadm_saved_becomes_a_file() {
    let saved = "\
-A -t 192.0.2.1:80 -s wrr -p 300 -M 255.255.255.0
-a -t 192.0.2.1:80 -r 10.0.0.1:8080 -m -w 3 -x 1000 -y 500
-a -t 192.0.2.1:80 -r 10.0.0.2:8080 -m -w 1
-A -u 192.0.2.1:53 -s sh -b sh-fallback,sh-port
-a -u 192.0.2.1:53 -r 10.0.0.3:53 -g -w 1
-A -t [2001:db8::1]:443 -s nq
-a -t [2001:db8::1]:443 -r [2001:db8:1::1]:443 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-A -f 7 -s rr
-a -f 7 -r 10.0.0.4:0 -m -w 1
-A -t 192.0.2.2:25 -s mh -b mh-port
";
    let read = |forwarding: &Forwarding| lines::read(saved, forwarding, NameResolution::Numbers);
    insta::assert_snapshot!(read(&nat()).text("saved").unwrap());
    let full = read(&crate::ipvs::stand::forwarding(true));
    let first = &full.rules.services[0];
    assert_eq!((first.forward, first.local.len()), (Some(ForwardingMethod::FullNat), 2));
}

#[test]
fn a_line_that_has_no_equal_is_left_out_and_named() {
    let saved = "\
-A -t 192.0.2.1:80 -s wlc
-a -t 192.0.2.1:80 -r 10.0.0.1:80 -i --tun-type=ipip -w 5
-a -t 192.0.2.1:80 -r 10.0.0.2:80 -i -w 70000
-A -t 10.0.0.1:0 -s wlc -p 600
-a -t 10.0.0.1:0 -r 10.0.0.2:0 -m -w 1
-A --sctp-service 10.0.0.1:80 -s wlc
-A -t nonsense
";
    let imported = lines::read(saved, &crate::ipvs::stand::forwarding(true), NameResolution::Numbers);
    let [service, any] = &imported.rules.services[..] else { panic!("{:?}", imported.rules.services) };
    let [backend] = &service.backends[..] else { panic!("{:?}", service.backends) };
    assert_eq!((backend.address.to_string().as_str(), backend.weight), ("10.0.0.1:80", 5));
    // By full-nat, which -m is here, it cannot have its server.
    assert!(any.is_of_any_port() && any.backends.is_empty());
    for line in [3, 5, 6, 7] {
        let named = imported.notes.iter().find(|note| note.starts_with(&format!("line {line}: '")));
        assert!(named.is_some_and(|note| note.contains(" is left out: ")), "{line}: {:?}", imported.notes);
    }
    assert!(!imported.notes.iter().any(|note| note.starts_with("line 2:")), "{:?}", imported.notes);
}

#[test]
fn port_0_becomes_any_port() {
    let saved = "\
-A -t 192.0.2.1:0 -s wlc -p 600
-a -t 192.0.2.1:0 -r 10.0.0.1:0 -g -w 1
-a -t 192.0.2.1:0 -r 10.0.0.2:0 -g -w 2
-A -u 192.0.2.1:0 -s rr -p 600
-a -u 192.0.2.1:0 -r 10.0.0.1:0 -m -w 1
";
    let imported = lines::read(saved, &nat(), NameResolution::Numbers);
    assert_eq!(imported.notes, Vec::<String>::new());
    let text = imported.text("saved").unwrap();
    assert!(
        text.contains("listen = [\"tcp 192.0.2.1:any\"]") && text.contains("listen = [\"udp 192.0.2.1:any\"]"),
        "{text}"
    );
    let read = Settings::parse("lb.toml", &text, Completeness::Required).unwrap();
    read.rules.config(1000).validate().unwrap();

    let imported = conf(
        "virtual_server_group g {\n 192.0.2.3 0\n 192.0.2.3 21\n}\nvirtual_server 192.0.2.2 {\n lb_kind NAT\n protocol TCP\n persistence_timeout 60\n \
         real_server 10.0.0.1 80 {\n TCP_CHECK {\n}\n}\n real_server 10.0.0.2 {\n TCP_CHECK {\n connect_port 22\n}\n}\n sorry_server 10.0.0.9 80\n}\n\
         virtual_server group g {\n lb_kind DR\n protocol TCP\n real_server 10.0.0.1 0 {\n PING_CHECK {\n}\n}\n}\n\
         virtual_server 192.0.2.4 0 {\n lb_kind NAT\n protocol TCP\n real_server 10.0.0.1 0 {\n TCP_CHECK {\n}\n}\n}\n",
    );
    let (rules, notes) = (imported.rules.clone(), imported.notes.clone());
    let text = imported.text("keepalived.conf").unwrap();
    let backends = "{ address = \"10.0.0.1\", check = \":80\" },\n    { address = \"10.0.0.2\", check = \":22\" },\n    \
                    { address = \"10.0.0.9\", sorry = true },";
    assert!(text.contains("tcp 192.0.2.2:any") && text.contains(backends), "{text}");
    let ports = |last: u8| -> Vec<(u16, u16)> {
        let at = std::net::IpAddr::from([192, 0, 2, last]);
        let services = rules.services.iter().filter(|service| service.key.address.ip() == at);
        services.map(|service| (service.key.address.port(), service.backends[0].address.port())).collect()
    };
    assert_eq!((ports(3), ports(4)), (vec![(0, 0), (21, 21)], vec![]));
    // As keepalived has it, of a group as a whole.
    let persists = |last: u8| -> Vec<Option<u32>> {
        let of = rules
            .services
            .iter()
            .filter(|service| service.key.address.ip() == std::net::IpAddr::from([192, 0, 2, last]));
        of.map(|service| service.persistence.timeout).collect()
    };
    assert_eq!((persists(2), persists(3)), (vec![Some(60)], vec![Some(360); 2]));
    let told = |said: &str| notes.iter().filter(|note| note.contains(said)).count();
    assert_eq!(told("persists for 360 s, as keepalived has it of port 0"), 2, "{notes:?}");
    // Whose check says no port.
    assert!(notes.iter().any(|note| note.contains("192.0.2.4 0") && note.contains("which port it asks")), "{notes:?}");
    Settings::parse("lb.toml", &text, Completeness::Required).unwrap();
}

/// Servers keep their ports in services of a port, whatever else is in the group, and in whatever order.
#[test]
fn a_group_of_port_0_and_others_is_the_same_in_each_order() {
    let servers = "real_server 10.0.0.1 8021 {\n TCP_CHECK {\n}\n}\nreal_server 10.0.0.1 8022 {\n TCP_CHECK {\n}\n}\n\
                   real_server 10.0.0.2 0 {\n TCP_CHECK {\n}\n}\nsorry_server 10.0.0.2 80\n";
    let group = |listens: [u16; 2], kind: &str, forwarding: &Forwarding| {
        let listens = listens.map(|port| format!(" 192.0.2.1 {port}\n")).concat();
        let text = format!(
            "virtual_server_group g {{\n{listens}}}\nvirtual_server group g {{\n lb_kind {kind}\n protocol TCP\n persistence_granularity 255.255.255.0\n{servers}}}\n"
        );
        let mut imported = keepalived(&text, forwarding, &mut Files::none()).unwrap();
        imported.rules.services.sort_by_key(|service| service.key.address.port());
        Settings::parse(
            "lb.toml",
            &Imported { rules: imported.rules.clone(), notes: Vec::new() }.text("it").unwrap(),
            Completeness::Required,
        )
        .unwrap();
        (imported.rules.services, imported.notes)
    };
    let backends = |service: &crate::settings::Service| -> Vec<String> {
        let shown = |backend: &crate::settings::Backend| format!("{} {:?}", backend.address, backend.check);
        service.backends.iter().map(shown).collect()
    };
    let (first, last) = (group([0, 21], "NAT", &nat()), group([21, 0], "NAT", &nat()));
    assert_eq!((&first.0, &first.1), (&last.0, &last.1));
    let [any, exact] = &first.0[..] else { panic!("{first:?}") };
    let at = |port: u16| format!("At {{ address: None, port: Some({port}) }}");
    assert_eq!(backends(any), [format!("10.0.0.1:0 {}", at(8021)), format!("10.0.0.2:0 {}", at(21))]);
    assert_eq!(
        backends(exact),
        ["10.0.0.1:8021 AsService", "10.0.0.1:8022 AsService", "10.0.0.2:21 AsService", "10.0.0.2:80 AsService"]
    );
    for service in [any, exact] {
        assert_eq!((service.persistence.timeout, service.persistence.prefix4), (Some(360), Some(24)));
    }
    for (once, times) in [("10.0.0.1 is once among the servers of port 0", 1), ("10.0.0.2 is once among", 1)] {
        assert_eq!(first.1.iter().filter(|note| note.contains(once)).count(), times, "{:?}", first.1);
    }
    // What cannot be of any port leaves the other one in place.
    let full = crate::ipvs::stand::forwarding(true);
    let (first, last) = (group([0, 21], "NAT", &full), group([21, 0], "NAT", &full));
    assert_eq!((&first.0, &first.1), (&last.0, &last.1));
    let [exact] = &first.0[..] else { panic!("{first:?}") };
    assert_eq!((exact.key.address.port(), exact.backends[0].address.port()), (21, 8021));
    let left_out = first.1.iter().find(|note| note.contains("port 0 is left out")).unwrap();
    assert!(left_out.contains("any port with full-nat") && left_out.contains("--masq nat"), "{left_out}");
    // By direct routing a port of a server is no other one than the service's, and of port 0 says nothing.
    let (direct, notes) = group([21, 0], "DR", &nat());
    assert_eq!(direct.iter().map(|service| service.key.address.port()).collect::<Vec<_>>(), [0]);
    assert!(notes.iter().any(|note| note.contains("what is not of port 0 is left out")), "{notes:?}");
    // A sorry server of port 0 that is a server already.
    let alone = conf(&format!("virtual_server 192.0.2.1 {{\n lb_kind NAT\n protocol TCP\n{servers}}}\n"));
    assert!(alone.notes.iter().any(|note| note.contains("sorry server 10.0.0.2 is left out")), "{:?}", alone.notes);
}

#[test]
fn a_virtual_server_without_protocol_is_of_udp() {
    let imported = conf("virtual_server 192.0.2.1 53 {\n lb_kind NAT\n real_server 10.0.0.1 53 {\n}\n}\n");
    assert_eq!(imported.rules.services[0].key.protocol, Protocol::Udp);
    assert_eq!(
        imported.notes,
        ["line 1: virtual_server 192.0.2.1 53: has no `protocol`, which keepalived takes for UDP"]
    );
}

/// A service with one server that is checked so.
fn checked(check: &str) -> Imported {
    conf(&format!(
        "virtual_server 192.0.2.1 80 {{\n lb_kind NAT\n protocol TCP\n real_server 10.0.0.1 80 {{\n{check}\n}}\n}}\n"
    ))
}

#[test]
fn the_words_of_a_command_are_as_they_are_quoted() {
    let of = |path: &str| {
        let imported = checked(&format!("MISC_CHECK {{\n misc_path {path}\n}}"));
        let check = imported.rules.services[0].check.clone();
        (check.map(|check| check.probe), imported.notes)
    };
    let runs = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Some(Probe::Command(ProgramCall { words, environment: Vec::new() }))
    };
    let pipe = ["/bin/sh", "-c", "curl -f http://x | grep ok"];
    assert_eq!(of(r#""/bin/sh -c 'curl -f http://x | grep ok'""#).0, runs(&pipe));
    assert_eq!(of(r#"/bin/sh -c "curl -f http://x | grep ok""#).0, runs(&pipe));
    assert_eq!(of(r#""/usr/lib/check -H 10.0.0.1""#).0, runs(&["/usr/lib/check", "-H", "10.0.0.1"]));
    let (none, notes) = of(r#""/bin/sh -c 'curl""#);
    assert_eq!(none, None);
    assert!(notes.iter().any(|note| note.contains("quotation marks")), "{notes:?}");
}

#[test]
fn a_check_whose_exit_status_is_a_weight_is_left_out() {
    let imported = checked("MISC_CHECK {\n misc_path \"/bin/true\"\n misc_dynamic\n}");
    assert_eq!(imported.rules.services[0].check, None);
    assert!(imported.notes.iter().any(|note| note.contains("misc_dynamic")), "{:?}", imported.notes);
}

#[test]
fn a_check_over_tls_becomes_one() {
    let url =
        "url {\n path /up\n status_code 200\n digest 9b3a0c85a887a256d6939da88aabd8cd\n}\nvirtualhost www.example.com";
    let of = |more: &str| {
        let imported = checked(&format!("SSL_GET {{\n{url}\n{more}\n}}"));
        let check = imported.rules.services[0].check.clone().unwrap();
        let host = Some("www.example.com".to_owned());
        let request = HttpRequest { path: "/up".to_owned(), host, status: vec![(200, 200)], body: None };
        assert_eq!(check.probe, Probe::Https(request, TlsRules::default()));
        assert!(imported.notes.iter().any(|note| note.contains("digest: there is a text")), "{:?}", imported.notes);
        imported.notes.join("\n")
    };
    assert!(!of("enable_sni").contains("sni"));
    assert!(of("").contains("SSL_GET without enable_sni"));
    // Whom keepalived shows a certificate of its own.
    let ssl = "SSL {\n ca /etc/ca.pem\n certificate /etc/a.pem\n}\n";
    assert!(conf(ssl).notes.iter().any(|note| note.contains("SSL")), "{:?}", conf(ssl).notes);
}

#[test]
fn values_that_are_none_are_named() {
    let imported = checked(
        "uthreshold many\nTCP_CHECK {\n retry often\n connect_ip nowhere\n connect_port http\n}\n}\nquorum most\nhysteresis some\nreal_server 10.0.0.2 80 {",
    );
    for said in ["uthreshold", "retry", "connect_ip", "connect_port", "quorum", "hysteresis"] {
        assert!(imported.notes.iter().any(|note| note.contains(said)), "{said}: {:?}", imported.notes);
    }
}

const WEB: &str = r#"
! Two web servers and a mail server, with VRRP.
$VIP=192.0.2.10
global_defs {
    router_id lb1
    lvs_timeouts tcp 7200 tcpfin 30
    lvs_sync_daemon eth1
}
vrrp_instance VI_1 {
    interface eth0
    virtual_ipaddress {
        192.0.2.10/24
    }
}
virtual_server $VIP 80 {
    delay_loop 6
    lb_algo wrr
    lb_kind NAT
    persistence_timeout 50
    protocol TCP
    quorum 2
    hysteresis 1
    quorum_down "/usr/local/bin/down all"
    sorry_server 10.0.0.99 8080
    real_server 10.0.0.1 8080 {
        weight 3
        inhibit_on_failure
        HTTP_GET {
            url {
                path "/health?full=1"
                status_code 200 204-206
            }
            connect_timeout 3
            retry 2     # twice
            delay_before_retry 1
        }
    }
    real_server 10.0.0.2 8080 {
        weight 2
        HTTP_GET {
            url { path "/health?full=1"
                  status_code 200 204-206 }
            connect_timeout 3
            connect_port 9000
            retry 2
        }
    }
}
virtual_server_group mail {
    192.0.2.20-22 25
    fwmark 9
}
virtual_server group mail {
    lvs_sched sed
    lvs_method DR
    protocol TCP
    real_server 10.0.0.5 25 {
        SMTP_CHECK { host { connect_ip 10.1.0.5 } }
        notify_up "/bin/true"
    }
    real_server 10.0.0.6 25
    {
        MISC_CHECK {
            misc_path "/usr/lib/check -H 10.0.0.6"
        }
    }
}
virtual_server fwmark 3 {
}
"#;

#[test]
fn kinds_of_tunnels_are_taken_over() {
    let saved = "\
-A -t 192.0.2.1:80 -s rr
-a -t 192.0.2.1:80 -r 10.0.0.1:80 -i -w 1 --tun-type gue --tun-port 6080 --tun-nocsum
-a -t 192.0.2.1:80 -r 10.0.0.2:80 -i -w 1 --tun-type gre --tun-nocsum
-a -t 192.0.2.1:80 -r 10.0.0.3:80 -i -w 1 --tun-type gue --tun-port 5555 --tun-remcsum
-a -t 192.0.2.1:80 -r 10.0.0.4:80 -i -w 1 --tun-type gre --tun-csum
";
    let local = crate::ipvs::stand::forwarding(true);
    let read = lines::read(saved, &local, NameResolution::Numbers);
    let tunnels = |read: &Imported| -> Vec<Tunnel> {
        read.rules.services[0].backends.iter().map(|backend| backend.tunnel).collect()
    };
    let gue = |port| Tunnel::Gue { port: std::num::NonZeroU16::new(port).unwrap(), checksum: false };
    assert_eq!(tunnels(&read), [gue(6080), Tunnel::Gre, gue(5555)]);
    assert!(read.notes[0].contains("--tun-remcsum: no remote checksum offload"), "{:?}", read.notes);
    assert!(read.notes[1].contains("is left out: "), "{:?}", read.notes);
    let text = "
virtual_server 192.0.2.1 80 {
    lvs_method TUN type gue port 6080 nocsum
    protocol TCP
    real_server 10.0.0.1 80 { }
    real_server 10.0.0.2 80 {
        lvs_method TUN type gre
    }
}
";
    let read = |text: &str| keepalived(text, &local, &mut Files::none()).unwrap();
    assert_eq!((tunnels(&read(text)), read(text).notes.len()), (vec![gue(6080), Tunnel::Gre], 0));
    // What cannot be is left out, as of lines, and nothing else takes its place.
    for (cannot, why) in [
        ("gue port 6080 remcsum", "no remote checksum offload"),
        ("gue port 65536", "a port is 1 to 65535"),
        ("gue port 0", "gue to port 0"),
        ("gue nocsum", "gue without a port"),
        ("gre csum", "gre has no checksum"),
        ("vxlan", "no tunnel 'vxlan'"),
        ("gue port 6080 fast", "no 'fast'"),
    ] {
        let says = |read: &Imported, left_out: &str| {
            let note = &read.notes[0];
            assert!(
                note.contains(left_out) && note.contains(why) && read.notes.len() == 1,
                "{cannot}: {:?}",
                read.notes
            );
        };
        let server = read(&text.replace("type gre", &format!("type {cannot}")));
        says(&server, "its real server is left out: ");
        assert_eq!(tunnels(&server), [gue(6080)], "{cannot}");
        let service = read(&text.replace("gue port 6080 nocsum", cannot));
        says(&service, "its virtual server is left out: ");
        assert!(service.rules.services.is_empty(), "{cannot}");
    }
    let unknown = read(&text.replace("TUN type gue port 6080 nocsum", "TUNNEL"));
    assert!(unknown.notes[0].contains("its virtual server is left out: "), "{:?}", unknown.notes);
}

#[test]
fn virtual_servers_become_services_with_their_checks() {
    insta::assert_snapshot!(conf(WEB).text("keepalived.conf").unwrap());
}

#[test]
fn dpvss_keywords_are_known() {
    let text = "
local_address_group laddr_g1 {
    192.168.100.200 dpdk0
    192.168.100.201 dpdk0
}
virtual_server_group 192.168.100.254-80 {
    192.168.100.254 80
}
virtual_server group 192.168.100.254-80 {
    delay_loop 3
    lb_algo conhash
    hash_target sip
    lb_kind FNAT
    protocol TCP
    syn_proxy
    establish_timeout 600
    expire_quiescent_conn
    proxy_protocol v2
    laddr_group_name laddr_g1
    real_server 192.168.100.2 80 {
        weight 100
        uthreshold 5000
        TCP_CHECK {
            retry 2
            connect_timeout 3
            connect_port 80
        }
    }
}
";
    insta::assert_snapshot!(conf(text).text("keepalived.conf").unwrap());
    let other = |from: &str, to: &str| conf(&text.replace(from, to)).text("keepalived.conf").unwrap();
    // DPVS tells backends by its option unless it is told otherwise.
    for said in ["", "proxy_protocol disable"] {
        let told = other("proxy_protocol v2", said);
        assert!(told.contains("client_address = \"toa\"") && !told.contains("proxy_protocol"), "{told}");
    }
    for said in ["proxy_protocol v1", "proxy_protocol v2-insecure"] {
        let first = other("proxy_protocol v2", said);
        assert!(first.contains(&format!("# - line 18: {said}: not there, so client_address is left out")), "{first}");
        assert!(!first.lines().any(|line| line.starts_with("client_address")), "{first}");
    }
    // Without somebody who takes UOA off, a backend would get no datagrams.
    let of_udp = other("protocol TCP", "protocol UDP");
    assert!(!of_udp.lines().any(|line| line.starts_with("client_address")), "{of_udp}");
    assert!(
        of_udp.contains("lb_kind FNAT of UDP") && of_udp.contains("client_address = \"uoa\" where each"),
        "{of_udp}"
    );
    let routed = other("lb_kind FNAT", "lb_kind DR");
    assert!(!routed.contains("client_address") && routed.contains("proxy_protocol: needs full-nat"), "{routed}");
}

/// DPVS's NAT64: a service of IPv6, and servers and local addresses of IPv4.
#[test]
fn servers_of_ipv4_of_a_service_of_ipv6_are_kept_with_full_nat() {
    let text = |kind: &str| {
        format!(
            "local_address_group laddr_g1 {{\n 10.0.0.200 dpdk0\n fd00::9 dpdk0\n}}\nvirtual_server 2001:db8::1 80 {{\n lb_algo rr\n lb_kind \
             {kind}\n protocol TCP\n laddr_group_name laddr_g1\n real_server 10.0.0.1 80 {{ }}\n real_server fd00::1 80 {{ }}\n}}\n"
        )
    };
    let imported = conf(&text("FNAT"));
    let [service] = &imported.rules.services[..] else { panic!("{imported:?}") };
    assert_eq!((service.backends.len(), service.local.len(), service.lacks()), (2, 2, None));
    assert_eq!(imported.rules.config(1000).validate(), Ok(()));
    let routed = conf(&text("DR"));
    assert_eq!(routed.rules.services[0].backends.len(), 1);
    assert!(routed.notes.iter().any(|note| note.contains("10.0.0.1 80 is of another family")), "{:?}", routed.notes);
    // Their checks may come from an address of their family, which is not the service's.
    let checked = |from: &str, text: &str| {
        conf(&text.replace(" 80 { }", &format!(" 80 {{\n TCP_CHECK {{\n bindto {from}\n }}\n }}")))
    };
    let v4 = text("FNAT").replace("real_server fd00::1 80 { }\n", "");
    let source = |imported: &Imported| imported.rules.services[0].check.as_ref().unwrap().source;
    let imported = checked("10.0.0.9", &v4);
    assert_eq!(
        (source(&imported), imported.notes.len()),
        (Some("10.0.0.9".parse().unwrap()), 0),
        "{:?}",
        imported.notes
    );
    // Those of both families have none in common.
    for from in ["10.0.0.9", "fd00::8"] {
        let imported = checked(from, &text("FNAT"));
        let said = format!("bindto {from}: is left out");
        assert_eq!(source(&imported), None);
        assert!(imported.notes.iter().any(|note| note.contains(&said)), "{:?}", imported.notes);
        let written = imported.text("keepalived.conf").unwrap();
        Settings::parse("lb.toml", &written, Completeness::Required).unwrap();
    }
    // Those of IPv4 are for such servers alone.
    let own = conf(&text("FNAT").replace("real_server 10.0.0.1 80 { }\n", ""));
    assert_eq!(own.rules.services[0].local, ["fd00::9".parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn files_are_included_and_mistakes_are_told_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let server = |port: u16| {
        format!("virtual_server 192.0.2.1 {port} {{\n protocol TCP\n real_server 10.0.0.1 {port} {{ }}\n}}\n")
    };
    write("conf.d/b.conf", &(server(81) + "include ../c.conf\n"));
    write("conf.d/a.conf", &server(80));
    write("c.conf", &server(82));
    write("loop.conf", "include loop.conf\n");
    let read = |text: &str| keepalived(text, &nat(), &mut Files::below(folder.path()));
    let ports = |imported: Imported| {
        imported.rules.services.iter().map(|service| service.key.address.port()).collect::<Vec<_>>()
    };
    assert_eq!(ports(read("include conf.d/*.conf\n").unwrap()), [80, 81, 82]);
    for (text, said) in [
        ("include nothing.conf", "nothing.conf"),
        ("include loop.conf", "deep"),
        ("virtual_server 192.0.2.1 80 {\n", "not closed that was opened at line 1"),
        ("a\n}\n", "line 2: a brace closes nothing"),
        ("{\n", "line 1: a brace belongs to nothing"),
    ] {
        let error = format!("{:#}", read(text).map(|_| ()).unwrap_err());
        assert!(error.contains(said), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_much(text in "[ -~\n]{0,200}") {
        play(&text);
    }

    #[test]
    fn no_configuration_is_too_much(
        changes in prop::collection::vec((0..WEB.len(), prop::sample::select(vec!["{", "}", "\"", "$", "-", "9999999999", "\n", "é", ""])), 0..8),
    ) {
        let mut text = WEB.to_owned();
        for (at, with) in changes {
            if at < text.len() && text.is_char_boundary(at) {
                let end = (at + 1..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
                text.replace_range(at..end, with);
            }
        }
        play(&text);
    }
}

#[test]
fn one_packet_scheduling_is_taken_over_as_far_as_it_can_be() {
    let saved = "\
-A -u 192.0.2.1:53 -s wlc -o
-a -u 192.0.2.1:53 -r 10.0.0.1:53 -m -w 1 -x 7
-A -u 192.0.2.2:53 -s sh --ops
-a -u 192.0.2.2:53 -r 10.0.0.1:53 -m -w 1
-A -t 192.0.2.3:53 -s rr -o
-a -t 192.0.2.3:53 -r 10.0.0.1:53 -g -w 1
-A -u 192.0.2.4:53 -s mh -o -b mh-port
-a -u 192.0.2.4:53 -r 10.0.0.4:53 -g -w 1
";
    let read = |full| lines::read(saved, &crate::ipvs::stand::forwarding(full), NameResolution::Numbers);
    insta::assert_snapshot!(read(false).text("saved").unwrap());
    let full = read(true).rules;
    let once: Vec<_> = full.services.iter().map(|service| service.one_packet).collect();
    assert_eq!(once, [false, false, false, true]);
    let server = "protocol UDP\n ops\n lb_algo wlc\n real_server 10.0.0.1 53 {\n uthreshold 9\n}\n}";
    let dr = conf(&format!("virtual_server 192.0.2.1 53 {{\n lb_kind DR\n{server}"));
    let service = &dr.rules.services[0];
    assert_eq!((service.one_packet, service.scheduler), (true, crate::settings::ONE_PACKET_SCHEDULER));
    assert!(dr.notes.iter().any(|note| note.contains("uthreshold")), "{:?}", dr.notes);
    let fnat = conf(&format!("virtual_server 192.0.2.1 53 {{\n lb_kind FNAT\n{server}"));
    assert!(fnat.notes.iter().any(|note| note.contains("full-nat needs a connection")), "{:?}", fnat.notes);
    let tcp = conf("virtual_server 192.0.2.1 53 {\n lb_kind DR\n protocol TCP\n ops\n real_server 10.0.0.1 53 {\n}\n}");
    assert!(tcp.notes.iter().any(|note| note.contains("ops")) && !tcp.rules.services[0].one_packet, "{:?}", tcp.notes);
}
