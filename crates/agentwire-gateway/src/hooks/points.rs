//! The set of hooks that an implementation uses.

use std::ops::BitOr;

/// A set of hooks. Hooks outside of the set are not called, so they cost nothing.
///
/// ```
/// use agentwire_gateway::hooks::Points;
///
/// let points = Points::EVENT | Points::OUTPUT;
/// assert!(points.contains(Points::EVENT) && !points.contains(Points::NATIVE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Points(u16);

impl Points {
    /// No hooks.
    pub const NONE: Self = Self(0);
    /// [`Hooks::input_record`](super::Hooks::input_record).
    pub const INPUT_RECORD: Self = Self(1);
    /// [`Hooks::input`](super::Hooks::input).
    pub const INPUT: Self = Self(1 << 1);
    /// [`Hooks::native`](super::Hooks::native).
    pub const NATIVE: Self = Self(1 << 2);
    /// [`Hooks::native_timeout`](super::Hooks::native_timeout) and
    /// [`Hooks::native_fallback`](super::Hooks::native_fallback).
    pub const NATIVE_FALLBACK: Self = Self(1 << 3);
    /// [`Hooks::translate`](super::Hooks::translate).
    pub const TRANSLATE: Self = Self(1 << 4);
    /// [`Hooks::event`](super::Hooks::event).
    pub const EVENT: Self = Self(1 << 5);
    /// [`Hooks::state`](super::Hooks::state).
    pub const STATE: Self = Self(1 << 6);
    /// [`Hooks::output_record`](super::Hooks::output_record).
    pub const OUTPUT_RECORD: Self = Self(1 << 7);
    /// [`Hooks::output`](super::Hooks::output).
    pub const OUTPUT: Self = Self(1 << 8);
    /// All hooks.
    pub const ALL: Self = Self((1 << 9) - 1);

    /// The hooks on native events.
    pub(crate) const OF_NATIVES: Self = Self(Self::NATIVE.0 | Self::NATIVE_FALLBACK.0 | Self::TRANSLATE.0);
    /// The hooks on decoded events.
    pub(crate) const OF_EVENTS: Self =
        Self(Self::EVENT.0 | Self::STATE.0 | Self::OUTPUT_RECORD.0 | Self::OUTPUT.0);

    /// True if all hooks of `other` are in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if one of the hooks of `other` is in the set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Points {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
