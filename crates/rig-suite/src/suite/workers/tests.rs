use super::*;
use crate::suite::{Form, Suite};

const LOAD: &str = r#"load = { kind = "packets", protocol = "tcp", server_addresses = 2, search = "loss-free" }"#;
const HELD: &str = r#"load = { kind = "packets", protocol = "udp", connections_per_second = 100, hold = 10, interval = "2ms", search = { goal = "loss-free", raise = "hold" } }"#;

/// A suite with scenario `id` of `path` for each of these, and `rest`.
fn parse(scenarios: &[(&str, &str, &str)], rest: &str) -> Result<Suite> {
    let mut text = String::from(
        "name = \"small\"\ntitle = \"Small\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"1s\"\ncool_down = \"1s\"\n\
         [testbed.t]\nnodes = [\"client\", \"dut\", \"server\"]\nwire = {}\n",
    );
    for (id, path, keys) in scenarios {
        text += &format!(
            "[[scenario]]\nid = \"{id}\"\nname = \"Scenario {id}\"\ntestbed = \"t\"\npath = \"{path}\"\nfrom = \"client\"\n\
             to = \"server\"\n{keys}\n"
        );
    }
    let suite = Suite::parse("small.toml", &(text + rest))?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

fn with(keys: &str) -> Result<Suite> {
    parse(&[("A", "balancer", &format!("{keys}\n{LOAD}"))], "")
}

fn refused(result: Result<Suite>, line: usize, words: &[&str]) {
    let error = result.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("small.toml:{line}: ")), "not line {line}: {error}");
    for word in words {
        assert!(error.contains(word), "'{error}' lacks '{word}'");
    }
}

#[test]
fn a_list_of_workers_makes_a_scenario_of_each() {
    let suite = with("workers = [1, 2, 16]\nservice_addresses = 8\nlocal_addresses = 50\nprofile = true").unwrap();
    let rows: Vec<_> = suite.scenarios.iter().map(|s| (s.id.as_str(), s.name.as_str(), s.list_name())).collect();
    assert_eq!(
        rows,
        [
            ("A-1", "Scenario A, 1 worker", "Scenario A"),
            ("A-2", "Scenario A, 2 workers", "Scenario A"),
            ("A-16", "Scenario A, 16 workers", "Scenario A"),
        ]
    );
    assert!(suite.scenarios.iter().all(|row| row.row_of.as_deref() == Some("A")));
    let dut = Dut { workers: 16, service_addresses: 8, local_addresses: 50, profile: true };
    assert_eq!(suite.scenarios[2].dut, Some(dut));
    // Rows differ in nothing else.
    assert_eq!(suite.scenarios[0].traffic, suite.scenarios[2].traffic);
    assert!(suite.clone().only(&["A-2".into()]).is_ok());
    assert!(suite.only(&["A".into()]).unwrap_err().to_string().contains("A-1, A-2, A-16"));
}

#[test]
fn a_number_of_workers_makes_one_scenario() {
    for (keys, workers) in [("", 1), ("workers = 3", 3)] {
        let suite = with(keys).unwrap();
        let [scenario] = &suite.scenarios[..] else { panic!("{:?}", suite.scenarios) };
        assert_eq!((scenario.id.as_str(), scenario.row_of.as_ref()), ("A", None));
        let dut = Dut { workers, service_addresses: 1, local_addresses: 1, profile: false };
        assert_eq!(scenario.dut, Some(dut));
    }
    assert_eq!(parse(&[("D", "direct", LOAD)], "").unwrap().scenarios[0].dut, None);
}

/// With a device under test it is that one's CPUs, elsewhere those of all nodes.
#[test]
fn stacks_are_sampled_on_every_path_that_asks_for_it() {
    let own = |path: &str, key: &str| parse(&[("A", path, &format!("{key}\n{LOAD}"))], "").unwrap().scenarios.remove(0);
    let direct = own("direct", "profile = true");
    assert!(direct.profile && direct.dut.is_none());
    assert!(!own("direct", "profile = false").profile && !own("direct", "").profile);
    let balancer = own("balancer", "profile = true");
    assert!(!balancer.profile && balancer.dut.unwrap().profile);
}

#[test]
fn what_no_dut_can_be_is_refused_at_its_line() {
    refused(with("workers = []"), 17, &["empty list", "workers = [1, 2, 4]"]);
    refused(with("workers = [1, 0]"), 17, &["0 workers", "1 to 1024"]);
    refused(with("workers = [1, 2, 1]"), 17, &["1 workers twice", "give it once"]);
    refused(with("workers = \"all\""), 17, &["expected a number, or a list of them such as [1, 2, 4]"]);
    refused(with("service_addresses = 0"), 17, &["service_addresses = 0", "1 to 253"]);
    refused(with("workers = 1\nlocal_addresses = 254"), 18, &["local_addresses = 254"]);
    refused(parse(&[("A", "ipvs", &format!("local_addresses = 1\n{LOAD}"))], ""), 17, &["path ipvs", "remove it"]);
    for key in ["workers = 1", "service_addresses = 1", "local_addresses = 1"] {
        let name = key.split(' ').next().unwrap();
        let words = [&format!("'{name}' on path direct"), "balancer, nftables, haproxy, ipvs"];
        refused(parse(&[("A", "direct", &format!("{key}\n{LOAD}"))], ""), 17, &words.map(|w| w as &str));
    }
    let clash = [("A", "balancer", &*format!("workers = [1, 2]\n{LOAD}")), ("A-2", "direct", LOAD)];
    refused(parse(&clash, ""), 20, &["'A-2' is described twice"]);
    let clash = [("A-2", "direct", LOAD), ("A", "balancer", &*format!("workers = [1, 2]\n{LOAD}"))];
    refused(parse(&clash, ""), 19, &["'A-2' is a row of 'A'", "another id"]);
}

#[test]
fn a_scenario_may_have_the_load_of_another() {
    let of = |keys: &str| parse(&[("D", "direct", LOAD), ("A", "balancer", keys)], "");
    let suite = of("load_of = \"D\"").unwrap();
    assert_eq!(suite.scenarios[0].traffic, suite.scenarios[1].traffic);
    refused(of("load_of = \"X\""), 25, &["no scenario 'X'", "D, A"]);
    refused(of("load_of = \"A\""), 25, &["'A' has no load of its own"]);
    refused(of(&format!("load_of = \"D\"\n{LOAD}")), 25, &["both 'load' and 'load_of'"]);
}

#[test]
fn figures_of_a_dut_need_one_and_limits_what_was_searched() {
    let scenarios = [("D", "direct", LOAD), ("A", "balancer", LOAD), ("H", "balancer", HELD)];
    let claim = |holds: &str| parse(&scenarios, &format!("[[claim]]\ntext = \"t\"\nholds = \"{holds}\"\n"));
    for good in ["A.dut_packets_in >= 1", "H.limit_held >= 1", "A.limit >= D.limit", "D.drops_out <= 0"] {
        claim(good).unwrap();
    }
    for (bad, words) in [
        ("D.dut_cpu <= 1", ["nothing stands between", "`D`"]),
        ("A.limit_held >= 1", ["what is searched in scenario 'A' is connections", "write limit"]),
        ("H.limit >= 1", ["what is searched in scenario 'H' is held connections", "write limit_held"]),
    ] {
        refused(claim(bad), 36, &words);
    }
}

#[test]
fn tables_of_workers_have_all_rows_and_what_was_published() {
    let scenarios =
        [("D", "direct", LOAD), ("A", "balancer", &*format!("workers = [1, 2]\n{LOAD}")), ("H", "balancer", HELD)];
    let table = |rest: &str| parse(&scenarios, &format!("[[table]]\ntitle = \"T\"\nlayout = \"workers\"\n{rest}\n"));
    let two = "cases = [{ head = \"none\", scenario = \"D\" }, { head = \"own\", scenario = \"A\" }]";
    let good = table(&format!(
        "source = \"S\"\nnotes = [\"N\"]\n{two}\n[[table.reference]]\nworkers = 2\ncps = 200_000\nibytes = 10\nconnections = 7"
    ));
    let layout = &good.unwrap().tables[0];
    assert_eq!((layout.source.as_deref(), layout.notes.as_slice()), (Some("S"), &["N".to_owned()][..]));
    let Form::Workers(workers) = &layout.form else { panic!("{layout:?}") };
    assert_eq!(workers.raised, SearchedRate::Connections);
    let rows: Vec<_> = workers.cases.iter().map(|case| (case.head.as_str(), case.rows.clone())).collect();
    let own = vec![(Some(1), "A-1".to_owned()), (Some(2), "A-2".to_owned())];
    assert_eq!(rows, [("none", vec![(None, "D".to_owned())]), ("own", own)]);
    let [(2, published)] = &workers.reference[..] else { panic!("{:?}", workers.reference) };
    assert_eq!(published.get(Side::Local, Metric::Limit), Some(200_000.0));
    // A column of bytes, kept in the metric's bits.
    assert_eq!(published.get(Side::Local, Metric::DutBitsIn), Some(80.0));
    assert!(layout.shows("A-2") && layout.shows("D") && !layout.shows("H"));

    refused(table("cases = []"), 38, &["the table 'T' has no cases"]);
    refused(table("cases = [{ head = \"x\" }]"), 38, &["the case 'x' has no scenario"]);
    refused(table("cases = [{ head = \"x\", scenario = \"B\" }]"), 38, &["no scenario 'B'", "A, D, H"]);
    refused(
        table("cases = [{ head = \"x\", scenario = \"D\" }, { head = \"y\", scenario = \"H\" }]"),
        38,
        &["'H' raises other things", "table of its own"],
    );
    refused(table(&format!("{two}\ntests = [\"t\"]")), 39, &["layout 'workers' has no tests"]);
    let held = "cases = [{ head = \"x\", scenario = \"H\" }]\n[[table.reference]]\nworkers = 1\n";
    refused(table(&format!("{held}cps = 1")), 39, &["no column 'cps'", "connections, ipackets"]);
    refused(table(&format!("{held}connections = -1.0")), 39, &["published connections of -1"]);
}

#[test]
fn platforms_are_what_the_file_says() {
    let machine = "head = \"h\"\ncpu = \"c\"\nmemory = \"m\"\nnetwork = \"n\"\nsystem = \"s\"\nsoftware = \"w\"\n";
    let table = |rest: &str| {
        parse(&[("D", "direct", LOAD)], &format!("[[table]]\ntitle = \"P\"\nlayout = \"platform\"\n{rest}\n"))
    };
    let suite = table(&format!("[[table.machines]]\n{machine}")).unwrap();
    let Form::Platform(machines) = &suite.tables[0].form else { panic!("{:?}", suite.tables) };
    assert_eq!((machines[0].head.as_str(), machines[0].software.as_str()), ("h", "w"));
    refused(table(""), 19, &["the table 'P' has no machines"]);
    refused(table("cases = [{ head = \"x\", scenario = \"D\" }]"), 21, &["layout 'platform' has no cases"]);
}

#[test]
fn the_built_in_suite_has_the_studys_rows() {
    let suite = Suite::load("balancer").unwrap();
    let of = |n: usize| match &suite.tables[n].form {
        Form::Workers(workers) => workers.clone(),
        other => panic!("{other:?}"),
    };
    let [cps, pps, throughput] = [0, 1, 2].map(of);
    let workers = |table: &Workers| table.reference.iter().map(|(workers, _)| *workers).collect::<Vec<_>>();
    assert_eq!(workers(&cps), [1, 2, 4, 8, 10, 16]);
    assert_eq!((workers(&pps), workers(&throughput)), (vec![1, 2, 4, 8], vec![1, 2, 4, 8]));
    // The study's sums over its columns.
    let sum = |table: &Workers, key: &str| {
        let column = *table.columns().iter().find(|column| column.key == key).unwrap();
        let figures = table.reference.iter().map(|(_, row)| row.get(column.side, column.metric).unwrap() / column.per);
        figures.sum::<f64>()
    };
    assert_eq!((sum(&cps, "cps"), sum(&cps, "connections")), (4_590_000.0, 34_381_000.0));
    assert_eq!((sum(&pps, "connections"), sum(&pps, "pkt_rx")), (26_550.0, 13_159_971.0));
    assert_eq!((sum(&throughput, "ibytes"), sum(&throughput, "drop_tx")), (4_863_795_477.0, 0.0));
    for table in [&cps, &pps, &throughput] {
        assert_eq!(table.cases.iter().map(|case| case.rows.len()).min(), Some(1));
        assert!(table.cases.iter().skip(2).all(|case| case.rows.len() == table.reference.len()));
    }
}
