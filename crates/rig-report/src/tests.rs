//! Every writer over one document that is made to break it, and over the report of a run.

use rig_verdict::fixture as views;
use serde_json::Value;
use textwrap::core::display_width;

use super::document::{Axis, Block, Chart, StripRow, StripSpan, Strips};
use super::*;

fn written(document: &Document, format: Format, options: Options) -> String {
    let mut out = Vec::new();
    write(document, format, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn plain(document: &Document, format: Format) -> String {
    written(document, format, Options::default())
}

/// Control characters as something that a reviewer sees.
fn visible(text: &str) -> String {
    text.replace('\x1b', "␛").replace('\u{202e}', "<U+202E>")
}

fn all() -> [Document; 4] {
    [
        fixture::document(),
        build::document(&views::run_view()),
        build::document(&views::netperf::netperf_view()),
        build::document(&views::balancer::balancer_view()),
    ]
}

#[test]
fn terminal_looks_as_it_did() {
    insta::assert_snapshot!("document.txt", plain(&fixture::document(), Format::Terminal));
    insta::assert_snapshot!("run-80.txt", plain(&build::document(&views::run_view()), Format::Terminal));
    insta::assert_snapshot!(
        "netperf-100.txt",
        written(
            &build::document(&views::netperf::netperf_view()),
            Format::Terminal,
            Options { colour: false, width: 100 }
        )
    );
    let wide = Options { colour: false, width: 120 };
    let balancer = build::document(&views::balancer::balancer_view());
    insta::assert_snapshot!("balancer-120.txt", written(&balancer, Format::Terminal, wide));
    let run = build::document(&views::run_view()).brief("All of it: netrig report 12 --all");
    insta::assert_snapshot!("run-120.txt", written(&run, Format::Terminal, wide));
}

#[test]
fn terminal_colours_look_as_they_did() {
    let colour = Options { colour: true, width: 80 };
    insta::assert_snapshot!("document-colour.txt", visible(&written(&fixture::document(), Format::Terminal, colour)));
}

#[test]
fn markdown_looks_as_it_did() {
    insta::assert_snapshot!("document.md", plain(&fixture::document(), Format::Markdown));
    insta::assert_snapshot!(
        "balancer.md",
        plain(&build::document(&views::balancer::balancer_view()), Format::Markdown)
    );
    insta::assert_snapshot!("run.md", plain(&build::document(&views::run_view()), Format::Markdown));
}

#[test]
fn csv_looks_as_it_did() {
    insta::assert_snapshot!("document.csv", visible(&plain(&fixture::document(), Format::Csv)));
}

#[test]
fn json_looks_as_it_did() {
    insta::assert_snapshot!("document.json", visible(&plain(&fixture::document(), Format::Json)));
}

#[test]
fn no_line_on_a_terminal_is_longer_than_it_is_wide() {
    for document in all() {
        for width in [40, 60, 80, 100, 120, 200] {
            let text = written(&document, Format::Terminal, Options { colour: false, width });
            // Drawings are left as they are.
            let drawn = |line: &&str| line.contains(['┌', '│', '└']) || is_netperfs(line) || line.starts_with("  -> ");
            for line in text.lines().filter(|line| !drawn(line)) {
                assert!(display_width(line) <= usize::from(width), "{} > {width}: {line}", display_width(line));
            }
        }
    }
}

/// A line of netperf's blocks, whose columns are of fixed width.
fn is_netperfs(line: &str) -> bool {
    let heads = ["Recv ", "Socket ", "Size ", "bytes ", "Send ", "study    ", "!!! "];
    let figures = !line.is_empty() && line.chars().all(|c| c.is_ascii_digit() || " .-".contains(c));
    heads.iter().any(|head| line.starts_with(head)) || figures
}

#[test]
fn colour_changes_nothing_but_colour() {
    for document in all() {
        let colour = written(&document, Format::Terminal, Options { colour: true, width: 80 });
        assert!(colour.contains("\x1b[1m"));
        let mut bare = String::new();
        let mut parts = colour.split('\x1b');
        bare.push_str(parts.next().unwrap());
        for part in parts {
            bare.push_str(part.split_once('m').unwrap().1);
        }
        let trim = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trim(&bare), trim(&plain(&document, Format::Terminal)));
    }
}

#[test]
fn foreign_control_characters_reach_no_reader() {
    const NAME: &str = "=cmd()\u{1b}[2J\u{9b}31m\u{7}\r\u{7f}\u{61c}\u{202e}\u{2066}\u{2028}\u{ffff}";
    let mut run = views::run_view();
    run.title = NAME.to_owned();
    run.question = NAME.to_owned();
    run.scenarios[0].name = NAME.to_owned();
    run.scenarios[0].about = NAME.to_owned();
    run.scenarios[0].notes.push(NAME.to_owned());
    run.scenarios[0].trials[0].workers[0].name = NAME.to_owned();
    for document in [fixture::document(), build::document(&run)] {
        for format in [Format::Terminal, Format::Markdown, Format::Html, Format::Json, Format::Csv, Format::Openmetrics]
        {
            let text = plain(&document, format);
            let harmful = text.lines().find(|line| line.contains(rig_cli::visible::is_harmful));
            assert_eq!(harmful, None, "{format}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&plain(&build::document(&run), Format::Json)).unwrap();
    assert!(json.to_string().contains(serde_json::to_string(NAME).unwrap().trim_matches('"')), "JSON keeps the name");
    let mut series = Vec::new();
    crate::series::write(&run, &mut series).unwrap();
    assert!(!String::from_utf8(series).unwrap().contains(rig_cli::visible::is_harmful));
}

#[test]
fn no_cell_is_a_formula() {
    let cells = ["=cmd()", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1", "-1.5", "+2", "-1e3", "-inf", "a=b", ""];
    let mut text = Vec::new();
    let mut csv = ::csv::Writer::from_writer(&mut text);
    csv::write_row(&mut csv, cells).unwrap();
    drop(csv);
    let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_slice());
    let row = reader.records().next().unwrap().unwrap();
    assert_eq!(
        row.iter().collect::<Vec<_>>(),
        [
            "'=cmd()",
            "'+1+1",
            "'-2+3",
            "'@SUM(A1)",
            "'\t=1",
            "'\\u000d=1",
            "'＝1",
            "-1.5",
            "+2",
            "-1e3",
            "-inf",
            "a=b",
            ""
        ]
    );

    let mut run = views::run_view();
    run.scenarios[0].name = "=HYPERLINK(\"http://example.org\")".to_owned();
    let text = plain(&build::document(&run), Format::Csv);
    for record in ::csv::Reader::from_reader(text.as_bytes()).records() {
        for cell in &record.unwrap() {
            assert!(!cell.starts_with(['=', '+', '-', '@']) || cell.parse::<f64>().is_ok(), "{cell}");
        }
    }
}

#[test]
fn every_figure_is_in_every_format() {
    let document = fixture::document();
    for format in [Format::Terminal, Format::Markdown, Format::Html, Format::Json, Format::Csv] {
        let text = plain(&document, format);
        // People read three digits, programs all.
        let [large, small, published] = match format {
            Format::Json | Format::Csv => ["23456.78", "9876.54", "1592.691"],
            _ => ["23.5", "9.88", "1.59"],
        };
        for needle in [large, small, published, "A.throughput >= 2 * B.throughput", "undecided"] {
            let needle = if format == Format::Html { needle.replace('>', "&gt;") } else { needle.to_owned() };
            assert!(text.contains(&needle), "{format} lacks {needle}");
        }
    }
}

/// Each drawing has a version for phones, colours that follow the page, and words for readers who cannot see it.
#[test]
fn html_charts_are_drawn_for_everybody() {
    let html = plain(&fixture::document(), Format::Html);
    let drawings: Vec<&str> = html.split("<svg ").skip(1).map(|s| s.split("</svg>").next().unwrap()).collect();
    assert_eq!(drawings.len(), 14);
    for drawing in drawings {
        assert!(drawing.contains("role=\"img\""));
        assert!(drawing.contains("<title id="));
        assert!(drawing.contains("<desc id="));
        assert!(["var(--s0)", "var(--p0)", "var(--v0)"].iter().any(|colour| drawing.contains(colour)));
        assert!(!drawing.contains("=\"#"), "a colour that does not follow the page");
    }
}

#[test]
fn csv_reads_back_with_equal_columns() {
    for document in all() {
        let text = plain(&document, Format::Csv);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().unwrap().clone();
        assert_eq!(
            head.iter().collect::<Vec<_>>(),
            ["table", "row", "column", "value", "low", "high", "unit", "reference", "note"]
        );
        let rows: Vec<::csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert!(rows.len() > 10);
        for row in rows {
            assert_eq!(row.len(), head.len());
        }
    }
}

#[test]
fn csv_keeps_text_and_figures_whole() {
    let text = plain(&fixture::document(), Format::Csv);
    let rows: Vec<::csv::StringRecord> =
        ::csv::Reader::from_reader(text.as_bytes()).records().collect::<Result<_, _>>().unwrap();
    let figure = &rows[0];
    assert_eq!(&figure[1], "Throughput");
    assert_eq!(&figure[2], "A Raw <&> | stack");
    assert_eq!(figure[3].parse::<f64>().unwrap(), 23_456.78);
    assert_eq!(figure[4].parse::<f64>().unwrap(), 23_456.78 - 234.5);
    assert_eq!(&figure[6], "Mbit/s");
    assert_eq!(&figure[7], "7375.159");
    assert!(rows[3][3].starts_with("comma, \"quote\", new\nline"));
    assert_eq!((&rows[2][3], &rows[2][8]), ("", "no trial gave this figure"));
}

#[test]
fn csv_has_distributions_whole() {
    let text = plain(&build::document(&views::netperf::netperf_view()), Format::Csv);
    let rows: Vec<::csv::StringRecord> =
        ::csv::Reader::from_reader(text.as_bytes()).records().collect::<Result<_, _>>().unwrap();
    let title = "TCP_RR – latency of all transactions, trials pooled";
    let cell = |column: &str| {
        let row = rows.iter().find(|r| &r[0] == title && &r[1] == "etun" && &r[2] == column);
        row.unwrap_or_else(|| panic!("no {column}")).clone()
    };
    assert_eq!((&cell("values")[3], &cell("p99.9")[6]), ("30000", "µs"));
    let histogram: rig_stats::histogram::Histogram =
        serde_json::from_value(Value::from(&cell("histogram")[3])).unwrap();
    assert_eq!(histogram.count(), 30_000);
    let shown: f64 = cell("p50")[3].parse().unwrap();
    assert_eq!(shown, histogram.percentile(50.0).unwrap() as f64 / 1000.0);
}

#[test]
fn json_reads_back_as_the_same_document() {
    for document in all() {
        let text = plain(&document, Format::Json);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (value["format"].as_str(), value["version"].as_u64()),
            (Some("netrig-report"), Some(u64::from(rig_verdict::export::VERSION)))
        );
        assert_eq!(serde_json::from_value::<Document>(value).unwrap(), document);
    }
}

#[test]
fn markdown_tables_are_even() {
    for document in all() {
        let text = plain(&document, Format::Markdown);
        let mut cells = None;
        let mut rows = 0;
        for line in text.lines() {
            if !line.starts_with('|') {
                cells = None;
                continue;
            }
            rows += 1;
            let count = unescaped_pipes(line);
            assert_eq!(*cells.get_or_insert(count), count, "{line}");
        }
        assert!(rows > 5);
    }
}

fn unescaped_pipes(line: &str) -> usize {
    let mut escaped = false;
    line.chars()
        .filter(|c| {
            let pipe = *c == '|' && !escaped;
            escaped = *c == '\\' && !escaped;
            pipe
        })
        .count()
}

/// Outside code, what stands between the markup is text: no tag, no entity but those of the writer.
#[test]
fn markdown_has_no_foreign_markup() {
    for document in all() {
        let text = plain(&document, Format::Markdown);
        let mut fence: Option<&str> = None;
        for line in text.lines() {
            let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
            match fence {
                Some(open) if line == open => fence = None,
                Some(_) => {}
                None if ticks.len() >= 3 => fence = Some(ticks),
                None => {
                    assert!(!without_code(line).replace("<br>", "").contains('<'), "{line}");
                }
            }
        }
        assert_eq!(fence, None);
    }
}

/// The line without code spans: from a run of backticks to the next run of the same length.
fn without_code(line: &str) -> String {
    let Some(begin) = line.find('`').filter(|&i| !line[..i].ends_with('\\')) else { return line.to_owned() };
    let span = &line[begin..];
    let ticks = &span[..span.len() - span.trim_start_matches('`').len()];
    let end = span[ticks.len()..].find(ticks).expect("a code span ends") + 2 * ticks.len();
    format!("{}{}", &line[..begin], without_code(&span[end..]))
}

#[test]
fn errors_of_the_output_come_back() {
    struct ClosedPipe;
    impl io::Write for ClosedPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in Format::value_variants() {
        let error = write(&fixture::document(), *format, Options::default(), &mut ClosedPipe).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{format}");
    }
}

#[test]
fn formats_read_back_from_their_names() {
    for format in Format::value_variants() {
        assert_eq!(format.to_string().parse(), Ok(*format));
    }
    let error = "pdf".parse::<Format>().unwrap_err();
    let known = "terminal, markdown, html, json, csv, openmetrics";
    assert_eq!(error.to_string(), format!("there is no report format `pdf`; choose one of {known}"));
}

#[test]
fn an_empty_document_is_written_by_all() {
    let document = Document { title: "Nothing".into(), ..Document::default() };
    for format in Format::value_variants() {
        let expected = match format {
            Format::Csv => "table,row",
            Format::Openmetrics => "# EOF",
            _ => "Nothing",
        };
        assert!(plain(&document, *format).contains(expected), "{format}");
    }
}

/// The lines of the chart on a terminal of 80 columns.
fn strips_as_text(chart: &Strips) -> Vec<String> {
    let document = Document {
        blocks: vec![Block::Figure(Chart::Strips(chart.clone()))],
        title: "a".into(),
        ..Document::default()
    };
    plain(&document, Format::Terminal).lines().skip(3).map(str::to_owned).collect()
}

/// Labels of 18 columns leave 60 for the time.
fn strips_of(values: impl IntoIterator<Item = String>, spans: &[(f64, f64, usize)]) -> Strips {
    let spans = spans.iter().map(|&(from, to, value)| StripSpan { from, to, value }).collect();
    Strips {
        rows: vec![StripRow { label: "a".repeat(18), spans, marks: Vec::new() }],
        values: values.into_iter().collect(),
        phases: Vec::new(),
        ..fixture::strips()
    }
}

#[test]
fn strips_on_a_terminal_have_values_where_they_were() {
    let cpus = || (0..3).map(|cpu| cpu.to_string());
    // The second begins in the middle of a column and so has it, as there is nothing else; of the last two the longer has it.
    let spans = [(0.0, 10.0, 0), (20.5, 30.0, 1), (40.0, 50.4, 2), (50.4, 60.0, 1)];
    let lines = strips_as_text(&strips_of(cpus(), &spans));
    let [zero, one, two, ones, none] =
        [("0", 10), ("1", 10), ("2", 10), ("1", 10), (".", 10)].map(|(sign, count)| sign.repeat(count));
    assert_eq!(lines[0], format!("{}  {zero}{none}{one}{none}{two}{ones}", "a".repeat(18)));
    assert_eq!(lines[1].trim_start(), format!("0{}Time (s){}60.0", " ".repeat(23), " ".repeat(24)));
    assert_eq!(lines[2..], ["  0 CPU 0  1 CPU 1  2 CPU 2"]);
}

#[test]
fn strips_on_a_terminal_have_a_sign_for_each_of_64_values() {
    let each: Vec<(f64, f64, usize)> = (0..60).map(|i| (i as f64, i as f64 + 1.0, i + 4)).collect();
    let lines = strips_as_text(&strips_of((0..64).map(|cpu| cpu.to_string()), &each));
    let signs = lines[0].split_whitespace().last().unwrap();
    assert!(signs.starts_with("456789abc") && signs.ends_with("XYZ@#"), "{signs}");
    assert_eq!(signs.chars().collect::<std::collections::BTreeSet<_>>().len(), 60);
    let legend = lines[2..].join("");
    for name in ["4 CPU 4 ", "a CPU 10 ", "Z CPU 61 ", "# CPU 63"] {
        assert!(legend.contains(name), "{name}: {legend}");
    }
}

/// CPUs 4 and 12 are drawn as 4 and c, in any place of the list; the legend names the values that have no sign of their own.
#[test]
fn strips_on_a_terminal_show_numbers_of_names() {
    let halves = [(0.0, 30.0, 0), (30.0, 60.0, 1)];
    let lines = strips_as_text(&strips_of(["CPU 4", "CPU 12"].map(str::to_owned), &halves));
    assert!(lines[0].ends_with(&["4".repeat(30), "c".repeat(30)].concat()), "{}", lines[0]);
    assert_eq!(lines[2], "  4 CPU 4  c CPU 12");
    let lines = strips_as_text(&strips_of((0..70).map(|cpu| format!("{cpu}.")), &[(0.0, 60.0, 66)]));
    assert!(lines[0].ends_with(&"+".repeat(60)), "{}", lines[0]);
    assert!(lines[2..].join("").ends_with("# CPU 63.  + others"), "{lines:?}");
}

#[test]
fn csv_has_spans_and_marks() {
    let text = plain(&fixture::document(), Format::Csv);
    let rows: Vec<::csv::StringRecord> =
        ::csv::Reader::from_reader(text.as_bytes()).records().collect::<Result<_, _>>().unwrap();
    let of = |label: &str| -> Vec<Vec<String>> {
        let own = rows.iter().filter(|row| &row[0] == "CPU of <each> entry" && &row[1] == label);
        own.map(|row| row.iter().skip(2).take(5).map(str::to_owned).collect()).collect()
    };
    let expected = [
        ["CPU", "<b>2</b> | `a`", "0.000000", "2.500000", ""],
        ["CPU", "0", "6.000000", "10.000000", ""],
        ["mark", "2.500000", "", "", "s"],
        ["mark", "6.000000", "", "", "s"],
    ];
    assert_eq!(of("entry <1> & | co"), expected);
    assert_eq!(of("nothing"), Vec::<Vec<String>>::new());
}

/// A figure without its quantity and its unit says nothing; once is enough.
#[test]
fn charts_of_characters_say_what_their_figures_are_of() {
    use document::{Bars, Line, TimelineChart};
    let of = |document: &Document| plain(document, Format::Terminal);
    let below = |text: &str, title: &str| text.lines().skip_while(|line| *line != title).nth(1).unwrap().to_owned();
    let text = of(&fixture::document());
    assert_eq!(below(&text, "Throughput <by> scenario"), "Throughput (Gbit/s)");
    assert_eq!(below(&text, "What the CPUs did"), "CPU time %");
    assert_eq!(below(&text, "CPU time by layer"), "CPU time (µs/KB)");
    let course = TimelineChart {
        title: "Over time".into(),
        x: Axis::new("Time", "s"),
        y: Axis::new("Throughput", "Mbit/s"),
        is_logarithmic: false,
        lines: vec![Line { label: "trial 1".into(), points: vec![(0.5, 12_000.0), (1.5, 13_000.0)] }],
        phases: vec![],
    };
    let Some(Block::Figure(Chart::Bars(bars))) =
        fixture::document().blocks.into_iter().find(|block| matches!(block, Block::Figure(Chart::Bars(_))))
    else {
        panic!("no bars")
    };
    let said = Bars { title: "Throughput in Gbit/s".into(), ..bars };
    let blocks = [Chart::Course(course), Chart::Bars(said)].map(Block::Figure).into();
    let text = of(&Document { blocks, ..Document::default() });
    assert_eq!(below(&text, "Over time"), "Throughput (Gbit/s) over Time (s)");
    assert!(below(&text, "Throughput in Gbit/s").starts_with("A Raw"), "{text}");
}

/// Figures that charts cannot scale: no value, only zeros, no time.
#[test]
fn charts_without_values_are_drawn() {
    use document::{Bars, Label, Lines, Number, Stacked, StackedRow};
    let axis = || Axis::new("Throughput", "Mbit/s");
    let bars = Bars { title: "bars".into(), axis: axis(), series: vec![], groups: vec![], reference: None };
    let stacked = Stacked { title: "stacked".into(), axis: axis(), limit: 100.0, parts: vec![], rows: vec![] };
    let layers = Stacked { title: "layers".into(), limit: 0.0, ..stacked.clone() };
    let row = StackedRow { label: Label::new("A"), values: vec![f64::NAN, 0.0], figure: Number::new(0.0, 1) };
    let empty = Stacked { parts: vec!["a".into()], rows: vec![row], ..layers.clone() };
    let lines = Lines { title: "lines".into(), x: axis(), y: axis(), lines: vec![] };
    let strips = |values: &[&str], rows| Strips {
        title: "strips".into(),
        x: axis(),
        of: String::new(),
        values: values.iter().map(|&name| name.to_owned()).collect(),
        rows,
        phases: vec![],
    };
    let never = [(f64::NAN, 1.0), (0.0, f64::INFINITY), (2.0, 1.0)].map(|(from, to)| StripSpan { from, to, value: 0 });
    let never = StripRow { label: String::new(), spans: never.into(), marks: vec![f64::NAN, 0.0] };
    let brief = StripSpan { from: 0.0, to: f64::MIN_POSITIVE, value: 0 };
    let brief = StripRow { label: "brief".into(), spans: vec![brief], marks: vec![] };
    let blocks = vec![
        Chart::Bars(bars),
        Chart::Stacked(stacked),
        Chart::Layers(layers),
        Chart::Layers(empty),
        Chart::Lines(lines),
        Chart::Strips(strips(&[], vec![])),
        Chart::Strips(strips(&["0"], vec![never])),
        Chart::Strips(strips(&[""], vec![brief])),
    ];
    let document = Document { blocks: blocks.into_iter().map(Block::Figure).collect(), ..Document::default() };
    for format in Format::value_variants() {
        plain(&document, *format);
    }
}
