//! Relative relocations in their packed form: the binary is 1.3 MB smaller. Its C library must know them.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|given| given == value);
    let is_known = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && env::var("HOST").ok() == env::var("TARGET").ok();
    // The linkers of Rust and of GNU know the option, or ignore it with a warning; `gold` fails.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_other =
        env::var_os("RUSTC_LINKER").is_some() || flags.contains("linker") || flags.contains("fuse-ld");
    if is_known && !is_other && c_library().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of glibc on this machine.
fn c_library() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
