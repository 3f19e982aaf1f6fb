//! Balancers and routers that tests use one after another: what each is loaded for the verifier takes longer than most tests take, on
//! an emulated machine some 20 s.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rig_datapath::Error;
use rig_datapath::balancer::{self, Balancer};
use rig_datapath::vrouter::{self, Router};

/// What is loaded with tables of a size.
pub trait Loaded: Sized + 'static {
    type Sizes: PartialEq;

    fn anew(sizes: Self::Sizes) -> Result<Self, Error>;
    fn room(&self) -> Self::Sizes;
    fn renewed(self) -> Result<Option<Self>, Error>;
    fn pool() -> &'static Mutex<Vec<Self>>;
}

/// One that the next test gets when this one is dropped, as if it were new. Not after a test that fails, and none that was loaded
/// in another way.
pub struct Pooled<T: Loaded> {
    /// There until it is dropped.
    loaded: Option<T>,
    comes_back: bool,
}

impl<T: Loaded> Pooled<T> {
    pub fn load(sizes: T::Sizes) -> Result<Self, Error> {
        let mut pool = T::pool().lock().unwrap_or_else(PoisonError::into_inner);
        let found = pool.iter().position(|loaded| loaded.room() == sizes).map(|at| pool.swap_remove(at));
        drop(pool);
        let loaded = found.map_or_else(|| T::anew(sizes), Ok)?;
        Ok(Self { loaded: Some(loaded), comes_back: true })
    }
}

impl<T: Loaded> From<T> for Pooled<T> {
    fn from(loaded: T) -> Self {
        Self { loaded: Some(loaded), comes_back: false }
    }
}

impl<T: Loaded> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.loaded.as_ref().unwrap()
    }
}

impl<T: Loaded> DerefMut for Pooled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.loaded.as_mut().unwrap()
    }
}

impl<T: Loaded> Drop for Pooled<T> {
    fn drop(&mut self) {
        if !self.comes_back || thread::panicking() {
            return;
        }
        if let Some(emptied) = self.loaded.take().and_then(|loaded| loaded.renewed().unwrap()) {
            T::pool().lock().unwrap_or_else(PoisonError::into_inner).push(emptied);
        }
    }
}

macro_rules! loaded {
    ($loaded:ty, $sizes:ty) => {
        impl Loaded for $loaded {
            type Sizes = $sizes;

            fn anew(sizes: $sizes) -> Result<Self, Error> {
                Self::load(sizes)
            }

            fn room(&self) -> $sizes {
                self.sizes()
            }

            fn renewed(self) -> Result<Option<Self>, Error> {
                self.emptied()
            }

            fn pool() -> &'static Mutex<Vec<Self>> {
                static POOL: Mutex<Vec<$loaded>> = Mutex::new(Vec::new());
                &POOL
            }
        }
    };
}
loaded!(Balancer, balancer::Sizes);
loaded!(Router, vrouter::Sizes);
