//! A client of GoBGP 3, by its gRPC service `apipb.GobgpApi`: a speaker of BGP that runs on the machine, to which services of netrig give
//! routes, and which tells them of others'. Knows no service and no route of theirs.
#![forbid(unsafe_code)]

pub mod client;
pub mod message;
