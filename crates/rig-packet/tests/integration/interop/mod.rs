//! The packet engine against the kernel's own TCP, nginx and curl, over a veth pair, by AF_XDP and AF_PACKET.

mod as_client;
mod as_server;
mod world;
