//! The network devices that the program is on: attached, watched, attached again.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use rig_cli::exit::in_words;
use rig_datapath::balancer::{Attachment, Balancer, GenericXdp, Mode, TransmitMethod, VlanDevice, release};
use rig_service::files::ServiceFiles;
use rig_stats::units::counted;
use rig_sys::cpu::run_before_others;
use rig_sys::ethtool;
use rig_sys::netlink::{Link, Netlink};
use rig_sys::netns::NetNs;
use tracing::warn;

use super::engine::LastError;
use super::keep::Pins;
use super::placed::{Placements, QueuePlacement};
use super::workers::Plan;
use crate::message::{DeviceStatus, DeviceVlan};
use crate::settings::{Device, HandOver, Start};

pub(super) struct Devices {
    netlink: Netlink,
    on: Vec<DeviceState>,
    /// Where links are kept, for a balancer that persists.
    pins: Option<Pins>,
    /// For all devices, beside what each of them says.
    generic: bool,
    /// The workers; none where packets are handled as received.
    cpus: Vec<u32>,
    hand_over: Option<HandOver>,
    /// Whether this machine lets queues be put onto CPUs, as far as is known.
    may_place: bool,
    plan: Plan,
    placements: Placements,
    /// Why workers are not as they shall be.
    trouble: LastError,
}

struct DeviceState {
    device: Device,
    /// `None` while there is no such interface, or it is refused.
    attached: Option<Attached>,
    /// Why it could not be attached to when it came.
    refused: LastError,
    /// Its queues were put where the plan wants them once: what fails later is tried again.
    placed: bool,
}

struct Attached {
    attachment: Attachment,
    queues: u32,
    driver: String,
}

fn receive_queues(device: &str) -> u32 {
    // A driver that does not tell has one.
    ethtool::queues(device).map_or(1, |(receive, _)| receive.max(1))
}

impl Devices {
    /// Of a balancer whose workers shall be `cpus`, all where there are none; `start` names the devices that it begins with.
    pub(super) fn new(
        files: Option<&ServiceFiles>,
        pins: Option<Pins>,
        generic: bool,
        cpus: Vec<u32>,
        start: &Start,
    ) -> Result<Self> {
        let netlink = Netlink::here().context("talk to the kernel of network devices")?;
        let there = start.devices.iter().filter(|device| netlink.index(&device.name).is_ok());
        let queues: Vec<u32> = there.map(|device| receive_queues(&device.name)).collect();
        Ok(Self {
            netlink,
            on: Vec::new(),
            pins,
            generic,
            plan: Plan::of(cpus.clone(), &queues, start.hand_over),
            cpus,
            hand_over: start.hand_over,
            may_place: true,
            placements: files.map(Placements::recall).unwrap_or_default(),
            trouble: LastError::default(),
        })
    }

    /// Refuses devices that there are not.
    pub(super) fn must_exist(&mut self, wanted: &[Device]) -> Result<()> {
        for device in wanted {
            self.netlink.index(&device.name).map_err(|_| {
                let name = &device.name;
                anyhow!("there is no network device {name} in this network namespace: see `ip link`")
            })?;
        }
        Ok(())
    }

    /// Attaches to those of `wanted` that it is not on, and takes the program off the others; says what it has done. On
    /// an error it is as before.
    pub(super) fn set(&mut self, balancer: &mut Balancer, wanted: &[Device]) -> Result<Vec<String>> {
        let mut said = Vec::new();
        let before = self.on.len();
        // Those of a control plane that is gone may be on devices which have not had their turn yet.
        let kept = self.pins.as_ref().map_or(Ok(Vec::new()), Pins::links).context("list the links that are kept")?;
        let unknown = |device: &&Device| !self.on.iter().any(|on| on.device.name == device.name);
        let unknown: Vec<&Device> = wanted.iter().filter(unknown).collect();
        for device in unknown {
            let attached = match self.attach(balancer, device) {
                Ok(attached) => attached,
                Err(error) => {
                    self.undo(before, &kept)?;
                    return Err(error);
                }
            };
            let state = if attached.is_some() {
                "added"
            } else {
                "is not there yet; the balancer attaches to it when it comes"
            };
            said.push(format!("device {} {state}", device.name));
            self.on.push(DeviceState {
                device: device.clone(),
                attached,
                refused: LastError::default(),
                placed: false,
            });
        }
        // Before anything leaves, for which another way for the others is not worth a failure.
        let grown = self.on.len() > before;
        if grown && let Err(error) = self.follow(balancer, &mut said) {
            self.undo(before, &kept)?;
            return Err(error);
        }
        for on in &mut self.on {
            if let Some(device) = wanted.iter().find(|device| device.name == on.device.name) {
                on.device = device.clone();
            }
        }
        let leaves = |on: &mut DeviceState| !wanted.iter().any(|device| device.name == on.device.name);
        let leave: Vec<DeviceState> = self.on.extract_if(.., leaves).collect();
        said.extend(leave.iter().map(|on| format!("device {} removed", on.device.name)));
        drop(leave);
        self.forget_links()?;
        self.leave_by_what_works(balancer)?;
        let followed = self.follow(balancer, &mut said);
        said.extend(followed.err().map(|error| in_words(&error)));
        Ok(said)
    }

    /// Notices interfaces that have gone and come, and says so.
    pub(super) fn watch(&mut self, balancer: &mut Balancer) -> Vec<String> {
        let mut said = Vec::new();
        for n in 0..self.on.len() {
            let name = self.on[n].device.name.clone();
            let now = self.netlink.index(&name).ok();
            let was = self.on[n].attached.as_ref().map(|attached| attached.attachment.interface());
            if was.is_some() && now != was {
                said.push(format!("device {name} has gone; the balancer attaches to it again when it comes back"));
                self.on[n].attached = None;
            }
            if now.is_none() {
                self.on[n].refused.now(None);
            }
            if self.on[n].attached.is_none() && now.is_some() {
                let device = self.on[n].device.clone();
                match self.attach(balancer, &device) {
                    Ok(attached) => {
                        self.on[n].attached = attached;
                        self.on[n].refused.now(None);
                        said.push(format!("device {name} is back: attached"));
                    }
                    Err(error) => {
                        let refused = self.on[n].refused.now(Some(in_words(&error)));
                        said.extend(refused.map(|refused| format!("device {name}: {refused}")));
                    }
                }
            }
        }
        if !said.is_empty() {
            let after = self.forget_links().and_then(|()| self.leave_by_what_works(balancer));
            said.extend(after.err().map(|error| in_words(&error)));
        }
        let trouble = self.follow(balancer, &mut said).err().map(|error| in_words(&error));
        said.extend(self.trouble.now(trouble).map(str::to_owned));
        said
    }

    fn attach(&mut self, balancer: &mut Balancer, device: &Device) -> Result<Option<Attached>> {
        let name = &device.name;
        let Ok(index) = self.netlink.index(name) else { return Ok(None) };
        let generic = if self.generic || device.generic { GenericXdp::Allowed } else { GenericXdp::Refused };
        let pin = self.pins.as_ref().map(|pins| pins.link(index));
        let attachment = match pin.filter(|pin| pin.exists()) {
            // It may be of an interface of this number that has gone; then it cannot be taken.
            Some(pin) => balancer.take_over(&pin, index).or_else(|_| {
                let _gone = release(&pin);
                self.attach_anew(balancer, index, generic)
            }),
            None => self.attach_anew(balancer, index, generic),
        };
        let attachment = attachment.map_err(|error| {
            let what = format!("attach to {name}: {}", in_words(&anyhow::Error::new(error)));
            anyhow!("{what}\n  {}", self.remedy(name, &what))
        })?;
        let driver = ethtool::driver(name).unwrap_or_default();
        Ok(Some(Attached { attachment, queues: receive_queues(name), driver }))
    }

    fn attach_anew(
        &self,
        balancer: &mut Balancer,
        index: u32,
        generic: GenericXdp,
    ) -> Result<Attachment, rig_datapath::Error> {
        let mut attachment = balancer.attach(index, generic)?;
        if let Some(pins) = &self.pins {
            attachment.keep(&pins.link(index))?;
        }
        Ok(attachment)
    }

    /// Has packets come to the workers in the way that suits the devices as they are: which ones there are, how many
    /// queues they have, and whether links went down, with which the kernel forgets where their threads were. Says what
    /// has changed. On an error packets come to workers as before.
    fn follow(&mut self, balancer: &mut Balancer, said: &mut Vec<String>) -> Result<()> {
        let mut queues = Vec::new();
        for on in &mut self.on {
            if let Some(attached) = &mut on.attached {
                attached.queues = receive_queues(&on.device.name);
                queues.push(attached.queues);
            }
        }
        let mut plan = Plan::of(self.cpus.clone(), &queues, self.hand_over);
        if !self.may_place {
            plan = plan.without_placing().unwrap_or(plan);
        }
        if plan != self.plan && !queues.is_empty() {
            self.change(balancer, plan)?;
            said.push(format!("workers: of each device, {}", self.plan.sentence()));
        }
        self.place(balancer, said)
    }

    fn change(&mut self, balancer: &mut Balancer, plan: Plan) -> Result<()> {
        let before = std::mem::replace(&mut self.plan, plan);
        let changed = self.renew(balancer);
        if changed.is_err() {
            self.plan = before;
            self.renew(balancer).context("put the programs back that were there before")?;
        }
        changed
    }

    /// Has packets come to the workers as planned, by devices that are attached to from now on.
    pub(super) fn spread(&self, balancer: &mut Balancer) -> Result<()> {
        balancer.spread_over(&self.plan.spreading())?;
        if let Some(priority) = self.plan.priority() {
            for thread in balancer.queue_threads()? {
                run_before_others(thread, priority)?;
            }
        }
        Ok(())
    }

    fn renew(&mut self, balancer: &mut Balancer) -> Result<()> {
        self.spread(balancer).context("change the way of packets to the workers")?;
        for attached in self.on.iter_mut().filter_map(|on| on.attached.as_mut()) {
            balancer.renew(&mut attached.attachment)?;
        }
        Ok(())
    }

    /// Has the devices' queues where the plan wants them, all others where they were; by another plan where this machine
    /// does not let queues be put anywhere.
    fn place(&mut self, balancer: &mut Balancer, said: &mut Vec<String>) -> Result<()> {
        let places = self.plan.places();
        let attached = self.on.iter().filter_map(|on| Some((on.attached.as_ref()?, on.device.name.as_str())));
        let stay: Vec<_> = attached.map(|(attached, name)| (attached.attachment.interface(), name)).collect();
        self.placements.undo_but(if places.is_empty() { &[] } else { &stay });
        if places.is_empty() {
            return Ok(());
        }
        for DeviceState { device: Device { name, .. }, attached, placed, .. } in &mut self.on {
            let Some(attached) = attached else { continue };
            match self.placements.put(name, attached.attachment.interface(), &places) {
                Ok(QueuePlacement::Later) => {}
                Ok(put) => {
                    if put == QueuePlacement::Again && *placed {
                        said.push(format!("device {name}: {}, again", self.plan.sentence()));
                    }
                    *placed = true;
                }
                Err(error) if *placed => return Err(error.context("bring packets to the workers")),
                Err(error) => {
                    let Some(plan) = self.plan.without_placing() else { return Ok(()) };
                    let (why, otherwise) = (in_words(&error), plan.sentence());
                    warn!("cannot put the queues of {name} onto CPUs ({why}): {otherwise}");
                    self.may_place = false;
                    self.change(balancer, plan)?;
                    return self.place(balancer, said);
                }
            }
        }
        Ok(())
    }

    /// Puts the devices' queues back to where they were.
    pub(super) fn unplace(&mut self) {
        self.placements.undo_but(&[]);
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The link that a VLAN device is on.
    fn below(&self, name: &str) -> Option<String> {
        let link = self.netlink.link(name).ok().filter(|link| link.vlan.is_some())?;
        let far = link.far.filter(|far| far.namespace.is_none())?;
        self.netlink.link_at(far.index).ok().map(|parent| parent.name)
    }

    /// The next step when a device cannot be attached to.
    fn remedy(&self, name: &str, what: &str) -> String {
        let says = |errno: i32| what.contains(&std::io::Error::from_raw_os_error(errno).to_string());
        const EBUSY: i32 = 16;
        const EINVAL: i32 = 22;
        const ERANGE: i32 = 34;
        const EOPNOTSUPP: i32 = 95;
        if says(EBUSY) {
            format!(
                "another XDP program is there (see `ip link show {name}`): of another balancer, which `netrig lb stop --detach \
                 --name NAME` ends, or, if it is not needed: ip link set dev {name} xdp off"
            )
        } else if says(EOPNOTSUPP)
            && let Some(parent) = self.below(name)
        {
            format!(
                "{name} is a VLAN device, which has no driver that takes XDP programs: name {parent} in its place, by which its frames come and leave \
                 with their tag. Or, if slow is acceptable: --generic, or {{ name = \"{name}\", generic = true }} in the file"
            )
        } else if says(EOPNOTSUPP) {
            format!("if slow is acceptable: --generic, or {{ name = \"{name}\", generic = true }} in the file")
        } else if says(EINVAL) || says(ERANGE) {
            format!("its MTU or its peer's may be too large for XDP: ip link set dev {name} mtu 1500")
        } else {
            format!("see `ip -details link show {name}` and the kernel's log")
        }
    }

    /// Removes links that are kept for interfaces which are the balancer's no more.
    fn forget_links(&self) -> Result<()> {
        let Some(pins) = &self.pins else { return Ok(()) };
        let wanted: Vec<PathBuf> = self.attached().map(|(_, at)| pins.link(at.attachment.interface())).collect();
        forget_links_but(pins, &wanted)
    }

    /// Leaves the devices from that number on, and of the links those that there were before.
    fn undo(&mut self, before: usize, kept: &[PathBuf]) -> Result<()> {
        self.on.truncate(before);
        self.pins.as_ref().map_or(Ok(()), |pins| forget_links_but(pins, kept))
    }

    /// veth does not wake its peer for packets that are turned round.
    fn leave_by_what_works(&self, balancer: &mut Balancer) -> Result<()> {
        let veth = self.attached().any(|(_, attached)| attached.driver == "veth");
        balancer.set_back(if veth { TransmitMethod::Redirect } else { TransmitMethod::Transmit })?;
        // Tables that were kept remember what they were told for devices that are the balancer's no more.
        balancer.set_keeps_offload(self.attached().any(|(_, attached)| attached.attachment.mode() == Mode::Generic))?;
        Ok(())
    }

    fn attached(&self) -> impl Iterator<Item = (&Device, &Attached)> {
        self.on.iter().filter_map(|on| Some((&on.device, on.attached.as_ref()?)))
    }

    /// A device on which the program runs in generic mode.
    pub(super) fn generic(&self) -> Option<&str> {
        let generic = |(_, attached): &(&Device, &Attached)| attached.attachment.mode() == Mode::Generic;
        self.attached().find(generic).map(|(device, _)| &*device.name)
    }

    /// A device on which it may run so, now or when the device comes again.
    pub(super) fn may_be_generic(&self) -> Option<&str> {
        let mut all = self.on.iter().map(|on| &on.device);
        self.generic().or_else(|| all.find(|device| self.generic || device.generic).map(|device| &*device.name))
    }

    /// Whether the program is on all of them.
    pub(super) fn are_attached(&self) -> bool {
        self.on.iter().all(|on| on.attached.is_some())
    }

    pub(super) fn wanted(&self) -> Vec<Device> {
        self.on.iter().map(|on| on.device.clone()).collect()
    }

    /// The names and numbers of those that are there.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&str, u32)> {
        self.attached().map(|(device, attached)| (device.name.as_str(), attached.attachment.interface()))
    }

    /// Each device's name with its driver's.
    pub(super) fn drivers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attached().map(|(device, attached)| (device.name.as_str(), attached.driver.as_str()))
    }

    /// The VLAN devices that frames are sent by, with their names.
    fn vlans(&self) -> Vec<(VlanDevice, String)> {
        let links = self.netlink.links().unwrap_or_default();
        let named = |vlan: VlanDevice| {
            let link = links.iter().find(|link| link.index == vlan.interface)?;
            Some((vlan, link.name.clone()))
        };
        VlanDevice::among(&links).into_iter().filter_map(named).collect()
    }

    /// The VLAN device of this name over one that the balancer is on.
    pub(super) fn vlan(&self, name: &str) -> Option<VlanDevice> {
        let is_over = |vlan: &VlanDevice| self.attached().any(|(_, on)| on.attachment.interface() == vlan.parent);
        self.vlans().into_iter().find(|(vlan, is)| is == name && is_over(vlan)).map(|(vlan, _)| vlan)
    }

    /// Lines about devices that take tags off before the program sees frames, or have their peers keep them beside.
    pub(super) fn advice_of_tags(&self) -> Vec<String> {
        let (links, vlans) = (self.netlink.links().unwrap_or_default(), self.vlans());
        let here = NetNs::of_current_thread();
        let takes_off = |name: &str| {
            let features = here.as_ref().ok().and_then(|here| ethtool::wanted_features(here, name).ok());
            features.is_some_and(|features| features.get("rx-vlan-hw-parse") == Some(&true))
        };
        let mut said = Vec::new();
        for (_, attached) in self.attached() {
            let Some((vlan, over)) = vlans.iter().find(|(vlan, _)| vlan.parent == attached.attachment.interface())
            else {
                continue;
            };
            // Of a bond its ports take frames.
            let takers = if vlan.ports.is_empty() { vec![vlan.parent] } else { vlan.ports.clone() };
            for Link { name, kind, .. } in links.iter().filter(|link| takers.contains(&link.index)) {
                if kind.as_deref() == Some("veth") {
                    said.push(format!(
                        "{name} is a veth: the balancer sees the tags of frames for {over} only where its peer writes them: ethtool -K PEER txvlan off"
                    ));
                } else if takes_off(name) {
                    said.push(format!(
                        "{name} takes tags off, so the balancer has frames for {over} as {name}'s own: ethtool -K {name} rxvlan off"
                    ));
                }
            }
        }
        said
    }

    pub(super) fn status(&self) -> Vec<DeviceStatus> {
        let known = self.vlans();
        let status = |on: &DeviceState| {
            let name = on.device.name.clone();
            let Some(Attached { attachment, queues, .. }) = &on.attached else {
                let refused = on.refused.last().and_then(|refused| refused.lines().next());
                let placement = refused.unwrap_or("there is no such interface now").to_owned();
                return DeviceStatus { name, mode: "absent".to_owned(), queues: 0, placement, vlans: Vec::new() };
            };
            let mode = match attachment.mode() {
                Mode::Native => "native",
                Mode::Generic => "generic",
            };
            let waits = !self.plan.places().is_empty() && !on.placed;
            let placement = self.plan.sentence() + if waits { ", as soon as the link is up" } else { "" };
            let vlans = known.iter().filter(|(vlan, _)| vlan.parent == attachment.interface());
            let vlans = vlans.map(|(vlan, name)| DeviceVlan { name: name.clone(), id: vlan.id }).collect();
            DeviceStatus { name, mode: mode.to_owned(), queues: *queues, placement, vlans }
        };
        self.on.iter().map(status).collect()
    }

    /// A line for each device.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for device in self.status() {
            let slow = match device.mode.as_str() {
                "generic" => {
                    ": its driver has no XDP, so packets are copied for the kernel first, several times slower"
                }
                _ => "",
            };
            let DeviceStatus { name, mode, queues, placement, .. } = device;
            let queues = counted(queues, "queue", "queues");
            let _ = writeln!(text, "  device {name}: {mode} mode{slow}; {queues}; {placement}");
        }
        text
    }
}

fn forget_links_but(pins: &Pins, wanted: &[PathBuf]) -> Result<()> {
    pins.remove_links_but(wanted).context("remove links of devices that are used no more")
}
