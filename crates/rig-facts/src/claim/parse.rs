//! Reads the expression of a claim.
//!
//! ```text
//! claim      = sum ( ">=" | "<=" | ">" | "<" ) sum
//!            | sum "within" sum ".." sum            both bounds without figures
//! sum        = product { ( "+" | "-" ) product }
//! product    = unary { ( "*" | "/" ) unary }
//! unary      = [ "-" ] atom
//! atom       = NUMBER [ UNIT ] | figure | "(" sum ")" | ( "min" | "max" ) "(" sum { "," sum } ")"
//! figure     = SCENARIO [ "." PHASE ] [ "." SIDE ] "." METRIC | "t95" "(" SCENARIO "." PHASE ")"
//! SCENARIO, PHASE, SIDE, METRIC = NAME              a phase is no side and no metric
//! NAME       = letter { letter | digit | "_" | "-" }
//! UNIT       = "bit" | "kbit" | "Mbit" | "Gbit" | "Tbit", as tc(8) reads them, or "ns" | "us" | "ms" | "s"
//! ```
//! A `-` after a letter or digit of a name belongs to the name, so that subtraction of figures needs spaces around it.
//! Throughputs, times and plain numbers are told apart: adding them to or comparing them with each other is an error.

use rig_stats::units::{BitRate, Span, UnitError};

use super::expression::{Dimension, Expr, Extremum, Operator};
use super::{ClaimError, Threshold};
use crate::figures::{FigureRef, Metric};

/// More than any claim needs, little enough for the recursion over it.
const MAX_LENGTH: usize = 1000;
const MAX_DEPTH: u32 = 32;

/// The parts of a claim's expression.
pub(super) struct ParsedClaim {
    pub left: Expr,
    pub test: Test,
    /// The unit of both sides.
    pub dimension: Dimension,
    /// Each figure once, in order of appearance.
    pub figures: Vec<FigureRef>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    Compare(Relation, Expr),
    Within { low: f64, high: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Relation {
    fn symbol(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::Below => "<",
        }
    }

    /// The relation with its sides exchanged.
    pub fn mirrored(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::AtMost => Self::AtLeast,
            Self::Above => Self::Below,
            Self::Below => Self::Above,
        }
    }

    pub fn threshold(self, value: f64) -> Threshold {
        match self {
            Self::AtLeast => Threshold::AtLeast(value),
            Self::AtMost => Threshold::AtMost(value),
            Self::Above => Threshold::Above(value),
            Self::Below => Threshold::Below(value),
        }
    }
}

pub(super) fn parse(text: &str) -> Result<ParsedClaim, ClaimError> {
    if text.chars().count() > MAX_LENGTH {
        let what = format!("the expression is longer than {MAX_LENGTH} characters");
        return Err(error(MAX_LENGTH + 1, what, "split it into several claims"));
    }
    Parser { tokens: tokens(text)?, next: 0, figures: Vec::new() }.claim()
}

/// Reads an expression of figures that is compared with nothing.
pub(super) fn parse_value(text: &str) -> Result<ParsedClaim, ClaimError> {
    if text.chars().count() > MAX_LENGTH {
        let what = format!("the expression is longer than {MAX_LENGTH} characters");
        return Err(error(MAX_LENGTH + 1, what, "write a shorter one"));
    }
    Parser { tokens: tokens(text)?, next: 0, figures: Vec::new() }.value()
}

fn error(column: usize, what: impl Into<String>, hint: impl Into<String>) -> ClaimError {
    ClaimError { column, what: what.into(), hint: hint.into() }
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Number(f64),
    Rate(BitRate),
    Time(Span),
    Name(String),
    /// One of `+ - * / ( ) , . ..`
    Symbol(&'static str),
    Relation(Relation),
    End,
}

#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    /// The column of the first character, counted from 1.
    column: usize,
}

impl Kind {
    fn describe(&self) -> String {
        match self {
            Self::Number(number) => format!("`{number}`"),
            Self::Rate(rate) => format!("`{rate}`"),
            Self::Time(time) => format!("`{time}`"),
            Self::Name(name) => format!("`{name}`"),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::Relation(relation) => format!("`{}`", relation.symbol()),
            Self::End => "the end of the expression".into(),
        }
    }
}

const SYMBOLS: [&str; 9] = ["..", "+", "-", "*", "/", "(", ")", ",", "."];
const RELATIONS: [Relation; 4] = [Relation::AtLeast, Relation::AtMost, Relation::Above, Relation::Below];

fn tokens(text: &str) -> Result<Vec<Token>, ClaimError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let column = text[..text.len() - rest.len()].chars().count() + 1;
        let (kind, length) = if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        } else if first.is_ascii_digit() {
            number(rest, column)?
        } else if first.is_ascii_alphabetic() {
            let length = run(rest, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            (Kind::Name(rest[..length].into()), length)
        } else if let Some(relation) = RELATIONS.into_iter().find(|r| rest.starts_with(r.symbol())) {
            (Kind::Relation(relation), relation.symbol().len())
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|s| rest.starts_with(s)) {
            (Kind::Symbol(symbol), symbol.len())
        } else {
            let hint = match first {
                '=' | '!' | '~' => "compare with >=, <=, > or <, or write `within LOW .. HIGH`",
                '%' => {
                    "CPU figures are in percent and ratios are plain numbers: write 50 for a CPU half busy, 0.5 for half"
                }
                _ => "an expression has figures, numbers, + - * /, parentheses, min(), max() and one comparison",
            };
            return Err(error(column, format!("unexpected `{first}`"), hint));
        };
        tokens.push(Token { kind, column });
        rest = &rest[length..];
    }
    tokens.push(Token { kind: Kind::End, column: text.chars().count() + 1 });
    Ok(tokens)
}

/// Bytes at the start of `text` whose characters all satisfy `test`.
fn run(text: &str, test: impl Fn(char) -> bool) -> usize {
    text.find(|c| !test(c)).unwrap_or(text.len())
}

/// The units of [`Span`] that are useful in a claim.
const TIME_UNITS: [&str; 4] = ["ns", "us", "ms", "s"];

/// Reads a number, with its unit if letters follow directly.
fn number(text: &str, column: usize) -> Result<(Kind, usize), ClaimError> {
    let digits = |from: usize| run(&text[from..], |c| c.is_ascii_digit());
    let mut length = digits(0);
    // Not in `3..4`.
    if text[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if text[length..].starts_with(['e', 'E']) {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    let unit = run(&text[length..], |c| c.is_ascii_alphanumeric() || c == '_');
    let refuse = |e: UnitError| {
        let hint = format!("write for example `{}`; a name begins with a letter", e.example);
        error(column, format!("`{}` is not {}: {}", e.read, e.expected, e.why), hint)
    };
    if TIME_UNITS.contains(&&text[length..length + unit]) {
        length += unit;
        return Ok((Kind::Time(text[..length].parse().map_err(refuse)?), length));
    }
    if unit > 0 {
        length += unit;
        let per_second = text[length..].strip_prefix("/s");
        if per_second.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')) {
            length += "/s".len();
        }
        return Ok((Kind::Rate(text[..length].parse().map_err(refuse)?), length));
    }
    match text[..length].parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((Kind::Number(number), length)),
        _ => Err(error(column, format!("the number `{}` is too large", &text[..length]), "write a smaller one")),
    }
}

/// An expression with its unit.
struct TypedExpr {
    expr: Expr,
    dimension: Dimension,
}

/// Refuses two values that cannot be added or compared.
fn same_unit(left: &TypedExpr, right: &TypedExpr, column: usize, what: &str) -> Result<(), ClaimError> {
    if left.dimension == right.dimension {
        return Ok(());
    }
    let what = format!("{} and {} cannot be {what}", left.dimension.name(), right.dimension.name());
    let hint = match left.dimension.example().or(right.dimension.example()) {
        Some((what, example)) => format!("give a number that means {what} its unit, for example `{example}`"),
        None => "divide each side by a figure of its own unit, so that ratios are compared".to_owned(),
    };
    Err(error(column, what, hint))
}

/// Refuses numbers that overflow when they are put together.
fn finite(expr: &Expr, column: usize) -> Result<(), ClaimError> {
    match expr.constant() {
        Some(value) if !value.is_finite() => Err(error(column, "the number is too large", "write a smaller one")),
        _ => Ok(()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    figures: Vec<FigureRef>,
}

impl Parser {
    fn peek(&self) -> &Token {
        // The last token is `End`, and nothing advances past it.
        &self.tokens[self.next]
    }

    fn column(&self) -> usize {
        self.peek().column
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.next += 1;
        }
        token
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek().kind, Kind::Symbol(s) if s == symbol);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, symbol: &str, hint: &str) -> Result<(), ClaimError> {
        if self.take(symbol) {
            return Ok(());
        }
        Err(error(self.column(), format!("`{symbol}` is expected, {} found", self.peek().kind.describe()), hint))
    }

    fn claim(mut self) -> Result<ParsedClaim, ClaimError> {
        let left = self.sum(0)?;
        let Token { kind, column } = self.advance();
        let (test, dimension) = match kind {
            Kind::Relation(relation) => {
                let at_right = self.column();
                let right = self.sum(0)?;
                same_unit(&left, &right, column, "compared")?;
                finite(&left.expr, 1)?;
                finite(&right.expr, at_right)?;
                (Test::Compare(relation, right.expr), left.dimension)
            }
            Kind::Name(name) if name == "within" => self.within(&left)?,
            Kind::End => {
                let hint = "compare with >=, <=, > or <, or write `within LOW .. HIGH`";
                return Err(error(column, "the expression compares nothing", hint));
            }
            other => {
                let what = format!("an operator or a comparison is expected, {} found", other.describe());
                return Err(error(column, what, "compare with >=, <=, > or <, or write `within LOW .. HIGH`"));
            }
        };
        let Token { kind, column } = self.advance();
        match kind {
            Kind::End => {}
            Kind::Relation(_) => {
                return Err(error(column, "there is a second comparison", "split it into two claims, or use `within`"));
            }
            other => {
                let what = format!("the end of the expression is expected, {} found", other.describe());
                return Err(error(column, what, "put an operator before it or remove it"));
            }
        }
        if self.figures.is_empty() {
            return Err(error(1, "the expression names no figure", "name one, for example `D.throughput`"));
        }
        Ok(ParsedClaim { left: left.expr, test, dimension, figures: self.figures })
    }

    /// As a claim that compares it with 0, of which only the value is asked.
    fn value(mut self) -> Result<ParsedClaim, ClaimError> {
        let left = self.sum(0)?;
        finite(&left.expr, 1)?;
        let Token { kind, column } = self.advance();
        if kind != Kind::End {
            let what = format!("an operator or the end of the expression is expected, {} found", kind.describe());
            return Err(error(column, what, "write a value, for example `D.throughput / B.throughput`"));
        }
        if self.figures.is_empty() {
            return Err(error(1, "the expression names no figure", "name one, for example `D.throughput`"));
        }
        let test = Test::Compare(Relation::AtLeast, Expr::Number(0.0));
        Ok(ParsedClaim { left: left.expr, test, dimension: left.dimension, figures: self.figures })
    }

    fn within(&mut self, left: &TypedExpr) -> Result<(Test, Dimension), ClaimError> {
        let bound = |parser: &mut Self| {
            let column = parser.column();
            let bound = parser.sum(0)?;
            same_unit(left, &bound, column, "compared")?;
            let hint = "compare two figures by their ratio, for example `A.throughput / B.throughput within 3 .. 4`";
            finite(&bound.expr, column)?;
            bound.expr.constant().ok_or_else(|| error(column, "a bound of `within` names a figure", hint))
        };
        let column = self.column();
        let low = bound(self)?;
        self.expect("..", "the bounds of `within` are written LOW .. HIGH")?;
        let high = bound(self)?;
        if low > high {
            return Err(error(column, "the lower bound of `within` is above the upper one", "exchange them"));
        }
        if left.expr.constant().is_some() {
            return Err(error(1, "the value before `within` names no figure", "name one, for example `D.throughput`"));
        }
        Ok((Test::Within { low, high }, left.dimension))
    }

    fn sum(&mut self, depth: u32) -> Result<TypedExpr, ClaimError> {
        let mut left = self.product(depth)?;
        loop {
            let column = self.column();
            let operator = match self.peek().kind {
                Kind::Symbol("+") => Operator::Add,
                Kind::Symbol("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.product(depth)?;
            same_unit(&left, &right, column, if operator == Operator::Add { "added" } else { "subtracted" })?;
            left = TypedExpr { dimension: left.dimension, expr: Expr::binary(operator, left.expr, right.expr) };
        }
    }

    fn product(&mut self, depth: u32) -> Result<TypedExpr, ClaimError> {
        let mut left = self.unary(depth)?;
        loop {
            let operator = match self.peek().kind {
                Kind::Symbol("*") => Operator::Multiply,
                Kind::Symbol("/") => Operator::Divide,
                _ => return Ok(left),
            };
            self.next += 1;
            let column = self.column();
            let right = self.unary(depth)?;
            let dimension = match operator {
                Operator::Divide => left.dimension.over(right.dimension),
                _ => left.dimension.times(right.dimension),
            };
            if operator == Operator::Divide && right.expr.constant() == Some(0.0) {
                return Err(error(column, "division by zero", "divide by a figure or another number"));
            }
            left = TypedExpr { dimension, expr: Expr::binary(operator, left.expr, right.expr) };
        }
    }

    fn unary(&mut self, depth: u32) -> Result<TypedExpr, ClaimError> {
        if !self.take("-") {
            return self.atom(depth);
        }
        let TypedExpr { expr, dimension } = self.atom(depth)?;
        Ok(TypedExpr { expr: Expr::Negate(Box::new(expr)), dimension })
    }

    fn atom(&mut self, depth: u32) -> Result<TypedExpr, ClaimError> {
        let Token { kind, column } = self.advance();
        let inner = depth + 1;
        if inner > MAX_DEPTH {
            return Err(error(column, format!("more than {MAX_DEPTH} levels of parentheses"), "remove some of them"));
        }
        match kind {
            Kind::Number(number) => Ok(TypedExpr { expr: Expr::Number(number), dimension: Dimension::NUMBER }),
            Kind::Rate(rate) => Ok(TypedExpr { expr: Expr::Rate(rate), dimension: Dimension::RATE }),
            Kind::Time(time) => Ok(TypedExpr { expr: Expr::Time(time), dimension: Dimension::TIME }),
            Kind::Symbol("(") => {
                let sum = self.sum(inner)?;
                self.expect(")", "close the parenthesis or remove it; a comparison stands outside of parentheses")?;
                Ok(sum)
            }
            Kind::Name(name) => match (name.as_str(), &self.peek().kind) {
                ("min", Kind::Symbol("(")) => self.extreme(Extremum::Min, inner),
                ("max", Kind::Symbol("(")) => self.extreme(Extremum::Max, inner),
                ("t95", Kind::Symbol("(")) => self.settling(column),
                (other, Kind::Symbol("(")) => {
                    Err(error(column, format!("unknown function `{other}`"), "the functions are min, max and t95"))
                }
                _ => {
                    let parts = self.parts(name, column)?;
                    self.figure(&parts)
                }
            },
            other => {
                let what = format!("a figure or a number is expected, {} found", other.describe());
                Err(error(column, what, "write a figure as SCENARIO.METRIC, for example `D.throughput`"))
            }
        }
    }

    /// After the function's name.
    fn extreme(&mut self, extreme: Extremum, depth: u32) -> Result<TypedExpr, ClaimError> {
        self.expect("(", "the arguments follow in parentheses")?;
        let first = self.sum(depth)?;
        let dimension = first.dimension;
        let mut terms = vec![first];
        loop {
            let column = self.column();
            if !self.take(",") {
                break;
            }
            let term = self.sum(depth)?;
            same_unit(&terms[0], &term, column, "compared")?;
            terms.push(term);
        }
        self.expect(")", "separate the arguments by commas and close the parenthesis")?;
        Ok(TypedExpr { expr: Expr::Extreme(extreme, terms.into_iter().map(|term| term.expr).collect()), dimension })
    }

    /// After `t95`: another way to write a phase's figure of that name.
    fn settling(&mut self, at: usize) -> Result<TypedExpr, ClaimError> {
        self.expect("(", "a phase follows in parentheses")?;
        let Token { kind, column } = self.advance();
        let Kind::Name(scenario) = kind else {
            let what = format!("a phase is expected, {} found", kind.describe());
            return Err(error(column, what, "write t95(SCENARIO.PHASE)"));
        };
        let mut parts = self.parts(scenario, column)?;
        self.expect(")", "write t95(SCENARIO.PHASE)")?;
        if parts.len() != 2 {
            return Err(error(column, "t95 is of a phase", "write t95(SCENARIO.PHASE)"));
        }
        parts.push((Metric::T95.name().to_owned(), at));
        self.figure(&parts)
    }

    /// After the scenario's name: what stands between the dots.
    fn parts(&mut self, scenario: String, column: usize) -> Result<Vec<(String, usize)>, ClaimError> {
        let mut parts = vec![(scenario, column)];
        while self.take(".") {
            let Token { kind, column } = self.advance();
            let Kind::Name(name) = kind else {
                let what = format!("a side or a metric is expected after `.`, {} found", kind.describe());
                return Err(error(column, what, "write a figure as SCENARIO.METRIC, for example `D.throughput`"));
            };
            parts.push((name, column));
        }
        Ok(parts)
    }

    fn figure(&mut self, parts: &[(String, usize)]) -> Result<TypedExpr, ClaimError> {
        let names: Vec<_> = parts.iter().map(|(name, _)| name.as_str()).collect();
        let figure = FigureRef::from_parts(&names).map_err(|(part, e)| error(parts[part].1, e.what, e.hint))?;
        let dimension = Dimension::of(figure.metric.quantity());
        let index = self.figures.iter().position(|known| *known == figure).unwrap_or_else(|| {
            self.figures.push(figure);
            self.figures.len() - 1
        });
        Ok(TypedExpr { expr: Expr::Figure(index), dimension })
    }
}
