//! Samples on their way between machines: without what is zero, and with as many digits as are shown. Of 64 idle CPUs little is left.

use std::sync::LazyLock;

use serde_json::{Map, Number, Value};

use crate::sample::{Cpu, Entry, Interface, InterfaceCpu, Sample};

/// Digits that matter.
const DIGITS: i32 = 4;

/// What is left out where it is the same; what is not in here always stands. The one element of a list is each one's.
static USUAL: LazyLock<Value> = LazyLock::new(|| {
    let interface =
        Interface { cpus: vec![InterfaceCpu::default()], entries: vec![Entry::default()], ..Interface::default() };
    let sample = Sample { cpus: vec![Cpu::default()], interfaces: vec![interface], ..Sample::default() };
    serde_json::to_value(sample).unwrap_or_default()
});

/// A sample as a line.
///
/// # Errors
/// Where it cannot be written as JSON.
pub fn line(sample: &Sample) -> serde_json::Result<String> {
    serde_json::to_string(&shorter(serde_json::to_value(sample)?, &USUAL))
}

/// The sample of a line.
///
/// # Errors
/// Where it is none.
pub fn read(line: &[u8]) -> serde_json::Result<Sample> {
    serde_json::from_value(whole(serde_json::from_slice(line)?, &USUAL))
}

fn shorter(value: Value, usual: &Value) -> Value {
    match (value, usual) {
        (Value::Object(fields), Value::Object(usual)) => {
            let differs = |(name, value): (String, Value)| match usual.get(&name) {
                None => Some((name, shorter(value, &Value::Null))),
                Some(usual) => {
                    let short = shorter(value, usual);
                    (short != *usual && !is_empty(&short)).then_some((name, short))
                }
            };
            Value::Object(fields.into_iter().filter_map(differs).collect())
        }
        (Value::Object(fields), _) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, shorter(value, &Value::Null))).collect())
        }
        (Value::Array(all), usual) => {
            let usual = usual.get(0).unwrap_or(&Value::Null);
            Value::Array(all.into_iter().map(|value| shorter(value, usual)).collect())
        }
        (Value::Number(number), _) => Value::Number(rounded(number)),
        (value, _) => value,
    }
}

/// Whether it is left out as the usual one is: with all its fields, or a list without elements.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(all) => all.is_empty(),
        _ => false,
    }
}

/// Whole numbers stay as they are.
fn rounded(number: Number) -> Number {
    let Some(value) = number.as_f64().filter(|value| number.is_f64() && *value != 0.0) else { return number };
    let step = 10f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    let near = (value * step).round() / step;
    Number::from_f64(near).filter(|_| near.is_finite()).unwrap_or(number)
}

fn whole(value: Value, usual: &Value) -> Value {
    match (value, usual) {
        (Value::Object(mut fields), Value::Object(usual)) => {
            for (name, usual) in usual {
                let given = fields.remove(name).unwrap_or_else(|| match usual {
                    Value::Array(_) => Value::Array(Vec::new()),
                    Value::Object(_) => Value::Object(Map::new()),
                    other => other.clone(),
                });
                fields.insert(name.clone(), whole(given, usual));
            }
            Value::Object(fields)
        }
        (Value::Array(all), Value::Array(usual)) => {
            let usual = usual.first().unwrap_or(&Value::Null);
            Value::Array(all.into_iter().map(|value| whole(value, usual)).collect())
        }
        (value, _) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Rates, ViewUsage};

    fn sample(cpus: u32) -> Sample {
        let cpu = |cpu| Cpu { cpu, busy: if cpu % 8 == 0 { 1.0 / 3.0 } else { 0.0 }, ..Cpu::default() };
        let of_interface = |cpu| InterfaceCpu { cpu, base: cpu == 0, ..InterfaceCpu::default() };
        let eth0 = Interface {
            name: "eth0".to_owned(),
            received: Rates { packets_per_s: 1_234_567.0, bits_per_s: 0.001_234_567, dropped_per_s: 0.0 },
            cpus: (0..cpus).map(of_interface).collect(),
            entries: (0..cpus).map(|entry| Entry { entry, ..Entry::default() }).collect(),
            ..Interface::default()
        };
        Sample {
            at_ns: 12_345_678_901,
            seconds: 1.0,
            cpus: (0..cpus).map(cpu).collect(),
            interfaces: vec![eth0, Interface::default()],
            lacks: vec!["nothing".to_owned()],
            own: ViewUsage { cpu: 0.0, reading_ms: 1.0 },
            ..Sample::default()
        }
    }

    #[test]
    fn a_sample_comes_back_but_for_digits_that_nobody_sees() {
        let sent = sample(3);
        let mut same = read(line(&sent).unwrap().as_bytes()).unwrap();
        assert_eq!(same.cpus[0].busy, 0.3333);
        same.cpus[0].busy = sent.cpus[0].busy;
        let rates = &mut same.interfaces[0].received;
        assert_eq!((rates.packets_per_s, rates.bits_per_s), (1_235_000.0, 0.001_235));
        *rates = sent.interfaces[0].received;
        assert_eq!(same, sent);
        assert_eq!(read(line(&Sample::default()).unwrap().as_bytes()).unwrap(), Sample::default());
        let plain = serde_json::to_vec(&sent).unwrap();
        assert_eq!(read(&plain).unwrap(), sent, "one that was not made shorter");
    }

    #[test]
    fn idle_cpus_take_little() {
        let (short, long) = (line(&sample(64)).unwrap(), serde_json::to_string(&sample(64)).unwrap());
        assert!(short.len() < 4_000 && 5 * short.len() < long.len(), "{} of {}: {short}", short.len(), long.len());
    }
}
