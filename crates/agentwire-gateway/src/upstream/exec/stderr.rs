//! Logs the stderr of a command.
//!
//! A command that floods stderr must neither block (the pipe has to be read) nor fill the disk of the log. So there is
//! a token bucket per run; lines beyond it are counted, and the log contains their number.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Duration, Instant},
};

use crate::agent::Request;

/// The number of bytes read at once, and the longest line that is logged in one piece.
const MAX_LINE: usize = 8 << 10;

/// The number of bytes of the end of stderr in the detail of an error.
const TAIL: usize = 2 << 10;

/// The capacity of the bucket in bytes: a few hundred tracebacks.
const BURST: usize = 256 << 10;

/// The refill of the bucket in bytes per second: about a hundred lines.
const RATE: usize = 8 << 10;

/// The cost of a line beside its text: the log adds time, thread and run.
const PER_LINE: usize = 128;

/// The end of stderr.
#[derive(Clone, Debug, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }

    /// The end of stderr as text.
    pub(super) fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).trim_end().to_owned()
    }
}

/// Logs stderr line by line and keeps its end. Returns at the end of the pipe.
pub(super) async fn log(mut pipe: impl AsyncRead + Unpin, request: Request, tail: StderrTail) {
    let (thread, run) = (&request.input.thread, &request.input.run);
    let mut budget = LogBudget::new(Instant::now());
    let log_omitted = |(lines, bytes): (u64, u64)| {
        tracing::warn!(target: "agentwire::exec", %thread, %run, lines, bytes, "stderr says too much, some of it was left out");
    };
    let mut log_line = |line: &mut Vec<u8>| {
        if line.trim_ascii().is_empty() {
            line.clear();
            return;
        }
        if budget.spend(line.len(), Instant::now()) {
            if let Some(omitted) = budget.take_omitted() {
                log_omitted(omitted);
            }
            let text = String::from_utf8_lossy(line);
            tracing::info!(target: "agentwire::exec", %thread, %run, "{}", text.trim_end());
        }
        line.clear();
    };
    let mut line = Vec::new();
    let mut chunk = vec![0; MAX_LINE];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        tail.push(&chunk[..read]);
        for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            // A line that is too long is logged in pieces.
            if line.len() + piece.len() > MAX_LINE {
                log_line(&mut line);
            }
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") {
                log_line(&mut line);
            }
        }
    }
    log_line(&mut line);
    if let Some(omitted) = budget.take_omitted() {
        log_omitted(omitted);
    }
}

/// The token bucket of a run.
struct LogBudget {
    left: usize,
    /// The time of the last refill.
    filled: Instant,
    lines: u64,
    bytes: u64,
}

impl LogBudget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, lines: 0, bytes: 0 }
    }

    /// True if a line of that length may be logged; counts it if not.
    fn spend(&mut self, length: usize, now: Instant) -> bool {
        // Whole seconds, so that a flood yields whole lines now and then.
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            self.filled += Duration::from_secs(seconds);
            let gained = RATE.saturating_mul(usize::try_from(seconds).unwrap_or(usize::MAX));
            self.left = self.left.saturating_add(gained).min(BURST);
        }
        match self.left.checked_sub(length + PER_LINE) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.lines += 1;
                self.bytes += length as u64;
                false
            }
        }
    }

    /// The lines and bytes that were omitted since the last call, if any.
    fn take_omitted(&mut self) -> Option<(u64, u64)> {
        let omitted = (std::mem::take(&mut self.lines), std::mem::take(&mut self.bytes));
        (omitted.0 > 0).then_some(omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_slow_output_is_logged() {
        let start = Instant::now();
        let mut budget = LogBudget::new(start);
        let logged = (0..100_000).filter(|_| budget.spend(72, start)).count();
        assert_eq!(logged, BURST / (72 + PER_LINE));
        let lines = 100_000 - logged as u64;
        assert_eq!(budget.take_omitted(), Some((lines, lines * 72)));
        assert_eq!(budget.take_omitted(), None);
        // After a second there is room for some lines, after a day for as many as at first.
        let (second, day) = (start + Duration::from_secs(1), start + Duration::from_secs(86_400));
        assert!(budget.spend(72, second));
        assert_eq!((0..100_000).filter(|_| budget.spend(72, day)).count(), logged);
        let mut calm = LogBudget::new(start);
        assert!((0..10_000).all(|second| calm.spend(72, start + Duration::from_secs(second))));
        assert_eq!(calm.take_omitted(), None);
    }
}
