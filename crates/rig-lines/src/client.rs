//! The asking side of a conversation.

use std::fmt;
use std::io::{Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Greeting, Protocol, Reader, Reply, Request, Writer};

/// Asks one thing after the other, and waits for each answer.
pub struct Client<R, W> {
    reader: Reader<R>,
    writer: Writer<W>,
    protocol: Protocol,
    /// The other side's, once it has been read.
    greeting: Option<Greeting>,
    next: u64,
}

impl<R: Read, W: Write> Client<R, W> {
    /// Greets, and waits for the other side's greeting.
    ///
    /// # Errors
    /// When it is not one to speak to.
    pub fn greet(from: R, to: W, protocol: &Protocol, build: &str) -> Result<Self, Error> {
        let mut client = Self::open(from, to, protocol, build)?;
        client.greeted()?;
        Ok(client)
    }

    /// Greets without waiting: the other side's greeting is read with the first answer, so that several that are being started can be
    /// asked before any of them is waited for.
    ///
    /// # Errors
    /// When nothing can be said to it.
    pub fn open(from: R, to: W, protocol: &Protocol, build: &str) -> Result<Self, Error> {
        let (reader, mut writer) = (Reader::new(from, protocol.longest), Writer::new(to, protocol.longest));
        // One that has gone may have said why.
        match writer.message(&protocol.greeting(build)) {
            Err(error) if !error.is_end() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { reader, writer, protocol: *protocol, greeting: None, next: 0 })
    }

    /// What the other side said of itself, once it has answered.
    pub fn greeting(&self) -> Option<&Greeting> {
        self.greeting.as_ref()
    }

    fn greeted(&mut self) -> Result<(), Error> {
        if self.greeting.is_none() {
            self.greeting = Some(self.reader.greeting(&self.protocol)?);
        }
        Ok(())
    }

    /// What answers are read from, for instance to set how long that waits.
    pub fn get_ref(&self) -> &R {
        self.reader.get_ref()
    }

    pub fn get_mut(&mut self) -> &mut R {
        self.reader.get_mut()
    }

    /// Asks, and waits for the one answer.
    ///
    /// # Errors
    /// When it is refused, or there is no answer.
    pub fn ask<A: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<A, Error> {
        self.begin(request)?;
        loop {
            if let (answer, true) = self.part()? {
                return Ok(answer);
            }
        }
    }

    /// Asks. All parts of the answer are to be taken before anything else is asked.
    ///
    /// # Errors
    /// When it cannot be said.
    pub fn begin(&mut self, request: &impl Serialize) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        match self.writer.message(&Request { number, request }) {
            // It may have said why before it went.
            Err(error) if error.is_end() => Ok(()),
            other => other,
        }
    }

    /// The next part of the answer, and whether it is the last.
    ///
    /// # Errors
    /// When the request is refused, or there is none.
    pub fn part<A: DeserializeOwned>(&mut self) -> Result<(A, bool), Error> {
        self.greeted()?;
        let expected = self.next.saturating_sub(1);
        let (found, part) = match self.reader.message::<Reply<A>>()?.ok_or(Error::Ended)? {
            Reply::Part { number, value } => (number, Ok((value, false))),
            Reply::Answer { number, value } => (number, Ok((value, true))),
            Reply::Refused { number, why } => (number, Err(why)),
            Reply::Broken { why } => return Err(Error::NotUnderstood(why)),
        };
        if found == expected { Ok(part?) } else { Err(Error::OtherNumber { found, expected }) }
    }
}

impl<R, W> fmt::Debug for Client<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("greeting", &self.greeting).field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::Refusal;

    const PROTOCOL: Protocol = Protocol { name: "netrig-test", version: 1, longest: 1000 };

    /// Answers a request for a number with as many parts.
    fn count(stream: &UnixStream) -> Result<(), Error> {
        let mut writer = Writer::new(stream, PROTOCOL.longest);
        let mut reader = Reader::new(stream, PROTOCOL.longest);
        writer.message(&PROTOCOL.greeting("of the server"))?;
        reader.greeting(&PROTOCOL)?;
        while let Some(line) = reader.line(crate::decode::<Request<u32>>)? {
            let Ok(Request { number, request }) = line else {
                return writer.message(&Reply::<u32>::Broken { why: "a number, please".to_owned() });
            };
            for value in 1..request {
                writer.message(&Reply::<u32>::Part { number, value })?;
            }
            writer.message(&match request {
                0 => Reply::Refused { number, why: Refusal::new("nothing to count", None) },
                value => Reply::Answer { number, value },
            })?;
        }
        Ok(())
    }

    #[test]
    fn requests_are_answered_in_turn_and_refused_by_themselves() {
        let (here, there) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || count(&there));
        let mut client = Client::greet(&here, &here, &PROTOCOL, "of the client").unwrap();
        assert_eq!(client.greeting().unwrap().build, "of the server");
        assert_eq!(client.ask::<u32>(&3).unwrap(), 3);
        let error = client.ask::<u32>(&0).unwrap_err();
        assert!(matches!(&error, Error::Refused(refusal) if refusal.what == "nothing to count"), "{error}");
        client.begin(&2).unwrap();
        assert_eq!(client.part::<u32>().unwrap(), (1, false));
        assert_eq!(client.part::<u32>().unwrap(), (2, true));
        let error = client.ask::<u32>(&"three").unwrap_err();
        assert_eq!(error.to_string(), "it does not understand: a number, please");
        server.join().unwrap().unwrap();
        let error = client.ask::<u32>(&1).unwrap_err();
        assert!(error.is_end(), "{error}");
    }

    #[test]
    fn a_greeting_is_read_with_the_first_answer() {
        let said =
            b"{\"protocol\":\"netrig-test\",\"version\":1,\"build\":\"b\"}\n{\"answer\":{\"number\":0,\"value\":1}}\n";
        let mut client = Client::open(&said[..], Vec::new(), &PROTOCOL, "").unwrap();
        client.begin(&1).unwrap();
        assert_eq!(client.greeting(), None);
        assert_eq!(client.part::<u32>().unwrap(), (1, true));
        assert_eq!(client.greeting().unwrap().build, "b");
        let said = b"{\"protocol\":\"netrig-test\",\"version\":2}\n";
        let mut client = Client::open(&said[..], Vec::new(), &PROTOCOL, "").unwrap();
        assert!(matches!(client.ask::<u32>(&1), Err(Error::OtherVersion { .. })));
    }

    #[test]
    fn an_answer_to_another_request_is_none() {
        let said = b"{\"protocol\":\"netrig-test\",\"version\":1}\n{\"answer\":{\"number\":5,\"value\":1}}\n";
        let mut client = Client::greet(&said[..], Vec::new(), &PROTOCOL, "").unwrap();
        let error = client.ask::<u32>(&1).unwrap_err();
        assert_eq!(error.to_string(), "it answers request 5 where 0 was asked");
    }
}
