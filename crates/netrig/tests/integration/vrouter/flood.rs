//! Frames to all of a network, by the file's word.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use rig_sys::netns::NetNs;

use super::lab::{ADDRESSES, Lab, PORT, TIMEOUT, WEB, echo, exchange, run};
use super::until;

/// Both containers are of one network, whose nodes take VXLAN alone.
const FILE: &str = r#"
[router]
encapsulation = ["vxlan"]
[[node]]
name = "a"
address = "192.0.2.1"
[[node]]
name = "b"
address = "192.0.2.2"
[[network]]
name = "red"
subnets = ["10.1.0.0/24", "10.2.0.0/24"]
vni = 4242
[[interface]]
name = "client"
node = "a"
network = "red"
namespace = "client"
addresses = ["10.1.0.11"]
mac = "02:00:00:00:00:01"
[[interface]]
name = "web"
node = "b"
network = "red"
device = "toweb"
addresses = ["10.2.0.11"]
mac = "02:00:00:00:00:02"
dhcp_server = true
"#;

pub fn socket(ns: &NetNs, port: u16) -> UdpSocket {
    let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// What a server hears of a client that asks by broadcast, as one of DHCP does (RFC 2131, 4.1); it answers by broadcast, too.
pub fn ask(client: &UdpSocket, server: &UdpSocket) -> Option<()> {
    let mut buffer = [0; 100];
    client.send_to(b"who?", ("255.255.255.255", 67)).unwrap();
    let (length, from) = server.recv_from(&mut buffer).ok()?;
    assert_eq!((&buffer[..length], from.port()), (&b"who?"[..], 68));
    server.send_to(b"me", ("255.255.255.255", 68)).unwrap();
    let (length, _) = client.recv_from(&mut buffer).ok()?;
    (buffer[..length] == *b"me").then_some(())
}

pub fn frames_to_all(lab: &Lab) {
    let file = lab.write("flood.toml", FILE);
    let _a = lab.start(0, &file);
    let mut b = lab.start(1, &file);
    lab.plug_web();
    b.says("interface 'web' is there: toweb");
    let (client, server) = (socket(&lab.client, 68), socket(&lab.web, 67));
    until(TIMEOUT, || ask(&client, &server)).expect("no server hears the broadcast");

    let status = lab.json("a", &["status"]);
    let interface = &status["interfaces"][0];
    let [frames, copies] = ["flooded_frames", "flooded_copies"].map(|key| interface[key].as_u64().unwrap());
    assert!(frames > 0 && copies == frames, "one other member: {interface:#}");
    let (text, _) = lab.netrig(0, 0, &["rt", "--dump", "1", "--family", "bridge", "--node", "a"]);
    let line = text.lines().find(|line| line.starts_with("ff:ff:ff:ff:ff:ff")).expect(&text);
    let hop = line.split_whitespace().last().unwrap();
    let (text, _) = lab.netrig(0, 0, &["nh", "--get", hop, "--node", "a"]);
    assert!(text.contains("Type:Composite") && text.contains("Flags:Valid, Multicast, L2,"), "{text}");
    assert!(text.contains("Sub NH(label):") && text.contains("(4242)"), "{text}");
    let (text, _) = lab.netrig(0, 0, &["metrics", "--node", "a"]);
    assert!(text.contains("netrig_vrouter_interface_flooded_total{node=\"a\",interface=\"client\""), "{text}");

    // A network that does not want it has `broadcast = false`.
    lab.write("flood.toml", &FILE.replace("vni = 4242", "vni = 4242\nbroadcast = false"));
    for node in [0, 1] {
        let (said, _) = lab.netrig(0, node, &["reload", "--node", ["a", "b"][node]]);
        assert_eq!(said, "network 'red' changed\n");
    }
    assert_eq!(ask(&client, &server), None);
    let drops = lab.json("a", &["dropstats"]);
    let no_route = drops.as_array().unwrap().iter().find(|drop| drop["reason"] == "l2_no_route").unwrap();
    assert!(no_route["packets"].as_u64().unwrap() > 0);
    lab.write("flood.toml", FILE);
    for node in ["a", "b"] {
        lab.netrig(0, 0, &["reload", "--node", node]);
    }
    until(TIMEOUT, || ask(&client, &server)).expect("no server hears it any more");

    // In the place of node b the kernel's own VXLAN, which knows of no address: it asks, and learns.
    b.kill();
    let kernel = &lab.nodes[1];
    for step in [
        format!(
            "link add vxlan0 address {WEB} mtu 1400 type vxlan id 4242 dstport 4789 local 192.0.2.2 remote 192.0.2.1 dev wire"
        ),
        format!("addr add {}/8 dev vxlan0", ADDRESSES[1]),
        "link set vxlan0 up".to_owned(),
        "route add default dev vxlan0".to_owned(),
    ] {
        run(kernel, &step);
    }
    let to = SocketAddr::new(ADDRESSES[1].parse().unwrap(), PORT);
    let listener = kernel.run(|| TcpListener::bind(to).unwrap()).unwrap();
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(echo));
    exchange(&mut lab.connect_to(to));
    let server = socket(kernel, 67);
    until(TIMEOUT, || ask(&client, &server)).expect("the kernel hears no container, or no container the kernel");
}

/// By the label of the network, and then, when both nodes have other settings, by another encapsulation.
pub fn frames_to_all_by_a_label(lab: &Lab, encapsulation: &str, other: &str) {
    let text = |way: &str| {
        let with = FILE.replace("\"vxlan\"", &format!("\"{way}\""));
        with.replace("vni = 4242", "vni = 4242\nlabel = 300")
    };
    let file = lab.write("flood.toml", &text(encapsulation));
    let (said, _) = lab.netrig(0, 0, &["check", &file]);
    assert!(said.contains("network red: VNI 4242, label 300 of frames to all, no policies"), "{said}");
    let (_a, b) = (lab.start(0, &file), lab.start(1, &file));
    lab.plug_web();
    b.says("interface 'web' is there: toweb");
    let (client, server) = (socket(&lab.client, 68), socket(&lab.web, 67));
    until(TIMEOUT, || ask(&client, &server)).expect("no server hears the broadcast");

    // Frames from a tunnel use the next hop that broadcast frames of local containers use, which leaves out the tunnels for them.
    let (text_of_labels, _) = lab.netrig(0, 0, &["mpls", "--dump", "--node", "a"]);
    let line = text_of_labels.lines().find(|line| line.split_whitespace().next() == Some("300"));
    let hop = line.expect(&text_of_labels).split_whitespace().last().unwrap();
    let (routes, _) = lab.netrig(0, 0, &["rt", "--dump", "1", "--family", "bridge", "--node", "a"]);
    let to_all = routes.lines().find(|line| line.starts_with("ff:ff:ff:ff:ff:ff")).expect(&routes);
    assert_eq!(to_all.split_whitespace().last(), Some(hop), "{routes}");
    let (hops, _) = lab.netrig(0, 0, &["nh", "--get", hop, "--node", "a"]);
    assert!(hops.contains("Flags:Valid, Multicast, L2,") && hops.contains("(300)"), "{hops}");
    let status = lab.json("b", &["status"]);
    let web = &status["interfaces"][0];
    let [frames, copies] = ["flooded_frames", "flooded_copies"].map(|key| web[key].as_u64().unwrap());
    assert!(frames > 0 && copies == frames, "one other member: {web:#}");

    lab.write("flood.toml", &text(other));
    for node in ["a", "b"] {
        lab.netrig(0, 0, &["reload", "--node", node]);
    }
    until(TIMEOUT, || ask(&client, &server)).expect("no server hears it any more");
    let (routes, _) = lab.netrig(0, 0, &["rt", "--dump", "1", "--family", "bridge", "--node", "a"]);
    let to_all = routes.lines().find(|line| line.starts_with("ff:ff:ff:ff:ff:ff")).expect(&routes);
    let (hops, _) = lab.netrig(0, 0, &["nh", "--get", to_all.split_whitespace().last().unwrap(), "--node", "a"]);
    let (named, old) = if other == "vxlan" { ("(4242)", "(300)") } else { ("(300)", "(4242)") };
    assert!(hops.contains(named) && !hops.contains(old), "{hops}");

    // A network without broadcast has no label.
    lab.write("flood.toml", &text(encapsulation).replace("vni = 4242\nlabel = 300", "vni = 4242\nbroadcast = false"));
    for node in ["a", "b"] {
        lab.netrig(0, 0, &["reload", "--node", node]);
    }
    assert_eq!(ask(&client, &server), None);
    let (labels, _) = lab.netrig(0, 0, &["mpls", "--dump", "--node", "a"]);
    assert!(!labels.contains(" 300 "), "{labels}");
}
