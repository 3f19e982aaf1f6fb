//! One end is a recording of the original's.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use netrig_tools::ntttcp::sync::{Action, Cycle, Event, LengthPolicy, Receiver, Sender};
use serde::Deserialize;

use super::process::{Process, TIMEOUT, free_base, netrig, until_listening};

#[derive(Deserialize)]
struct Exchanges {
    tool: String,
    exchange: Vec<Exchange>,
}

#[derive(Deserialize)]
struct Exchange {
    name: String,
    receiver: String,
    senders: Vec<String>,
    own: u32,
    many: bool,
    lines: Vec<String>,
}

enum Line {
    ToReceiver(u32, Vec<u8>),
    ToSender(u32, Vec<u8>),
    Over,
}

impl Exchange {
    fn lines(&self) -> Vec<Line> {
        let line = |line: &String| {
            if line == "over" {
                return Line::Over;
            }
            let (head, hex) = line.split_once(' ').unwrap();
            let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
            let client = head[..1].parse().unwrap();
            if head.ends_with('>') { Line::ToReceiver(client, bytes) } else { Line::ToSender(client, bytes) }
        };
        self.lines.iter().map(line).collect()
    }
}

fn exchanges() -> Exchanges {
    let exchanges: Exchanges = toml::from_str(include_str!("exchanges.toml")).unwrap();
    assert_eq!(exchanges.tool, "NTTTCP for Linux 1.4.3");
    assert!(exchanges.exchange.iter().all(|e| !e.receiver.is_empty() && !e.senders.is_empty()));
    exchanges
}

/// What the original's senders said gets the answers that the original's receiver gave.
#[test]
fn our_receiver_answers_recorded_senders_as_the_original_did() {
    for exchange in exchanges().exchange {
        let mut receiver = Receiver::new(LengthPolicy::AtLeast(Cycle::Seconds(exchange.own)), exchange.many);
        (0..exchange.senders.len() as u32).for_each(|client| receiver.connected(client));
        let mut replies: Vec<(u32, Vec<u8>)> = Vec::new();
        for line in exchange.lines() {
            match line {
                Line::ToReceiver(client, bytes) => {
                    let actions = receiver.bytes(client, &bytes);
                    replies.extend(actions.into_iter().filter_map(|action| match action {
                        Action::Reply(client, message) => Some((client, message.to_vec())),
                        _ => None,
                    }));
                }
                Line::ToSender(client, bytes) => match replies.iter().position(|(to, _)| *to == client) {
                    Some(at) => assert_eq!(replies.remove(at), (client, bytes), "{}", exchange.name),
                    // Said twice to the last client.
                    None => assert_eq!((exchange.many, bytes), (true, vec![0, 0, 0, b'R']), "{}", exchange.name),
                },
                Line::Over => receiver.finished(),
            }
        }
        assert!(replies.is_empty(), "{}: not recorded: {replies:?}", exchange.name);
    }
}

/// What the original's receiver said makes our senders say what the original's senders said.
#[test]
fn our_senders_answer_a_recorded_receiver_as_the_originals_did() {
    for exchange in exchanges().exchange {
        let option = |text: &str, name: &str| -> u32 {
            let mut words = text.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).map_or(0, |word| word.parse().unwrap())
        };
        for (client, command) in exchange.senders.iter().enumerate() {
            let cycle = ["-W", "-t", "-C"].iter().map(|name| option(command, name)).sum();
            let (mut sender, hello) = Sender::new(Cycle::Seconds(cycle));
            let mut says: Vec<Vec<u8>> = vec![hello.to_vec()];
            for line in exchange.lines() {
                match line {
                    Line::ToReceiver(from, bytes) if from == client as u32 => {
                        // A sender that has nothing to say is told by its owner to end: it was interrupted, or has finished.
                        let expected = if says.is_empty() { sender.exit().to_vec() } else { says.remove(0) };
                        assert_eq!(bytes, expected, "{}", exchange.name);
                    }
                    Line::ToSender(to, bytes) if to == client as u32 => match sender.bytes(&bytes) {
                        Ok(events) => {
                            for event in events {
                                match event {
                                    Event::Free { next } => says.push(next.to_vec()),
                                    Event::Agreed(_) => says.push(sender.start(command.ends_with("-L")).to_vec()),
                                    Event::Wait | Event::Run | Event::State(_) => {}
                                }
                            }
                        }
                        Err(error) => assert!(exchange.name.contains("busy"), "{}: {error}", exchange.name),
                    },
                    _ => {}
                }
            }
            assert!(says.is_empty(), "{}: not recorded: {says:?}", exchange.name);
        }
    }
}

/// Over sockets, a sender that does what the recording says, against the whole receiver process.
#[test]
fn the_receiver_process_serves_a_recorded_sender() {
    let exchange = exchanges().exchange.into_iter().find(|e| e.name == "a test of equal times").unwrap();
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -p {base}"), home.path());
    until_listening(base);
    until_listening(base - 1);
    let to = |port| TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    let (mut sync, mut data) = (to(base - 1), to(base));
    sync.set_read_timeout(Some(TIMEOUT)).unwrap();
    for line in exchange.lines() {
        match line {
            Line::ToReceiver(_, bytes) => sync.write_all(&bytes).unwrap(),
            Line::ToSender(_, bytes) => {
                let mut answer = vec![0; bytes.len()];
                sync.read_exact(&mut answer).unwrap();
                assert_eq!(answer, bytes);
            }
            Line::Over => {}
        }
    }
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        data.write_all(&[b'A'; 10_000]).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    drop((sync, data));
    assert!(receiving.end().succeeded().bytes() > 0);
}

/// And a receiver that does what the recording says, against the whole sender.
#[test]
fn the_sender_process_is_served_by_a_recorded_receiver() {
    let exchange = exchanges().exchange.into_iter().find(|e| e.name == "a test of equal times").unwrap();
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let listen = |port| TcpListener::bind(SocketAddr::new(IpAddr::from(Ipv4Addr::LOCALHOST), port)).unwrap();
    let (sync, data) = (listen(base - 1), listen(base));
    let sending = Process::start(&mut netrig(), &format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base}"), home.path());
    let (mut sync, _) = sync.accept().unwrap();
    sync.set_read_timeout(Some(TIMEOUT)).unwrap();
    let reader = thread::spawn(move || {
        let (mut data, _) = data.accept().unwrap();
        let (mut total, mut buffer) = (0u64, vec![0; 1 << 20]);
        while let Ok(n @ 1..) = data.read(&mut buffer) {
            total += n as u64;
        }
        total
    });
    for line in exchange.lines() {
        match line {
            Line::ToReceiver(_, bytes) => {
                let mut question = vec![0; bytes.len()];
                sync.read_exact(&mut question).unwrap();
                assert_eq!(question, bytes);
            }
            Line::ToSender(_, bytes) => sync.write_all(&bytes).unwrap(),
            Line::Over => {}
        }
    }
    // Our sender asks whether the test is over before it goes; the original's receiver says nothing any more.
    let mut question = [0; 4];
    sync.read_exact(&mut question).unwrap();
    assert_eq!(question, [0, 0, 0, b'X']);
    drop(sync);
    let sent = sending.end().succeeded().bytes();
    let received = reader.join().unwrap();
    assert!(sent > 0 && received >= sent, "{sent} sent, {received} received");
}
