//! Packets of chosen reasons for a client that reads them.

use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::Error;
use rig_datapath::balancer::{
    BalancerHandle, CAPTURE_LEASE, Capture, CaptureRequest, CapturedPacket, PacketEnd, UncapturedPackets,
};
use rig_service::{ClientGone, Refusal, Replies};
use rustix::time::{ClockId, clock_gettime};

use super::engine::{Engine, refusal};
use super::status::in_background;
use super::trace::interface_name;
use crate::message::{CaptureOrder, CapturedBatch, PacketCopy, Reply};
use crate::settings::{ServiceText, protocol};

/// How often a client is told that there is nothing: whether it is still there shows by that.
const IDLE: Duration = Duration::from_millis(200);
/// A client that takes no message for this long is none any more: others may capture. Shorter than the program waits for a reader.
const STUCK: Duration = Duration::from_secs(5);
const _: () = assert!(STUCK.as_secs() < CAPTURE_LEASE.as_secs());
const HINT: &str = "begin again, with --reason or --service of fewer packets";
/// Bytes of packets in a message.
const BATCH: usize = 64 << 10;

impl Engine {
    /// Sends packets as they come, on a thread of its own, until the client goes.
    pub(super) fn capture(&self, order: &CaptureOrder, to: Replies<Reply>) {
        let request = match self.request_of(order) {
            Ok(request) => request,
            Err(refusal) => return to.refuse(refusal),
        };
        let balancer = self.balancer.handle();
        let work = move || {
            let capture = match begin(&balancer, &request) {
                Ok(capture) => capture,
                Err(error) => return to.refuse(refusal(error.into())),
            };
            let mut told = Instant::now();
            loop {
                let mut packets = Vec::new();
                let clock = Clock::read();
                // Anew each time: an interface may get another name, and its number another interface.
                let mut names = Vec::new();
                if let Err(error) = capture.wait(IDLE, |packet| packets.push(copy(packet, &clock, &mut names))) {
                    return to.refuse(refusal(error.into()));
                }
                if packets.is_empty() && told.elapsed() < IDLE {
                    continue;
                }
                told = Instant::now();
                let missing = capture.uncaptured().unwrap_or_default();
                for packets in batches(packets) {
                    let UncapturedPackets { beyond_rate, no_room, no_reader } = missing;
                    let batch = CapturedBatch { packets, beyond_rate, no_room, no_reader };
                    // A slow reader may take as long for one message as the program waits for this.
                    if let Err(error) = capture.renew() {
                        return to.refuse(refusal(error.into()));
                    }
                    match to.part_within(Reply::Captured(batch), STUCK) {
                        Ok(true) => {}
                        Ok(false) => {
                            drop(capture);
                            let why = format!("packets were not read for {} s: capturing has ended", STUCK.as_secs());
                            return to.refuse(Refusal::new(why, Some(HINT.to_owned())));
                        }
                        Err(ClientGone) => return,
                    }
                }
            }
        };
        in_background("capture", work);
    }

    fn request_of(&self, order: &CaptureOrder) -> Result<CaptureRequest, Refusal> {
        let other = |name| Refusal::new(format!("the running balancer does not know {name:?}"), None);
        let reasons = order.reasons.iter().map(|named| named.reason().ok_or_else(|| other(named)));
        if let Some(key) = order.service
            && self.rules.service(key).is_none()
        {
            return Err(Refusal::new(format!("No such service: {}", ServiceText(key)), None));
        }
        Ok(CaptureRequest {
            reasons: reasons.collect::<Result<_, _>>()?,
            service: order.service.map(|key| (protocol(key.protocol), key.address)),
            length: order.length,
            rate: order.rate,
        })
    }
}

/// Begins, also where the one before has just ended, whose client's going shows by the next message.
fn begin(balancer: &BalancerHandle, request: &CaptureRequest) -> Result<Capture, Error> {
    let deadline = Instant::now() + 5 * IDLE;
    loop {
        match balancer.capture(request) {
            Err(Error::Capturing) if Instant::now() < deadline => thread::sleep(IDLE / 10),
            capture => return capture,
        }
    }
}

/// In messages that are not too long; one without packets where there are none.
fn batches(packets: Vec<PacketCopy>) -> Vec<Vec<PacketCopy>> {
    let (mut batches, mut bytes) = (vec![Vec::new()], 0);
    for packet in packets {
        if bytes + packet.bytes.len() > BATCH {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += packet.bytes.len();
        if let Some(batch) = batches.last_mut() {
            batch.push(packet);
        }
    }
    batches
}

fn copy(packet: CapturedPacket, clock: &Clock, names: &mut Vec<(u32, String)>) -> PacketCopy {
    let known = names.iter().find(|(number, _)| *number == packet.interface).map(|(_, name)| name.clone());
    let device = known.unwrap_or_else(|| {
        let number = packet.interface;
        let name = interface_name(number).unwrap_or_else(|| format!("interface {number}"));
        names.push((number, name.clone()));
        name
    });
    PacketCopy {
        reason: packet.reason.into(),
        answered: packet.end == PacketEnd::Answered,
        time_ns: clock.wall(packet.time),
        device,
        length: packet.length,
        bytes: packet.bytes,
    }
}

/// What the kernel's clock of packets is by the clock on the wall.
struct Clock {
    wall: Duration,
    monotonic: Duration,
}

impl Clock {
    fn read() -> Self {
        let read = |id| {
            let time = clock_gettime(id);
            Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
        };
        Self { monotonic: read(ClockId::Monotonic), wall: read(ClockId::Realtime) }
    }

    /// Nanoseconds since 1970.
    fn wall(&self, time: Duration) -> u64 {
        (self.wall + time).saturating_sub(self.monotonic).as_nanos().try_into().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_datapath::balancer::{CaptureReason, Drop};

    use super::*;

    #[test]
    fn packets_go_in_messages_of_some_size() {
        let packet = PacketCopy {
            reason: CaptureReason::Dropped(Drop::NoBackend).into(),
            answered: false,
            time_ns: 0,
            device: "eth0".to_owned(),
            length: 9216,
            bytes: vec![0; 9216],
        };
        let sizes = |count: usize| batches(vec![packet.clone(); count]).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((sizes(0), sizes(7), sizes(15)), (vec![0], vec![7], vec![7, 7, 1]));
        let longest = crate::message::Reply::Captured(CapturedBatch { packets: vec![packet; 7], ..Default::default() });
        assert!(serde_json::to_string(&longest).unwrap().len() < 1 << 20);
    }

    #[test]
    fn times_are_by_the_clock_on_the_wall() {
        let clock = Clock { wall: Duration::from_secs(1_000_000), monotonic: Duration::from_secs(50) };
        assert_eq!(clock.wall(Duration::from_millis(49_500)), 999_999_500_000_000);
    }
}
