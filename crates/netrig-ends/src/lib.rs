//! The same load engines between two machines, without a testbed: `netrig stream|rr|udp --server` and `--client HOST`.
//!
//! A server waits on one TCP port for control connections. On each, a client may ask for tests, one after the other: the
//! server starts a worker that listens on the address the client reached it by, the client one that connects to it, both
//! start at one moment, and the server sends what its end saw. `docs/ENDS.md` has the protocol.
//!
//! What is said and when is decided by two state machines that do no I/O: [`server_session::ServerSession`] at the
//! server and [`client_session::ClientSession`] at the client: bytes and events go in, actions come out. [`server`] and
//! [`client`] carry them out. Nothing that comes over the wire is trusted: a line has a longest length, a frame is one of a few values, a
//! plan is made here from the numbers in it, and those are held against [`limits::Limits`]. With a key, a line that its
//! place in the conversation's [`seal::Seal`] does not fit is not looked at.
#![forbid(unsafe_code)]

pub mod client;
pub mod client_session;
pub mod fuzz;
pub mod limits;
pub mod machine;
pub mod pairs;
pub mod partial;
pub mod report;
pub mod seal;
pub mod server;
pub mod server_session;
pub mod wire;

mod records;
