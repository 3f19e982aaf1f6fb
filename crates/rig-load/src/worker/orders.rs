//! Reading the driver's orders from a pipe, without ever waiting for a whole line.

use std::io;
use std::os::fd::BorrowedFd;

use rig_lines::decode;

use super::{ErrorContext, WorkerError};
use crate::protocol::{LONGEST_ORDER, Lines, Order, PROTOCOL};

#[derive(Debug)]
pub(super) struct Orders<'a> {
    pub(super) fd: BorrowedFd<'a>,
    lines: Lines,
    is_greeted: bool,
}

impl<'a> Orders<'a> {
    pub(super) fn new(fd: BorrowedFd<'a>) -> Self {
        Self { fd, lines: Lines::new(LONGEST_ORDER), is_greeted: false }
    }

    /// The next order if a whole one has arrived. Reads at most once, so it does not block on a ready descriptor.
    pub(super) fn read(&mut self) -> Result<Option<Order>, WorkerError> {
        if let Some(order) = self.take()? {
            return Ok(Some(order));
        }
        let mut chunk = [0u8; 16 * 1024];
        match rustix::io::read(self.fd, &mut chunk) {
            Ok(0) => Err(WorkerError::Abandoned),
            Ok(n) => {
                self.lines.push(&chunk[..n]);
                self.take()
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => Err(io::Error::from(errno)).failing(|| "read the driver's orders".into()),
        }
    }

    /// The next order if a whole one has been read already.
    pub(super) fn take(&mut self) -> Result<Option<Order>, WorkerError> {
        if !self.is_greeted {
            let line = self.lines.take().failing(|| "read the driver's orders".into())?;
            let Some(greeting) = line.map(|line| PROTOCOL.check(line)) else { return Ok(None) };
            greeting.failing(|| "read the driver's greeting".into())?;
            self.is_greeted = true;
        }
        let line = self.lines.take().failing(|| "read the driver's orders".into())?.map(decode);
        let what = || format!("read line {} of the driver's orders", self.lines.line());
        line.transpose().failing(what)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    const GREETING: &str = "{\"protocol\":\"netrig-worker\",\"version\":1,\"build\":\"x\"}\n";

    #[test]
    fn lines_may_come_in_pieces_and_in_bunches() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut orders = Orders::new(reader.as_fd());
        let go = |start_ns| serde_json::to_string(&Order::Go { start_ns }).unwrap();
        let text = format!("{GREETING}{}\n{}\n{}", go(1), go(2), go(3));
        let (head, tail) = text.split_at(5);
        writer.write_all(head.as_bytes()).unwrap();
        assert_eq!(orders.read().unwrap(), None);
        writer.write_all(tail.as_bytes()).unwrap();
        assert_eq!(orders.read().unwrap(), Some(Order::Go { start_ns: 1 }));
        assert_eq!(orders.read().unwrap(), Some(Order::Go { start_ns: 2 }));
        drop(writer);
        assert!(matches!(orders.read(), Err(WorkerError::Abandoned)));
    }

    #[test]
    fn garbage_is_refused_with_its_line() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut orders = Orders::new(reader.as_fd());
        writer.write_all(format!("{GREETING}{{\"go\":{{\"start_ns\":5}}}}\nhello\n").as_bytes()).unwrap();
        orders.read().unwrap().unwrap();
        let error = orders.read().unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("expected value"), "{error}");
    }

    #[test]
    fn a_driver_of_another_version_is_refused() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut orders = Orders::new(reader.as_fd());
        writer.write_all(GREETING.replace("\"version\":1", "\"version\":7").as_bytes()).unwrap();
        let error = orders.read().unwrap_err().to_string();
        assert!(error.contains("version 7 and the other 1: use the same netrig"), "{error}");
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut orders = Orders::new(reader.as_fd());
        let feeder = std::thread::spawn(move || while writer.write_all(&[b'x'; 4096]).is_ok() {});
        let error = loop {
            match orders.read() {
                Ok(order) => assert_eq!(order, None),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("longer than"), "{error}");
        drop(reader);
        feeder.join().unwrap();
    }
}
