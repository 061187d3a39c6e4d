//! The bar on stderr that shows how much of a large file has been read.
//!
//! There is one input and so one bar. It shares the terminal with whatever else is written there, so it steps
//! aside for lines on stdout and is gone before anything is said on stderr.

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Below this size nobody waits long enough to look at a bar.
const FROM: u64 = 16 << 20;

static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// A bar for an input of this many bytes, if it is large and somebody is looking.
pub(crate) fn start(length: Option<u64>) -> Option<ProgressBar> {
    let length = length.filter(|length| *length > FROM)?;
    if !io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style).expect("the template is constant"));
    Some(BAR.get_or_init(|| bar).clone())
}

/// Writes to stdout, which may be where the bar is drawn.
pub(crate) fn aside<T>(write: impl FnOnce() -> T) -> T {
    match BAR.get().filter(|bar| !bar.is_finished() && io::stdout().is_terminal()) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Takes the bar away.
pub(crate) fn finish() {
    if let Some(bar) = BAR.get() {
        bar.finish_and_clear();
    }
}
