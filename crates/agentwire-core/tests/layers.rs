//! The layers of this crate: imports between its modules point down.

use std::path::Path;

#[path = "support/imports.rs"]
mod imports;

/// Bottom to top: each module, and the modules that it imports.
const LAYERS: &[imports::Layer] = &[
    // Stable error codes.
    ("codes", &[]),
    // Counts of tolerated deviations.
    ("tally", &[]),
    // Percent-encoding of URL segments.
    ("percent", &[]),
    // Bytes to frames, and frames to bytes.
    ("framing", &[]),
    // JSON values carried as text, and strict access to their members.
    ("json", &["tally"]),
    // JSON Patch: apply and diff.
    ("patch", &["json"]),
    // Canonical events, messages and requests.
    ("event", &["json", "patch"]),
    // The order rules: checker and guard.
    ("order", &["codes", "event"]),
    // Events to messages and state.
    ("fold", &["event", "json", "patch"]),
    // Format readers and writers.
    ("format", &["codes", "event", "fold", "framing", "json", "patch", "percent", "tally"]),
    // Bytes of one format to events, with or without a guard.
    ("source", &["codes", "event", "format", "framing", "json", "order", "tally"]),
    // Bytes of one format to bytes of another.
    ("convert", &["event", "format", "framing", "order", "patch", "source", "tally"]),
];

#[test]
fn imports_point_down() {
    imports::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), LAYERS);
}
