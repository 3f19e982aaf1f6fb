//! Networks of an engine.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::escaped;
use crate::{Engine, Labels, Result};

/// A network to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkSpec {
    pub name: String,
    /// `bridge`, `macvlan`, `ipvlan`, `overlay` or a plug-in's.
    pub driver: String,
    pub options: Labels,
    /// Where addresses come from; the engine's choice without any.
    pub pools: Vec<AddressPool>,
    pub labels: Labels,
}

/// Addresses of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPool {
    /// E.g. `10.89.0.0/16`.
    pub subnet: String,
    /// The part of it that this engine gives to containers.
    pub range: Option<String>,
    pub gateway: Option<String>,
}

impl Engine {
    /// Makes a network; its id.
    ///
    /// # Errors
    /// What the engine refuses, as a driver that the kernel does not have.
    pub fn make_network(&self, spec: &NetworkSpec) -> Result<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Created {
            id: String,
        }
        let pools: Vec<Value> = spec.pools.iter().map(AddressPool::json).collect();
        let body = json!({
            "Name": spec.name,
            "Driver": spec.driver,
            "CheckDuplicate": true,
            "Attachable": spec.driver == "overlay",
            "Options": spec.options,
            "Labels": spec.labels,
            "IPAM": { "Driver": "default", "Config": pools },
        });
        let what = format!("make network {} of driver {}", spec.name, spec.driver);
        let Created { id } = self.ask(&what, "POST", "/networks/create", Some(&body))?;
        Ok(id)
    }

    /// What it knows of a network, by name or id.
    ///
    /// # Errors
    /// When there is none, or the engine does not tell.
    pub fn network(&self, name: &str) -> Result<Value> {
        self.ask(&format!("tell of network {name}"), "GET", &format!("/networks/{}", escaped(name)), None)
    }

    /// The names of its networks.
    ///
    /// # Errors
    /// When the engine does not tell.
    pub fn networks(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Listed {
            name: String,
        }
        let all: Vec<Listed> = self.ask("list networks", "GET", "/networks", None)?;
        Ok(all.into_iter().map(|network| network.name).collect())
    }
}

impl AddressPool {
    fn json(&self) -> Value {
        let mut pool = json!({ "Subnet": self.subnet });
        for (key, value) in [("IPRange", &self.range), ("Gateway", &self.gateway)] {
            if let Some(value) = value {
                pool[key] = json!(value);
            }
        }
        pool
    }
}
