//! Services of any port, which have each one of their address and protocol that no other service has, and what these cannot have. As with IPVS
//! their port is 0, and so are their backends'; files say `any`.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

use super::misfit::Misfit;
use super::rules::Service;
use crate::health::check::{BackendCheck, Check, Probe};
use crate::message::ForwardingMethod;

/// What files have in place of the port.
pub(super) const ANY: &str = "any";

/// Where a service is, as files have it.
#[derive(Debug, Clone, Copy)]
pub struct ListenText(pub SocketAddr);

impl fmt::Display for ListenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SocketAddr::V4(at) if at.port() == 0 => write!(f, "{}:{ANY}", at.ip()),
            SocketAddr::V6(at) if at.port() == 0 => write!(f, "[{}]:{ANY}", at.ip()),
            at => at.fmt(f),
        }
    }
}

impl FromStr for ListenText {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix(ANY).filter(|address| address.ends_with(':')) {
            Some(address) => format!("{address}0").parse().map(Self),
            None => text.parse().map(Self),
        }
    }
}

pub(super) const FULL_NAT: Misfit = Misfit::fixed(
    "a service of any port with full-nat",
    "choose nat (`--masq nat` under `netrig lb ipvs` and `import`), route or tunnel: a connection's record has room for one port, which with full-nat is the local one; or list ports, e.g. 192.0.2.1:8000-8003",
);
pub(super) const BACKEND_PORT: Misfit = Misfit::fixed(
    "a service of any port has a backend with a port",
    "leave the backend's port out: packets go to the port that the client has asked for",
);
pub(super) const CHECK: Misfit = Misfit::fixed(
    "a service of any port has a check that does not say which port it asks",
    "add port to the service's check, or check = \":PORT\" to each backend",
);
pub(super) const OUTLIER: Misfit = Misfit::fixed(
    "a service of any port has an outlier detection",
    "remove it, and let a check with a port find out: clients may ask for ports that no backend listens on, and it would count their refusals",
);
pub(super) const ONE_PACKET: Misfit = Misfit::fixed(
    "a service of any port has one_packet with nat",
    "choose route or tunnel: what its backends ask others by UDP would be taken for answers of the service",
);

/// Whether a check does not say the port of each backend that it asks at one.
fn lacks_port(check: &Check, service: &Service) -> bool {
    let has_none = matches!(check.probe, Probe::Icmp | Probe::Command(_));
    let says = |said: BackendCheck| match said {
        BackendCheck::Off => true,
        BackendCheck::At { port, .. } => port.is_some(),
        BackendCheck::AsService => false,
    };
    let mut backends = service.backends.iter().filter(|backend| !backend.sorry);
    !has_none && check.port.is_none() && backends.any(|backend| !says(backend.check))
}

impl Service {
    pub fn is_of_any_port(&self) -> bool {
        self.key.address.port() == 0
    }

    /// Why it cannot have what it has, being of any port.
    pub fn any_port_misfit(&self) -> Option<Misfit> {
        let checked = || self.check.as_ref().is_some_and(|check| lacks_port(check, self));
        match () {
            () if !self.is_of_any_port() => None,
            () if self.forward == Some(ForwardingMethod::FullNat) => Some(FULL_NAT),
            () if self.backends.iter().any(|backend| backend.address.port() != 0) => Some(BACKEND_PORT),
            () if checked() => Some(CHECK),
            () if self.outlier.is_some() => Some(OUTLIER),
            () if self.one_packet && self.forward == Some(ForwardingMethod::Nat) => Some(ONE_PACKET),
            () => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::rules::{EditError, Rules};
    use super::super::{Completeness, Settings};
    use super::*;
    use crate::message::{BackendOptions, Protocol, RuleChange, ServiceKey, ServiceOptions};

    fn read(listen: &str, more: &str) -> Result<Settings, String> {
        let text = format!("[[service]]\nlisten = '{listen}'\n{more}\n");
        Settings::parse("lb.toml", &text, Completeness::Required).map_err(|error| error.to_string())
    }

    #[test]
    fn files_say_any_and_what_is_written_is_read() {
        let backends = "forward = 'route'\nbackend = ['10.0.0.11-10.0.0.12', { address = '10.0.0.13', weight = 3 }]";
        for listen in ["tcp 192.0.2.1:any", "192.0.2.1:0"] {
            let settings = read(listen, backends).unwrap();
            let service = &settings.rules.services[0];
            assert!(service.is_of_any_port() && service.any_port_misfit().is_none());
            assert!(service.backends.iter().all(|backend| backend.address.port() == 0));
            settings.rules.config(1000).validate().unwrap();
            let written = settings.to_toml();
            assert!(
                written.contains("\"tcp 192.0.2.1:any\"") && written.contains("\"10.0.0.11-10.0.0.12\""),
                "{written}"
            );
            assert_eq!(Settings::parse("lb.toml", &written, Completeness::Required).unwrap().rules, settings.rules);
        }
        let v6 =
            read("udp [2001:db8::1]:any", "forward = 'nat'\nbackend = ['[2001:db8::11]', '2001:db8::12']").unwrap();
        let written = v6.to_toml();
        assert!(written.contains("\"udp [2001:db8::1]:any\""), "{written}");
        assert!(written.contains("\"[2001:db8::11-2001:db8::12]\""), "{written}");
        assert_eq!(Settings::parse("lb.toml", &written, Completeness::Required).unwrap().rules, v6.rules);
        // One list of backends for a port of its own and all others.
        let both = "[[service]]\nlisten = ['192.0.2.1:any', '192.0.2.1:80']\nforward = 'nat'\nbackend = ['10.0.0.11']";
        let both = Settings::parse("lb.toml", both, Completeness::Required).unwrap().rules;
        let ports: Vec<u16> = both.services.iter().map(|service| service.backends[0].address.port()).collect();
        assert_eq!(ports, [0, 80]);
    }

    #[test]
    fn what_is_shown_is_read() {
        for text in ["192.0.2.1:any", "[2001:db8::1]:any", "192.0.2.1:80"] {
            assert_eq!(text.parse::<ListenText>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1:0".parse::<ListenText>().unwrap().to_string(), "192.0.2.1:any");
        assert!(["any", "192.0.2.1any", "192.0.2.1:", ":any"].iter().all(|text| text.parse::<ListenText>().is_err()));
    }

    #[test]
    fn what_it_cannot_have_is_named() {
        let any = |more: &str| read("192.0.2.1:any", more).unwrap_err();
        let nat = "forward = 'nat'\nbackend = ['10.0.0.11']\n";
        let refused = [
            ("local = '10.0.0.200'\nbackend = ['10.0.0.11']".to_owned(), "any port with full-nat"),
            ("forward = 'nat'\nbackend = ['10.0.0.11:80']".to_owned(), "a backend with a port"),
            ("forward = 'route'\nbackend = ['10.0.0.11:80']".to_owned(), "a backend with a port"),
            (format!("{nat}check = {{ kind = 'tcp' }}"), "which port it asks"),
            (format!("{nat}outlier = {{}}"), "an outlier detection"),
        ];
        for (more, why) in refused {
            let said = any(&more);
            assert!(said.contains(why) && said.contains("lb.toml:2"), "{said}");
        }
        let once = read("udp 192.0.2.1:any", &format!("{nat}one_packet = true")).unwrap_err();
        assert!(once.contains("one_packet with nat"), "{once}");
        read("udp 192.0.2.1:any", "forward = 'route'\nbackend = ['10.0.0.11']\none_packet = true").unwrap();
        for check in ["{ kind = 'tcp', port = 80 }", "{ kind = 'icmp' }"] {
            read("192.0.2.1:any", &format!("{nat}check = {check}")).unwrap();
        }
        let own = "forward = 'nat'\nbackend = [{ address = '10.0.0.11', check = ':22' }, { address = '10.0.0.12', check = false }]";
        read("192.0.2.1:any", &format!("{own}\ncheck = {{ kind = 'tcp' }}")).unwrap();
        // Of others a backend's port is one.
        for said in ["10.0.0.11:0", "10.0.0.11:any"] {
            let exact = read("192.0.2.1:80", &format!("forward = 'nat'\nbackend = ['{said}']")).unwrap_err();
            assert!(exact.contains("names no port") && exact.contains(said), "{exact}");
        }
        assert!(read("192.0.2.1:0-80", nat).is_err());
    }

    #[test]
    fn commands_cannot_make_it_what_it_cannot_be() {
        let mut rules = Rules::default();
        let service = ServiceKey { protocol: Protocol::Udp, address: "192.0.2.1:0".parse().unwrap() };
        let once = ServiceOptions { one_packet: Some(true), ..ServiceOptions::default() };
        rules.edit(&RuleChange::AddService { service, options: once }).unwrap();
        let add = |backend: &str, forward| RuleChange::AddBackend {
            service,
            backend: backend.parse().unwrap(),
            options: BackendOptions { forward: Some(forward), ..BackendOptions::default() },
        };
        for (change, why) in [
            (add("10.0.0.11:53", ForwardingMethod::Route), BACKEND_PORT),
            (add("10.0.0.11:0", ForwardingMethod::Nat), ONE_PACKET),
        ] {
            let before = rules.clone();
            assert_eq!(rules.edit(&change), Err(EditError::Misfit(why)));
            assert_eq!(rules, before);
        }
        let usual = ServiceOptions { one_packet: Some(false), ..ServiceOptions::default() };
        rules.edit(&RuleChange::EditService { service, options: usual }).unwrap();
        assert_eq!(rules.edit(&add("10.0.0.11:0", ForwardingMethod::FullNat)), Err(EditError::Misfit(FULL_NAT)));
        rules.edit(&add("10.0.0.11:0", ForwardingMethod::Nat)).unwrap();
        let once =
            ServiceOptions { one_packet: Some(true), scheduler: Some("rr".to_owned()), ..ServiceOptions::default() };
        assert_eq!(rules.edit(&RuleChange::EditService { service, options: once }), Err(EditError::Misfit(ONE_PACKET)));
        rules.config(1000).validate().unwrap();
        let exact = ServiceKey { address: "192.0.2.1:53".parse().unwrap(), ..service };
        rules.edit(&RuleChange::AddService { service: exact, options: ServiceOptions::default() }).unwrap();
        let backend = "10.0.0.11:0".parse().unwrap();
        let zero = RuleChange::AddBackend { service: exact, backend, options: BackendOptions::default() };
        assert_eq!(rules.edit(&zero), Err(EditError::Port(backend)));
    }
}
