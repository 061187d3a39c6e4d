//! What a command says on stderr, for the log.
//!
//! A command that floods it must neither stand still (somebody has to read the pipe) nor fill the disk that the log is
//! on. So a run may say a good deal at once and a little all the time; what is beyond that is counted, and the log says
//! how much it was.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Duration, Instant},
};

use crate::agent::Request;

/// How much is read at once, and the longest line that is logged in one piece.
const MAX_LINE: usize = 8 << 10;

/// How much of the end of stderr a failure carries to the log.
const TAIL: usize = 2 << 10;

/// How much a run may say at once: a few hundred tracebacks.
const BURST: usize = 256 << 10;

/// How much it may say per second all the time: as much as anybody can read, a hundred lines.
const RATE: usize = 8 << 10;

/// What a line costs beside its text: time, thread and run stand before it.
const PER_LINE: usize = 128;

/// The end of what a command said.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }

    /// As text; empty if there was nothing.
    pub(super) fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).trim_end().to_owned()
    }
}

/// Logs what a command says, line by line, and keeps the end of it. Ends with the pipe.
pub(super) async fn listen(mut pipe: impl AsyncRead + Unpin, request: Request, tail: Tail) {
    let (thread, run) = (&request.input.thread, &request.input.run);
    let mut budget = Budget::new(Instant::now());
    let left_out = |(lines, bytes): (u64, u64)| {
        tracing::warn!(target: "agentwire::exec", %thread, %run, lines, bytes, "stderr says too much, some of it was left out");
    };
    let mut log = |line: &mut Vec<u8>| {
        if line.trim_ascii().is_empty() {
            line.clear();
            return;
        }
        if budget.spend(line.len(), Instant::now()) {
            if let Some(missing) = budget.take_missing() {
                left_out(missing);
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
            // A line that is too long goes out in pieces.
            if line.len() + piece.len() > MAX_LINE {
                log(&mut line);
            }
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") {
                log(&mut line);
            }
        }
    }
    log(&mut line);
    if let Some(missing) = budget.take_missing() {
        left_out(missing);
    }
}

/// How much may still be logged.
struct Budget {
    left: usize,
    /// Up to when it was filled up.
    filled: Instant,
    lines: u64,
    bytes: u64,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, lines: 0, bytes: 0 }
    }

    /// Whether there is room for a line of that length; counts it if there is none.
    fn spend(&mut self, length: usize, now: Instant) -> bool {
        // Whole seconds, so that a flood gives a line now and then and not the first bytes of each millisecond.
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

    /// The lines and bytes that were left out since the last time, if there were any.
    fn take_missing(&mut self) -> Option<(u64, u64)> {
        let missing = (std::mem::take(&mut self.lines), std::mem::take(&mut self.bytes));
        (missing.0 > 0).then_some(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_a_trickle_is_logged() {
        let begun = Instant::now();
        let mut budget = Budget::new(begun);
        let logged = (0..100_000).filter(|_| budget.spend(72, begun)).count();
        assert_eq!(logged, BURST / (72 + PER_LINE));
        let lines = 100_000 - logged as u64;
        assert_eq!(budget.take_missing(), Some((lines, lines * 72)));
        assert_eq!(budget.take_missing(), None);
        // A second later there is room for some lines, a day later for as many as at first.
        let (second, day) = (begun + Duration::from_secs(1), begun + Duration::from_secs(86_400));
        assert!(budget.spend(72, second));
        assert_eq!((0..100_000).filter(|_| budget.spend(72, day)).count(), logged);
        let mut calm = Budget::new(begun);
        assert!((0..10_000).all(|second| calm.spend(72, begun + Duration::from_secs(second))));
        assert_eq!(calm.take_missing(), None);
    }
}
