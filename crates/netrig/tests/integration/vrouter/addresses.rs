//! Containers whose MAC address is another one than the file says, and made again with another one.

use std::fs;

use super::lab::{ADDRESSES, Lab, TIMEOUT, WEB, exchange, run};
use super::world::until;

const OTHER: &str = "02:00:00:00:77:01";
const THIRD: &str = "02:00:00:00:77:02";

/// The web server's interface, as status has it.
fn web(lab: &Lab) -> serde_json::Value {
    lab.json("b", &["status"])["interfaces"][0].clone()
}

fn until_web(lab: &Lab, is: impl Fn(&serde_json::Value) -> bool) {
    let found = until(TIMEOUT, || Some(web(lab)).filter(&is));
    assert!(found.is_some(), "{}", web(lab));
}

fn plug_web(lab: &Lab, mac: &str) {
    lab.plug_as(1, "toweb", &lab.web, mac, ADDRESSES[1]);
}

pub fn an_address_is_enforced_or_learned(lab: &Lab) {
    let file = lab.file("8080");
    let (out, _) = lab.netrig(0, 0, &["check", &file]);
    assert!(out.contains(&format!("10.2.0.11, {WEB} alone, label")), "{out}");
    let (_a, b) = (lab.start(0, &file), lab.start(1, &file));
    plug_web(lab, OTHER);
    b.says(&format!(
        "interface 'web' has MAC address {OTHER}, and the file says {WEB}: \
         frames from {OTHER} are dropped"
    ));
    // Its answers are dropped, so the client gets none.
    assert!(lab.try_connect(std::time::Duration::from_secs(1)).is_err());
    until_web(lab, |web| web["foreign_mac"] == OTHER && web["foreign_frames"].as_u64() > Some(0));
    assert!(lab.dropped("foreign_mac") > 0);
    let (text, _) = lab.netrig(0, 0, &["vif", "--get", "1", "--node", "b"]);
    assert!(text.contains(&format!("HWaddr:{WEB} ")) && text.contains(&format!("  last:{OTHER}\n")), "{text}");
    let (text, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
    assert!(text.contains(&format!("dropped, the last from {OTHER}")), "{text}");

    // With the address that the file says it is heard.
    run(&lab.web, &format!("link set eth0 address {WEB}"));
    exchange(&mut lab.connect());
    run(&lab.web, &format!("link set eth0 address {OTHER}"));

    // Any address will do now, and of one made again another one.
    let text = fs::read_to_string(&file).unwrap();
    for (any, mac) in [("mac = \"any\"", OTHER), ("", THIRD)] {
        fs::write(&file, text.replace(&format!("mac = \"{WEB}\""), any)).unwrap();
        lab.netrig(0, 1, &["reload", "--node", "b"]);
        if mac == THIRD {
            run(&lab.nodes[1], "link delete toweb");
            until_web(lab, |web| web["device"].is_null());
            plug_web(lab, THIRD);
        }
        exchange(&mut lab.connect());
        until_web(lab, |web| web["known_mac"] == mac && web["any_mac"] == true && web["foreign_mac"].is_null());
    }
    b.says(&format!("interface 'web' has MAC address {THIRD} now, and had "));
    let told = web(lab)["mac"].as_str().unwrap().to_owned();
    let (text, _) = lab.netrig(0, 0, &["vif", "--get", "1", "--node", "b"]);
    assert!(text.contains(&format!("HWaddr:{THIRD} Told:{told} ")), "{text}");
    let (text, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
    assert!(text.contains(&format!("its container has MAC address {THIRD}, others are told {told}")), "{text}");
}

/// Where the container's end is in a namespace of this machine.
pub fn a_check_compares_addresses(lab: &Lab) {
    let file = lab.file("8080");
    let (out, _) = lab.netrig(0, 0, &["check", &file, "--node", "a"]);
    assert!(out.contains(": correct\n"), "{out}");
    run(&lab.client, &format!("link set eth0 address {OTHER}"));
    let (out, _) = lab.netrig(3, 0, &["check", &file, "--node", "a"]);
    assert!(out.contains("correct, but not all of it is so here"), "{out}");
    let said = format!(
        "interface 'client' has MAC address {OTHER}, and the file says 02:00:00:00:00:01: \
         frames from {OTHER} are dropped"
    );
    assert!(out.contains(&format!("otherwise here: {said}\n")), "{out}");
    let a = lab.start(0, &file);
    a.says(&said);
    let (text, _) = lab.netrig(0, 0, &["status", "--node", "a"]);
    assert!(text.contains(&format!("note: {said}")), "{text}");
    let text = fs::read_to_string(&file).unwrap().replace("mac = \"02:00:00:00:00:01\"", "mac = \"any\"");
    fs::write(&file, text).unwrap();
    let (out, _) = lab.netrig(0, 0, &["check", &file, "--node", "a"]);
    assert!(out.contains("any MAC address, others are told 02:"), "{out}");
}
