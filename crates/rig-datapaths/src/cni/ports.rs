//! Ports of the node that containers ask for (`portMappings`): each has its own.

use serde_json::{Map, Value};

/// Containers that may be there at the same time: 250 test_containers, and as many of the testbed.
const CONTAINERS: u64 = 500;

/// What containers are told besides, by the name of the capability.
#[derive(Debug)]
pub(super) struct Ports {
    capabilities: Map<String, Value>,
    /// From the ports of a container to those of the next.
    step: u64,
}

impl Ports {
    pub(super) fn of(capabilities: &Map<String, Value>) -> Self {
        let ports = host_ports(capabilities);
        // With 8080 and 8081, steps of one would give the second container the first one's 8081.
        let meets = |step: u64| {
            let pairs = ports.iter().flat_map(|one| ports.iter().map(move |other| one.abs_diff(*other)));
            pairs.filter(|apart| *apart > 0).any(|apart| apart % step == 0 && apart / step < CONTAINERS)
        };
        let step = (1..=u64::from(u16::MAX)).find(|step| !meets(*step)).unwrap_or(u64::from(u16::MAX));
        Self { capabilities: capabilities.clone(), step }
    }

    /// The first port that is beyond those that there are, with the highest that has room.
    pub(super) fn without_room(&self) -> Option<(u64, u64)> {
        let highest = u64::from(u16::MAX).saturating_sub((CONTAINERS - 1) * self.step);
        host_ports(&self.capabilities).into_iter().find(|port| *port > highest).map(|port| (port, highest))
    }

    /// Those of a container, the first 0.
    pub(super) fn capabilities(&self, number: usize) -> Map<String, Value> {
        let mut own = self.capabilities.clone();
        let mappings = own.get_mut("portMappings").and_then(Value::as_array_mut);
        for mapping in mappings.into_iter().flatten() {
            let port = mapping.get("hostPort").and_then(Value::as_u64).filter(|port| *port > 0);
            if let (Some(port), Some(mapping)) = (port, mapping.as_object_mut()) {
                let further = self.step.saturating_mul(number as u64);
                mapping.insert("hostPort".into(), port.saturating_add(further).into());
            }
        }
        own
    }
}

fn host_ports(capabilities: &Map<String, Value>) -> Vec<u64> {
    let mappings = capabilities.get("portMappings").and_then(Value::as_array);
    let ports = mappings.into_iter().flatten().filter_map(|mapping| mapping.get("hostPort")?.as_u64());
    ports.filter(|port| *port > 0).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn ports(capabilities: Value) -> Ports {
        let Value::Object(all) = capabilities else { panic!("{capabilities}") };
        Ports::of(&all)
    }

    #[test]
    fn each_container_has_ports_of_its_own() {
        let own = ports(
            json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }, { "containerPort": 1 }], "mac": "x" }),
        );
        assert_eq!(own.capabilities(0), own.capabilities);
        let third = Value::Object(own.capabilities(2));
        assert_eq!(third.pointer("/portMappings/0"), Some(&json!({ "hostPort": 8082, "containerPort": 80 })));
        assert_eq!(third.pointer("/mac"), Some(&json!("x")));
    }

    #[test]
    fn several_ports_of_a_container_are_never_those_of_another() {
        for asked in [[8080, 8081], [8080, 8443], [80, 2080]] {
            let own = ports(json!({ "portMappings": asked.map(|port| json!({ "hostPort": port })) }));
            let all: Vec<u64> =
                (0..CONTAINERS as usize).flat_map(|number| host_ports(&own.capabilities(number))).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{asked:?}");
            assert_eq!(own.without_room(), None, "{asked:?}");
        }
    }

    #[test]
    fn ports_that_have_no_room_are_told() {
        let own = |port: u64| ports(json!({ "portMappings": [{ "hostPort": port }] }));
        assert_eq!(own(65036).without_room(), None);
        assert_eq!(own(65037).without_room(), Some((65037, 65036)));
        assert!(own(u64::MAX).without_room().is_some());
        own(u64::MAX).capabilities(3);
    }
}
