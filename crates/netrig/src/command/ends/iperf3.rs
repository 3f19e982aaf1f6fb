//! What options of iperf3 are called here (iperf3(1), version 3.16).

/// `None` where there is nothing like it. Options of the same name and meaning (`-t`, `-p`, `-i`, `-R`, `-4`, `-6`) never come here.
pub fn of_iperf3(command: &str, option: &str) -> Option<String> {
    let (meant, note) = match (command, option) {
        (_, "-P" | "--parallel") => ("--threads N", ", or --connections N for connections that share a thread"),
        ("rr", "-b" | "--bitrate" | "--bandwidth") => ("--rate PER_SECOND", ", transactions a second"),
        (_, "-b" | "--bitrate" | "--bandwidth") => ("--rate RATE", ", e.g. 1gbit"),
        ("rr", "-l" | "--length" | "--len") => ("--request BYTES and --response BYTES", ""),
        (_, "-l" | "--length" | "--len") => ("--message BYTES", ""),
        (_, "-w" | "--window") => ("--send-buffer BYTES and --receive-buffer BYTES", ""),
        (_, "-O" | "--omit") => ("--warm-up SPAN", ""),
        (_, "-J" | "--json") => ("--format json", ""),
        (_, "-A" | "--affinity") => ("--cpus LIST and --server-cpus LIST", ""),
        ("stream", "-u" | "--udp") => ("the command netrig udp", ""),
        ("stream", "-Z" | "--zerocopy") => ("--send-mode sendfile", ""),
        ("stream" | "udp", "--bidir") => ("--bidirectional", ""),
        ("stream" | "rr", "-C" | "--congestion") => ("--congestion-control NAME", ""),
        (_, "-B" | "--bind") => ("--source ADDRESS", ", and --device NAME for an interface"),
        (_, "--bind-dev") => ("--device NAME", ""),
        (_, "-S" | "--tos") => ("--dscp NAME", ", a name or the byte divided by 4"),
        ("stream" | "rr", "-M" | "--set-mss") => ("--mss BYTES", ""),
        ("stream" | "rr", "-N" | "--nodelay") => ("--no-delay", ""),
        _ => return None,
    };
    Some(format!("iperf3's {option} is {meant} here{note}"))
}
