//! Tests between two ends: real servers and clients, each a process, on loopback; and everything a client may do that it
//! should not. Nothing here needs privileges.

mod counted;
mod endings;
mod held;
mod hostile;
mod kept;
mod keys;
mod lab;
mod names;
mod sockets;
mod words;
mod zones;

use crate::world;
