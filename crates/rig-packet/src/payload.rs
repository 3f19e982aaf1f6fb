//! What messages consist of.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// The bytes of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// So many times the letter `a`.
    Filler(u32),
    /// Letters, drawn once by a seed.
    Random {
        bytes: u32,
        seed: u64,
    },
    Bytes(Arc<[u8]>),
}

impl Payload {
    pub fn bytes(&self) -> Arc<[u8]> {
        match *self {
            Self::Filler(bytes) => vec![b'a'; bytes as usize].into(),
            Self::Random { bytes, seed } => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                (0..bytes).map(|_| random.random_range(b'a'..=b'z')).collect()
            }
            Self::Bytes(ref bytes) => Arc::clone(bytes),
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::Filler(bytes) | Self::Random { bytes, .. } => u64::from(*bytes),
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<const N: usize> From<&[u8; N]> for Payload {
    fn from(bytes: &[u8; N]) -> Self {
        Self::Bytes(bytes.as_slice().into())
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}
