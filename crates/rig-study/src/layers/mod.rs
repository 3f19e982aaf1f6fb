//! What each layer of the network costs: sampled stacks by the layer of their functions, scaled to the CPU time that was
//! counted. docs/MEASURING.md has the formulas, docs/decisions/layers.md the reasons.

mod map;

pub use map::{APPLICATION, Layer, Map, MapError, Place, Placing, UNKNOWN};
