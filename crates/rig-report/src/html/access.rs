//! Accessibility of pages: contrasts and colours computed from the style sheet, and, where there is a headless Chromium, what a
//! browser makes of a page in light and dark, on a phone and on a desk.

use std::collections::BTreeMap;
use std::process::Command;

use rig_skip::{Lack, skip};
use rig_verdict::fixture as views;

use super::picture;
use crate::document::Document;
use crate::{Format, Options, build, fixture};

/// Red, green and blue, 0 to 1, not linear.
type Colour = [f64; 3];

/// The colours of each scheme.
fn palettes() -> [(&'static str, BTreeMap<&'static str, Colour>); 2] {
    let [light, dark] = picture::palettes();
    let both = light.iter().chain(&dark).map(|(name, value)| (*name, colour(value))).collect();
    [("light", light.iter().map(|(name, value)| (*name, colour(value))).collect()), ("dark", both)]
}

fn colour(value: &str) -> Colour {
    [1, 3, 5].map(|at| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap()) / 255.0)
}

fn linear(colour: Colour) -> Colour {
    colour.map(|part| if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) })
}

/// Contrast of two colours (WCAG 2.2, 1.4.3).
fn contrast(one: Colour, other: Colour) -> f64 {
    let luminance = |colour: Colour| {
        let [r, g, b] = linear(colour);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Linear colours as readers see them who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
const DEFICIENCIES: [(&str, [[f64; 3]; 3]); 3] = [
    ("protanopia", [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    ("tritanopia", [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
];

fn times(matrix: [[f64; 3]; 3], colour: Colour) -> Colour {
    matrix.map(|row| row.iter().zip(colour).map(|(one, other)| one * other).sum())
}

/// Distance of two linear colours in CIELAB (CIE 1976), white of D65.
fn distance(one: Colour, other: Colour) -> f64 {
    const XYZ: [[f64; 3]; 3] = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
    let lab = |colour: Colour| {
        let [x, y, z] = times(XYZ, colour.map(|part| part.clamp(0.0, 1.0)));
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let (x, y, z) = (f(x / 0.950_47), f(y), f(z / 1.088_83));
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    };
    lab(one).iter().zip(lab(other)).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn words_and_marks_stand_out_from_their_ground() {
    for (scheme, palette) in palettes() {
        for ground in ["ground", "raised"] {
            for words in ["ink", "muted", "link", "good", "bad", "open"] {
                let found = contrast(palette[words], palette[ground]);
                assert!(found >= 4.5, "{scheme}: {words} on {ground} {found:.2}");
            }
        }
        // What is drawn needs 3 (1.4.11).
        let drawn = (0..6).map(|i| format!("s{i}")).chain(["mark".to_owned()]);
        for name in drawn {
            let found = contrast(palette[name.as_str()], palette["ground"]);
            assert!(found >= 3.0, "{scheme}: {name} {found:.2}");
        }
        let plot = contrast(palette["ink"], palette["claimed"]);
        assert!(plot >= 4.5, "{scheme}: ink on what is claimed {plot:.2}");
        for i in 0..8 {
            let found = contrast(palette["on-value"], palette[format!("v{i}").as_str()]);
            assert!(found >= 4.5, "{scheme}: words on value {i} {found:.2}");
        }
    }
}

/// A just noticeable difference is about 2.3. Series beyond the fifth have their names at their ends, too.
#[test]
fn colours_differ_for_those_who_see_fewer() {
    for (scheme, palette) in palettes() {
        for (name, count) in [("s", 5), ("p", 5)] {
            for (i, j) in (0..count).flat_map(|i| (0..i).map(move |j| (i, j))) {
                let of = |n: i32| linear(palette[format!("{name}{n}").as_str()]);
                for (deficiency, matrix) in DEFICIENCIES {
                    let found = distance(times(matrix, of(i)), times(matrix, of(j)));
                    assert!(found >= 8.0, "{scheme}: {name}{j} and {name}{i} with {deficiency}: {found:.1}");
                }
            }
        }
    }
}

/// Runs in the page: names, order of headings, what can be reached with the keyboard, contrast of all words as drawn, and
/// whether anything but what scrolls is wider than the page. Its last line writes what it found into the title.
const CHECKS: &str = r#"
document.querySelectorAll('details').forEach(d => d.open = true);
const faults = [];
let level = 0;
for (const h of document.querySelectorAll('h1,h2,h3,h4,h5,h6')) {
  const own = Number(h.tagName[1]);
  if (own > level + 1) faults.push(`h${own} after h${level}: ${h.textContent}`);
  level = own;
}
if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
if (!document.documentElement.lang || !document.title) faults.push('no language or title');
if (!document.querySelector('main')) faults.push('no main');
for (const e of document.querySelectorAll('svg,iframe,[role=region],nav,a,summary')) {
  const ids = (e.getAttribute('aria-labelledby') || '').split(' ').filter(id => id);
  const name = e.getAttribute('aria-label') || e.getAttribute('title') || e.textContent
    || ids.map(id => (document.getElementById(id) || {textContent: ''}).textContent).join('');
  if (!name.trim()) faults.push(`${e.tagName} without a name`);
  if (e.tagName === 'svg' && e.getAttribute('role') !== 'img') faults.push('svg that is no img');
}
for (const t of document.querySelectorAll('table')) {
  if (!t.querySelector('th[scope=col]') || !t.querySelector('th[scope=row]')) faults.push('table without heads');
  if (t.parentElement.tabIndex !== 0) faults.push('table that the keyboard cannot scroll');
}
const rgb = text => (text.match(/[\d.]+/g) || []).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = e => {
  for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; node = walk.nextNode();) {
  const e = node.parentElement;
  if (!node.textContent.trim() || e.closest('style,title,desc,.hidden') || !e.getClientRects().length) continue;
  const style = getComputedStyle(e);
  const ink = rgb(e.closest('svg') ? style.fill : style.color);
  const on = e.closest('.plot') || e.getAttribute('fill') === 'var(--on-value)' ? null : ground(e);
  if (!on) continue;
  const [a, b] = [luminance(ink), luminance(on)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${node.textContent.slice(0, 40)}`);
}
const width = document.documentElement.clientWidth;
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('.scroll,pre,svg,.hidden')) continue;
  const right = e.getBoundingClientRect().right;
  if (right > width + 1) faults.push(`${e.tagName}.${e.className} reaches ${Math.round(right)} of ${width}`);
}
const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
for (const e of document.querySelectorAll('p')) {
  const lines = e.getBoundingClientRect().width / rem;
  if (lines > 61) faults.push(`lines of ${Math.round(lines)}rem: ${e.textContent.slice(0, 40)}`);
}
const middle = document.querySelector('main').getBoundingClientRect();
for (const e of width < 1800 ? [] : document.querySelectorAll('.group')) {
  const shown = [...e.querySelectorAll(':scope > *, :scope > * dl > *')].flatMap(one => [...one.getClientRects()]);
  const half = (middle.left + middle.right) / 2;
  if (e.children.length > 1 && !shown.some(rect => rect.right > half + 1)) faults.push(`half empty: ${e.textContent.slice(0, 40)}`);
}
if (document.documentElement.scrollWidth > width + 1) faults.push(`the page scrolls to ${document.documentElement.scrollWidth} of ${width}`);
parent.report(window.name, [width, ...faults.slice(0, 20)].join('|'));
"#;

/// A page as a user with that width and scheme has it.
struct Visit {
    page: String,
    width: u32,
    dark: bool,
}

/// What the browser finds on each page, which has a frame of its own.
fn found(browser: &str, visits: &[Visit]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let mut frames = String::new();
    for (number, Visit { page, width, dark }) in visits.iter().enumerate() {
        let scheme = if *dark { "@media all" } else { "@media not all" };
        let page = page.replace("@media screen and (prefers-color-scheme: dark)", scheme);
        let page = page.replace("</body>", &format!("<script>{CHECKS}</script></body>"));
        let file = format!("page{number}.html");
        std::fs::write(directory.path().join(&file), page).unwrap();
        frames +=
            &format!("<iframe name='{number}' src='{file}' style='width:{width}px;height:2000px;border:0'></iframe>");
    }
    let frame = format!(
        "<!doctype html><script>const all = []; function report(at, t) {{ all[at] = t; \
         document.title = 'found;;;' + all.join(';;;'); }}</script>{frames}"
    );
    let file = directory.path().join("frame.html");
    std::fs::write(&file, frame).unwrap();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg("--virtual-time-budget=20000")
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    let title = title.unwrap_or_else(|| panic!("the browser ran no checks: {dom:.400}"));
    let reports: Vec<&str> = title.strip_prefix("found;;;").unwrap().split(";;;").collect();
    assert_eq!(reports.len(), visits.len(), "{title}");
    let faults = reports.iter().zip(visits).map(|(report, visit)| {
        let mut parts = report.split('|');
        assert_eq!(parts.next(), Some(&*visit.width.to_string()), "the frame's width");
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    });
    faults.collect()
}

fn page(document: &Document) -> String {
    let mut out = Vec::new();
    crate::write(document, Format::Html, Options::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs);
    if browser.is_none() {
        skip(
            Lack::Program("chromium"),
            "no headless Chromium looks at the page; the checks of its markup and palette are made",
        );
    }
    browser
}

#[test]
fn a_browser_finds_nothing_in_the_way_of_anybody() {
    let Some(browser) = browser() else { return };
    let documents = [build::document(&views::run_view()), build::document(&views::balancer::balancer_view())];
    for document in documents {
        let visits = [(390, false), (390, true), (1280, false), (1280, true), (2560, false)]
            .map(|(width, dark)| Visit { page: page(&document), width, dark });
        for (faults, Visit { width, dark, .. }) in found(browser, &visits).iter().zip(&visits) {
            assert!(faults.is_empty(), "{} at {width}, dark {dark}: {faults:#?}", document.title);
        }
    }
}

/// The checks find what is put in.
#[test]
fn a_browser_finds_what_is_in_the_way() {
    let Some(browser) = browser() else { return };
    let page = page(&fixture::document());
    let all = [
        (390, "<h2 ", "<h4 id=\"deep\">x</h4><h2 ", "h4 after h1"),
        (390, "role=\"img\"", "", "svg that is no img"),
        (390, "--muted: #59626b", "--muted: #b0b0b0", "contrast 2."),
        (390, "<main>", "<main><p style=\"width:500px\">wide</p>", "reaches"),
        (390, "scope=\"col\"", "", "table without heads"),
        (2560, "p, ul { max-width: 56rem; }", "", "lines of"),
        (2560, "</main>", "<div class=\"group\" style=\"columns:1\"><i>a</i><i>b</i></div></main>", "half empty: ab"),
    ];
    let visits = all.map(|(width, from, to, _)| {
        assert!(page.contains(from), "the page has no {from}");
        Visit { page: page.replace(from, to), width, dark: false }
    });
    for (faults, (_, from, to, fault)) in found(browser, &visits).iter().zip(all) {
        assert!(faults.iter().any(|one| one.contains(fault)), "{from} -> {to}: {faults:#?}");
    }
}
