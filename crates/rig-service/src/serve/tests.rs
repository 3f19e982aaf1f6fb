//! A service that counts, as clients of all kinds find it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::*;
use crate::client::{AskError, Client};
use crate::protocol::Counters;

const COUNTER: ServiceKind = ServiceKind { protocol: "netrig-counter", directory: "count", pins: "netrig-count" };

#[derive(Debug)]
struct Counter {
    next: Instant,
    ticks: u64,
    settings: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum TestRequest {
    /// Numbers up to this one, one after the other.
    Numbers(u32),
    /// The same, by its options.
    Options {
        most: u32,
    },
    Settings,
    Stop,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum TestReply {
    Number(u32),
    Settings(String),
    Ended,
}

impl Service for Counter {
    type Request = TestRequest;
    type Reply = TestReply;

    fn introduction(&self) -> String {
        "ready: it counts\n".to_owned()
    }

    fn answer(&mut self, request: TestRequest, replies: Replies<TestReply>) -> ControlFlow<Replies<TestReply>> {
        match request {
            TestRequest::Numbers(0) => {
                replies.refuse(Refusal::new("nothing to count", Some("ask for some".to_owned())));
            }
            TestRequest::Options { most } => replies.answer(TestReply::Number(most)),
            TestRequest::Numbers(most) => {
                // More of them than may wait.
                thread::spawn(move || {
                    for number in 1..most {
                        replies.part(TestReply::Number(number)).unwrap();
                    }
                    replies.answer(TestReply::Number(most));
                });
            }
            TestRequest::Settings => replies.answer(TestReply::Settings(self.settings.clone())),
            TestRequest::Stop => return ControlFlow::Break(replies),
        }
        ControlFlow::Continue(())
    }

    fn reload(&mut self, settings: Option<&str>) -> Result<Vec<String>, Refusal> {
        match settings {
            Some("") | None => Err(Refusal::new("no settings", None)),
            Some(settings) => {
                self.settings = settings.to_owned();
                Ok(vec!["other settings".to_owned()])
            }
        }
    }

    fn due(&self) -> Instant {
        self.next
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.next = Instant::now() + Duration::from_millis(1);
    }

    fn metrics(&mut self) -> anyhow::Result<String> {
        Ok(format!("ticks {}\n", self.ticks))
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        Ok(Counters { counts: [("ticks".to_owned(), self.ticks)].into(), drops: Vec::new() })
    }

    fn stop(self, end: End<TestReply>) -> Result<Exit, Failure> {
        if let End::Request(replies) = end {
            replies.answer(TestReply::Ended);
        }
        Ok(Exit::Done)
    }
}

fn counter(settings: &str) -> Counter {
    Counter { next: Instant::now(), ticks: 0, settings: settings.to_owned() }
}

/// Served until it is told to end.
fn served(run: &Path) -> (Client, JoinHandle<()>) {
    let files = ServiceFiles::at(run, &COUNTER, "one");
    let lock = files.lock(|process| panic!("taken by {process}")).unwrap();
    let (sender, events) = mpsc::channel();
    let give = move |question, replies| sender.send(Event::Question(question, replies)).is_ok();
    let server = SocketServer::start(&files.socket(), COUNTER.protocol(), give).unwrap();
    let body = move || {
        let mut service = counter("some");
        let end = work(&mut service, &events, &mut ServiceManager::default());
        service.stop(end).unwrap();
        server.stop();
        drop(lock);
    };
    (Client::new(files, "the counter", "no counter runs: start it"), thread::spawn(body))
}

fn numbers(client: &Client, most: u32) -> Result<Vec<u32>, AskError> {
    let mut all = Vec::new();
    let _all = client.stream(&TestRequest::Numbers(most), |answer| {
        let TestReply::Number(number) = answer else { panic!("another kind of answer") };
        all.push(number);
        ControlFlow::<()>::Continue(())
    })?;
    Ok(all)
}

#[test]
fn a_service_answers_its_clients_until_one_ends_it() {
    let home = tempfile::tempdir().unwrap();
    let (client, running) = served(home.path());
    assert_eq!(numbers(&client, 20).unwrap(), (1..=20).collect::<Vec<_>>());
    assert_eq!(client.ask::<TestReply>(&TestRequest::Settings).unwrap(), TestReply::Settings("some".to_owned()));
    let refused = numbers(&client, 0).unwrap_err();
    assert_eq!(refused.to_string(), "nothing to count: ask for some");
    assert_eq!(Failure::from(refused).exit, Exit::BadInput);
    assert_eq!(client.reload().unwrap_err().to_string(), "no settings");
    // It is at work meanwhile.
    let first = client.counters().unwrap();
    let more = std::iter::repeat_with(|| client.counters().unwrap());
    let later = more.into_iter().find(|now| now.counters.counts["ticks"] > first.counters.counts["ticks"]).unwrap();
    assert!(first.from_ns <= first.to_ns && first.to_ns <= later.from_ns, "{first:?}, {later:?}");
    assert!(client.files().is_running());
    assert_eq!(client.ask::<TestReply>(&TestRequest::Stop).unwrap(), TestReply::Ended);
    running.join().unwrap();
    assert!(!client.files().is_running());
    let absent = client.ask::<TestReply>(&TestRequest::Settings).unwrap_err();
    assert_eq!(absent.to_string(), "no counter runs: start it");
    assert_eq!(Failure::from(absent).exit, Exit::Lacking);
}

#[test]
fn strangers_are_told_whom_they_speak_to_and_end_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (client, running) = served(home.path());
    let socket = client.files().socket();
    let said = |line: &str| -> Vec<String> {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        BufReader::new(stream).lines().map(Result::unwrap_or_default).collect()
    };
    // A client from before there were greetings.
    let lines = said("\"status\"\n");
    assert!(lines.len() == 1 && lines[0].contains("\"protocol\":\"netrig-counter\",\"version\":1"), "{lines:?}");
    let greeting = &lines[0];
    let lines = said(&format!("{greeting}\n{{\"number\":0,\"request\":\"what\"}}\n"));
    assert!(lines[1].contains("broken") && lines[1].contains("unknown variant `what`"), "{lines:?}");
    // A later one may ask for what is known here, and not for more.
    let asks = |number: u32, options: &str| {
        format!("{{\"number\":{number},\"request\":{{\"ask\":{{\"Options\":{{\"most\":3{options}}}}}}}}}\n")
    };
    let later = [asks(0, ",\"dscp\":\"ef\""), asks(1, ",\"dscp\":null"), asks(2, "")].concat();
    let lines = said(&format!("{greeting}\n{later}"));
    assert!(lines[1].contains("\"refused\":{\"number\":0") && lines[1].contains("does not know 'dscp'"), "{lines:?}");
    for (number, line) in [(1, &lines[2]), (2, &lines[3])] {
        assert!(line.contains(&format!("\"answer\":{{\"number\":{number},")) && line.contains('3'), "{lines:?}");
    }
    // Of another kind, of another version, and one that speaks without being asked.
    let others: [(&str, &str); 3] = [
        (r#"{"protocol":"netrig-lb","version":1}"#, "it speaks 'netrig-lb', not 'netrig-counter'"),
        (r#"{"protocol":"netrig-counter","version":2}"#, "one side speaks version 2 and the other 1"),
        (r#"{"refused":{"what":"this control plane does not understand the request"}}"#, "no greeting of netrig's"),
    ];
    assert_eq!(client.ask::<TestReply>(&TestRequest::Stop).unwrap(), TestReply::Ended);
    running.join().unwrap();
    for (line, words) in others {
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = String::new();
            BufReader::new(&stream).read_line(&mut greeting).unwrap();
            writeln!(stream, "{line}").unwrap();
        });
        let error = client.ask::<TestReply>(&TestRequest::Settings).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("restart it with this version") && said.contains(words), "{said}");
        assert_eq!(Failure::from(error).exit, Exit::Failed);
        other.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
    }
}

#[test]
fn over_streams_the_first_line_brings_the_settings() {
    let (here, there) = UnixStream::pair().unwrap();
    let (sender, events) = mpsc::channel();
    let ended = sender.clone();
    let reader = thread::spawn(move || {
        let give = |question, replies| sender.send(Event::Question(question, replies)).is_ok();
        Conversation::default().hold(&there, &there, &COUNTER.protocol(), &give).unwrap();
        let _gone = ended.send(Event::Stop);
    });
    let service = thread::spawn(move || {
        let (settings, replies) = first(&events).unwrap();
        let mut service = counter(&settings);
        replies.give(Answer::Started { introduction: service.introduction() });
        matches!(work(&mut service, &events, &mut ServiceManager::default()), End::Signal)
    });
    let mut client = rig_lines::Client::greet(&here, &here, &COUNTER.protocol(), "test").unwrap();
    let mut ask = |question: Question<TestRequest>| client.ask::<Answer<TestReply>>(&question);
    let refused = ask(Question::Ask(TestRequest::Settings)).unwrap_err();
    assert_eq!(refused.to_string(), "it has not been started yet: send its settings first");
    let started = ask(Question::Start { settings: "first".to_owned() }).unwrap();
    assert_eq!(started, Answer::Started { introduction: "ready: it counts\n".to_owned() });
    assert!(ask(Question::Start { settings: "again".to_owned() }).is_err());
    let reloaded = ask(Question::Reload { settings: Some("second".to_owned()) }).unwrap();
    assert_eq!(reloaded, Answer::Done(vec!["other settings".to_owned()]));
    let settings = ask(Question::Ask(TestRequest::Settings)).unwrap();
    assert_eq!(settings, Answer::Answer(TestReply::Settings("second".to_owned())));
    assert!(matches!(ask(Question::Counters).unwrap(), Answer::Counters(_)));
    // The end of its input is its end.
    here.shutdown(std::net::Shutdown::Write).unwrap();
    reader.join().unwrap();
    assert!(service.join().unwrap());
}
