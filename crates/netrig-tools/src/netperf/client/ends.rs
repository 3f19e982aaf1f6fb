//! What the server is asked for, and what each end was and did.

use std::sync::atomic::{AtomicU64, Ordering};

use socket2::Socket;

use super::{Rings, Test};
use crate::netperf::buffers::Ring;
use crate::netperf::data::Counters;
use crate::netperf::figures::EndFigures;
use crate::netperf::options::Length;
use crate::netperf::sockets::{BufferSizes, TransportFacts};
use crate::netperf::usage::{METHOD, NO_METHOD};
use crate::netperf::values::SendReceive;
use crate::netperf::wire::{OmniRequest, OmniResponse, OmniResults, flag};

impl Test<'_> {
    /// What the server is asked for.
    pub(super) fn request(&self, socket: &Socket, rings: &Rings) -> OmniRequest {
        let options = self.options;
        let asked = |value: Option<u32>| value.map_or(-1, |value| i32::try_from(value).unwrap_or(i32::MAX));
        let mut flags = 0;
        for (on, bit) in [
            (options.no_delay, flag::NO_DELAY),
            (options.connects, flag::CONNECT_TEST),
            (options.cpu_usage.remote, flag::MEASURE_CPU),
            (options.routing_allowed(), flag::ROUTING_ALLOWED),
            (options.fast_open, flag::FASTOPEN),
            (options.remote_connected, flag::USE_CONNECTED),
            (options.defer_accept, flag::DEFER_ACCEPT),
            (options.keep_whole, flag::MTU_DISCOVER),
            (options.keep_alive, flag::KEEPALIVE),
        ] {
            flags |= if on { bit } else { 0 };
        }
        // netperf asks for rings as wide as its own.
        let width = |used: bool, asked: u32, own: &Ring| if used { own.width() } else { asked };
        let bound = socket.local_addr().ok().and_then(|address| address.as_socket());
        let bursts = options.bursts.remote;
        OmniRequest {
            cpu: options.cpu.remote.map_or(-1, |cpu| cpu as i32),
            send_buffer: asked(options.buffer.remote.send),
            send_size: asked(options.send_size.remote),
            send_alignment: options.alignment.remote.send,
            send_offset: options.offset.remote.send,
            send_width: width(options.direction.transmits, options.width.send, &rings.send),
            request_size: asked(options.request),
            receive_buffer: asked(options.buffer.remote.receive),
            receive_size: asked(options.receive_size.remote),
            receive_alignment: options.alignment.remote.receive,
            receive_offset: options.offset.remote.receive,
            receive_width: width(options.direction.receives, options.width.receive, &rings.receive),
            response_size: asked(options.response),
            flags,
            cpu_rate: 0.0,
            length: match options.length {
                Length::Seconds(seconds) => seconds as i32,
                Length::Units(units) => -(units as i32),
            },
            dirty: [-1; 3],
            data_port: options.data_port.remote.into(),
            family: if self.destination.is_ipv6() { 6 } else { 4 },
            socket_type: options.transport.socket_type().1,
            protocol: options.transport.number(),
            direction: options.direction.mirrored().number(),
            client_port: bound.map_or(0, |address| address.port().into()),
            burst_sends: bursts.map_or(0, |bursts| bursts.sends),
            burst_us: bursts.map_or(0, |bursts| bursts.interval.as_micros() as u32),
            client_address: bound.map(|address| address.ip()).filter(|ip| !ip.is_unspecified()),
            server_address: options.data.remote.host.as_ref().map(|_| self.destination.ip()),
            priority: asked(options.priority.remote),
            type_of_service: options.type_of_service.remote.map_or(-1, i32::from),
            congestion_control: options.congestion_control.remote.clone().unwrap_or_default(),
            fill_file: options.fill_file.remote.as_ref().map_or_else(String::new, |path| path.display().to_string()),
        }
    }

    pub(super) fn local_figures(
        &self,
        counters: &Counters,
        rings: &Rings,
        begin: BufferSizes,
        end: BufferSizes,
        facts: &TransportFacts,
    ) -> EndFigures {
        let options = self.options;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let end = if end == BufferSizes::default() { begin } else { end };
        let sizes = |sizes: BufferSizes| SendReceive { send: sizes.send.into(), receive: sizes.receive.into() };
        EndFigures {
            buffer_asked: options.buffer.local,
            buffer: sizes(begin),
            buffer_end: sizes(end),
            send_size: if options.direction.transmits { rings.send.size().into() } else { -1 },
            receive_size: if options.direction.receives { rings.receive.size().into() } else { -1 },
            width: SendReceive { send: rings.send.width(), receive: rings.receive.width() },
            alignment: options.alignment.local,
            offset: options.offset.local,
            bytes_sent: read(&counters.sent_bytes),
            bytes_received: read(&counters.received_bytes),
            send_calls: read(&counters.send_calls),
            receive_calls: read(&counters.receive_calls),
            failed_sends: read(&counters.failed_sends),
            cpu: None,
            cpu_percent: -1.0,
            service_demand: -1.0,
            cpu_method: if options.cpu_usage.local { METHOD } else { NO_METHOD },
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            bound_to: options.cpu.local,
            no_delay: options.no_delay,
            cork: options.cork,
            bursts: options.bursts.local,
            priority: options.priority.local.map_or(-1, i64::from),
            type_of_service: options.type_of_service.local.map_or(-1, i64::from),
            congestion_control: facts.congestion_control.clone(),
            fill_file: options.fill_file.local.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            retransmissions: facts.retransmissions.map_or(-1, i64::from),
        }
    }

    /// Without a control connection the other end has received what was sent, as far as anybody knows.
    pub(super) fn remote_figures(
        &self,
        response: Option<&OmniResponse>,
        results: Option<&OmniResults>,
        local_sent: u64,
    ) -> EndFigures {
        let options = self.options;
        let (Some(response), Some(results)) = (response, results) else {
            let unknown = SendReceive { send: -1, receive: -1 };
            return EndFigures {
                bytes_received: local_sent,
                buffer: unknown,
                buffer_end: unknown,
                send_size: -1,
                receive_size: -1,
                cpu_percent: -1.0,
                service_demand: -1.0,
                cpu_method: NO_METHOD,
                priority: -1,
                type_of_service: -1,
                retransmissions: -1,
                ..EndFigures::default()
            };
        };
        EndFigures {
            buffer_asked: options.buffer.remote,
            buffer: SendReceive { send: response.send_buffer.into(), receive: response.receive_buffer.into() },
            buffer_end: SendReceive { send: results.send_buffer.into(), receive: results.receive_buffer.into() },
            send_size: response.send_size.into(),
            receive_size: response.receive_size.into(),
            width: SendReceive { send: response.send_width, receive: response.receive_width },
            alignment: options.alignment.remote,
            offset: options.offset.remote,
            bytes_sent: results.bytes_sent,
            bytes_received: results.bytes_received,
            send_calls: results.send_calls.into(),
            receive_calls: results.receive_calls.into(),
            failed_sends: results.failed_sends.into(),
            cpu: None,
            cpu_percent: -1.0,
            service_demand: -1.0,
            cpu_method: if options.cpu_usage.remote { results.cpu_method } else { NO_METHOD },
            cpus: results.cpu.cpus,
            bound_to: options.cpu.remote,
            no_delay: response.flags & flag::NO_DELAY != 0,
            cork: options.cork,
            bursts: options.bursts.remote,
            priority: response.priority.into(),
            type_of_service: response.type_of_service.into(),
            congestion_control: results.congestion_control.clone(),
            fill_file: options.fill_file.remote.as_ref().map_or_else(String::new, |path| path.display().to_string()),
            retransmissions: i64::from(results.retransmissions as i32),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use rig_load::driver::Cancel;

    use super::*;
    use crate::netperf::command_line::parse;
    use crate::netperf::layouts::Selection;
    use crate::netperf::options::Request;
    use crate::netperf::recorded::exchanges;

    /// What differs between two runs of netperf itself: the port that it happens to have.
    fn without_port(mut request: OmniRequest) -> OmniRequest {
        request.client_port = 0;
        request
    }

    #[test]
    fn a_server_is_asked_as_netperf_asks_it() {
        for exchange in exchanges() {
            let line = format!("-H 127.0.0.1 {}", exchange.options.replace("10.9.0.1", "127.0.0.1"));
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let Request::Test(options) = parse(&words).unwrap() else { panic!("{line}") };
            let cancel = Cancel::new().unwrap();
            let selection = Selection::of(&options).unwrap();
            // A congestion control that this machine does not have is asked of the server all the same.
            let unknown = exchange.options.contains("nonsense");
            let options = crate::netperf::options::Options {
                congestion_control: match unknown {
                    true => crate::netperf::values::Sides { local: None, ..options.congestion_control.clone() },
                    false => options.congestion_control.clone(),
                },
                ..*options
            };
            let test = Test::new(&options, &cancel, &selection, None).unwrap();
            let socket = test.data_socket().unwrap();
            let rings = test.rings(BufferSizes::of(&socket).unwrap()).unwrap();
            let ours = test.request(&socket, &rings);
            let mut theirs = OmniRequest::decode(&exchange.request);
            assert_eq!(theirs.encode(), exchange.request, "{line}: every byte is known");
            let explicit = theirs.server_address.is_some();
            assert_eq!(explicit, line.contains("-- -d recv -H"), "{line}");
            theirs.server_address = ours.server_address;
            assert_eq!(without_port(ours), without_port(theirs), "{line}");
        }
    }
}
