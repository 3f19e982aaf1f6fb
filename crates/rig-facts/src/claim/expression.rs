//! Arithmetic over figures.

use std::fmt;

use rig_stats::units::{BitRate, Span};

use crate::figures::{FigureRef, Quantity};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    Number(f64),
    /// A number with a unit, e.g. `600Mbit`; its value is in bits per second.
    Rate(BitRate),
    /// A length of time, e.g. `100us`; its value is in microseconds.
    Time(Span),
    /// Index into the claim's figures.
    Figure(usize),
    Negate(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `min` or `max` of one or more.
    Extreme(Extremum, Vec<Expr>),
}

/// The unit of a value, as powers of bit/s and of microseconds; both are 0 for a plain number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Dimension {
    rate: i32,
    time: i32,
}

impl Dimension {
    pub const NUMBER: Self = Self { rate: 0, time: 0 };
    pub const RATE: Self = Self { rate: 1, time: 0 };
    pub const TIME: Self = Self { rate: 0, time: 1 };

    pub fn of(quantity: Quantity) -> Self {
        match quantity {
            Quantity::Number => Self::NUMBER,
            Quantity::Rate => Self::RATE,
            Quantity::Time => Self::TIME,
        }
    }

    pub fn times(self, other: Self) -> Self {
        Self { rate: self.rate + other.rate, time: self.time + other.time }
    }

    pub fn over(self, other: Self) -> Self {
        Self { rate: self.rate - other.rate, time: self.time - other.time }
    }

    pub fn name(self) -> &'static str {
        match (self.rate, self.time) {
            (0, 0) => "a plain number",
            (1, 0) => "a throughput",
            (0, 1) => "a time",
            (_, 0) => "a value with another power of throughput",
            (0, _) => "a value with another power of time",
            _ => "a product of throughputs and times",
        }
    }

    /// A literal of this unit.
    pub fn example(self) -> Option<(&'static str, &'static str)> {
        match (self.rate, self.time) {
            (1, 0) => Some(("a throughput", "600Mbit")),
            (0, 1) => Some(("a time", "100us")),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extremum {
    Min,
    Max,
}

/// How strongly a sign binds; stronger than any [`Operator::precedence`].
const UNARY: u8 = 3;

impl Operator {
    pub fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }

    fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
        }
    }
}

impl Expr {
    pub fn binary(operator: Operator, left: Self, right: Self) -> Self {
        Self::Binary(operator, Box::new(left), Box::new(right))
    }

    /// The value, with `figures` in the order of the claim's figures.
    pub fn value(&self, figures: &[f64]) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Rate(rate) => rate.as_f64(),
            Self::Time(time) => time.0.as_secs_f64() * 1e6,
            Self::Figure(index) => figures[*index],
            Self::Negate(inner) => -inner.value(figures),
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.value(figures), right.value(figures));
                match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                }
            }
            Self::Extreme(extreme, terms) => {
                let values = terms.iter().map(|term| term.value(figures));
                match extreme {
                    Extremum::Min => values.fold(f64::INFINITY, f64::min),
                    Extremum::Max => values.fold(f64::NEG_INFINITY, f64::max),
                }
            }
        }
    }

    /// Whether `test` is true of this expression or of a part of it.
    fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self)
            || match self {
                Self::Number(_) | Self::Rate(_) | Self::Time(_) | Self::Figure(_) => false,
                Self::Negate(inner) => inner.any(test),
                Self::Binary(_, left, right) => left.any(test) || right.any(test),
                Self::Extreme(_, terms) => terms.iter().any(|term| term.any(test)),
            }
    }

    /// The value when no figure is needed for it.
    pub fn constant(&self) -> Option<f64> {
        (!self.any(&|e| matches!(e, Self::Figure(_)))).then(|| self.value(&[]))
    }

    /// Whether positive figures always make a positive value: nothing is subtracted and every number is positive.
    pub fn is_positive(&self) -> bool {
        !self.any(&|e| match e {
            Self::Number(number) => *number <= 0.0,
            Self::Rate(rate) => rate.0 == 0,
            Self::Time(time) => time.0.is_zero(),
            Self::Negate(_) | Self::Binary(Operator::Subtract, ..) => true,
            Self::Figure(_) | Self::Binary(..) | Self::Extreme(..) => false,
        })
    }

    /// Whether something is divided by a figure.
    pub fn is_ratio(&self) -> bool {
        self.any(&|e| matches!(e, Self::Binary(Operator::Divide, _, divisor) if divisor.constant().is_none()))
    }

    /// Takes the numeric factor out: 0.9 and B of `0.9 * B`, 0.5 and B of `B / 2`.
    pub fn factor(self) -> (f64, Self) {
        let number =
            |e: &Self| if e.any(&|e| matches!(e, Self::Rate(_) | Self::Time(_))) { None } else { e.constant() };
        match self {
            Self::Binary(operator @ (Operator::Multiply | Operator::Divide), left, right) => {
                match (number(&left), operator, number(&right)) {
                    (_, Operator::Divide, Some(k)) => {
                        let (factor, rest) = left.factor();
                        (factor / k, rest)
                    }
                    (_, Operator::Multiply, Some(k)) => {
                        let (factor, rest) = left.factor();
                        (factor * k, rest)
                    }
                    (Some(k), Operator::Multiply, _) => {
                        let (factor, rest) = right.factor();
                        (factor * k, rest)
                    }
                    _ => (1.0, Self::Binary(operator, left, right)),
                }
            }
            other => (1.0, other),
        }
    }

    /// How the expression is written, with no more parentheses than needed.
    pub fn written<'a>(&'a self, figures: &'a [FigureRef]) -> ExpressionText<'a> {
        ExpressionText { expr: self, figures }
    }
}

pub(super) struct ExpressionText<'a> {
    expr: &'a Expr,
    figures: &'a [FigureRef],
}

impl ExpressionText<'_> {
    /// Writes an operand of something that binds with the strength of `around`.
    fn operand(&self, f: &mut fmt::Formatter<'_>, expr: &Expr, around: u8) -> fmt::Result {
        let inner = ExpressionText { expr, figures: self.figures };
        match expr {
            Expr::Binary(operator, ..) if operator.precedence() < around => write!(f, "({inner})"),
            Expr::Negate(_) if around == UNARY => write!(f, "({inner})"),
            _ => write!(f, "{inner}"),
        }
    }
}

impl fmt::Display for ExpressionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expr {
            Expr::Number(number) => write!(f, "{number}"),
            Expr::Rate(rate) => write!(f, "{rate}"),
            Expr::Time(time) => write!(f, "{time}"),
            Expr::Figure(index) => write!(f, "{}", self.figures[*index]),
            Expr::Negate(inner) => {
                f.write_str("-")?;
                self.operand(f, inner, UNARY)
            }
            Expr::Binary(operator, left, right) => {
                self.operand(f, left, operator.precedence())?;
                write!(f, " {} ", operator.symbol())?;
                self.operand(f, right, operator.precedence() + 1)
            }
            Expr::Extreme(extreme, terms) => {
                f.write_str(match extreme {
                    Extremum::Min => "min(",
                    Extremum::Max => "max(",
                })?;
                for (index, term) in terms.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    self.operand(f, term, 0)?;
                }
                f.write_str(")")
            }
        }
    }
}
