//! The objects of iperf3's JSON, as pure functions of figures.

use super::figures::{StreamSummary, Summary, percent, rate, total, total_bytes};
use super::json::{Json, object};
use super::settings::{Flow, Protocol, Role, TestSettings};
use super::text::{StreamInterval, groups};

/// `start.test_start`.
pub fn test_start(test: &TestSettings, interval: f64) -> Json {
    object([
        ("protocol", test.protocol.name().into()),
        ("num_streams", test.parallel.into()),
        ("blksize", test.length.into()),
        ("omit", test.omit.into()),
        ("duration", test.time.into()),
        ("bytes", test.bytes.into()),
        ("blocks", test.blocks.into()),
        ("reverse", u32::from(test.flow == Flow::Reverse).into()),
        ("tos", test.tos.into()),
        ("target_bitrate", test.rate.into()),
        ("bidir", u32::from(test.flow == Flow::Both).into()),
        ("fqrate", test.fq_rate.into()),
        ("interval", interval.into()),
        ("gso", u32::from(test.gsro).into()),
        ("gro", u32::from(test.gsro).into()),
    ])
}

/// The server's streams of a test both ways have names of their own, at both ends.
fn suffix(test: &TestSettings, role: Role, sends: bool) -> &'static str {
    let by_server = (role == Role::Server) == sends;
    if test.flow == Flow::Both && by_server { "_bidir_reverse" } else { "" }
}

fn times(start: f64, end: f64, bytes: u64, bytes_per_second: f64) -> Json {
    object([
        ("start", start.into()),
        ("end", end.into()),
        ("seconds", (end - start).into()),
        ("bytes", bytes.into()),
        ("bits_per_second", (bytes_per_second * 8.0).into()),
    ])
}

fn stream_times(label: i32, start: f64, end: f64, bytes: u64, bytes_per_second: f64) -> Json {
    let mut json = object([("socket", label.into())]);
    if let (Json::Object(members), Json::Object(more)) = (&mut json, times(start, end, bytes, bytes_per_second)) {
        members.extend(more);
    }
    json
}

fn add_datagrams(json: &mut Json, jitter_s: f64, lost: i64, packets: i64, lost_percent: f64) {
    json.add("jitter_ms", jitter_s * 1e3);
    json.add("lost_packets", lost);
    json.add("packets", packets);
    json.add("lost_percent", lost_percent);
}

/// One element of `intervals`.
pub fn interval(test: &TestSettings, role: Role, streams: &[StreamInterval]) -> Json {
    let connects = test.protocol.connects();
    let list = streams.iter().map(|StreamInterval { label, sends, interval }| {
        let per_second = interval.bytes_per_second();
        let mut json = stream_times(*label, interval.start, interval.end, interval.bytes, per_second);
        match (connects, sends) {
            (true, true) => {
                json.add("retransmits", interval.retransmits);
                json.add("snd_cwnd", interval.congestion_window);
                json.add("snd_wnd", interval.send_window);
                json.add("rtt", interval.rtt_us);
                json.add("rttvar", interval.rtt_variance_us);
                json.add("pmtu", interval.path_mtu);
                json.add("reorder", interval.reordering);
            }
            (true, false) => {}
            (false, true) => json.add("packets", interval.packets),
            (false, false) => {
                let percent = interval.lost_percent();
                add_datagrams(&mut json, interval.jitter_s, interval.lost, interval.packets, percent);
            }
        }
        json.add("omitted", interval.omitted);
        json.add("sender", *sends);
        json
    });
    let mut json = object([("streams", list.collect::<Vec<_>>().into())]);
    for (sends, group) in groups(streams, |stream| stream.sends) {
        let first = &group[0].interval;
        let bytes = total_bytes(group, |stream| stream.interval.bytes);
        let mut sum = times(first.start, first.end, bytes, rate(bytes, first.seconds()));
        let packets = total(group, |stream| stream.interval.packets);
        match (connects, sends && test.protocol != Protocol::Sctp) {
            (true, true) => sum.add("retransmits", total_bytes(group, |one| one.interval.retransmits)),
            (true, false) => {}
            (false, true) => sum.add("packets", packets),
            (false, false) => {
                let lost = total(group, |stream| stream.interval.lost);
                let jitter = group.iter().map(|stream| stream.interval.jitter_s).sum::<f64>() / group.len() as f64;
                add_datagrams(&mut sum, jitter, lost, packets, percent(lost, packets));
            }
        }
        sum.add("omitted", first.omitted);
        sum.add("sender", sends);
        json.add(&format!("sum{}", suffix(test, role, sends)), sum);
    }
    json
}

fn stream_end(connects: bool, stream: &StreamSummary, retransmits: bool) -> Json {
    let StreamSummary { label, sends, sent_bytes, received_bytes, sender_seconds, receiver_seconds, .. } = *stream;
    let sent_rate = rate(sent_bytes, sender_seconds);
    let mut sender = stream_times(label, 0.0, sender_seconds, sent_bytes, sent_rate);
    if !connects {
        let lost_percent = percent(stream.lost(), stream.sender_packets);
        add_datagrams(&mut sender, stream.jitter_s, stream.lost(), stream.packets, lost_percent);
        sender.add("out_of_order", stream.out_of_order);
        sender.add("sender", sends);
        return object([("udp", sender)]);
    }
    if retransmits {
        let extremes = &stream.extremes;
        sender.add("retransmits", stream.retransmits);
        sender.add("reorder", extremes.reordering);
        sender.add("max_snd_cwnd", extremes.congestion_window);
        sender.add("max_snd_wnd", extremes.send_window);
        sender.add("max_rtt", extremes.rtt_us);
        sender.add("min_rtt", extremes.least_rtt_us);
        sender.add("mean_rtt", extremes.mean_rtt_us());
    }
    sender.add("sender", sends);
    let received_rate = rate(received_bytes, receiver_seconds);
    let mut receiver = stream_times(label, 0.0, receiver_seconds, received_bytes, received_rate);
    receiver.add("sender", sends);
    object([("sender", sender), ("receiver", receiver)])
}

/// `end`.
pub fn end(test: &TestSettings, role: Role, summary: &Summary) -> Json {
    let connects = test.protocol.connects();
    let retransmits = |sends: bool| if sends { summary.own_retransmits } else { summary.peer_retransmits };
    let is_sctp = test.protocol == Protocol::Sctp;
    let streams =
        summary.streams.iter().map(|stream| stream_end(connects, stream, retransmits(stream.sends) || is_sctp));
    let mut json = object([("streams", streams.collect::<Vec<_>>().into())]);
    let mut last_sends = false;
    for (sends, group) in groups(&summary.streams, |stream| stream.sends) {
        last_sends = sends;
        let StreamSummary { sender_seconds, receiver_seconds, .. } = group[0];
        let name = |what: &str| format!("{what}{}", suffix(test, role, sends));
        let total = |of: fn(&StreamSummary) -> i64| total(group, of);
        let (sent, received) = (total_bytes(group, |one| one.sent_bytes), total_bytes(group, |one| one.received_bytes));
        let mut sum_sent = times(0.0, sender_seconds, sent, rate(sent, sender_seconds));
        let mut sum_received = times(0.0, receiver_seconds, received, rate(received, receiver_seconds));
        if connects {
            if retransmits(sends) {
                sum_sent.add("retransmits", total(|one| one.retransmits as i64));
            }
            sum_sent.add("sender", sends);
            sum_received.add("sender", sends);
        } else {
            let jitter = group.iter().map(|one| one.jitter_s).sum::<f64>() / group.len() as f64;
            let (lost, packets) = (total(StreamSummary::lost), total(|one| one.packets));
            let lost_percent = percent(lost, packets);
            // What was sent over the time of the receiver: so it is in the original.
            let mut sum = times(0.0, receiver_seconds, sent, rate(sent, sender_seconds));
            add_datagrams(&mut sum, jitter, lost, packets, lost_percent);
            sum.add("sender", sends);
            json.add(&name("sum"), sum);
            add_datagrams(&mut sum_sent, 0.0, 0, total(|one| one.sender_packets), 0.0);
            sum_sent.add("sender", true);
            add_datagrams(&mut sum_received, jitter, lost, total(|one| one.receiver_packets), lost_percent);
            sum_received.add("sender", false);
        }
        json.add(&name("sum_sent"), sum_sent);
        json.add(&name("sum_received"), sum_received);
    }
    let ([total, user, system], [peer, peer_user, peer_system]) = (summary.cpu, summary.peer_cpu);
    let cpu = object([
        ("host_total", total.into()),
        ("host_user", user.into()),
        ("host_system", system.into()),
        ("remote_total", peer.into()),
        ("remote_user", peer_user.into()),
        ("remote_system", peer_system.into()),
    ]);
    json.add("cpu_utilization_percent", cpu);
    if connects {
        let (own, peer) = (&summary.congestion, &summary.peer_congestion);
        let (sender, receiver) = if last_sends { (own, peer) } else { (peer, own) };
        for (name, value) in [("sender_tcp_congestion", sender), ("receiver_tcp_congestion", receiver)] {
            if let Some(value) = value {
                json.add(name, value.as_str());
            }
        }
    }
    json
}
