//! Files that are refused, and what is said of them.

use super::*;

/// What follows `BASE`, what is said of it in which line, and what of the next step.
#[test]
fn mistakes_are_named_with_their_line_and_the_next_step() {
    assert_eq!(lines_of(BASE), 29);
    let red_b = |more: &str| format!("{RED_B}{more}");
    let policy = |rule: &str| format!("[[policy]]\nname = 'p'\nrules = [\n{rule}]\n");
    let group = |rule: &str| format!("[[security_group]]\nname = 'g'\nin = [\n{rule}]\n");
    let analyser = |more: &str| format!("[[analyser]]\nname = 'x'\n{more}\n");
    let fat = |flow: &str| red_b(&format!("addresses = ['10.1.0.12']\nfat_flows = [{{ {flow} }}]"));
    let network = |more: &str| format!("[[network]]\nname = 'green'\n{more}");
    let cases: Vec<(String, &str, &str)> = vec![
        // The letter.
        ("[[nodes]]\n".into(), "30: unknown field `nodes`", "did you mean `node`?"),
        (red_b("adresses = []"), "35: unknown field `adresses`", "did you mean `addresses`?"),
        ("[router]\nmac = 5\n".into(), "31: invalid type", ""),
        ("x = ".into(), "30: ", ""),
        // Routes by BGP.
        (
            "[router.bgp]\ngobgp = '127.0.0.1'\n".into(),
            "31: '127.0.0.1' is not an address of a speaker's API",
            "unix:/run",
        ),
        ("[router.bgp]\nas = 70000\n".into(), "31: 70000 is not a number of an autonomous system", "1 to 65535"),
        ("[router.bgp]\nkeep = '2h'\n".into(), "31: routes that are kept for 7200s", "choose 0 s to 1 h"),
        (
            network("subnets = ['10.3.0.0/24']\nroute_targets = ['1:1']"),
            "33: 'route_targets' is for",
            "add [router.bgp]",
        ),
        ("[[security_group]]\nname = 'g'\nid = 1\n".into(), "32: 'id' is for routes by BGP", "add [router.bgp]"),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.3'\nbgp = true\n".into(),
            "33: 'bgp' is for routes by BGP",
            "add [router.bgp]",
        ),
        (
            network("subnets = ['10.3.0.0/24']\nroute_targets = ['x']\n[router.bgp]\n"),
            "33: 'x' is not a route target",
            "64512:100",
        ),
        (
            "[[security_group]]\nname = 'g'\nid = 1\n[[security_group]]\nname = 'h'\nid = 1\n[router.bgp]\n".into(),
            "35: security groups 'g' and 'h' have one id, 1",
            "set 'id' of one of them",
        ),
        // Names.
        ("[[node]]\nname = 'a'\naddress = '192.0.2.3'\n".into(), "31: node 'a' is listed twice", "rename or remove"),
        (
            "[[node]]\nname = 'a b'\naddress = '192.0.2.3'\n".into(),
            "31: 'a b' is not a name for node",
            "letters, digits",
        ),
        ("[[network]]\nname = 'any'\nsubnets = ['10.3.0.0/24']\n".into(), "31: 'any' is not a name", "another one"),
        (
            "[[interface]]\nname = 'x'\nnode = 'aa'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.12']\n".into(),
            "32: there is no node 'aa'",
            "did you mean 'a'?",
        ),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.1.0.12']\n"
                .into(),
            "33: there is no network 'green'",
            "add a [[network]] with this name",
        ),
        (
            red_b("addresses = ['10.1.0.12']\nsecurity_groups = ['web']"),
            "36: there is no security group 'web'",
            "[[security_group]]",
        ),
        (network("subnets = ['10.3.0.0/24']\npolicies = ['p']"), "33: there is no policy 'p'", "[[policy]]"),
        (
            "[router]\nkey_file = 'vrouter.key'\n".into(),
            "31: the key file 'vrouter.key' is of no use: other files are not read for a text alone",
            "head -c 32 /dev/urandom",
        ),
        // Not built.
        ("[router]\ndhcp = true\n".into(), "31: answering DHCP is not supported", "remove this key"),
        (network("subnets = ['10.3.0.0/24']\ndns = '192.0.2.53'"), "33: answering DNS is not supported", "remove"),
        (
            network("subnets = ['10.3.0.0/24']\nbroadcast = false\nflood_unknown_unicast = true"),
            "34: network 'green' copies frames to unknown addresses to all, and none to all",
            "remove broadcast = false",
        ),
        (
            network("subnets = ['10.3.0.0/24']\nbroadcast = false\nlabel = 300"),
            "34: network 'green' has a label for frames to all, and copies none to all",
            "remove broadcast = false",
        ),
        // Fat flows.
        (fat("protocol = 'icmp', port = 8"), "36: fat flows of a protocol without ports", "tcp or udp"),
        (fat("protocol = 'any', port = 8"), "36: fat flows of a protocol without ports", "tcp or udp"),
        (fat("protocol = 'udp', port = 0"), "36: 0 is not a port of a service", "rules need it"),
        (fat("protocol = 'udp'"), "36: missing field `port`", ""),
        (
            fat("protocol = 'udp', port = 53, ignore = 'source'"),
            "36: fat flows of many addresses are not supported: rules and next hops are for addresses",
            "remove this key",
        ),
        // Analysers.
        (red_b("addresses = ['10.1.0.12']\nmirror = 'x'"), "36: there is no analyser 'x'", "[[analyser]]"),
        (
            analyser("address = '192.0.2.1'"),
            "32: analyser 'x' is at node 'a', whose router takes UDP to port 4789",
            "port",
        ),
        (analyser("address = 'fd00::1'"), "32: 'fd00::1' is not an IPv4 address", "IPv4"),
        (analyser("address = '224.0.0.1'"), "32: 224.0.0.1 cannot be an analyser's address", "at which"),
        (analyser("address = '198.51.100.2'\nport = 0"), "33: 0 is not a port", "65535"),
        (analyser("address = '198.51.100.2'\nvni = 16777216"), "33: 16777216 is not a VXLAN", "16777215"),
        (
            policy("{ action = 'allow', source = 'any', destination = 'any', mirror = 'y' },\n")
                + &analyser("address = '198.51.100.2'"),
            "33: there is no analyser 'y'",
            "[[analyser]]",
        ),
        (
            policy("{ action = 'deny', source = 'any', destination = 'any', mirror = 'x' },\n")
                + &analyser("address = '198.51.100.2'"),
            "33: 'mirror' of a rule that denies",
            "log",
        ),
        (group("{ log = 'yes' },\n"), "33: invalid type: string \"yes\", expected a boolean", ""),
        // The router.
        ("[router]\nmac = '01:00:00:00:00:00'\n".into(), "31: '01:00:00:00:00:00' is not a MAC address", "02:00:00"),
        ("[router]\nmac = '0:0:0:0:0:1'\n".into(), "31: '0:0:0:0:0:1' is not a MAC", "02:00:00"),
        (
            "[router]\nencapsulation = ['geneve']\n".into(),
            "31: there is no encapsulation 'geneve'",
            "mplsoudp, mplsogre, vxlan",
        ),
        ("[router]\nencapsulation = ['vxlan', 'vxlan']\n".into(), "31: 'vxlan' is listed twice", "remove"),
        ("[router]\nencapsulation = []\n".into(), "31: no encapsulation", "choose from"),
        ("[router]\nflows = 10\n".into(), "31: a table for 10 flows", "1024"),
        ("[router.timeouts]\nopening = '10ms'\n".into(), "31: timeout 'opening' of 10ms", "30 days"),
        ("[router.timeouts]\nunanswered = '0s'\n".into(), "31: timeout 'unanswered' of", "30 days"),
        ("[router.timeouts]\ntcp = '10s'\n".into(), "31: unknown field `tcp`", "established"),
        // Nodes.
        ("[[node]]\nname = 'c'\naddress = 'fd00::1'\n".into(), "32: 'fd00::1' is not an IPv4 address", "192.0.2.1"),
        (
            "[[node]]\nname = 'c'\naddress = '127.0.0.1'\n".into(),
            "32: 127.0.0.1 cannot be a machine's address",
            "reach",
        ),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.2'\n".into(),
            "32: nodes 'b' and 'c' have one address, 192.0.2.2",
            "each its own",
        ),
        ("[[node]]\nname = 'c'\naddress = '192.0.2.3'\nmtu = 500\n".into(), "33: an MTU of 500 bytes", "576"),
        (
            "[[node]]\nname = 'c'\naddress = '192.0.2.3'\ninterface = 'a/b'\n".into(),
            "33: 'a/b' is not a network",
            "ip link",
        ),
        // Networks.
        (network("subnets = []"), "32: network 'green' has no subnet", "10.1.0.0/24"),
        (network("subnets = ['10.3.0.0']"), "32: '10.3.0.0' is not a prefix", "10.1.0.0/24"),
        (network("subnets = ['10.3.0.1/24']"), "32: 10.3.0.1/24 has bits behind", "write 10.3.0.0/24"),
        (network("subnets = ['::ffff:10.0.0.0/120']"), "32: '::ffff:10.0.0.0/120' is IPv4, mapped", "as IPv4"),
        (network("subnets = ['224.0.0.0/24']"), "32: 224.0.0.0/24 is not for containers", "unicast"),
        (network("subnets = ['fe80::/64']"), "32: fe80::/64 is not for containers", "unicast"),
        (network("subnets = ['10.3.0.0/31']"), "32: 10.3.0.0/31 has no room", "shorter"),
        (
            network("subnets = [\n'10.3.0.0/16',\n'10.3.1.0/24']"),
            "34: subnets 10.3.0.0/16 and 10.3.1.0/24 of",
            "remove one",
        ),
        (
            network("subnets = [{ prefix = '10.3.0.0/24', gateway = '10.4.0.1' }]"),
            "32: '10.4.0.1' is not a gateway of 10.3.0.0/24",
            "such as 10.3.0.1",
        ),
        (
            network("subnets = [{ prefix = '10.3.0.0/24', gateway = '10.3.0.255' }]"),
            "32: '10.3.0.255' is not a gateway",
            "",
        ),
        (network("subnets = [{ prefix = '10.3.0.0/24', gate = '10.3.0.2' }]"), "32: unknown field `gate`", "gateway"),
        (network("subnets = ['10.3.0.0/24']\nvni = 0"), "33: 0 is not a VXLAN network identifier", "1 to 16777215"),
        (
            format!(
                "[[network]]\nname = 'n'\nsubnets = ['10.3.0.0/24']\nvni = 7\n{}",
                network("subnets = ['10.4.0.0/24']\nvni = 7")
            ),
            "37: networks 'n' and 'green' have one VNI, 7",
            "leave it out",
        ),
        // Interfaces.
        (red_b("addresses = []"), "35: interface 'red-b' has no address", "at least one"),
        (red_b("addresses = ['10.1.0.12/24']"), "35: '10.1.0.12/24' is not an IP address", "without a prefix length"),
        (
            red_b("addresses = [\n'10.2.0.12']"),
            "36: 10.2.0.12 is in no subnet of network 'red'",
            "10.1.0.0/24, fd00:1::/64",
        ),
        (red_b("addresses = ['10.1.0.1']"), "35: 10.1.0.1 is the gateway of network 'red'", "10.1.0.0/24"),
        (red_b("addresses = ['10.1.0.255']"), "35: 10.1.0.255 names no host of 10.1.0.0/24", "another one"),
        (red_b("addresses = ['10.1.0.11']"), "35: 10.1.0.11 is an address of 'red-a' already", "'allowed_addresses'"),
        (red_b("addresses = ['10.1.0.12', '10.1.0.12']"), "35: 10.1.0.12 is an address of 'red-b' already", ""),
        (
            red_b("addresses = ['10.1.0.12']\nallowed_addresses = ['10.1.0.11']"),
            "36: 10.1.0.11 is an address of 'red-a' already",
            "'allowed_addresses'",
        ),
        (red_b("addresses = ['10.1.0.12']\nlabel = 15"), "36: 15 is not a label", "16 to 1048575"),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nlabel = 1048576",
                red_b("addresses = ['10.1.0.12']")
            ),
            "39: 1048576 is not a label",
            "16 to 1048575",
        ),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nlabel = 20\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.3.0.13']",
                red_b("addresses = ['10.1.0.12']\nlabel = 20")
            ),
            "40: 'red-b' and network 'green' of node 'b' have one label, 20",
            "leave it out",
        ),
        (red_b("addresses = ['10.1.0.12']\nvni = 0"), "36: 0 is not a VXLAN network identifier", "1 to 16777215"),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nvni = 7",
                red_b("addresses = ['10.1.0.12']\nvni = 7")
            ),
            "36: network 'green' and 'red-b' have one VXLAN network identifier, 7",
            "leave it out",
        ),
        (
            format!(
                "{}\n[[network]]\nname = 'green'\nsubnets = ['10.3.0.0/24']\nencapsulation = ['mplsoudp']\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'green'\ndevice = 'v'\naddresses = ['10.3.0.13']\nvni = 8",
                red_b("addresses = ['10.1.0.12']")
            ),
            "46: 'x' has a VXLAN network identifier, and network 'green' on node 'b' does no VXLAN",
            "leave it out",
        ),
        (
            red_b("addresses = ['10.1.0.12']\nmac = '00:00:5e:00:01:00'"),
            "36: 00:00:5e:00:01:00 is the router's",
            "leave it out",
        ),
        (
            format!(
                "{RED_B}addresses = ['10.1.0.12']\nmac = '02:00:00:00:00:09'\n[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.13']\nmac = '02:00:00:00:00:09'"
            ),
            "43: 'red-b' and 'x' of network 'red' have one MAC address, 02:00:00:00:00:09",
            "leave it out",
        ),
        (
            format!(
                "{RED_B}addresses = ['10.1.0.12']\nlabel = 20\n[[interface]]\nname = 'x'\nnode = 'b'\nnetwork = 'red'\ndevice = 'v'\naddresses = ['10.1.0.13']\nlabel = 20"
            ),
            "43: 'red-b' and 'x' of node 'b' have one label, 20",
            "leave it out",
        ),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\naddresses = ['10.1.0.13']".into(),
            "31: where is interface 'x'?",
            "namespace = ",
        ),
        (red_b("addresses = ['10.1.0.12']\nnamespace = 'x'\ncontainer = 'y'"), "37: 'red-b' is at two places", "once"),
        (red_b("addresses = ['10.1.0.12']\nnamespace = '../x'"), "36: '../x' is not a name of a namespace", "ip netns"),
        (
            "[[interface]]\nname = 'x'\nnode = 'a'\nnetwork = 'red'\ndevice = 'veth-red-a'\naddresses = ['10.1.0.13']"
                .into(),
            "31: 'red-a' and 'x' are the same device of node 'a'",
            "another device",
        ),
        // Security groups and policies.
        (group("{ protocol = 'tpc' },\n"), "33: there is no protocol 'tpc'", "tcp, udp"),
        (group("{ protocol = 256 },\n"), "33: there is no protocol '256'", "to 255"),
        (group("{ ports = 80 },\n"), "33: 'ports' of a rule that is not for tcp or udp", "set protocol"),
        (group("{ protocol = 'tcp', types = 8 },\n"), "33: 'types' of a rule that is not for icmp", "set protocol"),
        (group("{ protocol = 'tcp', ports = '90-80' },\n"), "33: '90-80' is none of 'ports'", "8000-8010"),
        (group("{ protocol = 'tcp', ports = 65536 },\n"), "33: '65536' is none of 'ports'", "65535"),
        (group("{ protocol = 'icmp', types = 256 },\n"), "33: '256' is none of 'types'", "255"),
        (group("{ protocol = 'tcp', ports = [] },\n"), "33: a rule with 0 of 'ports'", "leave it out"),
        (group("{ protocol = 'tcp', ports = true },\n"), "33: expected a number, a string", ""),
        (group("{ remote_group = 'h' },\n"), "33: there is no security group 'h'", ""),
        (group("{ remote_prefix = '10.0.0.1/8' },\n"), "33: 10.0.0.1/8 has bits behind", "write 10.0.0.0/8"),
        (group("{ remote_prefix = '10.0.0.0/8', remote_group = 'g' },\n"), "33: a rule with both", "for each"),
        (
            policy("{ action = 'pass', source = 'any', destination = 'any' },\n"),
            "33: unknown variant `pass`",
            "`allow`",
        ),
        (
            policy("{ action = 'deny', source = 'rde', destination = 'any' },\n"),
            "33: there is no network 'rde'",
            "'red'",
        ),
        (
            policy("{ action = 'deny', source = 'red', destination = 'any', direction = '<' },\n"),
            "33: unknown variant `<`",
            "`>`",
        ),
        (
            policy("{ action = 'allow', protocol = 'tcp', ports = 80, source = 'red', destination = 'blue' },\n"),
            "33: ports are the destination's, and '<>' has two",
            "direction = \">\"",
        ),
        // Routes.
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = []".into(),
            "33: a route to 10.9.0.0/16 by 0",
            "1 to 64",
        ),
        ("[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['x']".into(), "33: there is no interface 'x'", ""),
        (
            "[[route]]\nnetwork = 'blue'\nprefix = '10.9.0.0/16'\nvia = ['red-a']".into(),
            "33: interface 'red-a' is not of network 'blue'",
            "one that is",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.1.0.0/24'\nvia = ['red-a']".into(),
            "32: 10.1.0.0/24 is a subnet",
            "behind",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.1.0.1/32'\nvia = ['red-a']".into(),
            "32: 10.1.0.1/32 is the address",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '224.0.0.0/8'\nvia = ['red-a']".into(),
            "32: 224.0.0.0/8 is multicast",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['red-a', 'red-a']".into(),
            "33: 'red-a' is listed twice",
            "",
        ),
        (
            "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['red-a']\n".repeat(2),
            "36: network 'red' has two routes to 10.9.0.0/16",
            "via = [",
        ),
    ];
    let mut wrong = Vec::new();
    for (more, what, hint) in cases {
        let said = refused(&format!("{BASE}{more}"));
        if !said.starts_with(&format!("vrouter.toml:{what}")) || !said.contains(hint) {
            wrong.push(format!("{more}\n  says:  {said}\n  lacks: {what} ... {hint}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whole files, where what is wrong is between things.
#[test]
fn what_does_not_fit_together_is_named_on_both_sides() {
    let base = |red: &str, blue: &str, more: &str| {
        let text = BASE.replace("name = \"red\"\n", &format!("name = \"red\"\n{red}\n"));
        format!("{}{BLUE_B}{more}", text.replace("name = \"blue\"\n", &format!("name = \"blue\"\n{blue}\n")))
    };
    let allow = "[[policy]]\nname = 'p'\nrules = [{ action = 'allow', source = 'red', destination = 'blue' }]\n";
    let p = "policies = ['p']";
    let said = refused(&base(p, "", allow));
    assert!(
        said.starts_with("vrouter.toml:12: policy 'p' connects network 'red' with 'blue', and no policy of"),
        "{said}"
    );
    assert!(said.contains("add policies = [\"p\"] to network 'blue'"), "{said}");
    parse(&base(p, p, allow));
    // Who is not connected may have the same addresses.
    let same = |text: String| text.replace("10.2.0.", "10.1.0.");
    parse(&same(base("", "", "")));
    let said = refused(&same(base(p, p, allow)));
    assert!(
        said.contains("'blue' and 'red' are connected, and their subnets 10.1.0.0/24 and 10.1.0.0/24 overlap"),
        "{said}"
    );
    assert!(said.starts_with("vrouter.toml:13: networks"), "{said}");
    // Addresses of one behind a route of the other; both behind one's.
    let route = "[[route]]\nnetwork = 'blue'\nprefix = '10.1.0.64/26'\nvia = ['blue-b']\n";
    parse(&base("", "", route));
    let said = refused(&base(p, p, &format!("{allow}{route}")));
    assert!(
        said.contains(
            "'red' and 'blue' are connected, and the route of 'blue' to 10.1.0.64/26 is to a part of 10.1.0.0/24"
        ),
        "{said}"
    );

    let vxlan = |node: &str, can: &str| {
        let text = format!("{BASE}{RED_B}addresses = ['10.1.0.12']\n");
        text.replace(&format!("name = \"{node}\"\n"), &format!("name = \"{node}\"\n{can}\n"))
    };
    parse(&vxlan("a", "encapsulations = ['vxlan']"));
    let only = vxlan("a", "encapsulations = ['vxlan']")
        .replace("name = \"red\"", "name = \"red\"\nencapsulation = ['mplsoudp']");
    let said = refused(&only);
    assert!(
        said.starts_with(
            "vrouter.toml:3: nodes 'a' and 'b' have no encapsulation in common for network 'red': it wants mplsoudp, they \
             can vxlan and mplsoudp, mplsogre, vxlan"
        ),
        "{said}"
    );
    parse(&vxlan("b", "mtu = 1312"));
    let said = refused(&vxlan("b", "mtu = 1311"));
    assert!(
        said.starts_with("vrouter.toml:7: node 'b': an MTU of 1311 bytes leaves 1279 for packets of network 'red'"),
        "{said}"
    );
    assert!(said.contains("IPv6 needs 1280\n  raise the MTU of the underlay to at least 1312"), "{said}");
    parse(&vxlan("b", "mtu = 620").replace(", \"fd00:1::/64\"", "").replace("    \"fd00:1::11\",\n", ""));
}

#[test]
fn what_cannot_be_said_in_lists_is_refused() {
    let text = |prefix: &str| {
        let rule = format!("{{ action = 'deny', source = '{prefix}', destination = 'any', direction = '>' }}");
        let base = BASE.replace("name = \"red\"\n", "name = \"red\"\npolicies = ['p']\n");
        format!("{base}{RED_B}addresses = ['10.1.0.12', '10.1.0.70']\n[[policy]]\nname = 'p'\nrules = [{rule}]\n")
    };
    parse(&text("10.1.0.0/24"));
    parse(&text("10.1.0.128/25"));
    let said = refused(&text("10.1.0.64/26"));
    assert!(
        said.contains("policy 'p' has a rule for 10.1.0.64/26, and interface 'red-b' has addresses inside and"),
        "{said}"
    );

    let ports = |count: usize| (1..=count).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
    let with_rules = |count| {
        let group = format!(
            "[[security_group]]\nname = 'g'\nin = [{{ protocol = 'tcp', ports = [{}] }}, {{}}]\n",
            ports(count)
        );
        format!("{BASE}{RED_B}addresses = ['10.1.0.12']\nsecurity_groups = ['g']\n{group}")
    };
    parse(&with_rules(1023));
    let said = refused(&with_rules(1024));
    assert!(said.contains("the security groups of interface 'red-b' have 1025 rules in one direction"), "{said}");
    assert!(said.contains("1024 are the most"), "{said}");
}
