//! Whether packets can be sent to a balancer.

use super::message::Status;
use super::settings::ServiceText;

/// Why packets should be sent to another balancer; none where they can come here.
pub fn unready(status: &Status) -> Vec<String> {
    let mut why = Vec::new();
    if status.withdrawn {
        why.push("it is withdrawn: `netrig lb announce` ends that".to_owned());
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
