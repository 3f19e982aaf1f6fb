//! One connection for each thread, one system call at a time.

use rustix::io::Errno;

use super::modes::{Pull, Push};
use super::pace::Pace;
use super::{Connection, Course, Engine, Trouble, receive_ended, send_ended};

#[derive(Debug)]
pub(super) struct Sender<P> {
    pub(super) push: P,
    /// The most that one push sends.
    pub(super) message: usize,
    pub(super) throttle: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Receiver<P> {
    pub(super) pull: P,
}

impl<P: Push> Engine for Sender<P> {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let connection = connections[0];
        let mut pace = Pace::following(self.throttle, course.ceiling(), self.message);
        while !course.is_ending() {
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
                // A zero-copy send asks to be repeated when too many wait for their completion.
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return send_ended(connection, course, errno),
            }
        }
        Ok(())
    }
}

impl<P: Pull> Engine for Receiver<P> {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let connection = connections[0];
        let mut pace = Pace::new(course.intake());
        while !course.is_stopped() {
            if let Some(pace) = &mut pace
                && !pace.wait_unless(course, || course.is_stopped())
            {
                break;
            }
            match self.pull.pull(connection) {
                Ok(0) => return receive_ended(connection, course, Ok(())),
                Ok(bytes) => {
                    connection.inbound.add(bytes);
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return receive_ended(connection, course, Err(errno)),
            }
        }
        Ok(())
    }
}
