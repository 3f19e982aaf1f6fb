//! A service that is asked over its standard input and output, as the rig asks it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub struct Conversation {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    number: u64,
}

impl Conversation {
    pub fn begin(command: &mut Command, protocol: &str) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut new = Self { child, to, from, number: 0 };
        new.line(&json!({ "protocol": protocol, "version": 1, "build": "test" }));
        let greeting = new.heard();
        assert_eq!((&greeting["protocol"], &greeting["version"]), (&json!(protocol), &json!(1)), "{greeting}");
        new
    }

    fn line(&mut self, line: &Value) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn heard(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The answer, or why it is refused.
    pub fn asks(&mut self, request: &Value) -> Result<Value, Value> {
        self.line(&json!({ "number": self.number, "request": request }));
        let mut reply = self.heard();
        let (kind, key) = if reply.get("answer").is_some() { ("answer", "value") } else { ("refused", "why") };
        assert_eq!(reply[kind]["number"], self.number, "{reply}");
        self.number += 1;
        let said = reply[kind][key].take();
        if kind == "answer" { Ok(said) } else { Err(said) }
    }

    #[track_caller]
    pub fn starts(&mut self, settings: &str) -> String {
        let started = self.asks(&json!({ "start": { "settings": settings } })).unwrap();
        started["started"]["introduction"].as_str().unwrap().to_owned()
    }

    /// Counters by name.
    #[track_caller]
    pub fn counters(&mut self) -> Value {
        let mut counters = self.asks(&json!("counters")).unwrap()["counters"].take();
        let (from, to) = (counters["from_ns"].as_u64().unwrap(), counters["to_ns"].as_u64().unwrap());
        assert!(0 < from && from <= to, "{counters}");
        counters["counts"].take()
    }

    /// Ends its input: the status that it ends with, and what it has said to standard error.
    pub fn ends(self) -> (Option<i32>, String) {
        let Self { child, to, mut from, .. } = self;
        drop(to);
        let mut rest = String::new();
        from.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "standard output is for answers");
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
