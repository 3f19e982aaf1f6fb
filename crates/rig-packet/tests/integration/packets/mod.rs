//! The packet engine, packet by packet, in memory and by a clock that is set by hand.

mod faults;
mod http;
mod malformed;
mod neighbors;
mod peer;
mod refusals;
mod rig;
mod sequences;
mod shapes;
mod tcp;
mod tunnels;
mod udp;
mod window;
