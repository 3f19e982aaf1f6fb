//! Pages as a browser reads them: parsed, and held against the document that they were written from.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rig_facts::claim::{EffectUnit, Threshold};
use rig_verdict::fixture as views;

use super::super::document::{Axis, Bars, Claim, Column, Effect, Interval, Label, Number, Row, Severity, Verdict};
use super::super::{build, fixture};
use super::parse::Element;
use super::*;

/// All that the writer writes; any other element is foreign text that was taken for markup.
const ELEMENTS: &[&str] = &[
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "header",
    "nav",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "p",
    "ul",
    "li",
    "a",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "div",
    "span",
    "strong",
    "code",
    "figure",
    "figcaption",
    "pre",
    "dl",
    "dt",
    "dd",
    "iframe",
    "svg",
    "desc",
    "g",
    "path",
    "rect",
    "line",
    "text",
    "tspan",
    "circle",
    "polyline",
    "polygon",
    "br",
    "details",
    "summary",
];

fn page(document: &Document) -> String {
    let mut out = Vec::new();
    write(document, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn documents() -> [Document; 5] {
    [
        small(),
        fixture::document(),
        build::document(&views::run_view()),
        build::document(&views::netperf::netperf_view()),
        build::document(&views::balancer::balancer_view()),
    ]
}

/// One block of most kinds.
fn small() -> Document {
    let number = |value| Number::new(value, 1).with_interval(Some(Interval { low: value - 1.0, high: value + 1.0 }));
    let mut table = Table::new("Throughput & CPU", "Scenario");
    table.columns =
        vec![Column::number(Label::with_subhead("A", "raw"), Some("Mbit/s")), Column::text(Label::new("<B>"))];
    table.reference = Some("study".into());
    table.rows = vec![
        Row {
            label: "first".into(),
            unit: None,
            cells: vec![number(20.0).with_reference(Some(10.0)).into(), Cell::text("a < b")],
        },
        Row { label: "second".into(), unit: None, cells: vec![Cell::missing("\"no\" trial"), Cell::text("")] },
    ];
    table.notes = vec!["'a' & 'b'".into()];
    let bars = Bars {
        title: "Throughput".into(),
        axis: Axis::new("Throughput", "Mbit/s"),
        series: vec!["sender".into()],
        groups: vec![BarGroup { label: Label::new("A"), bars: vec![Some(number(20.0))] }],
        reference: None,
    };
    let claim = Claim {
        text: "It is fast".into(),
        expression: "A.throughput > 1Mbit".into(),
        verdict: Verdict::Holds,
        words: "20 (19 to 21), claimed > 1".into(),
        effect: Some(Effect {
            of: "A.throughput".into(),
            value: 20.0,
            unit: EffectUnit::Number,
            interval: Some(rig_stats::confidence::Interval { low: 19.0, high: 21.0, level: Default::default() }),
            bound: None,
            threshold: Threshold::Above(1.0),
        }),
        open: None,
    };
    Document {
        title: "A <small> page".into(),
        headline: Some(Headline { question: Some("What is <it>?".into()), answer: "20.".into(), caution: None }),
        summary: vec!["one line".into()],
        lead: vec![Block::Folded {
            summary: "2 claims & more".into(),
            blocks: vec![Block::Claims { claims: vec![Claim { effect: None, ..claim.clone() }] }],
        }],
        blocks: vec![
            Block::heading(2, "Results & more"),
            Block::paragraph("</p><script>alert(1)</script>"),
            Block::Table(table),
            Block::Figure(Chart::Bars(bars)),
            Block::heading(2, "Claims"),
            Block::Claims { claims: vec![claim] },
        ],
        details: vec![
            Block::heading(2, "Claims"),
            Block::Preformatted { caption: Some("Drawing".into()), text: "\n┌─┐ <a>\n".into() },
            Block::KeyValues { caption: None, pairs: vec![("kernel".into(), "6.18 <x86>".into())] },
            Block::List { items: vec!["item".into()] },
            Block::Notice { severity: Severity::Warning, text: "Beware".into() },
        ],
        ..Document::default()
    }
}

/// For a reviewer to look at; the style sheet has a file of its own.
#[test]
fn a_small_page_looks_as_it_did() {
    let page = page(&small());
    let (before, rest) = page.split_once("<style>").unwrap();
    let (style, after) = rest.split_once("</style>").unwrap();
    assert_eq!(style.trim(), STYLE.trim());
    // A line for each element, of which the page has none.
    let lines = format!("{before}<style>...</style>{after}").replace("><", ">\n<");
    insta::assert_snapshot!("small.html", lines);
}

#[test]
fn every_page_is_what_its_document_says_and_stands_alone() {
    for document in documents() {
        let faults = faults(&page(&document), &document);
        assert!(faults.is_empty(), "{}: {faults:#?}", document.title);
    }
}

/// What is looked for above is found where it is put in.
#[test]
fn what_is_wrong_with_a_page_is_found() {
    let document = small();
    let page = page(&document);
    assert_eq!(faults(&page, &document), [""; 0]);
    for (from, to, fault) in [
        ("<h2 id=\"claims\">", "<h2 id=\"results-more\">", "id results-more is listed twice"),
        ("href=\"#claims\"", "href=\"#claim\"", "nothing has the id claim"),
        ("aria-labelledby=\"table-1\" tabindex", "aria-labelledby=\"table-9\" tabindex", "nothing has the id table-9"),
        ("href=\"#claims\"", "href=\"https://example.org/\"", "href https://example.org/ leads away"),
        ("<p class=\"run\">one line</p>", "<p>one line<img src=\"x.png\"></p>", "element img"),
        ("<p class=\"run\">one line</p>", "<p onclick=\"x()\">one line</p>", "attribute onclick"),
        (
            "<p class=\"run\">one line</p>",
            "<p style=\"background:url(x.png)\">one line</p>",
            "style background:url(x.png)",
        ),
        ("</style>", "@import 'x.css';</style>", "style sheet with @import"),
        ("&lt;script&gt;", "<script>", "element script"),
        ("a &lt; b", "a <b>b</b>", "element b"),
        ("<td>a &lt; b</td>", "", "row 1 of table 1 has 2 cells of 3"),
        ("<td>a &lt; b</td>", "<td>a &gt; b</td>", "'a > b' in place of 'a < b'"),
        ("<th scope=\"row\">second</th>", "<th scope=\"row\">2nd</th>", "'2nd' in place of 'second'"),
        ("<tr class=\"reference\">", "<tr>", "no line for the reference"),
        ("10.0</td>", "11.0</td>", "'11.0' in place of '10.0'"),
        ("</tbody>", "<tr></tr></tbody>", "table 1 has 4 rows of 3"),
        ("<table aria", "<div></table><table aria", "not HTML"),
        ("Results &amp; more</h2>", "Results</h2>", "headings"),
        ("<dt>kernel</dt>", "<dt>kernel", "not HTML"),
    ] {
        assert!(page.contains(from), "the page has no {from}");
        let found = faults(&page.replacen(from, to, 1), &document);
        assert!(found.iter().any(|one| one.contains(fault)), "{from} -> {to}: {found:#?}");
    }
}

#[test]
fn flame_graphs_give_their_stacks_as_csv() {
    let document = build::document(&views::balancer::balancer_view());
    let flames = || document.all_blocks().filter_map(|b| if let Block::Flame(flame) = b { Some(flame) } else { None });
    let (page, _) = Element::parse(&page(&document));
    let links = page.all().into_iter().filter_map(|element| {
        let file = element.attribute("download").filter(|file| file.starts_with("flame-"))?;
        Some((file.to_owned(), element.attribute("href")?.to_owned()))
    });
    let links: Vec<(String, String)> = links.collect();
    assert!(!links.is_empty() && links.len() == flames().count(), "{links:?}");
    for (n, (flame, (file, href))) in (1..).zip(flames().zip(links)) {
        assert_eq!(file, format!("flame-{n}.csv"));
        let text = BASE64_STANDARD.decode(href.strip_prefix("data:text/csv;charset=utf-8;base64,").unwrap()).unwrap();
        let mut csv = ::csv::Reader::from_reader(text.as_slice());
        let stacks = csv.records().map(|row| {
            let row = row.unwrap();
            assert_eq!((&row[0], &row[2], &row[6]), (flame.title.as_str(), "samples", "samples"));
            (row[1].to_owned(), row[3].parse().unwrap())
        });
        assert_eq!(stacks.collect::<Vec<(String, u64)>>(), flame.profile.stacks);
    }
}

/// In prose; what is copied is left as it is.
#[test]
fn numbers_keep_their_units() {
    let mut document = small();
    document.blocks.push(Block::paragraph("It took 10 s."));
    document.details.push(Block::Preformatted { caption: None, text: "sleep 10 s".into() });
    let page = page(&document);
    assert!(page.contains("It took 10\u{a0}s.") && page.contains("sleep 10 s"), "{page}");
}

fn words(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text_of(element: &Element) -> String {
    words(&element.text())
}

/// What differs between a page and its document, and what a page must not have.
fn faults(page: &str, document: &Document) -> Vec<String> {
    let (html, errors) = Element::parse(page);
    let mut faults: Vec<String> = errors.iter().map(|error| format!("not HTML: {error}")).collect();
    elements(&html, &mut faults);
    references(&html, &mut faults);
    headings(&html, document, &mut faults);
    tables(&html, document, &mut faults);
    let charts = document.all_blocks().filter(|block| matches!(block, Block::Figure(_))).count();
    let figures = html.named(&["figure"]).into_iter().filter(|figure| figure.is_of_class("chart"));
    let is_drawing = |child: &&Element| child.name == "svg" && child.attribute("role") == Some("img");
    let drawn = figures.flat_map(Element::children).filter(is_drawing).count();
    if drawn != 2 * charts {
        faults.push(format!("{drawn} drawings of {charts} charts in two shapes"));
    }
    let claims = document.all_blocks().filter_map(|block| match block {
        Block::Claims { claims } => Some(claims),
        _ => None,
    });
    let expected: Vec<String> = claims.flatten().map(|claim| words(&claim.expression)).collect();
    let lists = html.named(&["ul"]).into_iter().filter(|list| list.is_of_class("claims"));
    let found: Vec<String> = lists.flat_map(|list| list.named(&["code"])).map(text_of).collect();
    if found != expected {
        faults.push(format!("claims {found:?} in place of {expected:?}"));
    }
    faults
}

/// Finds foreign elements, and all that would load something or run a script.
fn elements(html: &Element, faults: &mut Vec<String>) {
    for element in html.all() {
        let name = element.name.as_str();
        if !ELEMENTS.contains(&name) {
            faults.push(format!("element {name}"));
        }
        for (attribute, value) in &element.attributes {
            match attribute.as_str() {
                "src" if name == "iframe" => picture(element, value, faults),
                "src" | "srcset" | "action" | "data" | "xlink:href" | "formaction" | "poster" | "background" => {
                    faults.push(format!("attribute {attribute}"));
                }
                "href" if value.starts_with("data:text/csv;") && element.attribute("download").is_some() => {}
                "href" if !value.starts_with('#') => faults.push(format!("href {value} leads away")),
                "style" if value.contains("url(") => faults.push(format!("style {value}")),
                _ if attribute.starts_with("on") => faults.push(format!("attribute {attribute}")),
                _ => {}
            }
        }
        if name == "style" {
            let sheet = element.text();
            for foreign in ["@import", "url(", "http:", "https:"] {
                if sheet.contains(foreign) {
                    faults.push(format!("style sheet with {foreign}"));
                }
            }
        }
    }
}

/// A picture with a script, in a frame that can reach neither the page nor anything else.
fn picture(frame: &Element, source: &str, faults: &mut Vec<String>) {
    if frame.attribute("sandbox") != Some("allow-scripts") {
        faults.push("a frame that is no sandbox".to_owned());
    }
    let picture = source.strip_prefix("data:image/svg+xml;base64,").and_then(|data| BASE64_STANDARD.decode(data).ok());
    match picture.and_then(|picture| String::from_utf8(picture).ok()) {
        Some(picture) if picture.contains("<svg ") && !picture.contains("<image") => {}
        _ => faults.push("a frame without a picture".to_owned()),
    }
}

fn references(html: &Element, faults: &mut Vec<String>) {
    let mut ids = BTreeSet::new();
    let all = html.all();
    for id in all.iter().filter_map(|element| element.attribute("id")) {
        if !ids.insert(id) {
            faults.push(format!("id {id} is listed twice"));
        }
    }
    let mut named: Vec<&str> = Vec::new();
    for element in &all {
        named.extend(element.attribute("href").and_then(|href| href.strip_prefix('#')));
        named.extend(element.attribute("aria-labelledby").into_iter().flat_map(str::split_whitespace));
    }
    for id in named.into_iter().filter(|id| !ids.contains(id)) {
        faults.push(format!("nothing has the id {id}"));
    }
}

/// The title and all headings by level, and where there are many sections a link to each.
fn headings(html: &Element, document: &Document, faults: &mut Vec<String>) {
    let sections = || {
        document.all_blocks().filter_map(|block| match block {
            Block::Heading { level, text } => Some(((*level).clamp(2, 6), words(text))),
            _ => None,
        })
    };
    let expected: Vec<(u8, String)> = std::iter::once((1, words(&document.title))).chain(sections()).collect();
    let found: Vec<(u8, String)> = html
        .named(&["h1", "h2", "h3", "h4", "h5", "h6"])
        .into_iter()
        .map(|heading| (heading.name.as_bytes()[1] - b'0', text_of(heading)))
        .collect();
    if found != expected {
        faults.push(format!("headings {found:?} in place of {expected:?}"));
    }
    let top: Vec<String> = sections().filter(|(level, _)| *level == 2).map(|(_, text)| text).collect();
    let navigation = html.named(&["nav"]);
    let linked: Vec<String> = navigation.iter().flat_map(|nav| nav.named(&["a"])).map(text_of).collect();
    if linked != top && top.len() > 2 {
        faults.push(format!("links to {linked:?} in place of {top:?}"));
    }
}

fn tables(html: &Element, document: &Document, faults: &mut Vec<String>) {
    let expected: Vec<&Table> = document
        .all_blocks()
        .filter_map(|block| match block {
            Block::Table(table) => Some(table),
            _ => None,
        })
        .collect();
    let found = html.named(&["table"]);
    if found.len() != expected.len() {
        faults.push(format!("{} tables of {}", found.len(), expected.len()));
    }
    for ((number, table), expected) in (1..).zip(found).zip(expected) {
        let cells = |row: &Element| -> Vec<String> {
            row.children().filter(|cell| matches!(&*cell.name, "th" | "td")).map(text_of).collect()
        };
        let rows = |part: &str| -> Vec<(bool, Vec<String>)> {
            let parts = table.children().filter(|child| child.name == part);
            parts.flat_map(Element::children).map(|row| (row.is_of_class("reference"), cells(row))).collect()
        };
        let head = std::iter::once(words(&expected.stub)).chain(expected.columns.iter().map(|column| {
            words(&format!("{} {}", text::column_head(column), text::subhead(&column.label).unwrap_or_default()))
        }));
        let found_head = rows("thead").into_iter().flat_map(|(_, cells)| cells).collect::<Vec<_>>();
        differs(faults, (number, 0), &found_head, &head.collect::<Vec<_>>());
        let body = rows("tbody");
        let mut lines = body.iter();
        for (at, row) in (1..).zip(&expected.rows) {
            let label = words(&text::row_label(row));
            let shown = row.cells.iter().map(|cell| words(&shown(cell)));
            let Some((_, found)) = lines.next() else { break };
            differs(faults, (number, at), found, &std::iter::once(label).chain(shown).collect::<Vec<_>>());
            if !row.has_reference() {
                continue;
            }
            let references = row.cells.iter().map(|cell| match cell {
                Cell::Number(number) => number.reference_number().map_or_else(String::new, |n| n.to_string()),
                _ => String::new(),
            });
            let expected: Vec<_> = std::iter::once(words(expected.reference_label())).chain(references).collect();
            match lines.next() {
                Some((true, found)) => differs(faults, (number, at), found, &expected),
                _ => faults.push(format!("row {at} of table {number}: no line for the reference")),
            }
        }
        let lines = expected.rows.len() + expected.rows.iter().filter(|row| row.has_reference()).count();
        if body.len() != lines {
            faults.push(format!("table {number} has {} rows of {lines}", body.len()));
        }
    }
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Missing { .. } => MISSING.to_owned(),
        Cell::Number(number) => number.with_words(),
    }
}

/// Of a row of a table, by their numbers.
fn differs(faults: &mut Vec<String>, (table, row): (usize, usize), found: &[String], expected: &[String]) {
    if found.len() != expected.len() {
        faults.push(format!("row {row} of table {table} has {} cells of {}", found.len(), expected.len()));
    }
    for (found, expected) in found.iter().zip(expected).filter(|(found, expected)| found != expected) {
        faults.push(format!("row {row} of table {table}: '{found}' in place of '{expected}'"));
    }
}
