//! What a worker and its driver say to each other: lines of [`rig_lines`], orders on the worker's standard input,
//! events on its standard output. The first line of both is a greeting; a driver does not wait for it.
//!
//! ```text
//! driver                      listening worker         connecting worker
//!   Greeting  <------------------->
//!   Order::Plan  ------------------->
//!                <--- Event::Listening
//!   Order::Plan  ------------------------------------------->
//!                <----------------------------- Event::Connected
//!                <--- Event::Connected
//!   Order::Go    ------------------->------------------------>
//!                <--- Event::Sample (each interval) ----------
//!   Order::Command ----------------->------------------------> (any number, at any time until the window's end)
//!                <-------------------------- Event::Done -----
//!   Order::Done  -------------------> (packet loads)
//!                <--- Event::Done
//! ```
//! Closing the worker's standard input makes it stop at once, at any point.

pub use rig_lines::{LineTooLong, Lines};
use rig_lines::{Protocol, decode, encode};
use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::plan::WorkerPlan;
use crate::record::{Sample, WorkerRecord};

/// The longest order in bytes. The longest plan there can be names 1024 CPUs and takes a hundredth of it.
pub const LONGEST_ORDER: usize = 1 << 20;

/// The longest event in bytes: the record of 20 000 connections has room in it several times.
pub const LONGEST_EVENT: usize = 128 << 20;

pub const PROTOCOL: Protocol = Protocol { name: "netrig-worker", version: 1, longest: LONGEST_EVENT };

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Plan(Box<WorkerPlan>),
    /// Start of the warm-up, in nanoseconds of CLOCK_MONOTONIC; the phases follow from it.
    Go {
        start_ns: u64,
    },
    /// After [`Order::Go`].
    Command(Command),
    /// To the listening end of a packet load: the other end is done, and nothing more comes.
    Done,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Listening {
        port: u16,
    },
    /// All connections stand.
    Connected,
    Sample(Sample),
    Done(Box<WorkerRecord>),
    /// The worker gives up. `what` names the operation and the object, `why` the kernel's or the peer's reason.
    Failed {
        what: String,
        why: String,
    },
}

impl Event {
    /// As it stands in a line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Listening { .. } => "listening",
            Self::Connected => "connected",
            Self::Sample(_) => "sample",
            Self::Done(_) => "done",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Reads `bytes` as a worker reads its orders and as a driver reads a worker's events, and checks that what was
/// understood can be checked, written and read again. For fuzzing: panics when it finds a fault.
pub fn exercise(bytes: &[u8]) {
    let mut lines = Lines::new(LONGEST_ORDER);
    // Two pieces, so that lines begin in one and end in the other.
    let (head, tail) = bytes.split_at(bytes.len() / 2);
    for piece in [head, tail] {
        lines.push(piece);
        while let Ok(Some(line)) = lines.take() {
            let _ = PROTOCOL.check(line);
            if let Ok(order) = decode::<Order>(line) {
                if let Order::Plan(plan) = &order {
                    let _ = plan.validate();
                    let _ = (plan.phases.total(), plan.direction());
                }
                reads_back(&order);
            }
            if let Ok(event) = decode::<Event>(line) {
                reads_back(&event);
            }
        }
    }
}

fn reads_back<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let line = encode(value, LONGEST_EVENT).expect("plain values can be written");
    let again: T = decode(line.trim_ascii_end()).unwrap_or_else(|error| panic!("{value:?}: {error}"));
    assert_eq!(&again, value);
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use proptest::option;
    use proptest::prelude::*;
    use rig_packet::plan::{Driver, GatewayPlan, Packets, Range, ThreadPlan};
    use rig_packet::{Client, Payload, Server, Service, TupleOrder, UdpClient, UdpServer};
    use rig_sys::socket::SourceBinding;

    use super::*;
    use crate::command::CommandAction;
    use crate::plan::{
        ArrivalSpacing, Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Role, Schedule, SendMode,
        SocketOptions, TcpStream, Transactions, with_one_port,
    };

    fn engine() -> impl Strategy<Value = Engine> {
        prop_oneof![Just(Engine::Blocking), any::<u32>().prop_map(|outstanding| Engine::Uring { outstanding })]
    }

    fn flow() -> impl Strategy<Value = Flow> {
        prop::sample::select(vec![Flow::Forward, Flow::Reverse, Flow::Both])
    }

    fn options() -> impl Strategy<Value = SocketOptions> {
        let dscp = option::of((0..64u8).prop_map(|number| number.try_into().unwrap()));
        let rest = any::<[Option<u32>; 5]>();
        let all = (dscp, rest, any::<bool>());
        all.prop_map(|(dscp, [mss, hop_limit, priority, not_sent_low_water, busy_poll_us], mptcp)| SocketOptions {
            dscp,
            mss,
            hop_limit,
            priority,
            not_sent_low_water,
            busy_poll_us,
            mptcp,
        })
    }

    fn stream() -> impl Strategy<Value = TcpStream> {
        let sizes = (any::<u32>(), any::<u32>(), any::<u32>(), any::<Option<u32>>(), any::<Option<u32>>());
        let send_mode =
            prop::sample::select(vec![SendMode::Copy, SendMode::Sendfile, SendMode::Splice, SendMode::ZeroCopy]);
        let receive_mode = prop_oneof![Just(ReceiveMode::Copy), Just(ReceiveMode::Discard)];
        let ways =
            (flow(), any::<bool>(), any::<Option<u64>>(), option::of("\\PC*"), engine(), send_mode, receive_mode);
        (sizes, ways, options()).prop_map(|(sizes, ways, options)| {
            let (threads, connections, message, send_buffer, receive_buffer) = sizes;
            let (flow, no_delay, throttle, congestion_control, engine, send_mode, receive_mode) = ways;
            TcpStream {
                flow,
                threads,
                connections,
                message,
                send_buffer,
                receive_buffer,
                no_delay,
                throttle,
                congestion_control,
                engine,
                send_mode,
                receive_mode,
                options,
            }
        })
    }

    /// An end with a port, as far as its plan is made of numbers and addresses.
    fn packets() -> impl Strategy<Value = Packets> {
        let service = prop_oneof![
            (1.0..1e9f64, option::of(any::<u32>()), option::of(any::<u16>())).prop_map(|(rate, hold, launch)| {
                let load = rig_packet::Load { hold, launch, ..rig_packet::Load::new(rate) };
                let client = Client {
                    ports: 1..=2,
                    server_ports: 80..=81,
                    load,
                    repeat: None,
                    walk: TupleOrder::Hop,
                    flood: None,
                };
                let request = Payload::from(b"question");
                Service::UdpClient(UdpClient { client, request, timeout: Duration::from_secs(1) })
            }),
            any::<u32>().prop_map(|bytes| {
                Service::UdpServer(UdpServer {
                    server: Server { ports: 7..=9 },
                    response: Payload::Filler(bytes),
                    one_way: false,
                })
            }),
        ];
        let addresses = (any::<IpAddr>(), any::<IpAddr>(), any::<u32>(), option::of(any::<u32>()), any::<[u8; 6]>());
        (service, addresses, any::<Duration>(), "\\PC*").prop_map(|(service, addresses, drain, interface)| {
            let (own, far, count, cpu, mac) = addresses;
            let range = |first| vec![Range { first, count }];
            let mut packets = with_one_port(service);
            let port = &mut packets.ports[0];
            (port.interface, port.driver, port.address) = (interface, Driver::XdpGeneric, own);
            port.gateway = GatewayPlan::Mac(mac);
            (port.local, port.remote) = (range(own), range(far));
            port.threads = vec![ThreadPlan { cpu, queue: count, response: None }];
            packets.course.drain = drain;
            packets
        })
    }

    fn transactions() -> impl Strategy<Value = Transactions> {
        let arrivals = prop_oneof![Just(ArrivalSpacing::Uniform), Just(ArrivalSpacing::Poisson)];
        let open = (any::<f64>(), arrivals).prop_map(|(rate, arrivals)| Schedule::Open { rate, arrivals });
        let finite = |schedule: &Schedule| !matches!(schedule, Schedule::Open { rate, .. } if !rate.is_finite());
        let schedule = prop_oneof![Just(Schedule::Closed), open.prop_filter("JSON has finite numbers only", finite)];
        let sockets = (any::<Option<u32>>(), any::<Option<u32>>(), any::<bool>(), option::of("\\PC*"));
        let rest = (schedule, any::<Duration>(), sockets, options());
        (any::<[u32; 5]>(), rest).prop_map(|(sizes, (schedule, timeout, sockets, options))| {
            let [threads, connections, request, response, in_flight] = sizes;
            let (send_buffer, receive_buffer, no_delay, congestion_control) = sockets;
            Transactions {
                threads,
                connections,
                request,
                response,
                in_flight,
                schedule,
                timeout,
                send_buffer,
                receive_buffer,
                no_delay,
                congestion_control,
                options,
            }
        })
    }

    fn datagrams() -> impl Strategy<Value = Datagrams> {
        let pacing = prop_oneof![Just(Pacing::Thread), Just(Pacing::Kernel)];
        let rest = (any::<[bool; 2]>(), any::<Option<u64>>(), pacing, any::<Option<u32>>(), any::<Option<u32>>());
        (flow(), any::<[u32; 5]>(), rest, options()).prop_map(|(flow, sizes, rest, options)| {
            let [threads, connections, message, batch, segments] = sizes;
            let ([coalesce, shared_clock], throttle, pacing, send_buffer, receive_buffer) = rest;
            Datagrams {
                flow,
                threads,
                connections,
                message,
                batch,
                segments,
                coalesce,
                throttle,
                pacing,
                shared_clock,
                send_buffer,
                receive_buffer,
                options,
            }
        })
    }

    fn order() -> impl Strategy<Value = Order> {
        let address = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(Into::into);
        let only_from = option::of(any::<std::net::IpAddr>().prop_map(Into::into));
        let source = (option::of(any::<std::net::IpAddr>().prop_map(Into::into)), option::of("\\PC*"));
        let source = source.prop_map(|(address, device)| SourceBinding { address, device });
        let role = (any::<bool>(), address, only_from, source).prop_map(|(listens, to, only_from, source)| {
            if listens { Role::Listen { address: to, only_from } } else { Role::Connect { to, source } }
        });
        let load = prop_oneof![
            Just(Load::Idle),
            packets().prop_map(|packets| Load::Packets(Box::new(packets))).boxed(),
            stream().prop_map(Load::TcpStream).boxed(),
            transactions().prop_map(Load::TcpRr).boxed(),
            transactions().prop_map(Load::TcpCrr).boxed(),
            transactions().prop_map(Load::UdpRr).boxed(),
            datagrams().prop_map(Load::UdpStream).boxed(),
        ];
        let phases = any::<[Duration; 4]>().prop_map(|[warm_up, window, cool_down, interval]| Phases {
            warm_up,
            window,
            cool_down,
            interval,
        });
        let plan = (".*", any::<Vec<u32>>(), role, load, phases, any::<i64>());
        let plan = plan.prop_map(|(name, cpus, role, load, phases, peer_clock_ns)| {
            Order::Plan(WorkerPlan { name, cpus, role, load, phases, ceiling: None, peer_clock_ns }.into())
        });
        let what =
            prop_oneof![(0.0..1e12).prop_map(CommandAction::Rate), Just(CommandAction::Mark), Just(CommandAction::End)];
        let command = (any::<u64>(), what).prop_map(|(at_ns, what)| Order::Command(Command { at_ns, what }));
        let go = any::<u64>().prop_map(|start_ns| Order::Go { start_ns });
        prop_oneof![9 => plan, 1 => go, 1 => command, 1 => Just(Order::Done)]
    }

    proptest! {
        #[test]
        fn an_order_is_one_line_and_reads_back_as_it_was(order in order()) {
            let text = serde_json::to_string(&order).unwrap();
            prop_assert!(!text.contains('\n'), "{text}");
            prop_assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
        }

        #[test]
        fn any_plan_can_be_checked(order in order()) {
            if let Order::Plan(plan) = order {
                let _ = plan.validate();
            }
        }
    }
}
