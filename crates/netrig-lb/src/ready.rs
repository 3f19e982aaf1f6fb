//! Whether packets can be sent to a balancer.

use super::message::Status;
use super::settings::ServiceText;

/// Why packets should be sent to another balancer; none where they can come here.
pub fn unready(status: &Status) -> Vec<String> {
    let mut why = Vec::new();
    if status.withdrawn {
        why.push("it is withdrawn: `netrig lb announce` ends that".to_owned());
    }
    if let Some(sync) = &status.sync {
        let awaits = |peer| format!("it awaits the connections of balancer {peer}");
        why.extend(sync.awaited.iter().map(awaits));
    }
    let absent = status.devices.iter().filter(|device| device.mode == "absent");
    why.extend(absent.map(|device| format!("it is not attached to {}: {}", device.name, device.placement)));
    let open = || status.services.iter().filter(|service| service.open);
    if open().next().is_none() {
        why.push("it has no service".to_owned());
    }
    for service in open() {
        let shown = ServiceText(service.key);
        if let Some(lacks) = &service.lacks {
            why.push(format!("{shown} lacks {lacks}"));
        }
        if service.health.as_ref().is_some_and(|health| !health.has_quorum) {
            why.push(format!("{shown} has no quorum of healthy backends"));
        }
    }
    why
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_reason_is_told() {
        let mut status = fixture::status();
        for service in &mut status.services {
            (service.open, service.lacks, service.health) = (true, None, None);
        }
        status.devices.iter_mut().for_each(|device| device.mode = "native".to_owned());
        assert_eq!(unready(&status), Vec::<String>::new());
        let peer = "10.9.0.2:8849".parse().unwrap();
        status.sync.as_mut().unwrap().awaited.push(peer);
        assert_eq!(unready(&status), ["it awaits the connections of balancer 10.9.0.2:8849"]);
        status.sync = None;
        status.withdrawn = true;
        status.devices[0].mode = "absent".to_owned();
        status.services[0].lacks = Some("a backend".to_owned());
        let why = unready(&status);
        assert_eq!(why.len(), 3, "{why:?}");
        assert!(why[0].contains("withdrawn") && why[2].ends_with("lacks a backend"), "{why:?}");
        status.services.clear();
        assert!(unready(&status).contains(&"it has no service".to_owned()));
    }
}
