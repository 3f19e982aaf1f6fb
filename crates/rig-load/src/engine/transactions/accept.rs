//! The responding end of a load that makes a connection for each transaction. It closes first: see [`super::dial`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SocketFlags, recv};

use super::super::{receive_ended, send_ended};
use super::dial::{GLANCE, has_peer};
use super::line::{MessageState, ReceiveResult};
use super::watch::{ReadyConnection, Watch, refused};
use super::{
    Buffer, Connection, Engine, LoadProgress, Payload, ResponseLimiter, ThreadFailure, Transactions, inbox, too_much,
};
use crate::listener::Listener;

/// Prepares a listening socket, from which accepted ones inherit, for [`BlockingAcceptor`] threads.
pub(super) fn let_block(listener: impl AsFd + Copy) -> Result<(), Errno> {
    rustix::io::ioctl_fionbio(listener, false)?;
    for which in [Timeout::Send, Timeout::Recv] {
        sockopt::set_socket_timeout(listener, which, Some(GLANCE))?;
    }
    Ok(())
}

/// One connection after the other, one system call at a time. The kernel gives each connection to one of the threads
/// that wait for one.
#[derive(Debug)]
pub(super) struct BlockingAcceptor {
    listener: Arc<Listener>,
    request: usize,
    response: Payload,
    inbox: Buffer,
    limiter: ResponseLimiter,
}

impl BlockingAcceptor {
    pub(super) fn new(load: &Transactions, listener: Arc<Listener>) -> Self {
        let (request, response) = (load.request as usize, Payload::last(load.response));
        Self { listener, request, response, inbox: inbox(load.request, 1), limiter: ResponseLimiter::new(load, 1) }
    }

    /// Serves one connection. False when the load is over for this end.
    fn answer(
        &mut self,
        accepted: &OwnedFd,
        kept: &Connection,
        progress: &LoadProgress,
    ) -> Result<bool, ThreadFailure> {
        let mut left = self.request;
        while left > 0 {
            match recv(accepted, self.inbox.get_mut(), RecvFlags::empty()) {
                Ok((_, 0)) => return receive_ended(kept, progress, Ok(())).map(|()| false),
                Ok((_, bytes)) if bytes > left => return Err(excess(kept)),
                Ok((_, bytes)) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) => {
                    if progress.is_stopped() || !has_peer(kept, progress)? {
                        return Ok(false);
                    }
                }
                Err(errno) => return receive_ended(kept, progress, Err(errno)).map(|()| false),
            }
        }
        let mut left = self.response.size;
        while left > 0 {
            match self.response.push(accepted, left) {
                Ok(bytes) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) => {
                    if progress.is_stopped() || !has_peer(kept, progress)? {
                        return Ok(false);
                    }
                }
                Err(errno) => return send_ended(kept, progress, errno).map(|()| false),
            }
        }
        kept.tally.add(self.request + self.response.size);
        Ok(true)
    }
}

impl Engine for BlockingAcceptor {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let kept = connections[0];
        self.limiter.begin(progress);
        while !progress.is_stopped() && self.limiter.wait(progress) {
            match self.listener.accept(SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    self.limiter.pay(1);
                    if !self.answer(&accepted, kept, progress)? {
                        break;
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    if !has_peer(kept, progress)? {
                        break;
                    }
                }
                Err(errno) => return Err(refused("accept a connection", errno)),
            }
        }
        Ok(())
    }
}

fn excess(kept: &Connection) -> ThreadFailure {
    too_much(kept, "more than one request over a connection")
}

/// What a [`Watch`] calls the listening socket and a connection that stays; accepted ones follow.
const LISTENER: usize = 0;
const KEPT: usize = 1;
const FIRST_ACCEPTED: usize = 2;

#[derive(Debug)]
struct AcceptedConnection {
    socket: OwnedFd,
    line: MessageState,
    has_asked: bool,
}

/// Several connections at once (epoll).
#[derive(Debug)]
pub(super) struct PollingAcceptor {
    listener: Arc<Listener>,
    request: usize,
    response: Payload,
    inbox: Buffer,
    accepted: Vec<Option<AcceptedConnection>>,
    /// Places of `accepted` that are empty.
    free: Vec<usize>,
    /// Connections at once: as many as the peer has for one thread.
    most: usize,
    limiter: ResponseLimiter,
}

impl PollingAcceptor {
    pub(super) fn new(load: &Transactions, listener: Arc<Listener>) -> Self {
        let (request, response) = (load.request as usize, Payload::last(load.response));
        let (inbox, limiter) = (inbox(load.request, 1), ResponseLimiter::new(load, 1));
        let most = load.connections as usize;
        Self { listener, request, response, inbox, accepted: Vec::new(), free: Vec::new(), most, limiter }
    }

    fn has_room(&self) -> bool {
        self.accepted.len() - self.free.len() < self.most
    }

    /// Accepts the connections that wait, as far as there is room. False when there is none left.
    fn accept(
        &mut self,
        watch: &Watch,
        connections: &[&Connection],
        progress: &LoadProgress,
    ) -> Result<bool, ThreadFailure> {
        loop {
            if !self.has_room() {
                return Ok(false);
            }
            if !self.limiter.wait(progress) {
                return Ok(true);
            }
            let socket = match self.listener.accept(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(refused("accept a connection", errno)),
            };
            self.limiter.pay(1);
            let place = self.free.pop().unwrap_or_else(|| {
                self.accepted.push(None);
                self.accepted.len() - 1
            });
            self.accepted[place] = Some(AcceptedConnection { socket, line: MessageState::default(), has_asked: false });
            // The request is mostly there already, and then there is nothing to watch.
            self.serve(place, connections[place % connections.len()], progress)?;
            if let Some(AcceptedConnection { socket, .. }) = &self.accepted[place] {
                watch.add(socket, FIRST_ACCEPTED + place).map_err(|errno| refused("watch a connection", errno))?;
            }
        }
    }

    fn serve(&mut self, place: usize, kept: &Connection, progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let Some(accepted) = &mut self.accepted[place] else { return Ok(()) };
        let AcceptedConnection { socket, line, has_asked } = accepted;
        while !*has_asked {
            let end = match line.pull(&*socket, &mut self.inbox, self.request) {
                Ok(ReceiveResult::Nothing) => return Ok(()),
                Ok(ReceiveResult::Messages { count: 0, .. }) => continue,
                Ok(ReceiveResult::Messages { count: 1, .. }) if !line.has_partial() => {
                    *has_asked = true;
                    line.queue(&self.response, 1);
                    continue;
                }
                Ok(ReceiveResult::Messages { .. }) => return Err(excess(kept)),
                Ok(ReceiveResult::End) => Ok(()),
                Err(errno) => Err(errno),
            };
            self.leave(place);
            return receive_ended(kept, progress, end);
        }
        match line.flush(&*socket, &self.response) {
            Ok(0) => Ok(()),
            Ok(_) => {
                kept.tally.add(self.request + self.response.size);
                self.leave(place);
                Ok(())
            }
            Err(errno) => {
                self.leave(place);
                send_ended(kept, progress, errno)
            }
        }
    }

    /// Closes an accepted connection.
    fn leave(&mut self, place: usize) {
        self.accepted[place] = None;
        self.free.push(place);
    }
}

impl Engine for PollingAcceptor {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut watch = Watch::new([], progress)?;
        watch
            .add_shared(&*self.listener, LISTENER)
            .and_then(|()| watch.add(&connections[0].socket, KEPT))
            .map_err(|errno| refused("watch the listening socket", errno))?;
        self.limiter.begin(progress);
        let mut listens = true;
        while !progress.is_stopped() {
            watch.wait(None)?;
            while let Some(ReadyConnection { index, .. }) = watch.next() {
                match index {
                    LISTENER => {
                        // Clients beyond that wait until others have left, or for another thread.
                        if listens && !self.accept(&watch, connections, progress)? {
                            watch.remove(&*self.listener).map_err(|errno| refused("stop watching", errno))?;
                            listens = false;
                        }
                    }
                    KEPT => {
                        if !has_peer(connections[0], progress)? {
                            return Ok(());
                        }
                    }
                    accepted => {
                        let place = accepted - FIRST_ACCEPTED;
                        self.serve(place, connections[place % connections.len()], progress)?;
                    }
                }
            }
            if !listens && self.has_room() {
                watch
                    .add_shared(&*self.listener, LISTENER)
                    .map_err(|errno| refused("watch the listening socket", errno))?;
                listens = true;
            }
        }
        Ok(())
    }
}
