//! One connection, one transaction at a time, one system call at a time.

use rig_sys::clock::monotonic_ns;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::super::{Report, receive_ended, send_ended};
use super::{
    Buffer, Connection, Engine, LoadProgress, Payload, ResponseLimiter, ThreadFailure, TransactionStats, Transactions,
    dismiss, inbox, too_much,
};

#[derive(Debug)]
pub(super) struct Requester {
    request: Payload,
    response: usize,
    inbox: Buffer,
    stats: TransactionStats,
}

impl Requester {
    pub(super) fn new(load: &Transactions) -> Self {
        Self {
            request: Payload::new(load.request),
            response: load.response as usize,
            inbox: inbox(load.response, 1),
            stats: TransactionStats::new(load),
        }
    }
}

impl Engine for Requester {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        self.stats.open(progress);
        let bytes = self.request.size + self.response;
        let mut began_ns = monotonic_ns();
        while !progress.is_stopped() && !self.stats.is_over(began_ns) {
            self.stats.hear(progress);
            if let Err(errno) = self.request.send(connection) {
                self.stats.unanswered(began_ns);
                return send_ended(connection, progress, errno);
            }
            let mut left = self.response;
            while left > 0 {
                match recv(&connection.socket, self.inbox.get_mut(), RecvFlags::empty()) {
                    Ok((_, 0)) => {
                        self.stats.unanswered(began_ns);
                        return receive_ended(connection, progress, Ok(()));
                    }
                    Ok((_, received)) if received > left => {
                        return Err(too_much(connection, "more than the response that was asked for"));
                    }
                    Ok((_, received)) => left -= received,
                    Err(Errno::INTR) => {}
                    Err(errno) => {
                        self.stats.unanswered(began_ns);
                        return receive_ended(connection, progress, Err(errno));
                    }
                }
            }
            let now_ns = monotonic_ns();
            connection.tally.add(bytes);
            self.stats.complete(began_ns, began_ns, now_ns);
            began_ns = now_ns;
        }
        dismiss(connection);
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}

/// Answers the requests of one connection, of which several may be under way.
#[derive(Debug)]
pub(super) struct Responder {
    request: usize,
    response: Payload,
    inbox: Buffer,
    most: usize,
    limiter: ResponseLimiter,
}

impl Responder {
    pub(super) fn new(load: &Transactions) -> Self {
        Self {
            request: load.request as usize,
            response: Payload::new(load.response),
            inbox: inbox(load.request, load.in_flight),
            most: load.request as usize * load.in_flight as usize,
            limiter: ResponseLimiter::new(load, load.in_flight as usize),
        }
    }
}

impl Engine for Responder {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        let bytes = self.request + self.response.size;
        let mut received = 0;
        self.limiter.begin(progress);
        while !progress.is_stopped() && self.limiter.wait(progress) {
            match recv(&connection.socket, self.inbox.get_mut(), RecvFlags::empty()) {
                Ok((_, 0)) => return receive_ended(connection, progress, Ok(())),
                Ok((_, more)) => received += more,
                Err(Errno::INTR) => {}
                Err(errno) => return receive_ended(connection, progress, Err(errno)),
            }
            if received > self.most {
                return Err(too_much(connection, "more requests than may be under way"));
            }
            while received >= self.request {
                if let Err(errno) = self.response.send(connection) {
                    return send_ended(connection, progress, errno);
                }
                connection.tally.add(bytes);
                self.limiter.pay(1);
                received -= self.request;
            }
        }
        Ok(())
    }
}
