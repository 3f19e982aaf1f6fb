//! The program of an agent: puts a datapath to work on the node whose namespace its process is in, and answers its runner.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use rig_lines::{Error, Reader, Reply, Request, Writer, decode};
use rig_sys::clock::{monotonic_ns, own_cpu_ns, process_cpu_ns};

use super::protocol::{Answer, Description, PROTOCOL, Question, Reading};
use super::{Datapath, Live, Process};

/// Answers what comes by `from`, until that ends or the agent is told to detach. The calling thread is to outlive the agent's
/// work: what it starts dies with it.
///
/// # Errors
/// When the runner does not speak the protocol, or what the datapath did could not be undone.
pub fn serve(datapath: &dyn Datapath, build: &str, from: impl Read, to: impl Write) -> Result<()> {
    let mut writer = Writer::new(to, PROTOCOL.longest);
    let mut reader = Reader::new(from, PROTOCOL.longest);
    match answer_all(datapath, build, &mut reader, &mut writer) {
        // The runner has gone, and needs no answer.
        Err(error) if error.is_end() => Ok(()),
        Err(error @ Error::Io(_)) => Err(error).context("speak to the runner"),
        Err(error) => {
            let why = error.to_string();
            // As far as it still listens.
            let _ = writer.message(&Reply::<Answer>::Broken { why });
            Err(error).context("hear from the runner")
        }
        Ok(()) => Ok(()),
    }
}

fn answer_all(
    datapath: &dyn Datapath,
    build: &str,
    reader: &mut Reader<impl Read>,
    writer: &mut Writer<impl Write>,
) -> Result<(), Error> {
    writer.message(&PROTOCOL.greeting(build))?;
    reader.greeting(&PROTOCOL)?;
    let mut agent = Agent { datapath, live: None };
    while let Some(request) = reader.line(decode::<Request<Question>>)? {
        let Request { number, request } = request?;
        let is_last = request == Question::Detach;
        let reply = match agent.answer(request) {
            Ok(value) => Reply::Answer { number, value },
            Err(error) => Reply::Refused { number, why: rig_service::refusal(error) },
        };
        writer.message(&reply)?;
        if is_last {
            break;
        }
    }
    Ok(())
}

struct Agent<'d> {
    datapath: &'d dyn Datapath,
    live: Option<Box<dyn Live>>,
}

impl Agent<'_> {
    fn answer(&mut self, question: Question) -> Result<Answer> {
        if let Question::Attach { site, settings } = question {
            if self.live.is_some() {
                bail!("{} is attached already", self.datapath.name());
            }
            let Process::Agent(agent) = self.datapath.process() else {
                bail!("{} is a service of its own", self.datapath.name());
            };
            self.live = Some(agent.attach(&site, &settings)?);
            return Ok(Answer::Attached);
        }
        let name = self.datapath.name();
        let live = self.live.as_mut().with_context(|| format!("{name} is not attached"))?;
        Ok(match question {
            Question::Counters => {
                let before_ns = own_cpu_ns();
                let at_ns = monotonic_ns();
                let counters = live.counters()?;
                let cost_ns = own_cpu_ns().saturating_sub(before_ns);
                let (user, system) = process_cpu_ns();
                Answer::Counters(Reading { at_ns, cost_ns, process_cpu_ns: user + system, counters })
            }
            Question::Describe => {
                let (version, settings, state) = (live.version()?, live.settings(), live.state()?);
                Answer::Description(Box::new(Description { version, settings, state }))
            }
            Question::Command { name, arguments } => Answer::Done { answer: live.command(&name, &arguments)? },
            Question::Attach { .. } | Question::Detach => {
                if let Some(live) = self.live.take() {
                    live.detach()?;
                }
                Answer::Detached
            }
        })
    }
}
