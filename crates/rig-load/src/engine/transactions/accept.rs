//! The responding end of a load that makes a connection for each transaction. It closes first: see [`super::dial`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SocketFlags, recv};

use super::super::{receive_ended, send_ended};
use super::dial::{GLANCE, has_peer};
use super::line::{Arrival, Line};
use super::watch::{Ready, Watch, refused};
use super::{Buffer, Connection, Course, Engine, Payload, Toll, Transactions, Trouble, inbox, too_much};
use crate::door::Door;

/// Prepares a listening socket, from which accepted ones inherit, for [`Blocking`] threads.
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
pub(super) struct Blocking {
    listener: Arc<Door>,
    request: usize,
    response: Payload,
    inbox: Buffer,
    toll: Toll,
}

impl Blocking {
    pub(super) fn new(load: &Transactions, listener: Arc<Door>) -> Self {
        let (request, response) = (load.request as usize, Payload::last(load.response));
        Self { listener, request, response, inbox: inbox(load.request, 1), toll: Toll::new(load, 1) }
    }

    /// Serves one connection. False when the load is over for this end.
    fn answer(&mut self, accepted: &OwnedFd, kept: &Connection, course: &Course) -> Result<bool, Trouble> {
        let mut left = self.request;
        while left > 0 {
            match recv(accepted, self.inbox.get_mut(), RecvFlags::empty()) {
                Ok((_, 0)) => return receive_ended(kept, course, Ok(())).map(|()| false),
                Ok((_, bytes)) if bytes > left => return Err(excess(kept)),
                Ok((_, bytes)) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) => {
                    if course.is_stopped() || !has_peer(kept, course)? {
                        return Ok(false);
                    }
                }
                Err(errno) => return receive_ended(kept, course, Err(errno)).map(|()| false),
            }
        }
        let mut left = self.response.size;
        while left > 0 {
            match self.response.push(accepted, left) {
                Ok(bytes) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) => {
                    if course.is_stopped() || !has_peer(kept, course)? {
                        return Ok(false);
                    }
                }
                Err(errno) => return send_ended(kept, course, errno).map(|()| false),
            }
        }
        kept.tally.add(self.request + self.response.size);
        Ok(true)
    }
}

impl Engine for Blocking {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let kept = connections[0];
        self.toll.begin(course);
        while !course.is_stopped() && self.toll.wait(course) {
            match self.listener.accept(SocketFlags::CLOEXEC) {
                Ok(accepted) => {
                    self.toll.pay(1);
                    if !self.answer(&accepted, kept, course)? {
                        break;
                    }
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    if !has_peer(kept, course)? {
                        break;
                    }
                }
                Err(errno) => return Err(refused("accept a connection", errno)),
            }
        }
        Ok(())
    }
}

fn excess(kept: &Connection) -> Trouble {
    too_much(kept, "more than one request over a connection")
}

/// What a [`Watch`] calls the listening socket and a connection that stays; accepted ones follow.
const LISTENER: usize = 0;
const KEPT: usize = 1;
const FIRST_ACCEPTED: usize = 2;

#[derive(Debug)]
struct Accepted {
    socket: OwnedFd,
    line: Line,
    has_asked: bool,
}

/// Several connections at once (epoll).
#[derive(Debug)]
pub(super) struct Polling {
    listener: Arc<Door>,
    request: usize,
    response: Payload,
    inbox: Buffer,
    accepted: Vec<Option<Accepted>>,
    /// Places of `accepted` that are empty.
    free: Vec<usize>,
    /// Connections at once: as many as the peer has for one thread.
    most: usize,
    toll: Toll,
}

impl Polling {
    pub(super) fn new(load: &Transactions, listener: Arc<Door>) -> Self {
        let (request, response) = (load.request as usize, Payload::last(load.response));
        let (inbox, toll) = (inbox(load.request, 1), Toll::new(load, 1));
        let most = load.connections as usize;
        Self { listener, request, response, inbox, accepted: Vec::new(), free: Vec::new(), most, toll }
    }

    fn has_room(&self) -> bool {
        self.accepted.len() - self.free.len() < self.most
    }

    /// Accepts the connections that wait, as far as there is room. False when there is none left.
    fn accept(&mut self, watch: &Watch, connections: &[&Connection], course: &Course) -> Result<bool, Trouble> {
        loop {
            if !self.has_room() {
                return Ok(false);
            }
            if !self.toll.wait(course) {
                return Ok(true);
            }
            let socket = match self.listener.accept(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(refused("accept a connection", errno)),
            };
            self.toll.pay(1);
            let place = self.free.pop().unwrap_or_else(|| {
                self.accepted.push(None);
                self.accepted.len() - 1
            });
            self.accepted[place] = Some(Accepted { socket, line: Line::default(), has_asked: false });
            // The request is mostly there already, and then there is nothing to watch.
            self.serve(place, connections[place % connections.len()], course)?;
            if let Some(Accepted { socket, .. }) = &self.accepted[place] {
                watch.add(socket, FIRST_ACCEPTED + place).map_err(|errno| refused("watch a connection", errno))?;
            }
        }
    }

    fn serve(&mut self, place: usize, kept: &Connection, course: &Course) -> Result<(), Trouble> {
        let Some(accepted) = &mut self.accepted[place] else { return Ok(()) };
        let Accepted { socket, line, has_asked } = accepted;
        while !*has_asked {
            let end = match line.pull(&*socket, &mut self.inbox, self.request) {
                Ok(Arrival::Nothing) => return Ok(()),
                Ok(Arrival::Messages { count: 0, .. }) => continue,
                Ok(Arrival::Messages { count: 1, .. }) if !line.has_partial() => {
                    *has_asked = true;
                    line.queue(&self.response, 1);
                    continue;
                }
                Ok(Arrival::Messages { .. }) => return Err(excess(kept)),
                Ok(Arrival::End) => Ok(()),
                Err(errno) => Err(errno),
            };
            self.leave(place);
            return receive_ended(kept, course, end);
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
                send_ended(kept, course, errno)
            }
        }
    }

    /// Closes an accepted connection.
    fn leave(&mut self, place: usize) {
        self.accepted[place] = None;
        self.free.push(place);
    }
}

impl Engine for Polling {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let mut watch = Watch::new([], course)?;
        watch
            .add_shared(&*self.listener, LISTENER)
            .and_then(|()| watch.add(&connections[0].socket, KEPT))
            .map_err(|errno| refused("watch the listening socket", errno))?;
        self.toll.begin(course);
        let mut listens = true;
        while !course.is_stopped() {
            watch.wait(None)?;
            while let Some(Ready { index, .. }) = watch.next() {
                match index {
                    LISTENER => {
                        // Clients beyond that wait until others have left, or for another thread.
                        if listens && !self.accept(&watch, connections, course)? {
                            watch.remove(&*self.listener).map_err(|errno| refused("stop watching", errno))?;
                            listens = false;
                        }
                    }
                    KEPT => {
                        if !has_peer(connections[0], course)? {
                            return Ok(());
                        }
                    }
                    accepted => {
                        let place = accepted - FIRST_ACCEPTED;
                        self.serve(place, connections[place % connections.len()], course)?;
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
