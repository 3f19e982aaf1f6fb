//! What charts are drawn on: shapes and words as SVG, in colours that are CSS variables, so that the page decides on light or dark.

use std::cell::RefCell;
use std::ops::Range;

use maud::html;

use super::svg::Role;

/// A drawing, or a part of one: its coordinates are pixels from its upper left corner.
#[derive(Debug, Clone)]
pub(super) struct Area<'a> {
    elements: &'a RefCell<String>,
    top: i32,
    pub width: i32,
    pub height: i32,
}

/// Where words are beside their point, from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Where words are beside their point, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rise {
    /// Below it.
    Top,
    Center,
}

/// How words look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub px: i32,
    pub role: Role,
    pub anchor: Anchor,
    pub rise: Rise,
    pub bold: bool,
}

pub(super) type Point = (i32, i32);

impl<'a> Area<'a> {
    pub fn new(elements: &'a RefCell<String>, width: i32, height: i32) -> Self {
        Self { elements, top: 0, width, height }
    }

    /// What lies above and below a line so many pixels from the top.
    pub fn split(&self, at: i32) -> (Self, Self) {
        let above = Self { height: at, ..self.clone() };
        let below = Self { top: self.top + at, height: self.height - at, ..self.clone() };
        (above, below)
    }

    pub fn rectangle(&self, [from, to]: [Point; 2], role: Role) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1) + self.top);
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        let fill = role.css();
        self.add(&format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"));
    }

    pub fn line(&self, [(x1, y1), (x2, y2)]: [Point; 2], role: Role, width: u32) {
        let (y1, y2, stroke) = (y1 + self.top, y2 + self.top, role.css());
        let ends = format!("x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"");
        self.add(&format!("<line {ends} stroke=\"{stroke}\" stroke-width=\"{width}\"/>"));
    }

    /// Points joined by lines; `dashes` are the lengths of their parts and of the gaps between these.
    pub fn path(&self, points: &[Point], role: Role, width: u32, dashes: Option<[u32; 2]>) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{}", y + self.top)).collect();
        let dashes = dashes.map(|[part, gap]| format!(" stroke-dasharray=\"{part} {gap}\""));
        let (points, dashes, stroke) = (points.join(" "), dashes.unwrap_or_default(), role.css());
        self.add(&format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dashes}/>"
        ));
    }

    /// A circle, filled or with a line around it.
    pub fn circle(&self, (x, y): Point, radius: i32, role: Role, is_filled: bool) {
        let (y, colour) = (y + self.top, role.css());
        let paint = match is_filled {
            true => format!("fill=\"{colour}\""),
            false => format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\""),
        };
        self.add(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {paint}/>"));
    }

    pub fn text(&self, words: &str, (x, y): Point, style: Style) {
        let anchor = match style.anchor {
            Anchor::Start => None,
            Anchor::Middle => Some("middle"),
            Anchor::End => Some("end"),
        };
        let down = match style.rise {
            Rise::Top => "0.76em",
            Rise::Center => "0.5ex",
        };
        let element = html! {
            text x=(x) y=(y + self.top) dy=(down) text-anchor=[anchor] font-family="sans-serif" font-size=(style.px)
                font-weight=[style.bold.then_some("bold")] fill=(style.role.css()) { (words) }
        };
        self.add(&element.into_string());
    }

    fn add(&self, element: &str) {
        let mut elements = self.elements.borrow_mut();
        elements.push_str(element);
        elements.push('\n');
    }
}

/// A part of an area with coordinates of its own: values along its lower and its left edge.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub left: i32,
    pub right: i32,
    pub top: i32,
    pub bottom: i32,
    pub x: Range<f64>,
    pub y: Range<f64>,
}

impl Plane {
    /// The whole of `area` but for so much at its upper, right, lower and left edge.
    pub fn within(area: &Area<'_>, [top, right, bottom, left]: [i32; 4], x: Range<f64>, y: Range<f64>) -> Self {
        let right = (area.width - right - 1).max(left);
        let bottom = (area.height - bottom - 1).max(top);
        Self { left, right, top, bottom, x, y }
    }

    /// The pixel of a point.
    pub fn at(&self, (x, y): (f64, f64)) -> Point {
        let along = |value: f64, range: &Range<f64>, (from, to): (i32, i32)| {
            let share = (value - range.start) / (range.end - range.start);
            from + (share * f64::from(to - from)).round() as i32
        };
        (along(x, &self.x, (self.left, self.right)), along(y, &self.y, (self.bottom, self.top)))
    }

    /// Both ends of the level line at `y`.
    pub fn level(&self, y: f64) -> [Point; 2] {
        let y = self.at((self.x.start, y)).1;
        [(self.left, y), (self.right, y)]
    }

    /// Both ends of the upright line at `x`, the lower one first.
    pub fn upright(&self, x: f64) -> [Point; 2] {
        let x = self.at((x, self.y.start)).0;
        [(x, self.bottom), (x, self.top)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_words_and_shapes_in_variables() {
        let elements = RefCell::new(String::new());
        let area = Area::new(&elements, 100, 80);
        let (above, below) = area.split(30);
        assert_eq!((above.height, below.height, below.width), (30, 50, 100));
        below.rectangle([(9, 1), (2, 4)], Role::Part(1));
        below.line([(0, 0), (5, 0)], Role::Grid, 1);
        below.path(&[(0, 1), (2, 3)], Role::Series(0), 2, Some([5, 4]));
        let style = Style { px: 12, role: Role::Ink, anchor: Anchor::End, rise: Rise::Top, bold: true };
        below.text("a <b>", (3, 4), style);
        below.circle((1, 2), 4, Role::Mark, false);
        let expected = [
            "<rect x=\"2\" y=\"31\" width=\"7\" height=\"3\" fill=\"var(--p1)\"/>",
            "<line x1=\"0\" y1=\"30\" x2=\"5\" y2=\"30\" stroke=\"var(--line)\" stroke-width=\"1\"/>",
            "<polyline points=\"0,31 2,33\" fill=\"none\" stroke=\"var(--s0)\" stroke-width=\"2\" stroke-dasharray=\"5 4\"/>",
            "<text x=\"3\" y=\"34\" dy=\"0.76em\" text-anchor=\"end\" font-family=\"sans-serif\" font-size=\"12\" \
             font-weight=\"bold\" fill=\"var(--ink)\">a &lt;b&gt;</text>",
            "<circle cx=\"1\" cy=\"32\" r=\"4\" fill=\"none\" stroke=\"var(--mark)\" stroke-width=\"2\"/>",
        ];
        assert_eq!(elements.borrow().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_plane_has_its_values_at_its_edges() {
        let elements = RefCell::new(String::new());
        let area = Area::new(&elements, 101, 81);
        let plane = Plane::within(&area, [10, 20, 30, 40], 0.0..2.0, 5.0..6.0);
        assert_eq!((plane.at((0.0, 5.0)), plane.at((2.0, 6.0))), ((40, 50), (80, 10)));
        assert_eq!(plane.at((1.0, 5.5)), (60, 30));
        assert_eq!((plane.level(6.0), plane.upright(1.0)), ([(40, 10), (80, 10)], [(60, 50), (60, 10)]));
    }
}
