use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rustix::event::{PollFd, PollFlags};

use super::*;

const MESSAGE: usize = 4000;

fn settings(carrier: Carrier) -> StreamSettings {
    StreamSettings { payload: vec![7; MESSAGE].into(), carrier, discard: false, rate: None, burst: None, limit: None }
}

fn given(socket: impl Into<OwnedFd>, sends: bool) -> GivenSocket {
    GivenSocket { socket: socket.into(), sends, local: "here".into(), remote: "there".into() }
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn udp() -> (UdpSocket, UdpSocket) {
    let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Looks every now and then until it holds; what a stalled machine cannot do in a minute fails.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up_ns = monotonic_ns() + 60_000_000_000;
    while !holds() {
        assert!(monotonic_ns() < give_up_ns, "{what}");
        rig_sys::clock::sleep_until(monotonic_after(std::time::Duration::from_millis(2)));
    }
}

#[test]
fn two_senders_share_what_there_is_to_send() {
    for (limit, messages) in [(Limit::Messages(101), 101), (Limit::Bytes(MESSAGE as u64 * 7 + 1), 8)] {
        for from_file in [false, true] {
            let ((a, a2), (b, b2)) = (tcp(), tcp());
            let settings = StreamSettings { limit: Some(limit), ..settings(Carrier::Bytes { from_file }) };
            let discarding = StreamSettings { discard: from_file, ..settings.clone() };
            let receiving = Streams::open(&discarding, vec![given(a2, false), given(b2, false)]).unwrap();
            let sending = Streams::open(&settings, vec![given(a, true), given(b, true)]).unwrap();
            assert_eq!(sending.counts(), [Counts::default(); 2]);
            receiving.start();
            sending.start();
            until("both senders end", || sending.is_ended());
            sending.check().unwrap();
            let news = PollFd::from_borrowed_fd(sending.news(), PollFlags::IN);
            assert_eq!(rustix::event::poll(&mut [news], Some(&crate::wait::timespec(0))).unwrap(), 1);
            let sent = sending.counts();
            assert_eq!(sent.iter().map(|counts| counts.operations).sum::<u64>(), messages);
            assert_eq!(sent.iter().map(|counts| counts.bytes).sum::<u64>(), messages * MESSAGE as u64);
            until("all arrives", || {
                receiving.counts().iter().map(|c| c.bytes).sum::<u64>() == messages * MESSAGE as u64
            });
            assert!(rig_sys::socket::tcp_info(sending.socket(0).unwrap()).is_ok() && sending.socket(2).is_none());
            sending.stop();
            until("the receivers see the end", || receiving.is_ended());
            receiving.stop();
        }
    }
}

#[test]
fn a_stream_goes_on_until_it_is_ended() {
    let (a, b) = tcp();
    let settings =
        StreamSettings { rate: Some(50_000_000), burst: Some(3), ..settings(Carrier::Bytes { from_file: false }) };
    let receiver = b.as_fd().try_clone_to_owned().unwrap();
    let both = Streams::open(&settings, vec![given(a, true), given(b, false)]).unwrap();
    both.start();
    until("bytes arrive", || both.counts()[1].bytes > 0);
    assert_eq!(both.ended(), 0);
    both.end_sending();
    until("sender and receiver end", || both.is_ended());
    rustix::io::write(&receiver, b"the way back is open").unwrap();
    let counts = both.counts();
    assert_eq!(counts[0].bytes, counts[1].bytes);
    both.stop();
}

#[test]
fn a_sender_whose_peer_goes_says_so() {
    let (a, b) = tcp();
    let sending = Streams::open(&settings(Carrier::Bytes { from_file: false }), vec![given(a, true)]).unwrap();
    sending.start();
    drop(b);
    until("the sender ends", || sending.is_ended());
    let error = sending.check().unwrap_err().to_string();
    assert!(error.contains("send to there (from here)"), "{error}");
}

#[test]
fn datagrams_are_numbered_and_counted() {
    for (wide, discard) in [(false, false), (true, false), (true, true)] {
        let (a, b) = udp();
        let mut settings = settings(Carrier::Datagrams { wide });
        // The socket's buffer holds them all, so that none is lost.
        settings.limit = Some(Limit::Messages(20));
        let receiving = Streams::open(&StreamSettings { discard, ..settings.clone() }, vec![given(b, false)]).unwrap();
        receiving.start();
        // No payload: words of a protocol.
        a.send(b"9876").unwrap();
        let sending = Streams::open(&settings, vec![given(a.as_fd().try_clone_to_owned().unwrap(), true)]).unwrap();
        sending.start();
        until("all are sent", || sending.is_ended());
        sending.check().unwrap();
        assert_eq!(sending.counts(), [Counts { bytes: 20 * MESSAGE as u64, operations: 20 }]);
        until("all arrive", || receiving.datagrams()[0].highest == 20);
        until("all are counted", || receiving.counts()[0].operations == 20);
        assert_eq!(receiving.counts()[0].bytes, 20 * MESSAGE as u64);
        let DatagramCounts { lost, out_of_order, .. } = receiving.datagrams()[0];
        assert_eq!((lost, out_of_order), (0, 0));
        receiving.forget_jitter();
        sending.stop();
        receiving.stop();
    }
}

#[test]
fn datagrams_that_are_too_long_say_so() {
    let (a, _b) = udp();
    let mut settings = settings(Carrier::Datagrams { wide: false });
    settings.payload = vec![0; 65_508].into();
    let sending = Streams::open(&settings, vec![given(a, true)]).unwrap();
    sending.start();
    until("the sender ends", || sending.is_ended());
    let error = sending.check().unwrap_err().to_string();
    assert!(error.contains("Message too long"), "{error}");
}
