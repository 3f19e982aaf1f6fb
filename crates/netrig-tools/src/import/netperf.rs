//! netperf's outputs: `-o` (CSV) and `-k` (a line each) of its selectors, and the layouts before these.
//!
//! The layouts are those of netperf's nettest_omni.c and nettest_bsd.c. Bits are in powers of ten, bytes in powers of 1024 (`-f`). What was not
//! measured is -1 there, or 0 where 0 is no value.

use std::collections::BTreeMap;

use rig_facts::claim::Statistic;

use super::lines::number;
use super::{Mistake, Outputs, check_count};
use crate::netperf::selectors::SelectorIndex;
use crate::netperf::told::{NetperfResult, TestKind, bits};
use crate::netperf::units::Unit;
use crate::netperf::values::{Direction, Transport};
use crate::store_run::{ToolTest, tidy};

/// What netperf was asked for, where its output does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetperfTest {
    TcpStream,
    TcpMaerts,
    TcpRr,
    TcpCrr,
    UdpStream,
    UdpRr,
}

impl NetperfTest {
    pub const ALL: [Self; 6] =
        [Self::TcpStream, Self::TcpMaerts, Self::TcpRr, Self::TcpCrr, Self::UdpStream, Self::UdpRr];

    /// As `-t` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "TCP_STREAM",
            Self::TcpMaerts => "TCP_MAERTS",
            Self::TcpRr => "TCP_RR",
            Self::TcpCrr => "TCP_CRR",
            Self::UdpStream => "UDP_STREAM",
            Self::UdpRr => "UDP_RR",
        }
    }

    fn kind(self) -> TestKind {
        let (transport, transmits, receives, connects) = match self {
            Self::TcpStream => (Transport::Tcp, true, false, false),
            Self::TcpMaerts => (Transport::Tcp, false, true, false),
            Self::TcpRr => (Transport::Tcp, true, true, false),
            Self::TcpCrr => (Transport::Tcp, true, true, true),
            Self::UdpStream => (Transport::Udp, true, false, false),
            Self::UdpRr => (Transport::Udp, true, true, false),
        };
        TestKind { transport, direction: Direction { transmits, receives }, connects }
    }

    /// By the title of a banner; netperf before 2.5 has no `MIGRATED` there.
    fn of_banner(title: &str) -> Option<Self> {
        Some(match title.strip_prefix("MIGRATED ").unwrap_or(title) {
            "TCP STREAM" => Self::TcpStream,
            "TCP MAERTS" => Self::TcpMaerts,
            "TCP REQUEST/RESPONSE" => Self::TcpRr,
            "TCP Connect/Request/Response" => Self::TcpCrr,
            "UDP STREAM" | "UDP UNIDIRECTIONAL SEND" => Self::UdpStream,
            "UDP REQUEST/RESPONSE" => Self::UdpRr,
            _ => return None,
        })
    }
}

/// A line that nothing else writes.
pub fn is_of(line: &str) -> bool {
    let line = line.trim_end();
    let is_selector = |text: &str| SelectorIndex::of(text).is_some();
    title(line).is_some()
        || line.split_once('=').is_some_and(|(name, _)| is_selector(name))
        || line.contains(',') && cells(line).iter().all(|cell| is_selector(cell))
        || !line.is_empty() && line.split_whitespace().count() >= 2 && line.split_whitespace().all(is_number)
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

/// The first part of a banner.
fn title(line: &str) -> Option<&str> {
    line.split_once(" TEST from ").map(|(title, _)| title.trim())
}

pub fn read(text: &str, test: Option<NetperfTest>) -> Result<Outputs, Mistake> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())).collect();
    let selects = |line: &str| line.split_once('=').is_some_and(|(name, _)| SelectorIndex::of(name).is_some());
    let is_heading =
        |line: &str| line.contains(',') && cells(line).iter().all(|cell| SelectorIndex::of(cell).is_some());
    let tests = if lines.iter().any(|(_, line)| selects(line)) {
        keys(&lines, test)?
    } else if lines.iter().any(|(_, line)| is_heading(line)) {
        csv(&lines, test)?
    } else {
        classic(&lines, test)?
    };
    Ok(Outputs { tests, failed: Vec::new() })
}

/// A banner's test and server, where the test is one of those that are known.
fn of_banner(line: &str) -> (Option<NetperfTest>, Option<String>) {
    let test = title(line).and_then(NetperfTest::of_banner);
    let server = line.split_once(" to ").and_then(|(_, rest)| rest.split_whitespace().next()).map(tidy);
    (test, server)
}

type Selected = BTreeMap<&'static str, String>;

/// `-k`: a name that comes again begins another test.
fn keys(lines: &[(usize, &str)], test: Option<NetperfTest>) -> Result<Vec<ToolTest>, Mistake> {
    let mut tests: Vec<ToolTest> = Vec::new();
    let mut banner = (None, None);
    let mut values = Selected::new();
    let mut begin = 1;
    for (at, line) in lines {
        check_count(tests.len())?;
        if title(line).is_some() {
            if !values.is_empty() {
                tests.push(selected(&std::mem::take(&mut values), &banner, test, begin)?);
            }
            banner = of_banner(line);
        }
        // Interim results come between.
        let Some((name, value)) = line.split_once('=') else { continue };
        let Some(index) = SelectorIndex::of(name) else { continue };
        if values.contains_key(index.name()) {
            tests.push(selected(&std::mem::take(&mut values), &banner, test, begin)?);
        }
        if values.is_empty() {
            begin = *at;
        }
        values.insert(index.name(), value.trim().trim_matches('"').to_owned());
    }
    if !values.is_empty() {
        tests.push(selected(&values, &banner, test, begin)?);
    }
    Ok(tests)
}

/// The cells of a line, of which some are in quotation marks.
fn cells(line: &str) -> Vec<&str> {
    let mut cells = Vec::new();
    let (mut begin, mut quoted) = (0, false);
    for (at, letter) in line.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                cells.push(&line[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    cells.push(&line[begin..]);
    cells.iter().map(|cell| cell.trim()).collect()
}

/// `-o` with its heading; each line below it is a test.
fn csv(lines: &[(usize, &str)], test: Option<NetperfTest>) -> Result<Vec<ToolTest>, Mistake> {
    let mut tests: Vec<ToolTest> = Vec::new();
    let mut banner = (None, None);
    let mut heading: Vec<SelectorIndex> = Vec::new();
    for (at, line) in lines {
        check_count(tests.len())?;
        if title(line).is_some() {
            banner = of_banner(line);
            continue;
        }
        if !line.contains(',') {
            continue;
        }
        let cells = cells(line);
        let names: Option<Vec<SelectorIndex>> = cells.iter().map(|cell| SelectorIndex::of(cell)).collect();
        if let Some(names) = names {
            heading = names;
            continue;
        }
        if heading.is_empty() || line.starts_with("Interim result") {
            continue;
        }
        if cells.len() != heading.len() {
            let why = format!(
                "expected {} values, as many as the heading has names, and found {}",
                heading.len(),
                cells.len()
            );
            return Err(Mistake::at(*at, why));
        }
        let of = |(name, value): (&SelectorIndex, &&str)| (name.name(), value.trim_matches('"').to_owned());
        let values: Selected = heading.iter().zip(&cells).map(of).collect();
        tests.push(selected(&values, &banner, test, *at)?);
    }
    Ok(tests)
}

/// What the unit of a rate stands for, as `10^6bits/s`, `10^6bits/sec` or `MBytes  /s`.
fn unit_of(text: &str) -> Option<Unit> {
    let name = text.split('/').next().unwrap_or_default().trim();
    ['g', 'm', 'k', 'b', 'G', 'M', 'K', 'B', 'x', 'u'].into_iter().filter_map(Unit::of).find(|unit| unit.name() == name)
}

/// What a figure in this unit stands for has to be known.
fn check_unit(unit: Unit, line: usize) -> Result<(), Mistake> {
    let why = "10^0bits/s (-f b): netperf writes bytes under this title: use -f m or -f B";
    if unit == Unit::Bits(0) { Err(Mistake::at(line, why)) } else { Ok(()) }
}

fn assumed(unit: Unit) -> String {
    format!("The output does not name its unit; taken for netperf's own choice, {}/s.", unit.name())
}

/// That the test which the user names is the one that the output tells of.
fn check_test(test: Option<NetperfTest>, told: TestKind, line: usize) -> Result<(), Mistake> {
    match test.filter(|test| test.kind() != told) {
        Some(test) => {
            Err(Mistake::at(line, format!("--test {}: the output is of another test, {}", test.name(), told.name())))
        }
        None => Ok(()),
    }
}

/// A test by its selectors.
fn selected(
    values: &Selected,
    banner: &(Option<NetperfTest>, Option<String>),
    test: Option<NetperfTest>,
    line: usize,
) -> Result<ToolTest, Mistake> {
    let text = |name: &str| {
        let value = values.get(name)?.as_str();
        (!["", "-1", "Deprecated"].contains(&value)).then_some(value)
    };
    let value = |name: &str| text(name).and_then(number);
    let some = |name: &str| value(name).filter(|value| *value > 0.0);
    let told = |name: &str| text(name).map(tidy);
    let kind = kind(&text, banner.0.or(test)).ok_or_else(|| {
        Mistake::at(
            line,
            "the output does not say which test it is of: name it (--test TCP_STREAM), or select PROTOCOL and DIRECTION",
        )
    })?;
    check_test(test, kind, line)?;
    let unit = match text("THROUGHPUT_UNITS") {
        Some(unit) => unit_of(unit)
            .ok_or_else(|| Mistake::at(line, format!("THROUGHPUT_UNITS is `{}`: no unit of netperf's", tidy(unit))))?,
        // netperf's own choice.
        None if kind.direction.is_one_way() => Unit::Bits(6),
        None => Unit::Transactions,
    };
    check_unit(unit, line)?;
    let throughput = value("THROUGHPUT");
    let is_assumed = throughput.is_some() && text("THROUGHPUT_UNITS").is_none();
    let of_bytes = if unit.counts_transactions() { Unit::Bits(6) } else { unit };
    let rate = |name: &str| some(name).and_then(|value| bits(of_bytes, value));
    let statistics = [
        ("P50_LATENCY", Statistic::P50),
        ("P90_LATENCY", Statistic::P90),
        ("P99_LATENCY", Statistic::P99),
        ("MAX_LATENCY", Statistic::Max),
        ("MEAN_LATENCY", Statistic::Mean),
        ("RT_LATENCY", Statistic::Mean),
    ];
    let latencies = statistics.into_iter().filter_map(|(name, statistic)| Some((statistic, some(name)?)));
    let seconds = some("ELAPSED_TIME");
    let each = |calls: &str| kind.transport.is_datagram().then(|| Some(some(calls)? / seconds?)).flatten();
    let asked = [
        ("request", "REQUEST_SIZE", " bytes"),
        ("response", "RESPONSE_SIZE", " bytes"),
        ("burst", "BURST_SIZE", ""),
        ("MSS", "TRANSPORT_MSS", " bytes"),
        ("local send buffer", "LSS_SIZE_REQ", " bytes"),
        ("local receive buffer", "LSR_SIZE_REQ", " bytes"),
        ("remote send buffer", "RSS_SIZE_REQ", " bytes"),
        ("remote receive buffer", "RSR_SIZE_REQ", " bytes"),
        ("local TCP_NODELAY", "LOCAL_NODELAY", ""),
        ("remote TCP_NODELAY", "REMOTE_NODELAY", ""),
        ("local congestion control", "LOCAL_CONG_CONTROL", ""),
        ("remote congestion control", "REMOTE_CONG_CONTROL", ""),
    ];
    let setting = |(name, selector, unit): (&str, &str, &str)| {
        let of_exchange = || !kind.direction.is_one_way() && ["REQUEST_SIZE", "RESPONSE_SIZE"].contains(&selector);
        let by_default = || (values.contains_key(selector) && of_exchange()).then(|| "1".to_owned());
        let value = told(selector).or_else(by_default).filter(|value| value != "0")?;
        Some((name.to_owned(), format!("{value}{unit}")))
    };
    let send_size = if kind.direction.transmits { "LOCAL_SEND_SIZE" } else { "REMOTE_SEND_SIZE" };
    let send_size = told(send_size).filter(|_| kind.direction.is_one_way());
    let send_size = send_size.map(|size| ("send size".to_owned(), format!("{size} bytes")));
    let machine = [("System", "LOCAL_SYSNAME"), ("Release", "LOCAL_RELEASE"), ("CPU", "LOCAL_CPU_MODEL")];
    let machine = machine.into_iter().filter_map(|(name, selector)| Some((name.to_owned(), told(selector)?)));
    let result = NetperfResult {
        seconds,
        throughput: throughput.and_then(|value| bits(unit, value)),
        sent: [rate("LOCAL_SEND_THROUGHPUT"), rate("REMOTE_SEND_THROUGHPUT")],
        received: [rate("LOCAL_RECV_THROUGHPUT"), rate("REMOTE_RECV_THROUGHPUT")],
        transactions: match unit {
            Unit::Transactions => throughput.or(value("TRANSACTION_RATE")),
            // With -f u the throughput is of bytes there.
            _ => some("TRANSACTION_RATE"),
        },
        cpu: [value("LOCAL_CPU_UTIL"), value("REMOTE_CPU_UTIL")],
        demand: [value("LOCAL_SD"), value("REMOTE_SD")],
        demand_of_transactions: match text("SD_UNITS") {
            Some(unit) => unit.contains("Tran"),
            None => unit == Unit::Transactions,
        },
        retransmits: [value("LOCAL_TRANSPORT_RETRANS"), value("REMOTE_TRANSPORT_RETRANS")],
        datagrams: [
            each(if kind.direction.transmits { "LOCAL_SEND_CALLS" } else { "LOCAL_RECV_CALLS" }),
            each(if kind.direction.transmits { "REMOTE_RECV_CALLS" } else { "REMOTE_SEND_CALLS" }),
        ],
        latencies: latencies.collect(),
        server: told("DEST_ADDR").or(banner.1.clone()),
        settings: asked.into_iter().filter_map(setting).chain(send_size).collect(),
        machine: machine.collect(),
        notes: is_assumed.then(|| assumed(unit)).into_iter().collect(),
    }
    .test(kind);
    let no_result = result.trial.figures.is_empty();
    let expected = || Mistake::at(line, "expected THROUGHPUT or another selector of a result");
    if no_result { Err(expected()) } else { Ok(result) }
}

/// By PROTOCOL and DIRECTION, else as it is known from elsewhere.
fn kind<'a>(text: &impl Fn(&str) -> Option<&'a str>, known: Option<NetperfTest>) -> Option<TestKind> {
    let by_selectors = || {
        let transport = Transport::parse(text("PROTOCOL")?)?;
        let direction = text("DIRECTION")?;
        let connects = direction.contains("Connect");
        let (transmits, receives) = (direction.contains("Send"), direction.contains("Rec"));
        Some(TestKind { transport, direction: Direction { transmits, receives }, connects })
    };
    by_selectors().or(known.map(NetperfTest::kind))
}

/// The layouts of netperf before the selectors.
fn classic(lines: &[(usize, &str)], test: Option<NetperfTest>) -> Result<Vec<ToolTest>, Mistake> {
    let begins: Vec<usize> = (0..lines.len()).filter(|at| title(lines[*at].1).is_some()).collect();
    check_count(begins.len())?;
    if begins.is_empty() {
        return rows(lines, test);
    }
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    let mut tests = Vec::new();
    for (begin, end) in begins.iter().copied().zip(ends) {
        let (at, banner) = lines[begin];
        let (of_banner, server) = of_banner(banner);
        let Some(told) = of_banner else {
            let why = format!(
                "`{}` is none of the tests whose text is read ({}): have it written with -o or -k",
                tidy(title(banner).unwrap_or_default()),
                names()
            );
            return Err(Mistake::at(at, why));
        };
        check_test(test, told.kind(), at)?;
        tests.push(titled(&lines[begin..end], told, server)?);
    }
    Ok(tests)
}

fn names() -> String {
    NetperfTest::ALL.map(NetperfTest::name).join(", ")
}

/// The numbers of a row; words behind them are its brand.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// Of titles as `10^6bits/sec`, or `KBytes  /s`.
fn unit_of_bytes(titles: &[(usize, &str)]) -> Option<Unit> {
    let before = |line: &str| Some(line.split_once("/s")?.0.split_whitespace().next_back()?.to_owned());
    titles.iter().find_map(|(_, line)| unit_of(&before(line)?)).filter(|unit| !unit.counts_transactions())
}

/// Transactions a second, or the time of each; bits and bytes of requests and responses (`-f m`) do not say how many there were.
fn unit_of_requests(titles: &[(usize, &str)]) -> Option<Unit> {
    let says = |word: &str| titles.iter().any(|(_, line)| line.contains(word));
    match (says("per tran"), says("Trans.")) {
        (true, _) => Some(Unit::Microseconds),
        (false, true) => Some(Unit::Transactions),
        (false, false) => None,
    }
}

/// A test with its banner and titles.
fn titled(lines: &[(usize, &str)], test: NetperfTest, server: Option<String>) -> Result<ToolTest, Mistake> {
    let (begin, banner) = lines[0];
    let is_row = |line: &str| numbers(line).len() >= 2 && line.split_whitespace().all(is_number);
    let at = lines.iter().position(|(_, line)| is_row(line));
    let Some(at) = at else {
        return Err(Mistake::at(begin, "expected a row of numbers below the banner: the test did not come to its end"));
    };
    let titles = &lines[1..at];
    let no_confidence = titles.iter().any(|(_, line)| line.contains("confidence was not achieved"));
    let unit = if test.kind().direction.is_one_way() { unit_of_bytes(titles) } else { unit_of_requests(titles) };
    let unit = unit.ok_or_else(|| {
        Mistake::at(lines[at].0, format!("expected titles of {} above the row, with its unit", test.name()))
    })?;
    check_unit(unit, lines[at].0)?;
    let next = lines[at + 1..].iter().find(|(_, line)| !line.is_empty());
    let mut result = row(test, unit, lines[at], next.copied(), server)?;
    if no_confidence {
        result.trial.notes.push("netperf says: Desired confidence was not achieved.".to_owned());
    }
    if banner.contains("nodelay") {
        result.run.settings.push(("local TCP_NODELAY".to_owned(), "1".to_owned()));
    }
    Ok(result)
}

/// `-P 0`: rows alone, a test after the other.
fn rows(lines: &[(usize, &str)], test: Option<NetperfTest>) -> Result<Vec<ToolTest>, Mistake> {
    let filled: Vec<(usize, &str)> = lines.iter().copied().filter(|(_, line)| !line.is_empty()).collect();
    let mut tests: Vec<ToolTest> = Vec::new();
    let mut at = 0;
    while at < filled.len() {
        check_count(tests.len())?;
        let (line, text) = filled[at];
        let next = filled.get(at + 1).copied();
        let count = numbers(text).len();
        if count < 2 {
            return Err(Mistake::at(line, "expected a row of netperf's numbers"));
        }
        let test = match test {
            Some(test) => test,
            // No other test has rows of these lengths, and its messages tell the unit.
            None if count == 6 && next.is_some_and(|(_, next)| numbers(next).len() == 4) => NetperfTest::UdpStream,
            None => {
                return Err(Mistake::at(
                    line,
                    format!(
                        "without titles (-P 0) these numbers can be several tests': name it with --test, one of {}",
                        names()
                    ),
                ));
            }
        };
        let unit = if test.kind().direction.is_one_way() { Unit::Bits(6) } else { Unit::Transactions };
        let mut result = row(test, unit, (line, text), next, None)?;
        result.trial.notes.push(assumed(unit));
        tests.push(result);
        let is_one_line = matches!(test, NetperfTest::TcpStream | NetperfTest::TcpMaerts);
        at += if is_one_line { 1 } else { 2 };
    }
    Ok(tests)
}

/// What rounding of the sixth number can have taken away, bits per second.
fn half_of_last_digit(text: &str, unit: Unit) -> f64 {
    let word = text.split_whitespace().nth(5).unwrap_or_default();
    let digits = word.split_once('.').map_or(0, |(_, digits)| digits.len().min(100));
    bits(unit, 0.5 * 10_f64.powi(-(digits as i32))).unwrap_or_default()
}

/// A test's row, and the one below it where it has two.
fn row(
    test: NetperfTest,
    unit: Unit,
    (line, text): (usize, &str),
    next: Option<(usize, &str)>,
    server: Option<String>,
) -> Result<ToolTest, Mistake> {
    let row = numbers(text);
    let second = next.map(|(_, text)| numbers(text)).unwrap_or_default();
    let wrong = |expected: &str| {
        let found = row.len();
        Mistake::at(line, format!("expected {expected} of {}, and found {found} numbers", test.name()))
    };
    // -1 was not measured.
    let known = |value: f64| Some(value).filter(|value| value.is_finite() && *value >= 0.0);
    let mut told = NetperfResult { server, ..NetperfResult::default() };
    let mut set = |name: &str, value: f64, unit: &str| {
        told.settings.extend(known(value).map(|value| (name.to_owned(), format!("{value}{unit}"))));
    };
    let kind = test.kind();
    match test {
        NetperfTest::TcpStream | NetperfTest::TcpMaerts => {
            let (5 | 9) = row.len() else { return Err(wrong("a row of 5 numbers, or 9 with CPU time,")) };
            set("send size", row[2], " bytes");
            told.seconds = known(row[3]);
            told.throughput = known(row[4]).and_then(|value| bits(unit, value));
            if let [lcpu, rcpu, ldemand, rdemand] = row[5..] {
                told.cpu = [known(lcpu), known(rcpu)];
                told.demand = [known(ldemand), known(rdemand)];
            }
        }
        NetperfTest::TcpRr | NetperfTest::TcpCrr | NetperfTest::UdpRr => {
            let (6 | 10) = row.len() else { return Err(wrong("a row of 6 numbers, or 10 with CPU time,")) };
            if second.len() != 2 {
                return Err(wrong("a second row of 2 numbers"));
            }
            set("request", row[2], " bytes");
            set("response", row[3], " bytes");
            told.seconds = known(row[4]);
            told.transactions = match unit {
                Unit::Transactions => known(row[5]),
                Unit::Microseconds => known(row[5]).map(|us| 1e6 / us),
                // Bits and bytes of requests and responses, of which none is said to be a transaction.
                _ => return Err(wrong("transactions per second (-f x, which is netperf's own choice)")),
            };
            if let [lcpu, rcpu, ldemand, rdemand] = row[6..] {
                told.cpu = [known(lcpu), known(rcpu)];
                told.demand = [known(ldemand), known(rdemand)];
                told.demand_of_transactions = true;
            }
        }
        NetperfTest::UdpStream => {
            let ((6, 4) | (8, 6)) = (row.len(), second.len()) else {
                return Err(wrong("rows of 6 and 4 numbers, or of 8 and 6 with CPU time,"));
            };
            set("send size", row[1], " bytes");
            let seconds = known(row[2]).filter(|seconds| *seconds > 0.0).ok_or_else(|| wrong("a time above 0"))?;
            told.seconds = Some(seconds);
            told.sent[0] = known(row[5]).and_then(|value| bits(unit, value));
            told.received[1] = known(second[3]).and_then(|value| bits(unit, value));
            told.datagrams =
                [known(row[3]).map(|count| count / seconds), known(second[2]).map(|count| count / seconds)];
            // Rows say how many messages of which size there were: whether the unit is the one that was taken for it.
            let carried = row[1] * row[3] * 8.0 / seconds;
            if let Some(sent) = told.sent[0]
                && (sent - carried).abs() > 0.02 * carried.max(sent) + 10_000.0 + half_of_last_digit(text, unit)
            {
                return Err(wrong(
                    "a throughput in the unit of the titles, without any in 10^6bits/s, that is the messages' size times their number",
                ));
            }
            if let ([lcpu, ldemand], [rcpu, rdemand]) = (&row[6..], &second[4..]) {
                told.cpu = [known(*lcpu), known(*rcpu)];
                told.demand = [known(*ldemand), known(*rdemand)];
            }
        }
    }
    Ok(told.test(kind))
}
