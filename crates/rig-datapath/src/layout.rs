//! Holds what Rust has of the programs' structures against the types in the objects (BTF): names of fields, offsets and sizes.

use libbpf_rs::btf::types::{Array, Composite, Enum, Int, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};

use crate::plain::layout::{Field, Layout};

/// The type of an object by its name in C, in the same form.
fn in_c(btf: &Btf<'_>, name: &str) -> Option<(usize, Vec<Field>)> {
    let structure: Struct<'_> = btf.type_by_name(name)?;
    let members = structure.iter().map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { panic!("{name} has a bit field") };
        let size = size_of_type(btf.type_by_id(member.ty).expect("a member has a type"));
        let name = member.name.map(|name| name.to_string_lossy().into_owned());
        Field { name: name.unwrap_or_default(), offset: offset as usize / 8, size }
    });
    Some((structure.size(), members.collect()))
}

fn size_of_type(this: BtfType<'_>) -> usize {
    let this = this.skip_mods_and_typedefs();
    let sized = Int::try_from(this).map(|int| int.size()).or_else(|_| Enum::try_from(this).map(|this| this.size()));
    let sized = sized.or_else(|_| Composite::try_from(this).map(|this| this.size()));
    sized.unwrap_or_else(|_| {
        let array = Array::try_from(this).unwrap_or_else(|this| panic!("{this:?} is of no known size"));
        array.capacity() * size_of_type(array.contained_type())
    })
}

/// `ServiceKey` is `service_key`.
fn name_in_c(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// What differs between a structure and those of its name in objects; it has to be in one of them.
fn differences(layout: &Layout, objects: &[(&str, Btf<'_>)]) -> Vec<String> {
    let name = name_in_c(layout.name);
    let found: Vec<_> = objects.iter().filter_map(|(object, btf)| Some((object, in_c(btf, &name)?))).collect();
    if found.is_empty() {
        return vec![format!("no object has struct {name}")];
    }
    let ours = (layout.size, layout.fields.clone());
    let differ = found.into_iter().filter(|(_, theirs)| *theirs != ours);
    differ
        .map(|(object, theirs)| format!("struct {name} of {object}\n  in C:    {theirs:?}\n  in Rust: {ours:?}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! objects {
        ($($name:literal),*) => {
            [$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")).as_slice())),*]
        };
    }

    fn types<'a>(objects: &'a [(&'a str, &'a [u8])]) -> Vec<(&'a str, Btf<'a>)> {
        let of = |object: &'a [u8], name| Btf::from_raw(name, object).unwrap().expect("it was compiled with -g");
        objects.iter().map(|(name, object)| (*name, of(object, name))).collect()
    }

    #[test]
    fn structures_have_the_fields_that_the_programs_have() {
        let balancer = objects!("balancer", "balancer_old", "balancer_bench", "spread", "trace", "unsent");
        let vrouter = objects!("vrouter", "vrouter_bench", "vrouter_old");
        let (steer, receive) = (objects!("steer"), objects!("receive"));
        let (cputime, spin) = (objects!("cputime"), objects!("spin"));
        let (napis, receiver, datagrams) = (objects!("napis"), objects!("receiver"), objects!("datagrams"));
        let all = [
            (balancer.as_slice(), crate::plain::layouts()),
            (balancer.as_slice(), crate::balancer::shape::layouts()),
            (balancer.as_slice(), crate::kernel::layouts()),
            (vrouter.as_slice(), crate::plain::layouts()),
            (vrouter.as_slice(), crate::vrouter::shape::layouts()),
            (steer.as_slice(), crate::steer::shape::layouts()),
            (receive.as_slice(), crate::receive::shape::layouts()),
            (cputime.as_slice(), crate::cputime::shape::layouts()),
            (spin.as_slice(), crate::spin::layouts()),
            (napis.as_slice(), crate::napi::layouts()),
            (receiver.as_slice(), crate::balancer::receiver::layouts()),
            (datagrams.as_slice(), crate::balancer::datagrams::layouts()),
        ];
        let (mut held, mut wrong) = (0, Vec::new());
        for (objects, layouts) in all {
            let types = types(objects);
            held += layouts.len();
            wrong.extend(layouts.iter().flat_map(|layout| differences(layout, &types)));
        }
        assert!(held > 50, "only {held} structures");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn fields_of_one_size_that_are_swapped_are_found() {
        let objects = objects!("balancer");
        let types = types(&objects);
        let mut traffic =
            crate::balancer::shape::layouts().into_iter().find(|layout| layout.name == "TrafficCount").unwrap();
        assert_eq!(differences(&traffic, &types), Vec::<String>::new());
        let name = std::mem::take(&mut traffic.fields[1].name);
        traffic.fields[1].name = std::mem::replace(&mut traffic.fields[2].name, name);
        let found = differences(&traffic, &types);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("struct traffic_count of balancer"), "{found:?}");
    }
}
