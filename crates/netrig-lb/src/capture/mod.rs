//! `netrig lb capture`: packets of chosen reasons, in lines or as a file, until enough of them have come.

mod pcapng;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes::closest;
use rig_cli::packet::{PacketOut, flag_names};
use rig_cli::streams;
use rig_datapath::balancer::{CaptureReason, Drop, MOST_SNAPPED, Pass};
use rig_stats::units::{Span, counted};
use rig_sys::signal;
use rig_wire::ethernet::Ethernet;
use rig_wire::tcp::Tcp;
use rig_wire::{ipv4, ipv6, protocol};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;

use self::pcapng::{FilePacket, PcapngWriter};
use super::client;
use super::message::{CaptureOrder, NamedReason, PacketCopy, Reply, Request};
use super::views::{NameOption, service_of};

#[derive(Debug, Args)]
pub struct CaptureArgs {
    #[command(flatten)]
    which: NameOption,
    /// Why they are dropped or left to the kernel, by the names of `netrig lb drops --all`; all: of all drops
    #[arg(long = "reason", value_name = "REASON", required = true, value_delimiter = ',')]
    reasons: Vec<String>,
    /// Only packets to this service: 'tcp 192.0.2.1:80', tcp by default; those without ports where they are to its address
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// End after so many packets
    #[arg(long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// End after this time, e.g. 30s
    #[arg(long, value_name = "SPAN")]
    time: Option<Span>,
    /// Keep so many bytes of each packet, of its Ethernet header on: 1 to 9216
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SNAPPED)))]
    snaplen: u32,
    /// Packets in a second, and at once, at most; others are counted
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Write them to a file for Wireshark or tcpdump (pcapng), each with its reason as a comment; - is standard output [default:
    /// print a line for each]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What ends a capture, a signal or its time, ends it within so long also where nobody takes what it writes.
const GRACE: Duration = Duration::from_secs(1);

/// What the packets go to.
struct Output {
    form: Form,
    /// The same file again, to look at: one who has closed the other end of a pipe is not noticed by who has nothing to write.
    to: OwnedFd,
}

enum Form {
    Lines,
    File(PcapngWriter<Box<dyn Write>>),
}

pub fn execute(arguments: &CaptureArgs) -> Result<Exit, Failure> {
    let name = arguments.which.chosen()?;
    let order = CaptureOrder {
        reasons: reasons(&arguments.reasons).or_exit(Exit::BadInput)?.into_iter().map(Into::into).collect(),
        service: service_of(&arguments.service.iter().cloned().collect::<Vec<_>>())?,
        length: arguments.snaplen,
        rate: arguments.rate.get(),
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    signal::on_stop_signal(move || stop.store(true, Ordering::Relaxed))
        .context("take signals")
        .or_exit(Exit::Failed)?;
    let writing = Arc::new(AtomicBool::new(false));
    end_in_time(&stopped, &writing, arguments.time);
    let mut output = None;
    let (begun, most) = (Instant::now(), arguments.count.map_or(u64::MAX, NonZeroU64::get));
    let (mut written, mut missing) = (0, (0, 0, 0));
    let ended = client::client(&name).stream(&Request::Capture(order), |reply| {
        let Reply::Captured(batch) = reply else { return ControlFlow::Break(Err(client::foreign(&name).into())) };
        missing = (batch.beyond_rate, batch.no_room, batch.no_reader);
        // What is wanted is there from the first answer on, and not where the balancer refuses.
        let mut put = |output: &mut Option<Output>| {
            if output.is_none() {
                *output = Some(begin_output(arguments)?);
            }
            let Some(output) = output else { return Ok(true) };
            for packet in &batch.packets {
                if written == most || !output.add(packet)? {
                    return Ok(false);
                }
                written += 1;
            }
            output.flush()
        };
        writing.store(true, Ordering::Relaxed);
        let put = put(&mut output);
        writing.store(false, Ordering::Relaxed);
        let goes_on = match put {
            Ok(goes_on) => goes_on,
            Err(failure) => return ControlFlow::Break(Err(failure)),
        };
        let over = arguments.time.is_some_and(|time| begun.elapsed() >= time.0);
        if !goes_on || written == most || over || stopped.load(Ordering::Relaxed) {
            return ControlFlow::Break(Ok(()));
        }
        ControlFlow::Continue(())
    });
    if output.is_some() {
        let mut said = format!("{} captured", counted(written, "packet", "packets"));
        if missing.0 > 0 {
            said += &format!("; {} more came faster than --rate {}", missing.0, arguments.rate);
        }
        if missing.1 > 0 {
            said += &format!("; {} were lost because they were not read in time", missing.1);
        }
        if missing.2 > 0 {
            said += &format!("; {} came on CPUs that were not online at the beginning: begin again", missing.2);
        }
        streams::note(said);
    }
    match ended? {
        ControlFlow::Break(result) => result.map(|()| Exit::Done),
        ControlFlow::Continue(()) => Ok(Exit::Done),
    }
}

/// Ends the process where a write keeps it from ending by itself.
fn end_in_time(stopped: &Arc<AtomicBool>, writing: &Arc<AtomicBool>, time: Option<Span>) {
    const LOOKS: u32 = 10;
    let (stopped, writing, begun) = (Arc::clone(stopped), Arc::clone(writing), Instant::now());
    thread::spawn(move || {
        let is_due = || stopped.load(Ordering::Relaxed) || time.is_some_and(|time| begun.elapsed() >= time.0);
        let mut overdue = 0;
        while overdue < LOOKS {
            thread::sleep(GRACE / LOOKS);
            overdue = if is_due() && writing.load(Ordering::Relaxed) { overdue + 1 } else { 0 };
        }
        streams::note("error: nobody takes what is captured: it is not all written");
        process::exit(Exit::Failed as i32);
    });
}

fn begin_output(arguments: &CaptureArgs) -> Result<Output, Failure> {
    let output = output(arguments.write.as_deref(), arguments.snaplen)?;
    streams::note(format_args!("capturing; ends {}", end_of(arguments)));
    if let (Some(mode), Some(path)) = (output.mode(), &arguments.write)
        && mode & 0o077 != 0
        && path != Path::new("-")
    {
        streams::note(format_args!(
            "{} was there before and others may have it (mode {mode:o}): packets of clients are in it",
            path.display()
        ));
    }
    Ok(output)
}

fn end_of(arguments: &CaptureArgs) -> String {
    let count = arguments.count.map(|count| format!("after {count} packets"));
    let time = arguments.time.map(|time| format!("after {time}"));
    let ends: Vec<String> = count.into_iter().chain(time).chain(["with Ctrl-C".to_owned()]).collect();
    ends.join(" or ")
}

/// Those of the names, each once.
fn reasons(names: &[String]) -> anyhow::Result<Vec<CaptureReason>> {
    let mut reasons = Vec::new();
    for name in names {
        if name == "all" {
            reasons.extend(CaptureReason::all().filter(|reason| matches!(reason, CaptureReason::Dropped(_))));
            continue;
        }
        let dropped = Drop::ALL.iter().map(|reason| CaptureReason::Dropped(*reason));
        let left = Pass::ALL.iter().map(|reason| CaptureReason::LeftToKernel(*reason));
        let every: Vec<CaptureReason> = dropped.chain(left).collect();
        let named: Vec<CaptureReason> = every.iter().copied().filter(|reason| reason.key() == name).collect();
        if named.is_empty() {
            let hint = match closest(name, every.iter().map(|reason| reason.key()).chain(["all"])) {
                Some(close) => format!("did you mean {close}?"),
                None => "`netrig lb drops --all` lists them".to_owned(),
            };
            return Err(anyhow!("'{name}' is not a reason: {hint}"));
        }
        if let Some(why) = named.iter().find_map(|reason| reason.unseen()) {
            return Err(anyhow!("packets of {name} cannot be captured: {why}"));
        }
        reasons.extend(named);
    }
    reasons.sort_unstable();
    reasons.dedup();
    Ok(reasons)
}

fn output(file: Option<&Path>, most: u32) -> Result<Output, Failure> {
    let again = |file: BorrowedFd<'_>| file.try_clone_to_owned().context("write the capture").or_exit(Exit::Failed);
    let (out, to): (Box<dyn Write>, OwnedFd) = match file {
        None => return Ok(Output { form: Form::Lines, to: again(io::stdout().as_fd())? }),
        Some(path) if path == Path::new("-") => {
            if io::stdout().is_terminal() {
                let error = anyhow!(
                    "--write - would put bytes on the terminal: redirect it, or leave --write out to see lines"
                );
                return Err(Failure::new(Exit::BadInput, error));
            }
            (Box::new(io::stdout()), again(io::stdout().as_fd())?)
        }
        Some(path) => {
            let file = created(path).with_context(|| format!("write {}", path.display())).or_exit(Exit::Failed)?;
            let to = again(file.as_fd())?;
            (Box::new(file), to)
        }
    };
    let writer = PcapngWriter::begin(Box::new(BufWriter::new(out)) as Box<dyn Write>, most);
    Ok(Output { form: Form::File(writer.context("write the capture").or_exit(Exit::Failed)?), to })
}

/// Packets of others are in it: its owner's alone, unless it is there already.
fn created(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

impl Output {
    /// Whether there is still somebody who reads.
    fn add(&mut self, packet: &PacketCopy) -> Result<bool, Failure> {
        match &mut self.form {
            Form::Lines => streams::print_on(&line(packet, &TimeZone::system())),
            Form::File(writer) => {
                let comment = comment(packet);
                let PacketCopy { device, time_ns, length, bytes, .. } = packet;
                let added = FilePacket { device, time: *time_ns, length: *length, bytes, comment: &comment };
                is_read(writer.add(added))
            }
        }
    }

    /// As [`Self::add`], also where there was nothing to write.
    fn flush(&mut self) -> Result<bool, Failure> {
        let is_taken = match &mut self.form {
            Form::Lines => true,
            Form::File(writer) => is_read(writer.flush())?,
        };
        Ok(is_taken && !self.is_closed())
    }

    /// Whether the other end of a pipe, a socket or a terminal has gone, as poll(2) tells without being asked for anything.
    fn is_closed(&self) -> bool {
        let mut look = [PollFd::new(&self.to, PollFlags::empty())];
        let looked = poll(&mut look, Some(&Timespec::default()));
        looked.is_ok() && look[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }

    /// Of a file that keeps what is written, who may read and write it.
    fn mode(&self) -> Option<u32> {
        let found = rustix::fs::fstat(&self.to).ok().filter(|_| matches!(self.form, Form::File(_)))?;
        (FileType::from_raw_mode(found.st_mode) == FileType::RegularFile).then_some(found.st_mode & 0o777)
    }
}

fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write the capture").or_exit(Exit::Failed),
    }
}

/// The reason's name, and what has become of the packet.
fn outcome(packet: &PacketCopy) -> (&str, &'static str) {
    match &packet.reason {
        NamedReason::Dropped(key) if packet.answered => (key, "answered: this is the answer"),
        NamedReason::Dropped(key) => (key, "dropped"),
        NamedReason::LeftToKernel(key) => (key, "left to the kernel"),
    }
}

fn comment(packet: &PacketCopy) -> String {
    let (key, outcome) = outcome(packet);
    // A newer balancer's reasons have no text here.
    let text = packet.reason.reason().map(|reason| format!(": {}", reason.text())).unwrap_or_default();
    format!("{key}{text} ({outcome})")
}

/// `12:00:01.000250 eth0 no_backend (dropped): tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn], 60 bytes`
fn line(packet: &PacketCopy, zone: &TimeZone) -> String {
    let at = Timestamp::from_nanosecond(packet.time_ns.into()).map_or_else(
        |_| packet.time_ns.to_string(),
        |time| time.to_zoned(zone.clone()).strftime("%H:%M:%S%.6f").to_string(),
    );
    let (key, outcome) = outcome(packet);
    format!("{at} {} {key} ({outcome}): {}, {} bytes\n", packet.device, headers(packet), packet.length)
}

/// Protocol, addresses, ports and flags, as far as they are among the bytes that were kept.
fn headers(packet: &PacketCopy) -> String {
    let mut whole = packet.bytes.clone();
    // What was cut off is not looked at, and lengths in headers are right.
    whole.resize((packet.length as usize).clamp(whole.len(), whole.len().max(1 << 16)), 0);
    let (Some(out), Ok(ethernet)) = (PacketOut::of(&whole, None), Ethernet::parse(&whole)) else {
        return "no Ethernet frame".to_owned();
    };
    let payload = ethernet.payload();
    let upper = match (ipv4::Ipv4::parse(payload), ipv6::Ipv6::parse(payload)) {
        (Ok(ip), _) => Some((ip.protocol(), ip.payload())),
        (_, Ok(ip)) => Some((ip.protocol(), ip.payload())),
        _ => None,
    };
    // Of the whole frame, how much is needed to say what is said: ports, and of TCP flags.
    let needed = upper.map_or(0, |(number, rest)| {
        let begin = rest.as_ptr() as usize - whole.as_ptr() as usize;
        begin
            + match number {
                protocol::TCP => 14,
                protocol::UDP => 4,
                _ => 0,
            }
    });
    let link = || format!("{} > {}, Ethernet type {:#06x}", out.source_mac, out.destination_mac, ethernet.ethertype());
    match upper {
        Some(_) if packet.bytes.len() < needed => format!("{}, cut before its addresses and ports end", link()),
        Some((protocol::TCP, segment)) => {
            let flags = Tcp::parse(segment).map(|tcp| format!(" {}", flag_names(tcp.flags())));
            format!("tcp {}{}", out.flow, flags.unwrap_or_default())
        }
        Some((protocol::UDP, _)) => format!("udp {}", out.flow),
        Some((number, _)) => format!("IP protocol {number} {}", out.flow),
        None => link(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Result<Vec<CaptureReason>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        reasons(&names).map_err(|error| error.to_string())
    }

    #[test]
    fn reasons_are_those_of_the_counters() {
        let of = |names| named(names).unwrap();
        assert_eq!(of(&["no_backend", "no_backend"]), [CaptureReason::Dropped(Drop::NoBackend)]);
        // Of one name are some that are dropped and some that are left to the kernel.
        let both = [CaptureReason::Dropped(Drop::NoConnection), CaptureReason::LeftToKernel(Pass::NoConnection)];
        assert_eq!(of(&["no_connection"]), both);
        let all = of(&["all"]);
        assert_eq!(all.len(), Drop::ALL.len() - 3);
        assert_eq!(of(&["all", "no_connection"]).len(), all.len() + 1);
        assert_eq!(named(&["no_backends"]).unwrap_err(), "'no_backends' is not a reason: did you mean no_backend?");
        for unseen in ["not_sent", "worker_busy", "not_told"] {
            assert!(
                named(&["all", unseen]).unwrap_err().starts_with(&format!("packets of {unseen} cannot be captured"))
            );
        }
    }

    #[test]
    fn a_line_says_what_a_packet_was_also_where_it_is_cut() {
        let flow =
            rig_cli::packet::parse(&["tcp 198.51.100.9:40000 > 192.0.2.1:80 syn length 400".to_owned()]).unwrap();
        let bytes = rig_cli::packet::frame(&flow, rig_wire::ethernet::Mac::default()).unwrap();
        let mut packet = PacketCopy {
            reason: CaptureReason::Dropped(Drop::NoBackend).into(),
            answered: false,
            time_ns: 1_000_250_000,
            device: "eth0".to_owned(),
            length: bytes.len() as u32,
            bytes: bytes[..60].to_vec(),
        };
        let said = |packet: &PacketCopy| line(packet, &TimeZone::UTC);
        let begin = "00:00:01.000250 eth0 no_backend (dropped): ";
        let right = format!("{begin}tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn], 414 bytes\n");
        assert_eq!(said(&packet), right);
        for cut in [47, 36, 20] {
            packet.bytes.truncate(cut);
            let link = format!("{begin}02:00:00:00:00:01 > 00:00:00:00:00:00, Ethernet type 0x0800");
            let cut = said(&packet);
            assert!(cut.starts_with(&link) && !cut.contains("0.0.0.0"), "{cut}");
        }
        packet.bytes.truncate(3);
        packet.length = 3;
        assert_eq!(said(&packet), format!("{begin}no Ethernet frame, 3 bytes\n"));
    }
}
