//! Configurations that cannot be run are refused by name.

use std::time::Duration;

use rig_load::packet::{Config, Expect, Service, TcpClient, V4};

use crate::rig::*;

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
        (said(|_, tcp| tcp.response = Expect::Bytes(0)), "a response of 0 bytes"),
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
