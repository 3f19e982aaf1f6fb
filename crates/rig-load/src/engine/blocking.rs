//! One connection for each thread, one system call at a time.

use super::modes::{Buffer, CopyIn, CopyOut, Pull, Push};
use super::pace::Pace;
use super::{Connection, Course, Engine, Trouble, receive_ended, send_ended};
use crate::plan::TcpStream;
use crate::record::Direction;
use rustix::io::Errno;

#[derive(Debug)]
struct Sender<P> {
    push: P,
    throttle: Option<u64>,
}

#[derive(Debug)]
struct Receiver<P> {
    pull: P,
}

pub(super) fn build(stream: &TcpStream, direction: Direction) -> Result<Box<dyn Engine>, Trouble> {
    let message = stream.message as usize;
    Ok(match direction {
        Direction::Send => Box::new(Sender { push: CopyOut(Buffer::new(message)), throttle: stream.throttle }),
        _ => Box::new(Receiver { pull: CopyIn(Buffer::new(message)) }),
    })
}

impl<P: Push> Engine for Sender<P> {
    fn run(mut self: Box<Self>, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let connection = connections[0];
        let mut pace = Pace::new(self.throttle);
        while !course.is_stopped() {
            if let Some(pace) = &mut pace
                && !pace.wait(course)
            {
                break;
            }
            match self.push.push(connection) {
                Ok(bytes) => {
                    connection.tally.add(bytes);
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return send_ended(connection, course, errno),
            }
        }
        Ok(())
    }
}

impl<P: Pull> Engine for Receiver<P> {
    fn run(mut self: Box<Self>, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let connection = connections[0];
        while !course.is_stopped() {
            match self.pull.pull(connection) {
                Ok(0) => return receive_ended(connection, course, Ok(())),
                Ok(bytes) => connection.tally.add(bytes),
                Err(Errno::INTR) => {}
                Err(errno) => return receive_ended(connection, course, Err(errno)),
            }
        }
        Ok(())
    }
}
