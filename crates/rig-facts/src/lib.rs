//! What runs leave and what is computed of it alone: records ([`record`]) and their store ([`store`]), figures ([`figures`]) and
//! the claims about them ([`claim`]), where frames went ([`ledger`]), doubts about a trial ([`suspicion`]), flame graphs and costs by layer.
#![forbid(unsafe_code)]

pub mod claim;
pub mod figures;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod flame;
pub mod layers;
pub mod ledger;
pub mod programme;
pub mod record;
pub mod requested_load;
pub mod store;
pub mod suspicion;
