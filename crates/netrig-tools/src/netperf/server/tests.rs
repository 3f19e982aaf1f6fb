use super::*;
use crate::netperf::recorded::exchanges;

fn prepare(request: &OmniRequest) -> Result<OmniResponse, i32> {
    let local = IpAddr::from([127, 0, 0, 1]);
    let local = std::net::SocketAddr::new(local, 0).into();
    End::prepare(request, local, local).map(|end| end.response).map_err(|Refusal(errno)| errno)
}

#[test]
fn recorded_clients_are_answered_as_netserver_did() {
    for exchange in exchanges() {
        let mut request = OmniRequest::decode(&exchange.request);
        request.server_address = None;
        if exchange.options.contains("nonsense") {
            // netserver goes on with another than it was asked for.
            assert_eq!(prepare(&request), Err(Errno::NOENT.raw_os_error()));
            continue;
        }
        let ours = prepare(&request).unwrap_or_else(|errno| panic!("{}: {errno}", exchange.options));
        let theirs = OmniResponse::decode(&exchange.response);
        assert_ne!(ours.data_port, 0, "{}", exchange.options);
        // A machine has sizes of its own where nothing is asked for, and a rate of its CPUs is none of ours.
        let sizes = |response: &OmniResponse| {
            let asked = |size: i32, wanted: bool| if wanted { size } else { 0 };
            (
                asked(response.send_size, request.send_size > 0 || request.response_size > 0),
                asked(response.receive_size, request.receive_size > 0 || request.request_size > 0),
                asked(response.send_buffer, request.send_buffer > 0),
                asked(response.receive_buffer, request.receive_buffer > 0),
            )
        };
        assert_eq!(sizes(&ours), sizes(&theirs), "{}", exchange.options);
        assert_eq!(
            (ours.flags, ours.priority, ours.type_of_service),
            (theirs.flags, theirs.priority, theirs.type_of_service),
            "{}",
            exchange.options
        );
        let results = OmniResults::decode(&exchange.results);
        assert!(results.elapsed > 0.0 && results.elapsed < 2.0, "{}: {results:?}", exchange.options);
        assert!(results.bytes_sent + results.bytes_received > 0, "{}: {results:?}", exchange.options);
    }
}

#[test]
fn what_a_client_may_not_ask_for_is_an_errno() {
    let good = OmniRequest::decode(&exchanges()[0].request);
    type Change = fn(&mut OmniRequest);
    let cases: [(&str, Change, Errno); 11] = [
        ("a file of the server's", |r| r.fill_file = "/etc/shadow".into(), Errno::PERM),
        ("no protocol", |r| r.protocol = 255, Errno::PROTONOSUPPORT),
        ("neither way", |r| r.direction = 0, Errno::INVAL),
        ("connections without any", |r| (r.protocol, r.flags) = (17, flag::CONNECT_TEST), Errno::INVAL),
        ("a CPU that is none", |r| r.cpu = 4095, Errno::INVAL),
        ("a port that is none", |r| r.data_port = 70_000, Errno::INVAL),
        ("all memory", |r| (r.receive_size, r.receive_width) = (1 << 30, 1 << 20), Errno::MSGSIZE),
        (
            "rings without end",
            |r| (r.receive_size, r.receive_alignment, r.receive_width) = (1, 0, 1 << 28),
            Errno::MSGSIZE,
        ),
        ("a sum beyond all numbers", |r| (r.receive_offset, r.receive_width) = (u32::MAX, u32::MAX), Errno::MSGSIZE),
        ("datagrams of no direction", |r| (r.protocol, r.direction) = (17, 0), Errno::INVAL),
        ("a hole in memory", |r| r.receive_alignment = u32::MAX, Errno::MSGSIZE),
    ];
    for (name, change, errno) in cases {
        let mut request = good.clone();
        change(&mut request);
        assert_eq!(prepare(&request), Err(errno.raw_os_error()), "{name}");
    }
    assert!(prepare(&good).is_ok());
}
