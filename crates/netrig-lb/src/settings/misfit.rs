//! Settings that do not go together.

use std::borrow::Cow;

/// Why what is asked for cannot be beside the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Misfit {
    what: Cow<'static, str>,
    /// The next step.
    pub hint: &'static str,
}

impl Misfit {
    pub(super) const fn fixed(what: &'static str, hint: &'static str) -> Self {
        Self { what: Cow::Borrowed(what), hint }
    }

    pub(super) fn of(what: impl Into<Cow<'static, str>>, hint: &'static str) -> Self {
        Self { what: what.into(), hint }
    }
}
