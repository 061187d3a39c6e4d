//! The ceilings of a thread: the sizes of its conversation and its state while a run changes them.
//!
//! Sizes are estimated from above by the bytes of the log, and measured only when an estimate passes the limit: an event
//! costs an addition.

use std::iter;

use super::recorder::{Encoding, MAX_EVENT, RunRecorder, apply_patch};
use crate::{cpu_work, settings::ServerLimits};
use agentwire_core::{
    event::{Body, Event, Message},
    fold::Join,
    format::ag_ui,
    json::Footprint,
    patch::DEFAULT_MAX_SIZE_GROWTH,
};
use serde_json::Value;

/// The most bytes that the gateway writes for one byte of a number.
const LONGEST_NUMBER: usize = 5;

/// A size with its limit.
#[derive(Debug)]
struct Size {
    limit: usize,
    /// At least the size.
    estimate: usize,
    is_exceeded: bool,
}

impl Size {
    fn new(limit: usize, estimate: usize) -> Self {
        Self { limit, estimate, is_exceeded: false }
    }
}

/// The sizes of a thread.
#[derive(Debug)]
pub(super) struct ThreadSize {
    messages: Size,
    state: Size,
    /// At least the memory of the state, as [`Footprint`] estimates it.
    footprint: usize,
    /// The part of the thread whose values would take too much memory.
    dense: Option<&'static str>,
}

impl Default for ThreadSize {
    /// Without limits, until the thread is loaded.
    fn default() -> Self {
        Self {
            messages: Size::new(usize::MAX, 0),
            state: Size::new(usize::MAX, 0),
            footprint: 0,
            dense: None,
        }
    }
}

impl ThreadSize {
    /// The sizes at the start of a run, in bytes of JSON text.
    pub(super) fn new(limits: &ServerLimits, messages: usize, state: usize) -> Self {
        Self {
            messages: Size {
                is_exceeded: messages > limits.thread_messages,
                ..Size::new(limits.thread_messages, messages)
            },
            state: Size { is_exceeded: state > limits.thread_state, ..Size::new(limits.thread_state, state) },
            footprint: Footprint::bound(state),
            dense: None,
        }
    }

    /// The limit that is exceeded, as a message.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(part) = self.dense {
            return Some(format!("the {part} of the thread {}", Footprint::PROBLEM));
        }
        let parts = [("conversation", &self.messages), ("state", &self.state)];
        let (name, size) = parts.into_iter().find(|(_, size)| size.is_exceeded)?;
        Some(format!("the {name} of the thread would have more than {} bytes", size.limit))
    }

    pub(super) fn is_state_too_large(&self) -> bool {
        self.state.is_exceeded
    }

    /// The bytes and the memory by which a patch may make the state grow, or a part of the conversation.
    pub(super) fn room(&self, is_state: bool) -> (usize, usize) {
        let part = if is_state { &self.state } else { &self.messages };
        let bytes = part.limit.saturating_sub(part.estimate).min(DEFAULT_MAX_SIZE_GROWTH);
        // Each activity is judged by itself.
        let used = if is_state { self.footprint } else { 0 };
        (bytes, Footprint::MAX.saturating_sub(used))
    }

    /// Measures the state, so that the room of the next patch is exact.
    pub(super) fn measure_state(&mut self, state: &Value) {
        let measure = || (state.to_string().len(), Footprint::of(state));
        (self.state.estimate, self.footprint) = cpu_work::off_worker(measure);
    }

    /// At least the bytes of the state.
    pub(super) fn state(&self) -> usize {
        self.state.estimate
    }

    /// At least the bytes of the conversation.
    pub(super) fn messages(&self) -> usize {
        self.messages.estimate
    }

    /// True if the conversation is measured before the event is recorded.
    pub(super) fn is_measured_for(&self, event: &Event) -> bool {
        self.messages.estimate.saturating_add(size_of(event)) > self.messages.limit
    }

    /// True if the thread takes longer to write than a worker should be occupied.
    pub(super) fn is_large(&self) -> bool {
        self.messages.estimate.saturating_add(self.state.estimate) > cpu_work::SHORT_TEXT
    }
}

impl RunRecorder {
    /// True if the thread cannot hold the event. The state after a patch is only known when it was applied.
    pub(super) fn is_thread_full(&mut self, event: &Event) -> bool {
        let size = &mut self.encoding.size;
        match &event.body {
            Body::RunFinished(_) | Body::RunError(_) => false,
            Body::StateSnapshot { snapshot } if snapshot.get().len() > size.state.limit => {
                size.state.is_exceeded = true;
                true
            }
            Body::StateSnapshot { .. } | Body::StateDelta { .. } => false,
            _ => {
                let added = size_of(event);
                if added > MAX_EVENT {
                    // No log takes it, whatever the thread can hold.
                    return false;
                }
                let messages = &mut size.messages;
                if messages.estimate.saturating_add(added) <= messages.limit {
                    return false;
                }
                let join = &mut self.encoding.join;
                let measured = cpu_work::off_worker(|| messages_size(join.messages()));
                messages.estimate = measured;
                messages.is_exceeded = measured.saturating_add(added) > messages.limit;
                messages.is_exceeded
            }
        }
    }

    /// Adds the bytes that an event took in the log.
    pub(super) fn add_size(&mut self, event: &Event, bytes: usize) {
        let size = &mut self.encoding.size;
        match &event.body {
            Body::StateSnapshot { snapshot } => {
                let length = snapshot.get().len();
                size.state.estimate = length;
                size.footprint = Footprint::bound(length);
                // Of numbers such as `1e15`, the gateway writes all digits.
                if length > size.state.limit / LONGEST_NUMBER {
                    size.measure_state(self.encoding.join.fold().state());
                    size.state.is_exceeded |= size.state.estimate > size.state.limit;
                }
            }
            Body::StateDelta { .. } => {
                let growth = self.encoding.join.fold().last_growth();
                let add = |size: usize, growth: i64| {
                    size.saturating_add_signed(isize::try_from(growth).unwrap_or(isize::MAX))
                };
                size.state.estimate = add(size.state.estimate, growth.bytes);
                size.footprint = add(size.footprint, growth.footprint);
            }
            _ => size.messages.estimate = size.messages.estimate.saturating_add(bytes),
        }
    }
}

impl RunRecorder {
    /// Folds a patch within the room that the thread has. One that does not fit is skipped, and the size is a problem.
    pub(super) fn apply_within_room(&mut self, event: &Event, max_work: usize) {
        let Encoding { join, size, .. } = &mut self.encoding;
        let is_state = matches!(event.body, Body::StateDelta { .. });
        let oversized = join.fold().oversized_patches();
        let apply = |join: &mut Join, (bytes, footprint)| {
            join.fold_mut().limit_patch_growth(bytes, footprint);
            apply_patch(join, event, max_work);
            join.fold().oversized_patches() != oversized
        };
        let estimated = size.room(is_state);
        if !apply(join, estimated) {
            return;
        }
        // The room was estimated.
        match is_state {
            true => size.measure_state(join.fold().state()),
            false => size.messages.estimate = cpu_work::off_worker(|| messages_size(join.messages())),
        }
        let measured = size.room(is_state);
        if measured.0 > estimated.0 || measured.1 > estimated.1 {
            join.fold_mut().forget_oversized_patch();
            if !apply(join, measured) {
                return;
            }
        }
        let (part, name) = match is_state {
            true => (&mut size.state, "state"),
            false => (&mut size.messages, "conversation"),
        };
        match join.fold().is_too_dense() {
            true => size.dense = Some(name),
            // Otherwise the patch exceeds its own limit, whatever the thread can hold.
            false => part.is_exceeded = measured.0 < DEFAULT_MAX_SIZE_GROWTH,
        }
    }
}

/// True if the documents of an event would take too much memory once they are parsed.
pub(super) fn has_too_many_values(event: &Event) -> bool {
    match &event.body {
        Body::StateSnapshot { snapshot } => are_too_large(iter::once(snapshot.get())),
        Body::ActivitySnapshot { content, .. } => are_too_large(iter::once(content.get())),
        Body::Custom { value, .. } => are_too_large(iter::once(value.get())),
        Body::Raw { event, .. } => are_too_large(iter::once(event.get())),
        Body::StateDelta { patch } | Body::ActivityDelta { patch, .. } => {
            are_too_large(patch.0.iter().filter_map(|operation| Some(operation.value.as_ref()?.get())))
        }
        _ => false,
    }
}

fn are_too_large<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> bool {
    let is_short = texts.clone().map(str::len).sum::<usize>() <= cpu_work::SHORT_TEXT;
    !is_short && cpu_work::off_worker(|| Footprint::are_too_large(texts))
}

/// The bytes of messages as they are stored.
pub(super) fn messages_size(messages: &[Message]) -> usize {
    if messages.is_empty() { 0 } else { ag_ui::messages_to_json(messages).len() }
}

/// About the bytes that an event adds to the conversation: the long texts only.
fn size_of(event: &Event) -> usize {
    match &event.body {
        Body::TextDelta { delta, .. }
        | Body::ToolArgs { delta, .. }
        | Body::ReasoningDelta { delta, .. }
        | Body::ReasoningEncrypted { value: delta, .. } => delta.len(),
        Body::ToolResult(result) => result.content.text().len(),
        Body::ActivitySnapshot { content, .. } => content.get().len(),
        Body::Custom { value, .. } => value.get().len(),
        Body::MessagesSnapshot { messages } => messages_size(messages),
        _ => 0,
    }
}
