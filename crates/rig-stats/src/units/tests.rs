use proptest::prelude::*;

use super::*;

fn bytes(text: &str) -> u64 {
    text.parse::<Bytes>().unwrap().0
}

fn bits(text: &str) -> u64 {
    text.parse::<BitRate>().unwrap().0
}

#[test]
fn bytes_count_in_1024s() {
    assert_eq!(bytes("1390"), 1390);
    assert_eq!(bytes("1390B"), 1390);
    for text in ["128k", "128K", "128kB", "128KB", "128KiB", " 128 k "] {
        assert_eq!(bytes(text), 131_072, "{text}");
    }
    assert_eq!(bytes("2M"), 2_097_152);
    assert_eq!(bytes("1G"), 1_073_741_824);
    assert_eq!(bytes("1.5k"), 1536);
    assert_eq!(bytes("16777215T"), 18_446_742_974_197_923_840);
}

#[test]
fn rates_count_in_1000s() {
    let rate = |text: &str| text.parse::<PerSecond>().map(PerSecond::get).map_err(|error| error.to_string());
    for text in ["10000", "10k", "10K", "10 k", "1e4", "0.01M", "10k/s", "10000 /s", " 1.0e4 "] {
        assert_eq!(rate(text), Ok(10_000.0), "{text}");
    }
    assert_eq!((rate("0.5"), rate("1.5m"), rate("1G")), (Ok(0.5), Ok(1.5e6), Ok(1e9)));
    for (text, why) in [
        ("0", "it has to be more than zero"),
        ("-5", "it is negative"),
        ("-5k", "it is negative"),
        ("nan", "it is not a finite number"),
        ("inf", "it is too large, the most is 1000G"),
        ("2000g", "it is too large, the most is 1000G"),
        ("ten", "it does not begin with a number"),
        ("10kbit", "the unit `kbit` is unknown (known: k, M, G; 1k = 1000 a second)"),
        ("", "it is empty"),
    ] {
        let expected = format!("`{text}` is not a number per second: {why}; write for example `10k`");
        assert_eq!(rate(text), Err(expected));
    }
    assert_eq!(serde_json::from_str::<PerSecond>("10000").unwrap().get(), 10_000.0);
    assert_eq!(serde_json::from_str::<PerSecond>("0.5").unwrap().get(), 0.5);
    assert_eq!(serde_json::from_str::<PerSecond>("\"10k\"").unwrap().get(), 10_000.0);
    assert!(serde_json::from_str::<PerSecond>("0").is_err());
}

#[test]
fn bits_count_in_1000s() {
    assert_eq!(bits("10gbit"), 10_000_000_000);
    assert_eq!(bits("1gbit/s"), 1_000_000_000);
    assert_eq!(bits("1 GBit/s"), 1_000_000_000);
    assert_eq!(bits("658.291Mbit"), 658_291_000);
    assert_eq!(bits("7375.159000Mbit"), 7_375_159_000);
    assert_eq!(bits("0.001kbit"), 1);
}

#[test]
fn byte_rates_are_ntttcps() {
    assert_eq!("10000KB/s".parse::<ByteRate>().unwrap(), ByteRate(10_240_000));
    assert_eq!("10000KB/s".parse::<ByteRate>().unwrap().bits(), BitRate(81_920_000));
    assert_eq!("2.5MiB/s".parse::<ByteRate>().unwrap(), ByteRate(2_621_440));
    assert_eq!("12B/s".parse::<ByteRate>().unwrap(), ByteRate(12));
}

#[test]
fn spans() {
    let span = |text: &str| text.parse::<Span>().unwrap().0;
    assert_eq!(span("15s"), Duration::from_secs(15));
    assert_eq!(span("500ms"), Duration::from_millis(500));
    assert_eq!(span("2m"), Duration::from_secs(120));
    assert_eq!(span("2min"), Duration::from_secs(120));
    assert_eq!(span("1.5s"), Duration::from_millis(1500));
    assert_eq!(span("1.5h"), Duration::from_secs(5400));
    assert_eq!(span("20\u{b5}s"), Duration::from_micros(20));
}

#[test]
fn percentages() {
    for text in ["2.5%", "2.5", "2.50 %"] {
        assert_eq!(text.parse::<Percent>().unwrap().get(), 2.5, "{text}");
    }
    assert_eq!("250%".parse::<Percent>().unwrap().fraction(), 2.5);
    assert!(Percent::new(f64::NAN).is_err());
    assert!(Percent::new(f64::INFINITY).is_err());
    assert!(Percent::new(-1.0).is_err());
    assert!(Percent::new(-0.0).unwrap().get().is_sign_positive());
}

/// The whole message, so that a reader can judge it.
fn message<T: FromStr<Err = UnitError> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn errors_say_what_was_read_what_is_expected_and_give_an_example() {
    assert_eq!(
        message::<BitRate>("10gbyte"),
        "`10gbyte` is not a bit rate: the unit `gbyte` is unknown (known: bit, kbit, Mbit, Gbit, Tbit; \
         1kbit = 1000 bits a second); write for example `10Gbit`"
    );
    assert_eq!(
        message::<BitRate>("10Mbps"),
        "`10Mbps` is not a bit rate: `Mbps` means bytes to tc(8) and bits to others; write for example `10Gbit`"
    );
    assert_eq!(
        message::<Span>("15"),
        "`15` is not a length of time: the unit is missing (one of ns, us, ms, s, m, h); write `15s` for seconds or `15m` for minutes"
    );
    assert_eq!(message::<Bytes>(""), "`` is not a number of bytes: it is empty; write for example `128k`");
    assert_eq!(message::<Bytes>("-1k"), "`-1k` is not a number of bytes: it is negative; write for example `128k`");
    assert_eq!(
        message::<Bytes>("1.3"),
        "`1.3` is not a number of bytes: it is not a whole number of bytes; write for example `128k`"
    );
}

#[test]
fn every_kind_of_bad_text_is_refused() {
    let why = |text: &str| text.parse::<Bytes>().unwrap_err().why;
    assert_eq!(why("k"), UnitErrorKind::NoNumber);
    assert_eq!(why("."), UnitErrorKind::NoNumber);
    assert_eq!(why("1.2.3k"), UnitErrorKind::NoNumber);
    assert_eq!(why("NaN"), UnitErrorKind::NoNumber);
    assert_eq!(why("inf"), UnitErrorKind::NoNumber);
    assert_eq!(why("-"), UnitErrorKind::NoNumber);
    assert_eq!(why("+1k"), UnitErrorKind::NoNumber);
    assert!(matches!(why("1e3"), UnitErrorKind::UnknownUnit { .. }));
    assert!(matches!(why("1m"), UnitErrorKind::UnknownUnit { .. }), "m is no prefix of bytes");
    assert!(matches!(why("1Kbit"), UnitErrorKind::UnknownUnit { .. }));
    assert!(matches!(why("18446744073709551616"), UnitErrorKind::TooLarge { .. }));
    assert!(matches!(why("16777216T"), UnitErrorKind::TooLarge { .. }));
    assert!(matches!(why(&"9".repeat(60)), UnitErrorKind::TooLarge { .. }));
    assert!(matches!(why(&format!("0.{}1T", "0".repeat(40))), UnitErrorKind::Fraction { .. }));
    assert!(matches!("10Mb".parse::<BitRate>().unwrap_err().why, UnitErrorKind::UnknownUnit { .. }));
    assert!(matches!("2M".parse::<Span>().unwrap_err().why, UnitErrorKind::UnknownUnit { .. }));
    assert!(matches!("5 percent".parse::<Percent>().unwrap_err().why, UnitErrorKind::UnknownUnit { .. }));
    assert!(matches!("10000KB".parse::<ByteRate>().unwrap_err().why, UnitErrorKind::UnknownUnit { .. }));
    assert_eq!("9e999".parse::<Percent>().unwrap_err().read, "9e999");
}

#[test]
fn the_named_maximum_is_the_maximum() {
    assert!(BYTES.most.parse::<Bytes>().is_ok() && "16777216T".parse::<Bytes>().is_err());
    assert!(BIT_RATE.most.parse::<BitRate>().is_ok() && "18446745Tbit".parse::<BitRate>().is_err());
    assert!(BYTE_RATE.most.parse::<ByteRate>().is_ok() && "16777216TB/s".parse::<ByteRate>().is_err());
    assert!(SPAN.most.parse::<Span>().is_ok() && "5124096h".parse::<Span>().is_err());
}

#[test]
fn display_picks_a_readable_prefix() {
    assert_eq!(Bytes(131_072).to_string(), "128KiB");
    assert_eq!(Bytes(2_097_152).to_string(), "2MiB");
    assert_eq!(Bytes(1390).to_string(), "1390");
    assert_eq!(Bytes(0).to_string(), "0");
    assert_eq!(BitRate(10_000_000_000).to_string(), "10Gbit");
    assert_eq!(BitRate(658_291_000).to_string(), "658.291Mbit");
    assert_eq!(BitRate(1).to_string(), "1bit");
    assert_eq!(format!("{:.1}", BitRate(658_291_000)), "658.3Mbit");
    assert_eq!(format!("{:>10.1}|{:>10}", BitRate(658_291_000), Bytes(1024)), " 658.3Mbit|      1KiB");
    assert_eq!(ByteRate(10_240_000).to_string(), "10000KiB/s");
    assert_eq!(ByteRate(7).to_string(), "7B/s");
    assert_eq!(Span(Duration::from_millis(1500)).to_string(), "1.5s");
    assert_eq!(Span(Duration::from_millis(500)).to_string(), "500ms");
    assert_eq!(Span(Duration::from_nanos(20_001)).to_string(), "20.001us");
    assert_eq!(Span(Duration::ZERO).to_string(), "0s");
    assert_eq!("5 %".parse::<Percent>().unwrap().to_string(), "5%");
}

#[test]
fn serde_takes_text_and_unambiguous_numbers() {
    assert_eq!(serde_json::from_str::<Bytes>("\"128k\"").unwrap(), Bytes(131_072));
    assert_eq!(serde_json::from_str::<Bytes>("1390").unwrap(), Bytes(1390));
    assert_eq!(serde_json::to_string(&Bytes(131_072)).unwrap(), "\"128KiB\"");
    assert_eq!(serde_json::from_str::<Percent>("5").unwrap().get(), 5.0);
    assert_eq!(serde_json::from_str::<Percent>("2.5").unwrap().get(), 2.5);
    let error = serde_json::from_str::<Bytes>("-5").unwrap_err().to_string();
    assert!(error.starts_with("`-5` is not a number of bytes: it is negative"), "{error}");
    let error = serde_json::from_str::<Span>("15").unwrap_err().to_string();
    assert!(error.starts_with("`15` is not a length of time: the unit is missing"), "{error}");
    let error = serde_json::from_str::<Span>("-1.5").unwrap_err().to_string();
    assert!(error.starts_with("`-1.5` is not a length of time: it is negative"), "{error}");
    let error = serde_json::from_str::<BitRate>("\"ten\"").unwrap_err().to_string();
    assert!(error.contains("does not begin with a number"), "{error}");
}

proptest! {
    #[test]
    fn what_is_displayed_reads_back(n: u64, percent in 0.0..1e9f64) {
        for shift in [0, 20, 44] {
            let n = n >> shift;
            prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
            prop_assert_eq!(BitRate(n).to_string().parse(), Ok(BitRate(n)));
            prop_assert_eq!(ByteRate(n).to_string().parse(), Ok(ByteRate(n)));
            let span = Span(Duration::from_nanos(n));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
        let rate = PerSecond::new(percent.max(1e-9)).unwrap();
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        let percent = Percent::new(percent).unwrap();
        prop_assert_eq!(percent.to_string().parse(), Ok(percent));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,24}", number in "[-0-9.]{1,24}[ a-zA-Z/%]{0,6}") {
        for text in [text, number] {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<BitRate>();
            let _ = text.parse::<ByteRate>();
            let _ = text.parse::<Span>();
            let _ = text.parse::<Percent>();
            let _ = text.parse::<PerSecond>();
        }
    }
}

#[test]
fn rates_at_a_glance_have_three_figures() {
    for (bits, text) in [
        (36_671.4e6, "36.7 Gbit/s"),
        (1e9, "1.00 Gbit/s"),
        (951.7e6, "952 Mbit/s"),
        (10_000.0, "0.010 Mbit/s"),
        (0.0, "0 Mbit/s"),
    ] {
        assert_eq!(bits_at_a_glance(bits), text);
    }
    for (rate, text) in [
        (0.5, "0.500/s"),
        (990.4, "990/s"),
        (9876.0, "9876/s"),
        (12_345.0, "12.3 thousand/s"),
        (2.5e7, "25.0 million/s"),
    ] {
        assert_eq!(rate_at_a_glance(rate), text);
    }
}
