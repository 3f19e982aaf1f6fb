//! Latency histograms of high dynamic range: small and large values are kept to three significant digits alike.

use std::fmt;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize, de};

/// Values that a percentile needs beyond it. How many of n values lie beyond a percentile p scatters about
/// n * (1 - p / 100) as a binomial variable does: of ten by a third of it. With one, the percentile would be the maximum
/// under another name, which one disturbance decides.
pub const BEYOND: u64 = 10;

/// Nanoseconds, from 1 ns to [`Histogram::LARGEST`], with a relative error of at most 1/1000.
///
/// As text it is the base64 of HdrHistogram's compressed V2 format, which that project's tools read.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// Text that is no histogram.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an HdrHistogram in its compressed V2 format: {0}")]
pub struct HistogramError(String);

impl Histogram {
    /// Ten minutes. A longer time counts as this.
    pub const LARGEST: u64 = 600_000_000_000;
    const DIGITS: u8 = 3;
    /// Longest text that is read, and most bytes that it may unpack to: a few times what the fullest histogram of ours
    /// takes (31 thousand counts of at most nine bytes), so that text from elsewhere cannot ask for more memory.
    const LONGEST_TEXT: usize = 1 << 20;
    const LONGEST_UNPACKED: u64 = 1 << 20;

    pub fn new() -> Self {
        let bounds = "constants that the histogram's constructor takes";
        Self(hdrhistogram::Histogram::new_with_bounds(1, Self::LARGEST, Self::DIGITS).expect(bounds))
    }

    /// Counts one value of `ns` nanoseconds; 0 counts as 1. Takes no memory.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Counts `count` values of `ns` nanoseconds.
    #[inline]
    pub fn record_n(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns.max(1), count);
    }

    pub fn merge(&mut self, other: &Self) {
        // Fails only for values beyond the bounds, which both have in common.
        let _ = self.0.add(&other.0);
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that `percent` of all values do not exceed, nanoseconds; `None` when there are none.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.value_at_percentile(percent))
    }

    /// Nanoseconds; `None` when there are no values, as for the following.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.mean())
    }

    pub fn standard_deviation(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.stdev())
    }

    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.min())
    }

    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.0.max())
    }

    /// The distinct values that were recorded, each with its count, from the smallest.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    fn to_text(&self) -> Result<String, HistogramError> {
        let mut bytes = Vec::new();
        let failed = |error: &dyn fmt::Display| HistogramError(error.to_string());
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(|e| failed(&e))?;
        Ok(BASE64.encode(bytes))
    }

    fn from_text(text: &str) -> Result<Self, HistogramError> {
        let failed = |error: &dyn fmt::Display| HistogramError(error.to_string());
        if text.len() > Self::LONGEST_TEXT {
            return Err(failed(&format_args!("{} characters, more than {}", text.len(), Self::LONGEST_TEXT)));
        }
        let bytes = BASE64.decode(text).map_err(|e| failed(&e))?;
        let unpacked = unpack(&bytes).map_err(|e| failed(&e))?;
        let read: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut unpacked.as_slice()).map_err(|e| failed(&e))?;
        // Its bounds are the writer's; the values come over into ours.
        let mut histogram = Self::new();
        for step in read.iter_recorded() {
            histogram.0.saturating_record_n(step.value_iterated_to().max(1), step.count_at_value());
        }
        Ok(histogram)
    }
}

/// The V2 format inside of the compressed one, once it is certain that its reader will not take memory at its word: the
/// reader allocates what the header says before it looks at what follows.
///
/// Layout (HdrHistogram's V2): cookie, length of the counts, offset, significant digits (each 32 bits), lowest and
/// highest value (64 bits), conversion ratio (a double), counts; big-endian. The compressed format has a cookie and the
/// length of the zlib stream before that.
fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    const COMPRESSED: u32 = 0x1c84_9314;
    const HEADER: usize = 40;
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_be_bytes);
        word.ok_or_else(|| "too short".to_owned())
    };
    if word(bytes, 0)? != COMPRESSED {
        return Err("another format or version".into());
    }
    let mut unpacked = Vec::new();
    let stream = ZlibDecoder::new(&bytes[8.min(bytes.len())..]);
    stream.take(Histogram::LONGEST_UNPACKED + 1).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
    if unpacked.len() as u64 > Histogram::LONGEST_UNPACKED {
        return Err(format!("unpacks to more than {} bytes", Histogram::LONGEST_UNPACKED));
    }
    if word(&unpacked, 4)? as usize > unpacked.len().saturating_sub(HEADER) {
        return Err("fewer counts than its header says".into());
    }
    let digits = word(&unpacked, 12)?;
    if digits > Histogram::DIGITS.into() {
        return Err(format!("{digits} significant digits, more than {}", Histogram::DIGITS));
    }
    Ok(unpacked)
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} values", self.count())?;
        if let (Some(min), Some(max)) = (self.min(), self.max()) {
            write!(f, ", {min} to {max} ns")?;
        }
        f.write_str(")")
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_text().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
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
    fn percentiles_of_what_was_recorded() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.percentile(50.0), None);
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let close = |percent, expected: f64| {
            let value = histogram.percentile(percent).unwrap() as f64;
            assert!((value / expected - 1.0).abs() < 2e-3, "p{percent} is {value}");
        };
        close(50.0, 500_000.0);
        close(99.0, 990_000.0);
        close(100.0, 1_000_000.0);
        assert_eq!(histogram.count(), 1000);
    }

    #[test]
    fn the_longest_time_is_the_limit() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(0);
        assert_eq!(histogram.min(), Some(1));
        assert!(histogram.max().unwrap() as f64 >= Histogram::LARGEST as f64 * 0.999);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["\"\"", "\"?\"", "\"AAAA\"", "3"] {
            assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
        }
    }

    /// A histogram's text whose header and counts may lie. `counts` zero bytes follow the header.
    fn forged(length: u32, digits: u32, high: u64, counts: usize) -> String {
        let mut inner = [0x1c84_9313u32, length, 0, digits].map(u32::to_be_bytes).concat();
        inner.extend([1, high, 1f64.to_bits()].map(u64::to_be_bytes).concat());
        inner.resize(inner.len() + counts, 0);
        let mut packed = flate2::read::ZlibEncoder::new(inner.as_slice(), flate2::Compression::best());
        let mut stream = Vec::new();
        packed.read_to_end(&mut stream).unwrap();
        let mut bytes = [0x1c84_9314u32, stream.len() as u32].map(u32::to_be_bytes).concat();
        bytes.extend(stream);
        BASE64.encode(bytes)
    }

    #[test]
    fn text_cannot_ask_for_memory() {
        assert_eq!(Histogram::from_text(&forged(16, 3, Histogram::LARGEST, 16)), Ok(Histogram::new()));
        for (text, why) in [
            (forged(u32::MAX, 3, Histogram::LARGEST, 0), "fewer counts"),
            (forged(0, 5, u64::MAX, 0), "significant digits"),
            (forged(64 << 20, 3, Histogram::LARGEST, 64 << 20), "unpacks to more"),
            ("A".repeat(2 << 20), "characters"),
        ] {
            let error = Histogram::from_text(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn the_fullest_histogram_travels() {
        let mut histogram = Histogram::new();
        let mut value = 1;
        while value < Histogram::LARGEST {
            histogram.record_n(value, u64::MAX / 100_000 - value % 1009);
            value += (value / 2048).max(1);
        }
        let text = histogram.to_text().unwrap();
        assert_eq!(Histogram::from_text(&text), Ok(histogram));
    }

    proptest! {
        #[test]
        fn travels_as_text(values in prop::collection::vec(0u64..=Histogram::LARGEST, 0..50)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&v| histogram.record(v));
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        }

        #[test]
        fn merged_is_recorded_together(a in prop::collection::vec(any::<u32>(), 0..20), b in prop::collection::vec(any::<u32>(), 0..20)) {
            let of = |values: &[u32]| {
                let mut histogram = Histogram::new();
                values.iter().for_each(|&v| histogram.record(v.into()));
                histogram
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
