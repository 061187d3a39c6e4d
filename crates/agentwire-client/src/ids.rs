//! Random ids and delays. They must differ between processes and need not be secret.

use std::time::Duration;

/// The standard library seeds each `RandomState` from the random numbers of the system.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn random() -> u64 {
    use std::{
        hash::{BuildHasher, RandomState},
        sync::atomic::{AtomicU64, Ordering},
        time::SystemTime,
    };
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    RandomState::new().hash_one((COUNT.fetch_add(1, Ordering::Relaxed), now))
}

/// The standard library has neither random numbers nor a clock in a page.
#[cfg(target_family = "wasm")]
pub(crate) fn random() -> u64 {
    let half = || (js_sys::Math::random() * f64::from(u32::MAX)) as u64;
    half() << 32 | half()
}

/// A UUID of version 4.
pub(crate) fn uuid() -> String {
    let (high, low) = (random(), random());
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// The delay with a random part of it removed, at most half.
pub(crate) fn with_jitter(delay: Duration) -> Duration {
    let half = delay / 2;
    half + half.mul_f64((random() % 1000) as f64 / 1000.0)
}
