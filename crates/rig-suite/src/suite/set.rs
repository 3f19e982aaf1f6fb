//! What a scenario has set on its testbed, and the variants that lists of values make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rig_cli::forms::{Item, OneOrMany};
use rig_cli::source::Spanned;
use rig_testbed::topology::{Rps, TestbedSettings, Topology};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Scenario;
use super::resolve::{Resolver, Result};

/// A scenario with more variants than this is refused as a mistake.
const VARIANTS_MAX: usize = 64;

/// What is set on nodes, containers and their interfaces when the testbed is built. A list of values makes a scenario of each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Set")]
pub(super) struct SetFile {
    /// Nodes, each with its containers, or single containers; without it all.
    #[schemars(example = &"b")]
    pub nodes: Option<Spanned<OneOrMany<String>>>,
    /// Interfaces by name; without it the ends of wires and of the containers' veth pairs.
    #[schemars(example = &"eth0")]
    pub interfaces: Option<Spanned<OneOrMany<String>>>,
    /// Offloads that are on or off, by the names that `ethtool -k` prints; without it those of the path.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "rx-gro": [true, false] }))]
    pub offloads: BTreeMap<String, Spanned<OneOrMany<bool>>>,
    /// Kind of the queueing discipline that interfaces send through, with the kernel's settings of it; without it the kernel's own.
    #[schemars(example = &"fq")]
    pub qdisc: Option<Spanned<OneOrMany<String>>>,
    /// Receive packet steering: `node` to the CPUs of the interface's node, `off`, or a list of CPUs such as 0-1; without it that of
    /// the path.
    #[schemars(example = serde_json::json!(["node", "off"]))]
    pub rps: Option<Spanned<OneOrMany<String>>>,
    /// Whether threads of the kernel process what interfaces receive (threaded NAPI), which a veth allows with GRO on; without it that
    /// of the path.
    #[schemars(example = true)]
    pub threaded: Option<Spanned<OneOrMany<bool>>>,
    /// Parameters of network namespaces, by name; without it those of the path.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "net.ipv4.tcp_ecn": [0, 1] }))]
    pub sysctls: BTreeMap<String, Spanned<OneOrMany<ValueFile>>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number or a string")]
#[schemars(rename = "Value")]
pub(super) enum ValueFile {
    Number(i64),
    Text(String),
}

impl Item for ValueFile {
    const EXPECTED: &'static str = "a number or a string, or a list of them";
}

impl std::fmt::Display for ValueFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// A scenario with what is set on its testbed.
#[derive(Debug, Clone, Default)]
pub(super) struct Variant {
    /// What follows the scenario's id and name: empty where nothing has several values.
    id: String,
    name: String,
    chosen: Vec<TestbedSettings>,
}

/// One value of a key: what follows id and name, and how it is set.
struct Choice<'f> {
    id: String,
    name: String,
    set: Box<dyn Fn(&mut TestbedSettings) + 'f>,
}

/// The values of a key, with its place.
struct Key<'f> {
    span: Range<usize>,
    is_list: bool,
    choices: Vec<Choice<'f>>,
}

impl Resolver<'_> {
    /// All combinations of the values that lists have.
    pub(super) fn variants(&self, sets: &[Spanned<SetFile>]) -> Result<Vec<Variant>> {
        let mut variants = vec![Variant::default()];
        for set in sets {
            let keys = self.keys_of_set(set.get_ref())?;
            let names = |names: &Option<Spanned<OneOrMany<String>>>| {
                names.as_ref().map_or_else(Vec::new, |own| own.get_ref().iter().cloned().collect())
            };
            let begin = TestbedSettings {
                nodes: names(&set.get_ref().nodes),
                interfaces: names(&set.get_ref().interfaces),
                ..TestbedSettings::default()
            };
            let at: String = begin.nodes.iter().map(|node| format!("{}-", in_id(node))).collect();
            let of = if begin.nodes.is_empty() { String::new() } else { format!(" at {}", begin.nodes.join(" and ")) };
            variants.iter_mut().for_each(|variant| variant.chosen.push(begin.clone()));
            for Key { span, is_list, choices } in keys {
                let with = |variant: &Variant, choice: &Choice<'_>| {
                    let mut variant = variant.clone();
                    variant.chosen.last_mut().into_iter().for_each(|chosen| (choice.set)(chosen));
                    if is_list {
                        variant.id += &format!("-{at}{}", choice.id);
                        variant.name += &format!(", {}{of}", choice.name);
                    }
                    variant
                };
                variants = variants
                    .iter()
                    .flat_map(|variant| choices.iter().map(move |choice| with(variant, choice)))
                    .collect();
                if variants.len() > VARIANTS_MAX {
                    let what = format!("{} variants of one scenario", variants.len());
                    return Err(self.error(span, what, Some(&format!("choose at most {VARIANTS_MAX}"))));
                }
            }
        }
        Ok(variants)
    }

    fn keys_of_set<'f>(&self, set: &'f SetFile) -> Result<Vec<Key<'f>>> {
        let mut keys = Vec::new();
        for (name, switches) in &set.offloads {
            let set = move |on: bool| -> Box<dyn Fn(&mut TestbedSettings) + 'f> {
                Box::new(move |chosen| {
                    chosen.offloads.insert(name.clone(), on);
                })
            };
            keys.push(self.switches(name, name, switches, set)?);
        }
        if let Some(kinds) = &set.qdisc {
            let choice = |kind: &'f String| Choice {
                id: format!("qdisc-{}", in_id(kind)),
                name: format!("qdisc {kind}"),
                set: Box::new(move |chosen| chosen.qdisc = Some(kind.clone())),
            };
            keys.push(self.key_of_set("qdisc", kinds, choice)?);
        }
        if let Some(rps) = &set.rps {
            for text in rps.get_ref().iter() {
                if rps_of(text).is_none() {
                    let hint = "write node, off, or a list of CPUs such as 0-1";
                    return Err(self.error(rps.span(), format!("rps = \"{text}\""), Some(hint)));
                }
            }
            let choice = |text: &'f String| Choice {
                id: format!("rps-{}", in_id(text)),
                name: format!("RPS {text}"),
                set: Box::new(move |chosen| chosen.rps = rps_of(text)),
            };
            keys.push(self.key_of_set("rps", rps, choice)?);
        }
        if let Some(switches) = &set.threaded {
            let set = |on: bool| -> Box<dyn Fn(&mut TestbedSettings) + 'f> {
                Box::new(move |chosen| chosen.threaded = Some(on))
            };
            keys.push(self.switches("threaded", "threaded NAPI", switches, set)?);
        }
        for (key, values) in &set.sysctls {
            let short = key.rsplit('.').next().unwrap_or(key);
            let choice = |value: &'f ValueFile| Choice {
                id: format!("{}-{}", in_id(short), in_id(&value.to_string())),
                name: format!("{short} = {value}"),
                set: Box::new(move |chosen| {
                    chosen.sysctls.insert(key.clone(), value.to_string());
                }),
            };
            keys.push(self.key_of_set(key, values, choice)?);
        }
        Ok(keys)
    }

    fn switches<'f>(
        &self,
        key: &str,
        name: &str,
        switches: &'f Spanned<OneOrMany<bool>>,
        set: impl Fn(bool) -> Box<dyn Fn(&mut TestbedSettings) + 'f>,
    ) -> Result<Key<'f>> {
        let word = |on: bool| if on { "on" } else { "off" };
        let choice = |on: &'f bool| Choice {
            id: format!("{}-{}", in_id(key), word(*on)),
            name: format!("{name} {}", word(*on)),
            set: set(*on),
        };
        self.key_of_set(key, switches, choice)
    }

    fn key_of_set<'f, T>(
        &self,
        key: &str,
        said: &'f Spanned<OneOrMany<T>>,
        choice: impl Fn(&'f T) -> Choice<'f>,
    ) -> Result<Key<'f>> {
        let choices: Vec<Choice<'f>> = said.get_ref().iter().map(choice).collect();
        if choices.is_empty() {
            return Err(self.error(said.span(), format!("an empty list of {key}"), Some("name at least one value")));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = choices.iter().find(|choice| !seen.insert(choice.id.as_str())) {
            let what = format!("{key} has {} twice, or what an id cannot tell apart", twice.name);
            return Err(self.error(said.span(), what, Some("each value is a scenario: give it once")));
        }
        Ok(Key { span: said.span(), is_list: said.get_ref().is_list(), choices })
    }

    /// The scenario once for each variant of what is set on its testbed.
    pub(super) fn with_set(&self, scenario: &Scenario, sets: &[Spanned<SetFile>]) -> Result<Vec<Scenario>> {
        let one = |Variant { id, name, chosen }: Variant| {
            let topology = self.chosen(&scenario.topology, sets, chosen)?;
            let (id, name) = (format!("{}{id}", scenario.id), format!("{}{name}", scenario.name));
            Ok(Scenario { id, name, topology, ..scenario.clone() })
        };
        self.variants(sets)?.into_iter().map(one).collect()
    }

    /// One after the other, so that a mistake has its place.
    fn chosen(&self, topology: &Topology, sets: &[Spanned<SetFile>], all: Vec<TestbedSettings>) -> Result<Topology> {
        sets.iter().zip(all).try_fold(topology.clone(), |topology, (set, chosen)| {
            topology.with_chosen(vec![chosen]).map_err(|error| self.error(set.span(), error.what, Some(&error.hint)))
        })
    }
}

fn rps_of(text: &str) -> Option<Rps> {
    match text {
        "off" => Some(Rps::Off),
        "node" => Some(Rps::Node),
        cpus => cpus.parse().ok().map(Rps::Cpus),
    }
}

/// As a part of a scenario's id.
fn in_id(text: &str) -> String {
    text.chars().map(|sign| if sign.is_ascii_alphanumeric() || sign == '-' { sign } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use rig_cli::mistakes::FileError;

    use super::super::Suite;

    fn suite(set: &str) -> Result<Suite, FileError> {
        let text = format!(
            "name = \"small\"\ntitle = \"Small\"\n\
             [defaults]\nwindow = \"1s\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
             [[scenario]]\nid = \"A\"\nname = \"Raw\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = {{ kind = \"tcp-stream\", message = \"128k\" }}\n{set}\n"
        );
        Suite::parse("small.toml", &text)
    }

    fn ids(set: &str) -> Vec<String> {
        suite(set)
            .unwrap()
            .scenarios
            .into_iter()
            .map(|scenario| format!("{}: {}", scenario.id, scenario.name))
            .collect()
    }

    #[test]
    fn lists_of_values_make_a_scenario_of_each_combination() {
        assert_eq!(ids("[[scenario.set]]\nqdisc = \"fq\""), ["A: Raw"]);
        assert_eq!(
            ids("[[scenario.set]]\nnodes = \"b\"\noffloads = { rx-gro = [true, false] }\nthreaded = false"),
            ["A-b-rx-gro-on: Raw, rx-gro on at b", "A-b-rx-gro-off: Raw, rx-gro off at b"]
        );
        let both = ids("[[scenario.set]]\nrps = [\"node\", \"off\", \"0-1\"]\n\
                        sysctls = { \"net.ipv4.tcp_rmem\" = [\"4096 8192 8192\", \"4096 131072 6291456\"], \"net.ipv4.tcp_ecn\" = 0 }");
        assert_eq!(both.len(), 6);
        assert_eq!(both[5], "A-rps-0-1-tcp_rmem-4096_131072_6291456: Raw, RPS 0-1, tcp_rmem = 4096 131072 6291456");
        let suite =
            suite("[[scenario.set]]\nthreaded = [false, true]\n[[scenario.set]]\nnodes = [\"a\"]\nqdisc = \"fq\"")
                .unwrap();
        let told: Vec<Vec<String>> = suite
            .scenarios
            .iter()
            .map(|scenario| scenario.topology.chosen().iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(told[1], ["threaded NAPI on", "qdisc fq of a"]);
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_its_line() {
        let error = |set: &str| suite(&format!("[[scenario.set]]\n{set}")).unwrap_err().to_string();
        for (set, told) in [
            ("", "nothing is set"),
            ("nodes = \"c\"\nqdisc = \"fq\"", "no node 'c' to set something on"),
            ("qdisc = []", "an empty list of qdisc"),
            ("qdisc = [\"fq\", \"fq\"]", "qdisc has qdisc fq twice"),
            ("rps = \"all\"", "rps = \"all\""),
            ("sysctls = { \"kernel.panic\" = 1 }", "only those of a network namespace"),
            ("offloads = { rx-gro = \"off\" }", "expected true or false"),
            ("interfaces = \"eth7\"\nthreaded = true", "no interface 'eth7'"),
            ("ring = 4", "unknown field `ring`"),
        ] {
            let said = error(set);
            assert!(said.contains(told) && said.contains("small.toml:1"), "{set}: {said}");
        }
        let many: Vec<String> = (0..65).map(|value| value.to_string()).collect();
        let said = error(&format!("sysctls = {{ \"net.ipv4.tcp_ecn\" = [{}] }}", many.join(", ")));
        assert!(said.contains("65 variants of one scenario"), "{said}");
    }

    #[test]
    fn a_variant_is_no_scenario_that_there_is() {
        let second = "[[scenario.set]]\nthreaded = [true]\n[[scenario]]\nid = \"A-threaded-on\"\nname = \"Raw\"\ntestbed = \"two\"\n\
                      path = \"raw\"\nfrom = \"a\"\nto = \"b\"\nload_of = \"A\"";
        assert!(suite(second).unwrap_err().to_string().contains("is described twice"));
    }
}
