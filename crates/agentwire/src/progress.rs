//! Progress bar on stderr for large input files.
//!
//! A process has one input and therefore one bar. The bar is suspended while lines are written to stdout and removed
//! before anything is written to stderr, because all of them may share the terminal.

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Minimum input size for a bar; smaller inputs are done before it would help.
const MIN_BYTES: u64 = 16 << 20;

static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// A bar for an input of this many bytes, if it is large and stderr is a terminal.
pub(crate) fn start(length: Option<u64>) -> Option<ProgressBar> {
    let length = length.filter(|length| *length > MIN_BYTES)?;
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is constant"));
    Some(BAR.get_or_init(|| bar).clone())
}

/// Runs `write` with the bar hidden if stdout is a terminal too.
pub(crate) fn suspend<T>(write: impl FnOnce() -> T) -> T {
    match BAR.get().filter(|bar| !bar.is_finished() && io::stdout().is_terminal()) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Removes the bar.
pub(crate) fn finish() {
    if let Some(bar) = BAR.get() {
        bar.finish_and_clear();
    }
}
