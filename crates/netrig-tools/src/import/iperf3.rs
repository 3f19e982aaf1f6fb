//! iperf3's JSON (`-J`, `--json-stream`), versions 3.12 to 3.21.

use serde_json::{Deserializer, Value};

use super::{FailedTest, Mistake, Outputs};
use crate::iperf3::UNSTORED;
use crate::iperf3::told::{TOOL, test_of};
use crate::store_run::tidy;

/// All objects of a text, each a test, or an event of one.
pub fn read(text: &str) -> Result<Outputs, Mistake> {
    let mut outputs = Outputs::default();
    let mut stream = Events::default();
    let mut documents = Deserializer::from_str(text).into_iter::<Value>();
    let mut lines = LineCount::default();
    let mut from = 0;
    loop {
        let line = lines.at(text, from);
        outputs.check_count()?;
        let document = match documents.next() {
            None => break,
            Some(Ok(document)) => document,
            Some(Err(error)) => {
                // It counts lines from the text's begin.
                let at = error.line().max(1);
                return Err(Mistake::at(at, format!("not the JSON that iperf3 writes with -J: {error}")));
            }
        };
        from = documents.byte_offset();
        let Some(event) = document.get("event") else {
            // The whole of what came as events before (--json-stream-full-output) is no test of its own.
            let cookie = document["start"]["cookie"].as_str();
            if cookie.is_none() || cookie != stream.last_cookie.as_deref() {
                take(&mut outputs, &document, line)?;
            }
            continue;
        };
        let data = document.get("data").cloned().unwrap_or_default();
        match event.as_str() {
            Some("start") => {
                stream.finish(&mut outputs, line)?;
                stream.test["start"] = data;
            }
            Some("end") => {
                stream.test["end"] = data;
                stream.finish(&mut outputs, line)?;
            }
            Some("error") => stream.test["error"] = data,
            // Intervals, and what the server printed.
            Some(_) => {}
            None => return Err(Mistake::at(line, "expected an event of --json-stream with a name")),
        }
    }
    stream.finish(&mut outputs, lines.at(text, from))?;
    Ok(outputs)
}

/// Counts lines from the begin of a text to its end, each once.
#[derive(Default)]
struct LineCount {
    counted_to: usize,
    breaks: usize,
}

impl LineCount {
    /// The line of the first byte that is not blank, from 1. `from` does not go back.
    fn at(&mut self, text: &str, from: usize) -> usize {
        let rest = text.get(from..).unwrap_or_default();
        let begin = from + (rest.len() - rest.trim_start().len());
        self.breaks += text.get(self.counted_to..begin).unwrap_or_default().matches('\n').count();
        self.counted_to = begin;
        1 + self.breaks
    }
}

/// A test that comes as events.
#[derive(Default)]
struct Events {
    test: Value,
    last_cookie: Option<String>,
}

impl Events {
    /// Where it ended without an end, it was broken off.
    fn finish(&mut self, outputs: &mut Outputs, line: usize) -> Result<(), Mistake> {
        let mut test = std::mem::take(&mut self.test);
        if test.is_null() {
            return Ok(());
        }
        if test.get("end").is_none() && test.get("error").is_none() {
            test["error"] = "the output ends in the middle of the test".into();
        }
        self.last_cookie = test["start"]["cookie"].as_str().map(str::to_owned);
        take(outputs, &test, line)
    }
}

fn take(outputs: &mut Outputs, document: &Value, line: usize) -> Result<(), Mistake> {
    let is_whole = |error: &&Value| error.as_str().is_some_and(|error| error.starts_with(UNSTORED));
    if let Some(error) = document.get("error").filter(|error| !is_whole(error)) {
        let why = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
        outputs.failed.push(FailedTest { tool: TOOL.to_owned(), why: tidy(&why) });
        return Ok(());
    }
    outputs.tests.push(test_of(document).map_err(|why| Mistake::at(line, why))?);
    Ok(())
}
