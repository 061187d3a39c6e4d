//! Steps: the nested ones of a run become the flat ones of a message, each of which holds what clients look for in it.

use super::{super::encode, Step, Turn, Wire};
use crate::{
    event::{Event, SubagentId},
    format::{
        Fidelity,
        ai_sdk::{
            reader::metadata,
            wire::{data_part, native},
        },
    },
    framing::Frames,
    json::{Json, Object},
};

/// A canonical step that is open.
#[derive(Debug)]
pub(super) struct Node {
    owner: Option<SubagentId>,
    name: Box<str>,
    metadata: Option<Object>,
    /// The id of its data part, once the client was told.
    shown: Option<String>,
    /// The source gave it no name, so that there is nothing to keep with the message.
    unnamed: bool,
    /// The message that an AI SDK server said it belongs to.
    message: Option<Box<str>>,
}

impl Node {
    fn data(&self, status: &str) -> Json {
        // A part that takes the place of another says all that is known; a passing one says what is new.
        let metadata = self.metadata.as_ref().filter(|_| !self.unnamed || status == "running");
        encode::build_object(|w| {
            w.str("name", &self.name)
                .str("status", status)
                .opt_str("subagentId", self.owner.as_deref())
                .opt_object("metadata", metadata);
        })
        .into()
    }
}

impl<W: Wire> Turn<W> {
    /// Makes room for a new part: the response has begun, and a step is open that may hold it.
    pub(super) fn new_part(&mut self, out: &mut Frames) {
        if !self.started {
            self.start(None, out);
        }
        if self.step.open && self.step.answered && !self.framed && !self.calls.any_open() {
            self.finish_step(out);
        }
        if !self.step.open {
            self.start_step(out);
        }
    }

    pub(super) fn start_step(&mut self, out: &mut Frames) {
        let named = self.nodes.iter().rev().find_map(|node| node.message.as_deref());
        self.wire.start_step(out, named.unwrap_or(&self.message));
        self.wanted = false;
        self.step = Step { open: true, ..Step::default() };
        self.stepped = true;
    }

    /// Ends the step, as soon as no arguments stream.
    pub(super) fn leave_step(&mut self, out: &mut Frames) {
        if self.calls.any_open() {
            self.finish_later = true;
        } else if self.step.open {
            self.finish_step(out);
        }
    }

    pub(super) fn finish_step(&mut self, out: &mut Frames) {
        self.finish_later = false;
        self.quiet(out);
        self.step.open = false;
        let reason = if self.step.tools {
            "tool-calls"
        } else {
            self.reason.as_deref().map_or("stop", encode::finish_reason)
        };
        self.wire.finish_step(out, reason);
    }

    /// Ends the parts of all texts and thoughts on the wire; those that are still open begin again later.
    pub(super) fn quiet(&mut self, out: &mut Frames) {
        self.release(out);
        self.speaking = None;
        for (message, speech) in &mut self.texts {
            if std::mem::take(&mut speech.written) {
                let about = std::mem::take(&mut speech.changed).then_some(&speech.about);
                self.wire.text_end(out, message, about);
            }
        }
        for (message, speech) in &mut self.thoughts {
            if std::mem::take(&mut speech.written) {
                let about = std::mem::take(&mut speech.changed).then_some(&speech.about);
                self.wire.reasoning_end(out, message, about);
            }
        }
    }

    pub(super) fn step_started(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        self.nodes.push(Node {
            owner: event.subagent.clone(),
            name: name.into(),
            metadata: event.metadata().cloned(),
            shown: None,
            unnamed: metadata::has_native_flag(event.metadata(), native::UNNAMED),
            message: metadata::native(event.metadata())
                .and_then(|it| it.get_str(native::MESSAGE_ID))
                .map(Into::into),
        });
        if self.steps_for_tools {
            return Fidelity::Approximated("steps=tools: shown once it uses a tool");
        }
        self.show_nodes(out);
        self.framed = self.nodes.iter().all(|node| node.unnamed);
        if self.framed && !self.step.open {
            self.start_step(out);
        }
        Fidelity::Exact
    }

    /// Tells the client about steps that it does not know yet.
    pub(super) fn show_nodes(&mut self, out: &mut Frames) {
        if self.nodes.iter().all(|node| node.shown.is_some()) {
            return;
        }
        if !self.nodes.iter().any(|node| node.shown.is_some()) {
            self.leave_step(out);
            self.wanted = true;
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].shown.is_none() {
                self.nodes_shown += 1;
                let id = format!("step:{}", self.nodes_shown);
                self.nodes[index].shown = Some(id);
                let data = self.nodes[index].data("running");
                let (id, unnamed) = (self.nodes[index].shown.clone(), self.nodes[index].unnamed);
                self.data(out, data_part::STEP, id.as_deref(), &data, unnamed);
            }
        }
    }

    pub(super) fn step_finished(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let found = self.nodes.iter().rposition(|node| *node.name == *name && node.owner == event.subagent);
        let Some(mut node) = found.map(|index| self.nodes.remove(index)) else {
            return Fidelity::Dropped("the step is not open");
        };
        let Some(id) = node.shown.take() else {
            return Fidelity::Dropped("steps=tools: it used no tool");
        };
        let data = node.data("done");
        if !self.nodes.iter().any(|node| node.shown.is_some()) {
            if self.step.open {
                self.leave_step(out);
            } else if self.wanted && !self.calls.any_unanswered() {
                self.start_step(out);
                self.finish_step(out);
            }
            self.wanted = false;
        }
        self.data(out, data_part::STEP, Some(&id), &data, node.unnamed);
        Fidelity::Exact
    }
}
