//! The program finds for each frame the bucket that the model finds.

use std::collections::BTreeSet;

use rig_datapath::steer::{Options, Steer};
use rig_datapath::test_run::Verdict;

use super::load;

const OPTIONS: Options = Options { queues: 1, packets: 64, strict: true, completes: true };

fn ethernet(tag: Option<u16>, kind: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if let Some(tag) = tag {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(kind.to_be_bytes());
    frame
}

/// A header of `words` 32-bit words, and what follows.
fn ipv4(words: u8, fragment: u16, protocol: u8, ends: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x40 | words, 0];
    packet.extend((u16::from(words) * 4 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(ends);
    packet.resize(usize::from(words) * 4, 1);
    packet.extend(payload);
    packet
}

fn ipv6(next: u8, ends: [u8; 32], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(ends);
    packet.extend(payload);
    packet
}

/// UDP's header, or what of TCP's has the same place, and some bytes.
fn ports(source: u16, destination: u16) -> Vec<u8> {
    let mut payload = [source.to_be_bytes(), destination.to_be_bytes(), 40_u16.to_be_bytes(), [1, 2]].concat();
    payload.resize(40, 5);
    payload
}

/// Frames of all kinds that the program tells apart.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let ends = [192, 0, 2, 1, 198, 51, 100, 2];
    let mut ends_v6 = [0x20; 32];
    for port in 0..200 {
        let payload = ports(1000 + port, 53);
        for (tag, protocol) in [(None, 6), (None, 17), (Some(0x8100), 17), (Some(0x88a8), 6), (None, 1), (None, 132)] {
            frames.push([ethernet(tag, 0x0800), ipv4(5, 0x4000, protocol, ends, &payload)].concat());
            ends_v6[31] = port as u8;
            frames.push([ethernet(tag, 0x86dd), ipv6(protocol, ends_v6, &payload)].concat());
        }
        // The first fragment has ports, and goes where the others go.
        for fragment in [0x2000, 0x00b9] {
            frames.push([ethernet(None, 0x0800), ipv4(5, fragment, 17, ends, &payload)].concat());
        }
        frames.push([ethernet(None, 0x0800), ipv4(7, 0, 17, ends, &payload)].concat());
        // An IPv6 fragment header.
        frames.push([ethernet(None, 0x86dd), ipv6(44, ends_v6, &payload)].concat());
    }
    // No IP, another version, a header that is too short, cut off in the middle.
    frames.push([ethernet(None, 0x0806), vec![0; 28]].concat());
    frames.push([ethernet(None, 0x0800), vec![0x65; 40]].concat());
    frames.push([ethernet(None, 0x0800), vec![0x44; 40]].concat());
    let whole = [ethernet(Some(0x8100), 0x0800), ipv4(5, 0, 17, ends, &ports(1, 2))].concat();
    frames.extend((15..whole.len()).map(|length| whole[..length].to_vec()));
    frames
}

fn received(steer: &Steer) -> Vec<u64> {
    steer.read().unwrap().buckets.iter().map(|bucket| bucket.packets).collect()
}

#[test]
fn a_frame_is_in_the_bucket_that_the_model_says() {
    let Some(steer) = load(OPTIONS) else { return };
    let mut used = BTreeSet::new();
    let mut before = received(&steer);
    for frame in frames() {
        let expected = steer.key().bucket_of(&frame);
        let outcome = steer.try_on(&frame).unwrap();
        let after = received(&steer);
        let grown: Vec<u32> =
            (0..).zip(after.iter().zip(&before)).filter(|(_, (a, b))| a > b).map(|(at, _)| at).collect();
        assert_eq!(grown, Vec::from_iter(expected), "{frame:02x?}");
        let verdict = if expected.is_some() { Verdict::Redirect } else { Verdict::Pass };
        assert_eq!(outcome.verdict, verdict, "{frame:02x?}");
        used.extend(expected);
        before = after;
    }
    assert!(used.len() > 100, "1,600 flows are in {} of 128 buckets", used.len());
}

/// RFC 1071, of an even number of bytes.
fn sum(bytes: &[u8]) -> u32 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}

#[test]
fn a_checksum_that_was_left_to_a_device_is_completed_and_others_stay() {
    let ends = [192, 0, 2, 1, 198, 51, 100, 2];
    for (protocol, at) in [(17_u8, 6), (6, 16)] {
        for bytes in [40_usize, 1400] {
            let mut payload = ports(4000, 53);
            payload.resize(bytes, 0x5a);
            let pseudo = sum(&ends) + u32::from(protocol) + bytes as u32;
            let pseudo = sum(&[(pseudo >> 16) as u16, pseudo as u16].map(u16::to_be_bytes).concat()) as u16;
            payload[at..at + 2].copy_from_slice(&[0, 0]);
            let whole = !(sum(&[&payload[..], &pseudo.to_be_bytes()].concat()) as u16);
            for (found, left, completes) in
                [(pseudo, whole, true), (whole, whole, true), (77, 77, true), (pseudo, pseudo, false)]
            {
                let Some(steer) = load(Options { completes, ..OPTIONS }) else { return };
                payload[at..at + 2].copy_from_slice(&found.to_be_bytes());
                let frame = [ethernet(None, 0x0800), ipv4(5, 0, protocol, ends, &payload)].concat();
                let out = steer.try_on(&frame).unwrap().frame;
                let mut expected = frame.clone();
                expected[34 + at..36 + at].copy_from_slice(&left.to_be_bytes());
                assert_eq!(out, expected, "protocol {protocol}, {bytes} bytes, {found:04x}");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let words = |options| Steer::load(options, 0).unwrap_err().to_string();
    assert!(
        words(Options { queues: 65, ..OPTIONS }).contains("receive queues"),
        "{}",
        words(Options { queues: 65, ..OPTIONS })
    );
    assert!(words(Options { packets: 0, ..OPTIONS }).contains("packets"));
    let Some(mut steer) = load(OPTIONS) else { return };
    assert!(steer.place(128, 0).is_err());
    assert!(steer.place(0, 1 << 20).is_err(), "no such CPU");
    // Loopback has no XDP of its own, and what the kernel does in its place is refused.
    let error = steer.attach(1).unwrap_err().to_string();
    assert!(error.contains("no XDP"), "{error}");
}
