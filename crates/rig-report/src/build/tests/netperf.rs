//! netperf's layouts.

use super::*;

fn blocks_of(document: &Document) -> Vec<(&str, &str)> {
    let text = |block| match block {
        &Block::Preformatted { caption: Some(ref caption), ref text } => Some((caption.as_str(), text.as_str())),
        _ => None,
    };
    document.all_blocks().filter_map(text).collect()
}

/// The layouts of netperf 2.7.1, taken from its output.
#[test]
fn netperfs_blocks_stand_in_netperfs_columns() {
    let document = document(&netperf_view());
    let blocks = blocks_of(&document);
    let block = |caption: &str| blocks.iter().find(|(c, _)| *c == caption).unwrap().1;
    assert_eq!(
        block("no namespace (none-tcp-stream)"),
        "TCP STREAM TEST from a/sender (10.0.0.1) port 0 AF_INET to b/receiver (10.0.0.2) port 0 AF_INET \
         : +/-2.5% @ 95% conf.\n\
         Recv   Send    Send                          Utilization       Service Demand\n\
         Socket Socket  Message  Elapsed              Send     Recv     Send    Recv\n\
         Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
         bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB\n\n \
         87380  16384   1400    2.00        999.60   50.00    50.00    8.193   8.198 \n\
         study                               857.39   6.39     9.75     2.444   3.727 \n"
    );
    let rows = |caption: &str| block(caption).lines().skip_while(|l| !l.is_empty()).skip(1).collect::<Vec<_>>();
    assert_eq!(
        rows("no namespace (none-tcp-rr)"),
        [
            "16384  87380  1       1      2.00    6249.83  50.00  50.00  160.026  160.057",
            "16384  87380 ",
            "study                                12594.24  4.16   6.06   13.212  19.231",
        ]
    );
    assert_eq!(
        rows("no namespace (none-udp-stream)"),
        [
            " 16384    1400   2.00      1701000      0     9525.6     50.00    0.860 ",
            " 87380           2.00      1700000            9520.0     50.00    0.861 ",
            "study                                          952.9     6.84     2.354 ",
            "                                               952.9     9.66     3.321 ",
        ]
    );
    let maerts = block("no namespace (none-tcp-maerts)");
    assert!(maerts.starts_with("TCP MAERTS TEST from b/receiver (10.0.0.2) port 0 AF_INET to a/sender (10.0.0.1)"));
    assert!(maerts.contains("Elapsed              Recv     Send     Recv    Send\n"));
    // What the study did not measure is left blank.
    let last = block("etun (etun-tcp-stream)").lines().last().unwrap();
    assert_eq!(last.trim_end(), "study                               840.64   12.89");
}

#[test]
fn large_buffers_leave_netperfs_columns_in_their_places() {
    let mut view = netperf_view();
    let connections = view.scenarios.iter_mut().flat_map(|s| &mut s.trials).flat_map(|t| &mut t.workers);
    connections
        .flat_map(|w| &mut w.connections)
        .for_each(|c| (c.send_buffer, c.receive_buffer) = (1_939_968, 8_845_153));
    let document = document(&view);
    let blocks = blocks_of(&document);
    let rows: Vec<&str> = blocks.iter().flat_map(|(_, text)| text.lines()).filter(|l| l.contains("1939968")).collect();
    assert!(
        rows.contains(&"8845153 1939968 1400    2.00        999.60   50.00    50.00    8.193   8.198 "),
        "{rows:?}"
    );
    assert!(rows.contains(&"1939968 8845153 1     1      2.00    6249.83  50.00  50.00  160.026  160.057"), "{rows:?}");
}

#[test]
fn netperf_warns_where_confidence_was_asked_for_and_not_reached() {
    let warnings = |view: &RunView| {
        let document = document(view);
        let blocks = blocks_of(&document);
        let warned = blocks.iter().filter(|(_, text)| text.contains("!!! WARNING\n!!! Desired confidence was not"));
        warned.map(|(caption, _)| (*caption).to_owned()).collect::<Vec<_>>()
    };
    let mut view = netperf_view();
    assert_eq!(warnings(&view), ["etun (etun-udp-stream)"]);
    let document = document(&view);
    let udp = blocks_of(&document).into_iter().find(|(c, _)| *c == "etun (etun-udp-stream)").unwrap().1;
    // Twice the half width of Student's interval of 985, 1000 and 1015 thousandths.
    assert!(udp.contains("!!! Confidence intervals: Throughput      : 7.45"), "{udp}");
    view.goal = None;
    assert!(warnings(&view).is_empty(), "nothing was asked");
}
