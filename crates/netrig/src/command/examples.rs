//! The end of each command's help: what is typed most.

pub const NETRIG: &str = "\
Examples (`netrig COMMAND --help` fits a screen, `netrig help COMMAND` has all):
  netrig run layers --quick    a first look, about a minute";

pub const DOCTOR: &str = "\
Examples:
  netrig doctor           what is missing, and how to get it
  sudo netrig doctor      the same for root, who can do more";

pub const HOSTS: &str = "\
Examples:
  netrig hosts check a=web1 b=web2            what a run over both would find
  netrig run layers --on a=web1 --on b=web2   that run, node a on one of them
  netrig run pairs --hosts hosts.toml         each host with each other one
  netrig udp --on web2 --rate 1gbit           a test from here to one of them
A host is a destination of ssh, or a name in ~/.config/netrig/hosts.toml.";

pub const HOSTS_CHECK: &str = "\
Examples:
  netrig hosts check a=web1 b=web2             as ssh or hosts.toml knows them
  netrig hosts check a=web1:eth1 b=web2:eth1   by these interfaces
  netrig hosts check --host-label rack=b1      all hosts with this label
Status: 0 a suite can be run, 2 bad input, 3 none can, or a host is not reached.";

pub const LIST: &str = "\
Examples:
  netrig list                what there is; `netrig show SUITE` explains one
  netrig list --scenarios    with what each of them measures";

pub const SHOW: &str = "\
Examples:
  netrig show layers          a built-in suite: `netrig list` names them
  netrig show layers --all    with a drawing of each scenario's testbed
  netrig show mine.toml       your own, checked on the way";

pub const SCHEMA: &str = "\
Examples:
  netrig schema                              what there is
  netrig schema suite > suite.schema.json    for an editor that completes TOML";

pub const RUN: &str = "\
Examples:
  netrig run layers --quick               a first look
  netrig run layers --label before; CHANGE; netrig run layers --against before
  netrig run layers --on a=web1 --on b=web2    over two machines, by ssh
  netrig run cni --conflist FILE          any CNI network, plug-in by plug-in
Status: 0 done, 1 worse than before, 2 bad input, 3 the machine lacks something,
4 failed, 130 stopped. `netrig help run` tells more.";

pub const K8S: &str = "\
Examples:
  netrig k8s manifest                 what `netrig run pods` makes, as YAML
  netrig run pods --context my-cluster";

pub const K8S_MANIFEST: &str = "\
Examples:
  netrig k8s manifest --rights | kubectl apply -f -        who may run pods
  netrig k8s manifest --nodes n1,n2 | kubectl apply -f -   pods to try by hand
  netrig k8s manifest --privileged                         CPU time by layer";

pub const REPORT: &str = "\
Examples:
  netrig report                                         the latest run
  netrig report 3 --format html --output run-3.html     a page with charts
  netrig report before --format json --output base.json for `run --against`";

pub const SERIES: &str = "\
Examples:
  netrig series latest --only D --output d.csv";

pub const COMPARE: &str = "\
Examples:
  netrig compare                       the latest two runs
  netrig compare before after          two runs by their labels
  netrig compare base.json latest --metrics throughput,cpu --min-effect 3%";

pub const AB: &str = "\
Examples:
  netrig ab layers --only B,D --new-program ./netrig-new
  netrig ab layers --only B --old 'echo 0 > /proc/sys/net/core/busy_poll' \\
      --new 'echo 50 > /proc/sys/net/core/busy_poll'
  netrig ab layers --only B --new-in b 'ethtool -K eth0 gro off'
  netrig ab stream --old-client NODE --new-client POD -- --key-file key";

pub const CALIBRATE: &str = "\
Examples:
  netrig calibrate                     about two minutes, nothing else running";

pub const HISTORY: &str = "\
Examples:
  netrig history                       all runs, the latest last
  netrig history --json                the same for programs
  netrig history --delete before       remove one, by label or number";

pub const IMPORT: &str = "\
Examples:
  netrig import iperf3-1.json iperf3-2.json --label old     two trials
  netrig import netperf.csv                                 netperf -o
  netrig import --test TCP_RR rr.txt                        netperf -P 0
  netrig import wrk.txt && netrig report";

pub const UP: &str = "\
Examples:
  netrig up layers/D                   keep the testbed of scenario D up
  netrig shell a/sender ping -c 1 10.1.2.2
  netrig down                          take it down";

pub const DOWN: &str = "\
Examples:
  netrig down                          all that are up
  netrig down mine                     the one made by `netrig up --name mine`";

pub const SHELL: &str = "\
Examples:
  netrig shell a                       $SHELL on node a of the testbed that is up
  netrig shell a/sender ip address     one command in its container `sender`";

pub const STREAM: &str = "\
Examples, with the key of `netrig serve --help`:
  server$ netrig serve --key-file key
  client$ netrig stream --client SERVER --key-file key --time 10s
  client$ netrig stream --on HOST    over ssh, which starts the server there
`netrig help stream` has all options.";

pub const RR: &str = "\
Examples, with the key of `netrig serve --help`:
  server$ netrig serve --key-file key
  client$ netrig rr --client SERVER --key-file key --response 1k
`netrig help rr` has all options.";

pub const UDP: &str = "\
Examples, with the key of `netrig serve --help`:
  server$ netrig serve --key-file key
  client$ netrig udp --client SERVER --key-file key --rate 1gbit
  client$ netrig udp --on HOST --rate 1gbit    over ssh, which starts the server
`netrig help udp` has all options.";

pub const SERVE: &str = "\
Examples:
  (umask 077; head -c 32 /dev/urandom | base64 > key)   the key of both ends
  netrig serve --key-file key
  netrig serve --listen 127.0.0.1                       without a key: this machine";

pub const DPERF: &str = "\
Examples:
  netrig dperf -c client.conf --json run.json
  netrig dperf -c client.conf --search loss-free   the highest rate without loss";

pub const TOP: &str = "\
Examples:
  netrig top                       a screen; ? tells the keys, q ends
  netrig top eth0 --json           one sample
  netrig top --on web1 --on web2   two machines, one below the other";

pub const COMPLETIONS: &str = "\
Examples:
  netrig completions bash > /etc/bash_completion.d/netrig
  netrig completions zsh > \"${fpath[1]}/_netrig\"
  netrig completions fish > ~/.config/fish/completions/netrig.fish";
