//! Units of throughput, `-f`.

/// What throughput is told in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second in this power of ten.
    Bits(u32),
    /// Bytes per second in this power of 1024.
    Bytes(u32),
    Transactions,
    /// Microseconds for each transaction.
    Microseconds,
}

impl Unit {
    pub fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'g' => Self::Bits(9),
            'm' => Self::Bits(6),
            'k' => Self::Bits(3),
            'b' => Self::Bits(0),
            'G' => Self::Bytes(3),
            'M' => Self::Bytes(2),
            'K' => Self::Bytes(1),
            'B' => Self::Bytes(0),
            'x' => Self::Transactions,
            'u' => Self::Microseconds,
            _ => return None,
        })
    }

    /// As titles have it, without "per second".
    pub fn name(self) -> &'static str {
        match self {
            Self::Bits(9) => "10^9bits",
            Self::Bits(6) => "10^6bits",
            Self::Bits(3) => "10^3bits",
            Self::Bits(_) => "10^0bits",
            Self::Bytes(3) => "GBytes",
            Self::Bytes(2) => "MBytes",
            Self::Bytes(1) => "KBytes",
            Self::Bytes(_) => "Bytes",
            Self::Transactions => "Trans",
            Self::Microseconds => "Usec",
        }
    }

    /// Throughput of `amount` bytes, or of transactions where it is told in these, over `seconds`.
    pub fn rate(self, amount: f64, seconds: f64) -> f64 {
        match self {
            Self::Bits(power) => amount * 8.0 / 10_f64.powi(power as i32) / seconds,
            Self::Bytes(power) => amount / 1024_f64.powi(power as i32) / seconds,
            Self::Transactions => amount / seconds,
            Self::Microseconds => seconds / amount * 1e6,
        }
    }

    /// Whether the amount is transactions, and not bytes.
    pub fn counts_transactions(self) -> bool {
        matches!(self, Self::Transactions | Self::Microseconds)
    }
}
