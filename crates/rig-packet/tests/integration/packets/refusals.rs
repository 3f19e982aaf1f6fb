//! Configurations that cannot be run are refused by name.

use std::time::Duration;

use rig_packet::{AddressStride, Config, Flood, MessageEnd, RequestRepeat, Service, TcpClient, V4};

use super::rig::*;

/// What is said to a change of a client that is right.
fn said(change: impl FnOnce(&mut Config<V4>, &mut TcpClient)) -> String {
    let mut tcp = tcp_client();
    let mut config = client::<V4>(Service::TcpClient(tcp.clone()));
    assert_eq!(config.check(), Ok(()));
    change(&mut config, &mut tcp);
    config.service = Service::TcpClient(tcp);
    config.check().unwrap_err().to_string()
}

#[test]
fn each_refusal_names_what_is_wrong() {
    let cases = [
        (said(|config, _| config.local.clear()), "local addresses: there must be 1 to 65535, and there are 0"),
        (
            said(|config, _| config.remote[0].1 = 70_000),
            "remote addresses: there must be 1 to 65535, and there are 70000",
        ),
        (said(|config, _| config.capacity = 0), "capacity of 0 connections"),
        (
            said(|_, tcp| tcp.client.load.hold = Some(1001)),
            "1001 connections are to be held open, and there are only 1000 (capacity)",
        ),
        (
            said(|_, tcp| (tcp.client.ports, tcp.client.load.hold) = (5..=9, Some(6))),
            "6 connections are to be held open, and there are only 5 (addresses and ports)",
        ),
        (said(|_, tcp| tcp.client.load.rate = f64::NAN), "a rate of NaN connections per second"),
        (said(|_, tcp| tcp.request = vec![0; 1461].into()), "a request of 1461 bytes: give 1 to 1460"),
        (said(|_, tcp| tcp.response = MessageEnd::Bytes(0)), "a response of 0 bytes"),
        (said(|_, tcp| tcp.mss = 20), "maximum segment size of 20"),
        (
            said(|_, tcp| tcp.times.retransmit = Duration::from_secs(2200)),
            "retransmission time-out of 2200s: give 1ms to 2199.023",
        ),
        (said(|_, tcp| tcp.times.retries = 16), "retransmissions of 16: give 1 to 15"),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "an empty range is what is refused")]
    let empty = said(|_, tcp| tcp.client.ports = 9..=5);
    assert_eq!(empty, "source ports: the range is empty");
}

/// A client that repeats as `repeat` says.
fn repeating(repeat: RequestRepeat) -> String {
    said(|_, tcp| tcp.client.repeat = Some(repeat))
}

#[test]
fn what_a_client_repeats_is_checked() {
    let every = RequestRepeat::every(Duration::ZERO);
    let cases = [
        (repeating(RequestRepeat { rate: Some(0.0), ..every }), "a rate of 0 requests per second"),
        (repeating(RequestRepeat { rate: Some(f64::INFINITY), ..every }), "a rate of inf requests per second"),
        (
            repeating(RequestRepeat { rate: Some(5.0), ..RequestRepeat::every(Duration::from_secs(1)) }),
            "an interval between requests and a rate of requests: give one of both",
        ),
        (repeating(RequestRepeat { requests: Some(0), ..every }), "requests of a connection of 0"),
        (repeating(RequestRepeat { pipeline: 101, ..every }), "datagrams back to back of 101: give 1 to 100"),
        (repeating(RequestRepeat { pipeline: 2, ..every }), "2 datagrams back to back: TCP has none"),
        (said(|_, tcp| tcp.client.load.launch = Some(0)), "connections opened together of 0"),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn floods_that_cannot_be_are_refused() {
    let flood = |destinations: &[(&str, u32)], change: &dyn Fn(&mut TcpClient)| {
        said(|_, tcp| {
            tcp.client.load.hold = None;
            let stride =
                |&(first, count): &(&str, u32)| AddressStride { first: first.parse().unwrap(), step: 1, count };
            tcp.client.flood =
                Some(Flood { destinations: destinations.iter().map(stride).collect(), ..Flood::default() });
            change(tcp);
        })
    };
    let cases = [
        (flood(&[], &|tcp| tcp.client.load.hold = Some(1)), "flood: flows are to be held open, but nothing repeats"),
        (
            flood(&[], &|tcp| tcp.client.repeat = Some(RequestRepeat::every(Duration::ZERO))),
            "flood: nothing answers, so packets cannot follow answers",
        ),
        (flood(&[("fd00::1", 1)], &|_| {}), "destination fd00::1 of a flood"),
        (flood(&[("10.0.0.1", 0)], &|_| {}), "addresses of a flood's destination of 0: give 1 to 65536"),
        (flood(&[("10.0.0.1", 65_536), ("10.9.0.1", 1)], &|_| {}), "destinations of a flood of 65537: give 1 to 65536"),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
}
