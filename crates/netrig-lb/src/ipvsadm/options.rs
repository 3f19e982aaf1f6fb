//! The options of ipvsadm 1.31 and of DPVS's edition (their manual pages and help texts), and how a command line is cut
//! into them: short options may be bundled, values may follow at once, after `=` or as the next word.

use super::UsageError;

/// What is to be done; a line has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    AddService,
    EditService,
    DeleteService,
    AddServer,
    EditServer,
    DeleteServer,
    AddLocal,
    DeleteLocal,
    ListLocal,
    Clear,
    List,
    Zero,
    Set,
    Save,
    Restore,
    Version,
    Help,
}

/// What is said about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    TcpService,
    UdpService,
    Scheduler,
    ConnTimeout,
    Limit,
    Expire,
    SloppyTcp,
    Reuse,
    SynProxy,
    /// One of [`LIMITS`](crate::settings::LIMITS), by its place there.
    Limits(usize),
    Persistent,
    Netmask,
    PersistenceGroup,
    OnePacket,
    OnePacketSaid,
    Dscp,
    Quic,
    QuicId,
    Server,
    Gateway,
    Tunnel,
    Masquerade,
    FullNat,
    Weight,
    UpperThreshold,
    LowerThreshold,
    Drain,
    TunnelType,
    TunnelPort,
    TunnelSum,
    TunnelNoSum,
    TunnelSource,
    Local,
    Device,
    Numeric,
    Connection,
    Stats,
    Rate,
    Thresholds,
    NextHops,
    Health,
    PersistentConn,
    TunnelInfo,
    Timeout,
    Exact,
    Sort,
    NoSort,
    Json,
    Client,
    Backend,
    Most,
    Name,
}

#[derive(Debug, Clone, Copy)]
enum Meaning {
    Verb(Verb),
    /// With a value or without.
    Value(Key),
    Flag(Key),
    /// With a value where the next word is no option.
    Optional(Key),
    /// Of the originals and not of netrig, for this reason.
    Refused(&'static str),
}

use Meaning::{Flag, Optional, Refused, Value, Verb as Does};

const NO_MARKS: &str = "packets have no marks yet where the balancer takes them: add a service for each address and port with -t or -u, all with one --persistence-group N";
const NO_ENGINES: &str = "persistence is by the client's address (-p): there are no engines that look into packets";
const NO_ACCESS_LISTS: &str = "who may begin connections is told by `netrig lb access allow|deny|remove PREFIX --service SERVICE`, which also lists it";
const NO_PROXY_PROTOCOL: &str =
    "the PROXY protocol is client_address = \"proxy_v2\" of the service in the file: see docs/BALANCER.md";
const NO_SYNC: &str = "connections are shared between balancers by [sync] in the file: see docs/BALANCER.md";
const NO_REMOTE_SUM: &str = "remote checksum offload is not there, as programs of XDP cannot leave checksums to a receiver: give --tun-csum or --tun-nocsum";
const NO_SCHEDULER_FLAGS: &str = "schedulers have no flags: sh is by the client's address, mh by its address and port, both skip servers of weight 0";

/// Long name, short name, meaning.
const OPTIONS: &[(&str, Option<char>, Meaning)] = &[
    ("add-service", Some('A'), Does(Verb::AddService)),
    ("edit-service", Some('E'), Does(Verb::EditService)),
    ("delete-service", Some('D'), Does(Verb::DeleteService)),
    ("add-server", Some('a'), Does(Verb::AddServer)),
    ("edit-server", Some('e'), Does(Verb::EditServer)),
    ("delete-server", Some('d'), Does(Verb::DeleteServer)),
    ("add-laddr", Some('P'), Does(Verb::AddLocal)),
    ("del-laddr", Some('Q'), Does(Verb::DeleteLocal)),
    ("get-laddr", Some('G'), Does(Verb::ListLocal)),
    ("clear", Some('C'), Does(Verb::Clear)),
    ("list", Some('L'), Does(Verb::List)),
    ("list", Some('l'), Does(Verb::List)),
    ("zero", Some('Z'), Does(Verb::Zero)),
    ("set", None, Does(Verb::Set)),
    ("save", Some('S'), Does(Verb::Save)),
    ("restore", Some('R'), Does(Verb::Restore)),
    ("version", Some('v'), Does(Verb::Version)),
    ("help", Some('h'), Does(Verb::Help)),
    ("tcp-service", Some('t'), Value(Key::TcpService)),
    ("udp-service", Some('u'), Value(Key::UdpService)),
    ("scheduler", Some('s'), Value(Key::Scheduler)),
    ("conn-timeout", None, Value(Key::ConnTimeout)),
    ("limit", None, Value(Key::Limit)),
    ("expire", None, Value(Key::Expire)),
    ("sloppy-tcp", None, Value(Key::SloppyTcp)),
    ("reuse", None, Value(Key::Reuse)),
    ("synproxy", Some('j'), Value(Key::SynProxy)),
    ("source-limit", None, Value(Key::Limits(0))),
    ("source-rate", None, Value(Key::Limits(1))),
    ("source-burst", None, Value(Key::Limits(2))),
    ("source-prefix4", None, Value(Key::Limits(3))),
    ("source-prefix6", None, Value(Key::Limits(4))),
    ("new-rate", None, Value(Key::Limits(5))),
    ("new-burst", None, Value(Key::Limits(6))),
    ("persistent", Some('p'), Optional(Key::Persistent)),
    ("netmask", Some('M'), Value(Key::Netmask)),
    ("persistence-group", None, Value(Key::PersistenceGroup)),
    ("ops", Some('o'), Flag(Key::OnePacket)),
    ("one-packet", None, Value(Key::OnePacketSaid)),
    ("dscp", None, Value(Key::Dscp)),
    ("quic", None, Value(Key::Quic)),
    ("quic-id", None, Value(Key::QuicId)),
    ("real-server", Some('r'), Value(Key::Server)),
    ("gatewaying", Some('g'), Flag(Key::Gateway)),
    ("ipip", Some('i'), Flag(Key::Tunnel)),
    ("masquerading", Some('m'), Flag(Key::Masquerade)),
    ("fullnat", Some('b'), Flag(Key::FullNat)),
    ("weight", Some('w'), Value(Key::Weight)),
    ("u-threshold", Some('x'), Value(Key::UpperThreshold)),
    ("l-threshold", Some('y'), Value(Key::LowerThreshold)),
    ("drain", None, Value(Key::Drain)),
    ("tun-type", None, Value(Key::TunnelType)),
    ("tun-port", None, Value(Key::TunnelPort)),
    ("tun-csum", None, Flag(Key::TunnelSum)),
    ("tun-nocsum", None, Flag(Key::TunnelNoSum)),
    ("tunnel-source", None, Value(Key::TunnelSource)),
    ("laddr", Some('z'), Value(Key::Local)),
    ("ifname", Some('F'), Value(Key::Device)),
    ("numeric", Some('n'), Flag(Key::Numeric)),
    ("connection", Some('c'), Flag(Key::Connection)),
    ("stats", None, Flag(Key::Stats)),
    ("rate", None, Flag(Key::Rate)),
    ("thresholds", None, Flag(Key::Thresholds)),
    ("next-hops", None, Flag(Key::NextHops)),
    ("health", None, Flag(Key::Health)),
    ("persistent-conn", None, Flag(Key::PersistentConn)),
    ("tun-info", None, Flag(Key::TunnelInfo)),
    ("timeout", None, Flag(Key::Timeout)),
    ("exact", Some('X'), Flag(Key::Exact)),
    ("sort", None, Flag(Key::Sort)),
    ("nosort", None, Flag(Key::NoSort)),
    ("json", None, Flag(Key::Json)),
    ("client", None, Value(Key::Client)),
    ("backend", None, Value(Key::Backend)),
    ("most", None, Value(Key::Most)),
    ("name", None, Value(Key::Name)),
    ("fwmark-service", Some('f'), Refused(NO_MARKS)),
    ("ipv6", Some('6'), Refused("it belongs to -f: addresses of IPv6 are told by their form, [2001:db8::1]:80")),
    ("sctp-service", None, Refused("SCTP is not balanced: -t and -u are")),
    ("icmp-service", Some('q'), Refused("ICMP is not balanced but for errors about connections, which are")),
    ("match", Some('H'), Refused("there is no SNAT by match: services are chosen with -t and -u")),
    ("pe", None, Refused(NO_ENGINES)),
    ("sched-flags", None, Refused(NO_SCHEDULER_FLAGS)),
    ("hash-target", Some('Y'), Refused(NO_SCHEDULER_FLAGS)),
    ("tun-remcsum", None, Refused(NO_REMOTE_SUM)),
    ("start-daemon", None, Refused(NO_SYNC)),
    ("stop-daemon", None, Refused(NO_SYNC)),
    ("daemon", None, Refused(NO_SYNC)),
    ("syncid", None, Refused(NO_SYNC)),
    ("sync-maxlen", None, Refused(NO_SYNC)),
    ("mcast-interface", None, Refused(NO_SYNC)),
    ("mcast-group", None, Refused(NO_SYNC)),
    ("mcast-port", None, Refused(NO_SYNC)),
    ("mcast-ttl", None, Refused(NO_SYNC)),
    ("snat", Some('J'), Refused("there is no SNAT: choose -b, -m, -g or -i")),
    ("sockpair", None, Refused("write `-L -c -t SERVICE --client ADDRESS` instead")),
    ("cpu", None, Refused("listings are of all CPUs together")),
    ("proxy-protocol", None, Refused(NO_PROXY_PROTOCOL)),
    ("add-blklst", Some('U'), Refused(NO_ACCESS_LISTS)),
    ("del-blklst", Some('V'), Refused(NO_ACCESS_LISTS)),
    ("get-blklst", Some('B'), Refused(NO_ACCESS_LISTS)),
    ("blklst", Some('k'), Refused(NO_ACCESS_LISTS)),
];

/// A command line cut into its parts: each key at most once.
#[derive(Debug, Default)]
pub struct Parts {
    pub verb: Option<(Verb, String)>,
    /// Key, value, and how it was said.
    pub keys: Vec<(Key, Option<String>, String)>,
    /// Words that belong to no option: `--set`'s.
    pub words: Vec<String>,
}

/// Cuts a command line into its parts.
pub fn cut(arguments: &[String]) -> Result<Parts, UsageError> {
    let mut parts = Parts::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if let Some(long) = argument.strip_prefix("--").filter(|long| !long.is_empty()) {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let said = format!("--{name}");
            let (.., meaning) = OPTIONS
                .iter()
                .find(|(long, ..)| *long == name)
                .ok_or_else(|| UsageError::new(format!("there is no option {said}"), TRY_HELP))?;
            match (meaning, value) {
                (Optional(_), None) => parts.take(*meaning, said, value_if_any(&mut rest))?,
                (Value(_), None) => parts.take(*meaning, said.clone(), Some(next(&mut rest, &said)?))?,
                (Does(_) | Flag(_), Some(value)) => {
                    let error = format!("{said} takes no value, but has '{value}'");
                    return Err(UsageError::new(error, "leave the value out"));
                }
                (_, value) => parts.take(*meaning, said, value.map(str::to_owned))?,
            }
        } else if let Some(bundle) = argument.strip_prefix('-').filter(|bundle| !bundle.is_empty() && *bundle != "-") {
            parts.take_bundle(bundle, &mut rest)?;
        } else {
            parts.words.push(argument.clone());
        }
    }
    Ok(parts)
}

const TRY_HELP: &str = "`netrig lb help` lists the options";

/// The next word, unless it is an option.
fn value_if_any<'a>(rest: &mut (impl Iterator<Item = &'a String> + Clone)) -> Option<String> {
    let value = rest.clone().next().filter(|word| !word.starts_with('-'))?;
    rest.next();
    Some(value.clone())
}

fn next<'a>(rest: &mut impl Iterator<Item = &'a String>, said: &str) -> Result<String, UsageError> {
    rest.next().cloned().ok_or_else(|| UsageError::new(format!("{said} needs a value"), "put it after the option"))
}

impl Parts {
    fn take_bundle<'a>(
        &mut self,
        bundle: &str,
        rest: &mut (impl Iterator<Item = &'a String> + Clone),
    ) -> Result<(), UsageError> {
        let mut letters = bundle.chars();
        while let Some(letter) = letters.next() {
            let said = format!("-{letter}");
            let (long, _, meaning) = OPTIONS
                .iter()
                .find(|(_, short, _)| *short == Some(letter))
                .ok_or_else(|| UsageError::new(format!("there is no option {said}"), TRY_HELP))?;
            // With services it is ipvsadm's, with servers DPVS's.
            if matches!(meaning, Flag(Key::FullNat)) && self.is_about_a_service() {
                return Err(UsageError::refused("-b, --sched-flags", NO_SCHEDULER_FLAGS));
            }
            match meaning {
                Optional(_) if letters.as_str().is_empty() => {
                    return self.take(*meaning, said, value_if_any(rest));
                }
                Value(_) | Optional(_) => {
                    let attached = letters.as_str();
                    let attached = attached.strip_prefix('=').unwrap_or(attached);
                    let value = if attached.is_empty() { next(rest, &said)? } else { attached.to_owned() };
                    return self.take(*meaning, said, Some(value));
                }
                Refused(_) => self.take(*meaning, format!("{said}, --{long}"), None)?,
                _ => self.take(*meaning, said, None)?,
            }
        }
        Ok(())
    }

    fn is_about_a_service(&self) -> bool {
        matches!(self.verb, Some((Verb::AddService | Verb::EditService, _)))
    }

    fn take(&mut self, meaning: Meaning, said: String, value: Option<String>) -> Result<(), UsageError> {
        match meaning {
            Refused(reason) => Err(UsageError::refused(&said, reason)),
            Does(verb) => match &self.verb {
                Some((_, before)) => Err(UsageError::new(
                    format!("{before} and {said} are two commands"),
                    "choose one, and put the other in a line of its own",
                )),
                None => {
                    self.verb = Some((verb, said));
                    Ok(())
                }
            },
            Value(key) | Flag(key) | Optional(key) => {
                if self.keys.iter().any(|(before, ..)| *before == key) {
                    return Err(UsageError::new(format!("{said} is given twice"), "give it once"));
                }
                self.keys.push((key, value, said));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn names_are_of_one_option() {
        for (at, (long, short, _)) in OPTIONS.iter().enumerate() {
            for (other, other_short, _) in &OPTIONS[at + 1..] {
                assert!(long != other || *long == "list", "--{long}");
                assert!(short.is_none() || short != other_short, "-{short:?}");
            }
        }
    }

    #[test]
    fn short_options_bundle_and_values_attach() {
        for line in
            ["-At 1.2.3.4:80 -s rr", "-A -t1.2.3.4:80 -srr", "-A -t=1.2.3.4:80 --scheduler=rr", "-s rr -At1.2.3.4:80"]
        {
            let mut parts = cut(&words(line)).unwrap();
            assert_eq!(parts.verb.unwrap().0, Verb::AddService, "{line}");
            parts.keys.sort_by_key(|(key, ..)| *key);
            let keys: Vec<_> = parts.keys.iter().map(|(key, value, _)| (*key, value.as_deref().unwrap())).collect();
            assert_eq!(keys, [(Key::TcpService, "1.2.3.4:80"), (Key::Scheduler, "rr")], "{line}");
        }
    }

    #[test]
    fn what_is_elsewhere_is_named() {
        for (line, place) in [
            ("-U -t 1.2.3.4:80 -k 5.6.7.8", "netrig lb access"),
            ("-A -t 1.2.3.4:80 --proxy-protocol v2", "client_address"),
            ("-A -t 1.2.3.4:80 --start-daemon master", "[sync]"),
        ] {
            let error = cut(&words(line)).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn b_is_fullnat_for_servers_and_flags_for_services() {
        let parts = cut(&words("-a -t 1.2.3.4:80 -r 10.0.0.1 -b")).unwrap();
        assert_eq!(parts.keys.last().unwrap().0, Key::FullNat);
        let error = cut(&words("-A -t 1.2.3.4:80 -s sh -b sh-port")).unwrap_err().to_string();
        assert!(error.contains("--sched-flags") && error.contains("mh"), "{error}");
    }
}
