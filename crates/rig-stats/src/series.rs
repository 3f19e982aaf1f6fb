//! Values at regular moments, kept small.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use serde::{Deserialize, Serialize, de};

/// Whole numbers, one for each interval: how much a counter rose, or what a gauge said.
///
/// As text it is the base64 (RFC 4648) of the zlib stream (RFC 1950) of the numbers in their order, each as an unsigned
/// LEB128: seven bits a byte, the lowest first, the highest bit of each byte but the last set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column(Vec<u64>);

/// Text that is no column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a column of numbers: {0}")]
pub struct ColumnError(String);

impl Column {
    /// The most numbers that are read: a day of intervals of 10 ms.
    pub const LONGEST: usize = 24 * 3600 * 100;
    /// A number takes ten bytes at most.
    const LONGEST_UNPACKED: u64 = 10 * Self::LONGEST as u64;

    pub fn push(&mut self, value: u64) {
        self.0.push(value);
    }

    pub fn values(&self) -> &[u64] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_all_zero(&self) -> bool {
        self.0.iter().all(|value| *value == 0)
    }

    fn to_text(&self) -> Result<String, ColumnError> {
        let mut plain = Vec::with_capacity(2 * self.0.len());
        self.0.iter().for_each(|value| write(&mut plain, *value));
        let mut packed = Vec::new();
        let read = ZlibEncoder::new(plain.as_slice(), Compression::default()).read_to_end(&mut packed);
        read.map_err(|error| ColumnError(error.to_string()))?;
        Ok(BASE64.encode(packed))
    }

    fn from_text(text: &str) -> Result<Self, ColumnError> {
        let failed = |error: &dyn fmt::Display| ColumnError(error.to_string());
        let packed = BASE64.decode(text).map_err(|error| failed(&error))?;
        let mut plain = Vec::new();
        let stream = ZlibDecoder::new(packed.as_slice());
        stream.take(Self::LONGEST_UNPACKED + 1).read_to_end(&mut plain).map_err(|error| failed(&error))?;
        let mut values = Vec::new();
        let mut rest = plain.as_slice();
        while !rest.is_empty() {
            values.push(read(&mut rest).ok_or_else(|| failed(&"a number is cut short or larger than 64 bits"))?);
            if values.len() > Self::LONGEST {
                return Err(failed(&format_args!("more than {} numbers", Self::LONGEST)));
            }
        }
        Ok(Self(values))
    }
}

fn write(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The first number of `bytes`, which lose it.
fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(first & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if first < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Columns that were read at the same moments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// Microseconds from each reading to the next: the first counts from the beginning of all.
    pub span_us: Column,
    /// By name. One that is all zeroes is left out.
    pub columns: BTreeMap<String, Column>,
}

impl Track {
    /// Adds one reading. A column that is new was zero before, one that is not named is zero now.
    pub fn push<'a>(&mut self, span_us: u64, values: impl IntoIterator<Item = (&'a str, u64)>) {
        let before = self.span_us.len();
        self.span_us.push(span_us);
        for (name, value) in values {
            let column = match self.columns.get_mut(name) {
                Some(column) => column,
                None if value == 0 => continue,
                None => self.columns.entry(name.to_owned()).or_default(),
            };
            column.0.resize(before, 0);
            column.push(value);
        }
    }

    /// The track when nothing more is added: each column has a value for each reading.
    #[must_use]
    pub fn finished(mut self) -> Self {
        let readings = self.span_us.len();
        self.columns.values_mut().for_each(|column| column.0.resize(readings, 0));
        self.columns.retain(|_, column| !column.is_all_zero());
        self
    }

    /// A column's values; zeroes where it was left out.
    pub fn column(&self, name: &str) -> impl Iterator<Item = u64> + '_ {
        let values = self.columns.get(name).map_or(&[][..], Column::values);
        values.iter().copied().chain(std::iter::repeat(0)).take(self.span_us.len())
    }

    /// Each interval, from when to when, seconds from the beginning of all.
    pub fn intervals(&self) -> impl Iterator<Item = Range<f64>> + '_ {
        self.span_us.values().iter().scan(0u64, |at_us, span_us| {
            let begin_us = *at_us;
            *at_us += span_us;
            Some(begin_us as f64 / 1e6..*at_us as f64 / 1e6)
        })
    }

    /// A counter's rate per second in each interval; intervals of no length are left out.
    pub fn rate(&self, name: &str) -> impl Iterator<Item = (Range<f64>, f64)> + '_ {
        let rates = self.intervals().zip(self.column(name)).filter(|(interval, _)| interval.end > interval.start);
        rates.map(|(interval, count)| (interval.clone(), count as f64 / (interval.end - interval.start)))
    }
}

impl FromIterator<u64> for Column {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Serialize for Column {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_text().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        Self::from_text(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_that_is_no_column_is_refused() {
        let packed = |plain: &[u8]| {
            let mut packed = Vec::new();
            ZlibEncoder::new(plain, Compression::best()).read_to_end(&mut packed).unwrap();
            BASE64.encode(packed)
        };
        assert_eq!(Column::from_text(&packed(&[0x80, 1, 5])).unwrap().values(), [128, 5]);
        let many = vec![0; Column::LONGEST + 1];
        for (text, why) in [
            ("?".to_owned(), "symbol"),
            (BASE64.encode("plain"), "corrupt"),
            (packed(&[0x80]), "cut short"),
            (packed(&[0xff; 10]), "larger than 64 bits"),
            (packed(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]), "larger than 64 bits"),
            (packed(&many), "more than"),
        ] {
            let error = Column::from_text(&text).unwrap_err().to_string();
            assert!(error.to_lowercase().contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn columns_of_a_track_have_a_value_for_each_reading() {
        let mut track = Track::default();
        track.push(100_000, [("early", 1), ("never", 0)]);
        track.push(50_000, [("late", 7), ("early", 2)]);
        track.push(0, []);
        let track = track.finished();
        let of = |name: &str| track.column(name).collect::<Vec<_>>();
        assert_eq!((of("early"), of("late"), of("never")), (vec![1, 2, 0], vec![0, 7, 0], vec![0, 0, 0]));
        assert_eq!(track.columns.len(), 2);
        let rates: Vec<_> = track.rate("late").map(|(interval, rate)| (interval.start, interval.end, rate)).collect();
        assert_eq!(rates, [(0.0, 0.1, 0.0), (0.1, 0.15, 7.0 / (0.15 - 0.1))]);
        let text = serde_json::to_string(&track).unwrap();
        assert_eq!(serde_json::from_str::<Track>(&text).unwrap(), track);
    }

    proptest! {
        #[test]
        fn a_column_reads_back(values in prop::collection::vec(prop_oneof![0u64..300, any::<u64>()], 0..200)) {
            let column: Column = values.iter().copied().collect();
            let text = serde_json::to_string(&column).unwrap();
            prop_assert_eq!(serde_json::from_str::<Column>(&text).unwrap(), column);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[A-Za-z0-9+/]{0,80}={0,2}") {
            let _ = Column::from_text(&text);
        }
    }
}
