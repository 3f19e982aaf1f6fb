use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::figures::Statistic;

fn figure(text: &str) -> FigureRef {
    text.parse().unwrap()
}

#[test]
fn sides_have_their_defaults() {
    assert_eq!(figure("D.throughput"), figure("D.receiver.throughput"));
    assert_eq!(figure("D.retransmits"), figure("D.sender.retransmits"));
    assert_eq!(figure("D.sender.throughput").side, Side::Sender);
    assert_eq!(figure("B-2x.sender.cpu").scenario, "B-2x");
    assert_eq!(figure("R.transactions"), figure("R.local.transactions"));
    assert_eq!(figure("R.latency_p99_9").metric, Metric::Latency(Statistic::P99_9));
    assert_eq!(figure("U.loss"), figure("U.receiver.loss"));
    assert_eq!(figure("D.burst.throughput"), figure("D.burst.receiver.throughput"));
    assert_eq!(figure("D.burst.throughput").phase.as_deref(), Some("burst"));
    assert_eq!(figure("D.receiver.throughput").phase, None);
}

#[test]
fn errors_name_the_next_step() {
    let message = |text: &str| text.parse::<FigureRef>().unwrap_err().to_string();
    assert_eq!(
        message("D.cpu"),
        "`D.cpu` does not say whose cpu it is; write `D.local.cpu` for the end that connects, or \
         `D.remote.cpu` for the one that listens; a load that goes one way also has a `sender` and a `receiver`"
    );
    assert!(message("D.service_demand").contains("write `D.local.service_demand` for the end that connects"));
    assert!(
        message("D.transaction_demand")
            .ends_with("write `D.local.transaction_demand` or `D.remote.transaction_demand`")
    );
    assert_eq!(
        message("D.burst.middle.cpu"),
        "unknown side `middle`; a side is one of `sender`, `receiver`, `local`, `remote`"
    );
    assert!(
        message("D.middle.cpu").starts_with("`D.middle.cpu` does not say whose cpu it is; write `D.middle.local.cpu`")
    );
    assert!(message("D.local.sender.cpu").starts_with("`local` cannot name a phase"));
    assert!(message("D.cpu.sender.cpu").starts_with("`cpu` cannot name a phase"));
    assert!(message("D.sender.speed").starts_with(
        "unknown metric `speed`; a metric is one of `throughput`, `cpu`, `process_cpu`, `service_demand`, `retransmits`, \
         `transactions`, "
    ));
    assert_eq!(message("D.remote.latency_p99"), "the remote has no latency_p99; write `D.local.latency_p99`");
    assert_eq!(
        message("D.sender.transactions"),
        "the sender has no transactions; write `D.local.transactions` or `D.remote.transactions`"
    );
    assert!(message("D").contains("for example `D.throughput`"));
    assert!(message("a.b.c.d.e").contains("too many parts"));
    assert!(message("2D.throughput").contains("`2D` cannot name a scenario; it begins with a letter"));
    assert!(message(".throughput").contains("cannot name a scenario"));
    assert!(message("").contains("is not a figure"));
}

#[test]
fn travels_as_text() {
    let figure = figure("D.sender.cpu");
    let json = serde_json::to_string(&figure).unwrap();
    assert_eq!(json, "\"D.sender.cpu\"");
    assert_eq!(serde_json::from_str::<FigureRef>(&json).unwrap(), figure);
    assert!(serde_json::from_str::<FigureRef>("\"D.cpu\"").is_err());
}

#[test]
fn metrics_have_names_of_their_own_and_sides_that_they_know() {
    for (index, metric) in Metric::ALL.into_iter().enumerate() {
        assert_eq!(metric.name().parse(), Ok(metric));
        assert_eq!(Metric::ALL.iter().position(|other| other.name() == metric.name()), Some(index));
        assert!(metric.default_side().is_none_or(|side| metric.sides().contains(&side)), "{metric}");
        assert_eq!(serde_json::to_string(&metric).unwrap(), format!("\"{metric}\""));
    }
    assert_eq!(serde_json::from_str::<Metric>("\"service_demand\"").unwrap(), Metric::ServiceDemand);
}

#[test]
fn the_device_under_test_may_be_called_as_version_0_1_0_did() {
    let message = |text: &str| text.parse::<FigureRef>().unwrap_err().to_string();
    let mut of_dut = 0;
    for metric in Metric::ALL {
        let Some(rest) = metric.name().strip_prefix("dut_") else { continue };
        assert_eq!(format!("middle_{rest}").parse(), Ok(metric));
        of_dut += 1;
    }
    assert_eq!(of_dut, 7);
    assert_eq!(figure("A.middle_cpu").to_string(), "A.dut_cpu");
    assert!(message("A.middle_rain").starts_with("unknown metric `middle_rain`"));
    assert!(message("A.middle_throughput").starts_with("unknown metric"));
}

proptest! {
    #[test]
    fn what_is_displayed_reads_back(
        scenario in "[A-Za-z][A-Za-z0-9_-]{0,8}", phase in prop::option::of("[A-Z][A-Za-z0-9_-]{0,8}"), side in select(&Side::ALL), metric in select(&Metric::ALL),
    ) {
        let figure = FigureRef { scenario, phase, side, metric };
        let read = figure.to_string().parse();
        if metric.sides().contains(&side) {
            prop_assert_eq!(read, Ok(figure));
        } else {
            prop_assert!(read.is_err());
        }
    }
}
