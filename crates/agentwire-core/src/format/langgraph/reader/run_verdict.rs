//! The outcome of a run as the server's thread state or run resource reports it.

use super::{
    super::{
        raw_json,
        wire::{NativeFrame, NativeTask},
    },
    ending::read_error,
    interrupts::read_interrupts,
};
use crate::{event::Interrupt, tally::Tally};

/// The outcome of a run as reported by the server.
#[derive(Clone, Debug, Default)]
pub(super) struct RunVerdict {
    pub(super) interrupts: Option<Vec<Interrupt>>,
    pub(super) next: Vec<Box<str>>,
    pub(super) cancelled: bool,
    /// The status is `interrupted`: by an interrupt, a breakpoint or a cancellation.
    is_stopped: bool,
    pub(super) failure: Option<(Option<Box<str>>, Box<str>)>,
}

impl RunVerdict {
    /// Reads `/threads/{id}/state`.
    pub(super) fn of_state(native: &NativeFrame<'_>, tally: &mut Tally) -> Self {
        let mut verdict = Self {
            next: raw_json::strings(native.next, tally).into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        let mut found = native.interrupts.map(|raw| read_interrupts(raw, 0, tally)).unwrap_or_default();
        for raw in native.tasks.and_then(raw_json::elements).unwrap_or_default() {
            let Some(task) = NativeTask::of(raw) else { continue };
            if let Some(raw) = task.interrupts {
                for interrupt in read_interrupts(raw, found.len(), tally) {
                    if !found.iter().any(|known| known.id == interrupt.id) {
                        found.push(interrupt);
                    }
                }
            }
            if let Some(error) = task.error {
                let (class, message) = read_error(Some(error), tally);
                match class.as_deref() {
                    Some("CancelledError" | "UserRollback" | "UserInterrupt") => verdict.cancelled = true,
                    Some("GraphInterrupt" | "NodeInterrupt") => {}
                    _ => verdict.failure = Some((class, message)),
                }
            }
        }
        verdict.interrupts = Some(found);
        verdict
    }

    /// Reads `/threads/{id}/runs/{id}`; `None` while the run is active.
    pub(super) fn of_run(native: &NativeFrame<'_>, tally: &mut Tally) -> Option<Self> {
        let status = raw_json::non_empty(native.status, tally)?;
        let mut verdict = Self::default();
        match &*status {
            "success" => {}
            "interrupted" => verdict.is_stopped = true,
            "error" => verdict.failure = Some((None, "the run failed".into())),
            "timeout" => verdict.failure = Some((Some("timeout".into()), "the run took too long".into())),
            "pending" | "running" => return None,
            other => {
                tally.note("run status", other);
                return None;
            }
        }
        Some(verdict)
    }

    /// Adds the report of another source.
    pub(super) fn merge(&mut self, other: Self) {
        self.interrupts = other.interrupts.or(self.interrupts.take());
        if !other.next.is_empty() {
            self.next = other.next;
        }
        self.cancelled |= other.cancelled;
        self.is_stopped |= other.is_stopped;
        // An error class is more specific than a status.
        let better = other.failure.as_ref().is_some_and(|(class, _)| class.is_some());
        if better || self.failure.is_none() {
            self.failure = other.failure.or(self.failure.take());
        }
    }

    /// Whether the graph stopped before a node without an interrupt, an error or a cancellation.
    pub(super) fn is_breakpoint(&self) -> bool {
        !self.next.is_empty()
            && self.interrupts.as_ref().is_some_and(Vec::is_empty)
            && !self.cancelled
            && self.failure.is_none()
    }

    /// Whether the run was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled || self.is_stopped && self.interrupts.is_none() && self.next.is_empty()
    }
}
