//! A document made up for tests.

use serde_json::json;

use super::document::{
    Axis, BarGroup, Bars, Block, Cell, Chart, Claim, Column, Distribution, Document, Headline, Interval, Label, Line,
    Lines, Mark, Number, Overview, OverviewRow, Percentiles, PhaseSpan, Row, Stacked, StackedRow, StripRow, StripSpan,
    Strips, Table, Verdict,
};

/// A document with every kind of block, and names that would break a careless writer.
pub fn document() -> Document {
    let mut table = Table::new("On sender nodes <b>\"quoted\"</b>", "Metric");
    table.columns = vec![
        Column::number(Label::with_subhead("A", "Raw <&> | stack"), None),
        Column::number(Label::with_subhead("B", "Containers `with` *stars* _and_ a_snake"), None),
        Column::number(Label::with_subhead("C", "容器 と ネットワーク"), None),
        Column::text(Label::new("Remark")),
    ];
    table.reference = Some("study".to_owned());
    let figure = |value, half, reference| {
        let interval = Interval { low: value - half, high: value + half };
        Cell::from(Number::new(value, 1).with_interval(Some(interval)).with_reference(Some(reference)))
    };
    table.rows = vec![
        Row {
            label: "Throughput".to_owned(),
            unit: Some("Mbit/s".to_owned()),
            cells: vec![
                figure(23_456.78, 234.5, 7375.159),
                figure(9_876.54, 12.3, 1592.691),
                Cell::missing("no trial gave this figure"),
                Cell::text(
                    "comma, \"quote\", new\nline, \u{1b}[31mescape\u{1b}[0m, \u{202e}reversed, and a long tail of words",
                ),
            ],
        },
        Row {
            label: "Avg. CPU".to_owned(),
            unit: Some("%".to_owned()),
            cells: vec![
                figure(14.8, 2.1, 14.799),
                Number::new(-0.01, 1).with_interval(Some(Interval { low: -0.02, high: 0.3 })).into(),
                Cell::number(f64::NAN, 1),
                Cell::text("a|b\\|c"),
            ],
        },
    ];
    table.notes = vec!["1. not a list | and [not](a link) <script>alert(1)</script>".to_owned()];
    let claim = |text: &str, expression: &str, verdict, words: &str| Claim {
        text: text.to_owned(),
        expression: expression.to_owned(),
        verdict,
        words: words.to_owned(),
        effect: None,
        open: None,
    };
    let blocks = vec![
        Block::heading(2, "Results & <more>"),
        Block::paragraph(
            "# not a heading, but a paragraph that is long enough to be wrapped on a terminal of any usual width.",
        ),
        Block::List { items: vec!["first *item*".to_owned(), "- second, no nested list".to_owned()] },
        Block::Table(table),
        Block::Claims {
            claims: vec![
                claim(
                    "The switch costs <half>",
                    "A.throughput >= 2 * B.throughput",
                    Verdict::Holds,
                    "the ratio is 2.37",
                ),
                claim("A | B", "A.sender.cpu <= `10`", Verdict::Refuted, "14.8 (95 % interval 12.7 to 16.9)"),
                claim("Nobody knows", "C.throughput > 0", Verdict::Undecided, "not measured: C.throughput"),
            ],
        },
        Block::info("The kernel's VXLAN stands in for <the> vRouter."),
        Block::warning("2 of 3 trials | carry flags."),
        Block::Preformatted {
            caption: Some("Testbed <A>".to_owned()),
            text: "┌─ node a ─┐\n│ ```&<>  │\n└──────────┘\n".to_owned(),
        },
        Block::Figure(Chart::Bars(bars())),
        Block::Figure(Chart::Stacked(stacked())),
        Block::Figure(Chart::Layers(layers())),
        Block::Figure(Chart::Lines(lines())),
        Block::Figure(Chart::Percentiles(percentiles())),
        Block::Figure(Chart::Strips(strips())),
    ];
    Document {
        title: "What <each> layer & its |cost|".to_owned(),
        headline: Some(Headline {
            question: Some("How much <b>does</b> it cost?".to_owned()),
            answer: "*Half*, of 3 claims | 1 holds.".to_owned(),
            caution: Some("Each of the <3> trials carries a doubt.".to_owned()),
        }),
        summary: vec!["Run 7 of suite layers, complete".to_owned(), "A CPU with <angle> brackets".to_owned()],
        lead: vec![Block::Figure(Chart::Overview(overview()))],
        blocks,
        details: vec![
            Block::heading(2, "Environment"),
            Block::KeyValues {
                caption: None,
                pairs: vec![
                    ("Kernel".to_owned(), "6.18.5 #1 <SMP>".to_owned()),
                    ("net.ipv4.tcp_rmem".to_owned(), "4096\t131072\t6291456".to_owned()),
                ],
            },
        ],
        data: json!({"scenarios": [{"id": "A", "throughput_bits_per_second": 23_456_780_000.5}]}),
    }
}

fn overview() -> Overview {
    let number = |value: f64, half: f64| {
        Number::new(value, 1).with_interval(Some(Interval { low: value - half, high: value + half }))
    };
    Overview {
        title: "What each <scenario> keeps".to_owned(),
        panels: vec![Axis::new("Throughput kept, A = 100", "%"), Axis::new("CPU time <both ends>", "ns")],
        rows: vec![
            OverviewRow {
                label: Label::with_subhead("A", "Raw <&> | stack"),
                numbers: vec![Some(number(100.0, 0.0)), Some(number(0.84, 0.02))],
            },
            OverviewRow {
                label: Label::with_subhead("B", "容器 と ネットワーク"),
                numbers: vec![Some(number(42.1, 1.3).with_reference(Some(21.6))), None],
            },
        ],
        reference: Some("study".to_owned()),
    }
}

fn bars() -> Bars {
    let bar = |value: f64, half: f64, reference: f64| {
        let interval = Interval { low: value - half, high: value + half };
        Some(Number::new(value, 1).with_interval(Some(interval)).with_reference(Some(reference)))
    };
    Bars {
        title: "Throughput <by> scenario".to_owned(),
        axis: Axis::new("Throughput", "Mbit/s"),
        series: vec!["sender".to_owned(), "receiver & co".to_owned()],
        groups: vec![
            BarGroup {
                label: Label::with_subhead("A", "Raw <&> | stack"),
                bars: vec![bar(23_456.8, 900.0, 7375.2), bar(23_400.1, 950.0, 7375.2)],
            },
            BarGroup {
                label: Label::with_subhead("B", "容器 と ネットワーク"),
                bars: vec![bar(9876.5, 12.3, 9000.0), None],
            },
        ],
        reference: Some("study".to_owned()),
    }
}

fn stacked() -> Stacked {
    let row = |head: &str, subhead: &str, values: [f64; 4]| StackedRow {
        label: Label::with_subhead(head, subhead),
        values: values.into(),
        figure: Number::new(values[..3].iter().sum(), 1),
    };
    Stacked {
        title: "What the CPUs did".to_owned(),
        axis: Axis::new("CPU time", "%"),
        limit: 100.0,
        parts: ["user", "system", "softirq", "<stolen>"].map(str::to_owned).into(),
        rows: vec![
            row("A", "node a, sender", [3.0, 44.0, 9.0, 1.0]),
            row("A", "node b, receiver", [2.0, 60.0, 35.0, 3.0]),
            row("B", "node a, sender and receiver", [1.0, 20.0, 5.0, 0.0]),
        ],
    }
}

/// More parts than there are colours, most of them in one bar only.
fn layers() -> Stacked {
    let parts: Vec<String> = ["application", "<copy>", "socket & co", "容器"].map(str::to_owned).into();
    let more = (parts.len()..20).map(|part| format!("layer {part}"));
    let parts: Vec<String> = parts.into_iter().chain(more).collect();
    let row = |head: &str, subhead: &str, value: &dyn Fn(usize) -> f64| {
        let values: Vec<f64> = (0..parts.len()).map(value).collect();
        let figure = Number::new(values.iter().sum(), 3);
        StackedRow { label: Label::with_subhead(head, subhead), values, figure }
    };
    let rows = vec![
        row("A", "sender", &|part| if part < 4 { 0.1 * (4 - part) as f64 } else { 0.0 }),
        row("A", "receiver", &|part| if part % 3 == 1 { 0.13 } else { 0.0 }),
        row("B", "sender", &|part| 0.05 + 0.001 * part as f64),
    ];
    Stacked { title: "CPU time by layer".to_owned(), axis: Axis::new("CPU time", "µs/KB"), limit: 1.25, parts, rows }
}

fn lines() -> Lines {
    let line = |label: &str, base: f64| Line {
        label: label.to_owned(),
        points: (0..10).map(|i| (f64::from(i) + 0.5, base + 120.0 * f64::from(i * 7 % 5))).collect(),
    };
    Lines {
        title: "Throughput over time".to_owned(),
        x: Axis::new("Time in the window", "s"),
        y: Axis::new("Throughput", "Mbit/s"),
        lines: vec![line("trial 1", 9000.0), line("trial <2>", 8900.0), line("trial 3", 4200.0)],
    }
}

fn percentiles() -> Percentiles {
    let line = |label: &str, fast: u64, slow: u64| {
        let histogram = rig_facts::fixture::loads::histogram(&[(fast, 900), (2 * fast, 90), (slow, 10)]);
        let value = |percentile| histogram.percentile(percentile).map(|ns| ns as f64 / 1000.0);
        let mark = |percentile| Mark { percentile, value: value(percentile).filter(|_| percentile < 99.95) };
        Distribution {
            label: label.to_owned(),
            count: histogram.count(),
            marks: [50.0, 90.0, 99.0, 99.9, 99.99].map(mark).into(),
            points: [0.0, 50.0, 80.0, 95.0, 99.0, 99.9].map(|p| (p, value(p).unwrap())).into(),
            histogram,
        }
    };
    Percentiles {
        title: "Latency of <all> transactions".to_owned(),
        value: Axis::new("Latency", "µs"),
        lines: vec![line("none", 11, 300), line("etun & routing", 24, 4100)],
    }
}

/// With spans that are none: reversed, before 0, of a value that is not there.
pub fn strips() -> Strips {
    let row = |label: &str, spans: &[(f64, f64, usize)], marks: &[f64]| StripRow {
        label: label.to_owned(),
        spans: spans.iter().map(|&(from, to, value)| StripSpan { from, to, value }).collect(),
        marks: marks.to_vec(),
    };
    let phase = |label: &str, from, to| PhaseSpan { label: label.to_owned(), from, to };
    let often = [0.0, 1.25, 2.5, 3.75, 5.0, 6.25, 7.5, 8.75].map(|from| (from, from + 1.25, from as usize % 3));
    Strips {
        title: "CPU of <each> entry".to_owned(),
        x: Axis::new("Time", "s"),
        of: "CPU".to_owned(),
        values: ["0", "1", "<b>2</b> | `a`"].map(str::to_owned).into(),
        rows: vec![
            row("entry 0", &[(0.0, 4.0, 0), (4.0, 10.0, 1)], &[4.0]),
            row("entry <1> & | co", &[(0.0, 2.5, 2), (6.0, 10.0, 0)], &[2.5, 6.0]),
            row("容器 と ネットワーク", &often, &often.map(|span| span.0)[1..]),
            row("nothing", &[(9.0, 3.0, 0), (-2.0, 1.0, 1), (0.0, 10.0, 3)], &[-1.0]),
        ],
        phases: vec![phase("steady <b>", 0.0, 6.0), phase("burst", 6.0, 10.0)],
    }
}
