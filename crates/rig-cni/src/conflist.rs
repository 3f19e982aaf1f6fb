//! Network configurations: what administrators write into `/etc/cni/net.d` (SPEC.md, section 1).

use serde_json::{Map, Value};

use crate::Version;

/// A network configuration: plug-ins in the order in which they are called.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflist {
    pub name: String,
    /// `cniVersion` and `cniVersions`: each once, the lowest first.
    pub versions: Vec<Version>,
    pub disable_check: bool,
    pub disable_gc: bool,
    /// At least one.
    pub plugins: Vec<PluginConf>,
}

/// What a configuration says of one of its plug-ins.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConf {
    /// The plug-in's `type`: the name of its program.
    pub name: String,
    /// Names of what a runtime may tell it besides (`capabilities` that are `true`).
    pub capabilities: Vec<String>,
    /// Its object as it is written, which the plug-in is given.
    pub object: Map<String, Value>,
}

/// What is wrong with a network configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}: {hint}", .key.as_ref().map(|key| format!("'{key}': ")).unwrap_or_default())]
pub struct ConflistError {
    /// Where, e.g. `plugins[1].type`; `None` where it is no JSON.
    pub key: Option<String>,
    pub what: String,
    pub hint: String,
}

impl ConflistError {
    fn at(key: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key: Some(key.into()), what: what.into(), hint: hint.into() }
    }
}

/// Keys of a plug-in's object that are the runtime's to write.
const RESERVED: [&str; 3] = ["runtimeConfig", "args", "prevResult"];

impl Conflist {
    /// Reads the text of a `.conflist` file, or of a `.conf` file with a single plug-in.
    ///
    /// # Errors
    /// The first mistake, with its key.
    pub fn parse(text: &str) -> Result<Self, ConflistError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ConflistError {
            key: None,
            what: format!("no JSON: {error}"),
            hint: "write a network configuration list, as in /etc/cni/net.d/*.conflist".into(),
        })?;
        let Value::Object(object) = value else {
            return Err(ConflistError {
                key: None,
                what: "no JSON object".into(),
                hint: "write a network configuration list: { \"cniVersion\": ..., \"name\": ..., \"plugins\": [...] }"
                    .into(),
            });
        };
        let name = text_of(&object, "name")?.ok_or_else(|| {
            ConflistError::at("name", "the network has no name", "write for instance \"name\": \"mynet\"")
        })?;
        if !is_name(&name) {
            let hint = "use letters, digits, '_', '.' and '-', beginning with a letter or digit";
            return Err(ConflistError::at("name", format!("'{name}' is no name of a network"), hint));
        }
        Ok(Self {
            versions: versions(&object)?,
            disable_check: switch(&object, "disableCheck")?,
            disable_gc: switch(&object, "disableGC")?,
            plugins: plugins(&object)?,
            name,
        })
    }

    /// This network with the first `count` of its plug-ins alone.
    #[must_use]
    pub fn of_first(&self, count: usize) -> Self {
        Self { plugins: self.plugins.iter().take(count).cloned().collect(), ..self.clone() }
    }

    /// `bridge, portmap, firewall`
    pub fn chain(&self) -> String {
        self.plugins.iter().map(|plugin| plugin.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn versions(object: &Map<String, Value>) -> Result<Vec<Version>, ConflistError> {
    let hint = || format!("netrig speaks {}", Version::list(&Version::SPOKEN));
    let read = |key: String, text: &str| {
        text.parse::<Version>().map_err(|error| ConflistError::at(key, error.to_string(), hint()))
    };
    let mut versions = Vec::new();
    if let Some(text) = text_of(object, "cniVersion")? {
        versions.push(read("cniVersion".into(), &text)?);
    }
    match object.get("cniVersions") {
        None => {}
        Some(Value::Array(list)) => {
            for (number, one) in list.iter().enumerate() {
                let key = format!("cniVersions[{number}]");
                let text = one.as_str().ok_or_else(|| ConflistError::at(&key, "no text", hint()))?;
                versions.push(read(key, text)?);
            }
        }
        Some(_) => return Err(ConflistError::at("cniVersions", "no list", hint())),
    }
    versions.sort_unstable();
    versions.dedup();
    if versions.is_empty() {
        let hint = format!("write for instance \"cniVersion\": \"1.0.0\"; {}", hint());
        return Err(ConflistError::at("cniVersion", "the configuration says no version", hint));
    }
    if !versions.iter().any(|version| version.is_spoken()) {
        let what = format!("version {}", Version::list(&versions));
        return Err(ConflistError::at("cniVersion", what, hint()));
    }
    Ok(versions)
}

fn plugins(object: &Map<String, Value>) -> Result<Vec<PluginConf>, ConflistError> {
    let hint = "write for instance \"plugins\": [{ \"type\": \"bridge\", \"ipam\": { ... } }]";
    let list = match object.get("plugins") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(Value::Array(_)) => return Err(ConflistError::at("plugins", "an empty list", hint)),
        Some(_) => return Err(ConflistError::at("plugins", "no list", hint)),
        // A network configuration without a list is one plug-in.
        None if object.contains_key("type") => {
            let mut own = object.clone();
            for key in ["cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
                own.remove(key);
            }
            return Ok(vec![plugin("", &own)?]);
        }
        None => return Err(ConflistError::at("plugins", "there are no plug-ins", hint)),
    };
    let one = |(number, value): (usize, &Value)| match value {
        Value::Object(own) => plugin(&format!("plugins[{number}]."), own),
        _ => Err(ConflistError::at(format!("plugins[{number}]"), "no object", hint)),
    };
    list.iter().enumerate().map(one).collect()
}

fn plugin(prefix: &str, own: &Map<String, Value>) -> Result<PluginConf, ConflistError> {
    let key = |key: &str| format!("{prefix}{key}");
    let hint = "write the name of its program, for instance \"type\": \"bridge\"";
    let name = match own.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(_) => return Err(ConflistError::at(key("type"), "no text", hint)),
        None => return Err(ConflistError::at(key("type"), "a plug-in without a type", hint)),
    };
    if !is_program(&name) {
        return Err(ConflistError::at(key("type"), format!("'{name}' is no name of a program"), hint));
    }
    let reserved = own.keys().find(|key| RESERVED.contains(&key.as_str()) || key.starts_with("cni.dev/"));
    if let Some(reserved) = reserved {
        let what = "a key that only runtimes write";
        return Err(ConflistError::at(
            key(reserved),
            what,
            "remove it: what plug-ins are told besides is 'capabilities'",
        ));
    }
    if let Some(ipam) = own.get("ipam") {
        let kind = match ipam {
            Value::Object(ipam) => ipam.get("type"),
            _ => {
                return Err(ConflistError::at(
                    key("ipam"),
                    "no object",
                    "write for instance \"ipam\": { \"type\": \"host-local\", ... }",
                ));
            }
        };
        // Plug-ins take an empty one for none.
        if let Some(kind) = kind
            && !kind.as_str().is_some_and(|kind| kind.is_empty() || is_program(kind))
        {
            return Err(ConflistError::at(key("ipam.type"), format!("{kind} is no name of a program"), hint));
        }
    }
    let capabilities = match own.get("capabilities") {
        None => Vec::new(),
        Some(Value::Object(all)) => {
            let is_on = |(name, value): (&String, &Value)| match value {
                Value::Bool(true) => Ok(Some(name.clone())),
                Value::Bool(false) => Ok(None),
                _ => Err(ConflistError::at(
                    key(&format!("capabilities.{name}")),
                    "neither true nor false",
                    "write true or false",
                )),
            };
            all.iter().filter_map(|one| is_on(one).transpose()).collect::<Result<_, _>>()?
        }
        Some(_) => {
            let hint = "write for instance \"capabilities\": { \"portMappings\": true }";
            return Err(ConflistError::at(key("capabilities"), "no object", hint));
        }
    };
    Ok(PluginConf { name, capabilities, object: own.clone() })
}

fn text_of(object: &Map<String, Value>, key: &str) -> Result<Option<String>, ConflistError> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(ConflistError::at(key, "no text", format!("write \"{key}\": \"...\""))),
    }
}

/// Before 1.1.0 its text was a form of it, too, which libcni still takes.
fn switch(object: &Map<String, Value>, key: &str) -> Result<bool, ConflistError> {
    match object.get(key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(Value::String(text)) if matches!(text.as_str(), "true" | "false") => Ok(text == "true"),
        Some(_) => Err(ConflistError::at(key, "neither true nor false", "write true or false")),
    }
}

pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn is_program(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '\\', '\0']) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_and_a_single_plug_in_are_networks() {
        let text = r#"{ "cniVersion": "1.1.0", "cniVersions": ["0.4.0", "1.1.0", "1.0.0"], "name": "dbnet", "disableCheck": true,
            "plugins": [ { "type": "bridge", "ipam": { "type": "host-local" } },
                         { "type": "portmap", "capabilities": { "portMappings": true, "aliases": false } } ] }"#;
        let list = Conflist::parse(text).unwrap();
        assert_eq!(list.versions, [Version::V0_4_0, Version::V1_0_0, Version::V1_1_0]);
        assert!(list.disable_check && !list.disable_gc);
        assert_eq!(
            (list.chain().as_str(), list.plugins[1].capabilities.as_slice()),
            ("bridge, portmap", &["portMappings".to_owned()][..])
        );
        assert_eq!(list.of_first(1).chain(), "bridge");
        let one = Conflist::parse(r#"{ "cniVersion": "0.3.1", "name": "n", "type": "ptp", "mtu": 9000 }"#).unwrap();
        assert_eq!(one.plugins.len(), 1);
        assert_eq!(one.plugins[0].object.keys().collect::<Vec<_>>(), ["mtu", "type"]);
    }

    #[test]
    fn a_mistake_names_its_key() {
        let wrong = |text: &str| {
            let error = Conflist::parse(text).unwrap_err();
            (error.key.clone().unwrap_or_default(), error.to_string())
        };
        let with = |rest: &str| wrong(&format!(r#"{{ "cniVersion": "1.0.0", "name": "n", {rest} }}"#)).0;
        assert!(wrong("{").1.contains("no JSON") && wrong("{").1.contains("line 1"));
        assert!(wrong("[]").1.contains("no JSON object"));
        assert_eq!(wrong(r#"{ "cniVersion": "1.0.0", "plugins": [] }"#).0, "name");
        assert_eq!(wrong(r#"{ "name": "../x", "cniVersion": "1.0.0" }"#).0, "name");
        assert_eq!(wrong(r#"{ "name": "n", "type": "x" }"#).0, "cniVersion");
        assert!(wrong(r#"{ "name": "n", "cniVersion": "0.2.0", "type": "x" }"#).1.contains("netrig speaks 0.3.0"));
        assert_eq!(with(r#""cniVersions": ["x"], "type": "y""#), "cniVersions[0]");
        assert_eq!(with(r#""plugins": []"#), "plugins");
        assert_eq!(with(r#""disableCheck": 1, "type": "x""#), "disableCheck");
        assert_eq!(with(r#""plugins": [{ "type": "a" }, { "typ": "b" }]"#), "plugins[1].type");
        assert_eq!(with(r#""plugins": [{ "type": "../bin/sh" }]"#), "plugins[0].type");
        assert_eq!(with(r#""plugins": [{ "type": "a", "prevResult": {} }]"#), "plugins[0].prevResult");
        assert_eq!(with(r#""plugins": [{ "type": "a", "ipam": { "type": 3 } }]"#), "plugins[0].ipam.type");
        assert_eq!(with(r#""plugins": [{ "type": "a", "capabilities": { "x": 1 } }]"#), "plugins[0].capabilities.x");
    }
}
