//! One connection for each thread, one system call at a time.

use rustix::io::Errno;

use super::modes::{ReceiveMethod, SendMethod};
use super::pace::Pace;
use super::{Connection, Engine, LoadProgress, ThreadFailure, receive_ended, send_ended};

#[derive(Debug)]
pub(super) struct Sender<P> {
    pub(super) push: P,
    /// The most that one push sends.
    pub(super) message: usize,
    pub(super) throttle: Option<u64>,
    /// Pushes that follow each other whenever the rate allows one.
    pub(super) burst: u32,
}

#[derive(Debug)]
pub(super) struct Receiver<P> {
    pub(super) pull: P,
}

impl<P: SendMethod> Engine for Sender<P> {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        let mut pace = Pace::following(self.throttle, progress.ceiling(), self.message);
        while !progress.is_ending() {
            if let Some(pace) = &mut pace
                && !pace.wait(progress)
            {
                break;
            }
            for _ in 0..self.burst {
                match self.push.push(connection) {
                    Ok(bytes) => {
                        connection.tally.add(bytes);
                        if let Some(pace) = &mut pace {
                            pace.spend(bytes);
                        }
                    }
                    // A zero-copy send asks to be repeated when too many wait for their completion.
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    // The end of what there was to send.
                    Err(Errno::CANCELED) => return Ok(()),
                    Err(errno) => return send_ended(connection, progress, errno),
                }
            }
        }
        Ok(())
    }
}

impl<P: ReceiveMethod> Engine for Receiver<P> {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        let mut pace = Pace::new(progress.intake());
        while !progress.is_stopped() {
            if let Some(pace) = &mut pace
                && !pace.wait_unless(progress, || progress.is_stopped())
            {
                break;
            }
            match self.pull.pull(connection) {
                Ok(0) => return receive_ended(connection, progress, Ok(())),
                Ok(bytes) => {
                    connection.inbound.add(bytes);
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return receive_ended(connection, progress, Err(errno)),
            }
        }
        Ok(())
    }
}
