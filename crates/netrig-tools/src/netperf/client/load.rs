//! The data of one iteration: moved by a thread, watched by this one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rig_cli::exit::Failure;
use rig_cli::streams;
use rig_load::driver::Cancel;
use rig_stats::histogram::Histogram;
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::time::Timespec;
use socket2::{SockAddr, Socket};

use super::{Rings, Test};
use crate::netperf::buffers;
use crate::netperf::connections::Connections;
use crate::netperf::control::ControlError;
use crate::netperf::data::{self, Counters, EndReason, Exchanges, LoopContext, Pace};
use crate::netperf::failed;
use crate::netperf::interim::Interim;
use crate::netperf::options::{Length, Options};
use crate::netperf::phase::{Watch, run_phase};
use crate::netperf::sockets::{BufferSizes, TransportFacts};
use crate::netperf::values::Transport;

/// How long a data connection may take to come up.
const CONNECT: Duration = Duration::from_secs(60);
/// For all that was sent to reach the server after the test is over.
const DRAIN: Duration = Duration::from_secs(120);
/// Empty datagrams that say that no more come.
const END_DATAGRAMS: usize = 3;
/// What the load of one iteration did.
pub(super) struct LoadEnd {
    pub(super) end: io::Result<EndReason>,
    pub(super) facts: TransportFacts,
    pub(super) buffers: BufferSizes,
    pub(super) source: SocketAddr,
    /// CLOCK_MONOTONIC when all was moved, ns.
    pub(super) end_ns: u64,
    /// Of a receiver: open until the server is through.
    pub(super) connection: Option<OwnedFd>,
}

impl Test<'_> {
    /// Moves data, prints interim results, and ends the data connection.
    pub(super) fn load(
        &mut self,
        socket: Socket,
        destination: SocketAddr,
        rings: &mut Rings,
        counters: &Counters,
        latencies: Option<&mut Histogram>,
    ) -> Result<LoadEnd, Failure> {
        let options = self.options;
        let stop = AtomicBool::new(false);
        let units = match options.length {
            Length::Units(units) => Some(u64::from(units)),
            Length::Seconds(_) => None,
        };
        let source = socket.local_addr().ok().and_then(|address| address.as_socket());
        let source = source.unwrap_or_else(|| self.source.at(0));
        let deadline_ns = match options.length {
            Length::Seconds(seconds) if seconds > 0 => Some(monotonic_after(Duration::from_secs(seconds.into()))),
            _ => None,
        };
        let pace = options.bursts.local.and_then(Pace::new);
        let mut context = LoopContext { counters, stop: &stop, units, pace, latencies };
        let mut interim = options.demo.map(|every| Interim::new(options, self.unit, every));
        let mut connections = Connections {
            settings: self.settings.clone(),
            domain: self.domain(),
            options,
            from: self.source,
            to: destination,
            next_port: self.next_port,
            first: None,
            facts: None,
            buffers: None,
        };
        let transport = options.transport;
        // Where nothing comes any more a datagram socket has to be woken.
        let wake = socket.try_clone().map_err(failed)?;
        let control = self.control.as_ref();
        let cancel = self.cancel;
        let mut lost_control = false;
        // When the data was moved; what the connection's end takes is no interval.
        let moved_ns = AtomicU64::new(0);
        let mut last_look_ns = monotonic_ns();
        let watch = || {
            let now_ns = monotonic_ns();
            let is_over = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
            if let Some(interim) = interim.as_mut().filter(|_| moved_ns.load(Ordering::Relaxed) == 0) {
                interim.look(counters, now_ns, is_over);
            }
            if now_ns.saturating_sub(last_look_ns) >= data::LOOK.as_nanos() as u64 {
                last_look_ns = now_ns;
                lost_control = control.is_some_and(|control| control.borrow().is_closed());
            }
            if is_over || lost_control || cancel.is_cancelled() {
                if transport.is_datagram() {
                    // It fails on a socket that is not connected, and wakes its reader all the same.
                    let _ = shutdown(&wake, Shutdown::Read);
                }
                return Watch::Stops;
            }
            let next = interim.as_ref().map(|interim| interim.due_ns(now_ns));
            Watch::GoesOn([next, deadline_ns].into_iter().flatten().min())
        };
        let work = || -> io::Result<LoadEnd> {
            if options.connects {
                let (requests, responses) = (&mut rings.send, &mut rings.receive);
                let end = data::connect_and_exchange(&mut connections, requests, responses, &mut context)?;
                return Ok(LoadEnd {
                    end: Ok(end),
                    facts: connections.facts.take().unwrap_or_default(),
                    buffers: connections.buffers.unwrap_or_default(),
                    source: connections.first.unwrap_or(source),
                    end_ns: monotonic_ns(),
                    connection: None,
                });
            }
            socket.connect_timeout(&SockAddr::from(destination), CONNECT)?;
            let source = socket.local_addr()?.as_socket().unwrap_or(source);
            let socket = OwnedFd::from(socket);
            let end = move_data(options, &socket, rings, &mut context)?;
            moved_ns.store(monotonic_ns(), Ordering::Relaxed);
            let facts = match transport {
                Transport::Tcp => TransportFacts::of(&socket),
                _ => TransportFacts::default(),
            };
            if transport == Transport::Tcp && std::env::var_os("DUMP_TCP_INFO").is_some() {
                dump_tcp_info(&socket);
            }
            let buffers = BufferSizes::of(&socket)?;
            let mut ended = LoadEnd { end: Ok(end), facts, buffers, source, end_ns: 0, connection: None };
            if !options.direction.transmits && !transport.is_datagram() {
                // netperf's time of a receiver does not have what still comes, and its server must not meet a reset.
                let _ = shutdown(&socket, Shutdown::Write);
                ended.end_ns = monotonic_ns();
                ended.connection = Some(socket).filter(|_| !cancel.is_cancelled());
            } else {
                end_data(options, cancel, &socket);
                ended.end_ns = monotonic_ns();
            }
            Ok(ended)
        };
        let ended = run_phase(&stop, work, watch);
        self.next_port = connections.next_port;
        if let Some(interim) = &mut interim {
            let moved_ns = moved_ns.into_inner();
            interim.finish(counters, if moved_ns == 0 { monotonic_ns() } else { moved_ns });
        }
        if lost_control {
            return Err(failed(ControlError::Closed));
        }
        Ok(ended.unwrap_or_else(|error| LoadEnd {
            end: Err(error),
            facts: TransportFacts::default(),
            buffers: BufferSizes::default(),
            source,
            end_ns: monotonic_ns(),
            connection: None,
        }))
    }
}

fn move_data(
    options: &Options,
    socket: &OwnedFd,
    rings: &mut Rings,
    context: &mut LoopContext<'_>,
) -> io::Result<EndReason> {
    let datagrams = options.transport.is_datagram();
    match (options.direction.transmits, options.direction.receives) {
        (true, true) => {
            let exchanges = Exchanges {
                datagrams,
                burst: options.first_burst,
                timeout: options.receive_timeout.filter(|_| datagrams),
            };
            data::exchange(socket, &mut rings.send, &mut rings.receive, exchanges, context)
        }
        (true, false) if datagrams => {
            let datagram = rings.send.current().to_vec();
            data::send_datagrams(socket, &datagram, context)
        }
        (true, false) if options.sends_file => {
            let (file, size) = buffers::memory_file(rings.send.current())?;
            data::send_file(socket, &file, size, context)
        }
        (true, false) => data::send_stream(socket, &mut rings.send, context),
        (false, true) if datagrams => data::receive_datagrams(socket, rings.receive.size(), context),
        (false, true) => data::receive_stream(socket, &mut rings.receive, context),
        // Connections alone are made elsewhere.
        (false, false) => Ok(EndReason::Units),
    }
}

/// Says that no more comes: of a connection by its end, which the server answers when it has taken all; of datagrams by empty ones.
fn end_data(options: &Options, cancel: &Cancel, socket: &OwnedFd) {
    if options.transport.is_datagram() {
        for _ in 0..END_DATAGRAMS {
            // One that is refused brings up the error of one before.
            let _ = send(socket, &[], SendFlags::NOSIGNAL);
        }
        return;
    }
    let _ = shutdown(socket, Shutdown::Write);
    let until_ns = monotonic_after(DRAIN);
    let mut rest = vec![0_u8; 1 << 16];
    while monotonic_ns() < until_ns {
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // poll(2) tells nothing of an association of SCTP that has ended; recv(2), which waits no longer either, does: ENOTCONN.
        let ready = match options.transport {
            Transport::Sctp if cancel.is_cancelled() => return,
            Transport::Sctp => Ok(1),
            _ => poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)),
        };
        match ready {
            Ok(0) if cancel.is_cancelled() => return,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        match recv(socket, &mut rest, RecvFlags::empty()) {
            Ok((_, 0)) => return,
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// What variable DUMP_TCP_INFO of the environment adds on standard error, in netperf's words.
fn dump_tcp_info(socket: &OwnedFd) {
    let Ok(info) = rig_sys::socket::tcp_info(socket) else { return };
    streams::note(format!(
        "tcpi_rto {} tcpi_ato {} tcpi_pmtu {} tcpi_rcv_ssthresh {}\ntcpi_rtt {} tcpi_rttvar {} tcpi_snd_ssthresh {} tpci_snd_cwnd \
         {}\ntcpi_reordering {} tcpi_total_retrans {}",
        info.rto_us,
        info.ato_us,
        info.path_mtu,
        info.receive_ssthresh,
        info.rtt_us,
        info.rtt_variance_us,
        info.send_ssthresh,
        info.congestion_window,
        info.reordering,
        info.total_retransmits
    ));
}
