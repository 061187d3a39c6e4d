//! Steps: nested canonical steps become the flat steps of a message.

use super::{super::encode, PartEncoder, ResponseWriter};
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

/// Step state of a response.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) current: WireStep,
    /// Any step was started in this response.
    pub(super) has_started: bool,
    /// The source is an AI SDK server: its steps are used as they are.
    pub(super) is_native: bool,
    /// The source started a step since the last step on the wire started.
    pub(super) is_step_due: bool,
    /// The step must finish once no arguments are streaming.
    pub(super) is_finish_deferred: bool,
    /// Open canonical steps.
    pub(super) open: Vec<OpenStep>,
    written_count: u64,
}

/// The current step on the wire.
#[derive(Debug, Default)]
pub(super) struct WireStep {
    pub(super) is_open: bool,
    /// A tool result was written since the step started.
    pub(super) has_result: bool,
    pub(super) has_tools: bool,
    pub(super) has_reasoning: bool,
}

/// An open canonical step.
#[derive(Debug)]
pub(super) struct OpenStep {
    owner: Option<SubagentId>,
    name: Box<str>,
    metadata: Option<Object>,
    /// Id of its data part, once written.
    part_id: Option<String>,
    /// The source gave it no name: its data part is transient.
    is_unnamed: bool,
    /// Message id that an AI SDK server gave for the step.
    message: Option<Box<str>>,
}

impl OpenStep {
    fn data(&self, status: &str) -> Json {
        // A part that replaces an earlier one repeats all members; a transient one contains only the changes.
        let metadata = self.metadata.as_ref().filter(|_| !self.is_unnamed || status == "running");
        encode::build_object(|w| {
            w.str("name", &self.name)
                .str("status", status)
                .opt_str("subagentId", self.owner.as_deref())
                .opt_object("metadata", metadata);
        })
        .into()
    }
}

impl Steps {
    fn has_written(&self) -> bool {
        self.open.iter().any(|step| step.part_id.is_some())
    }
}

impl<E: PartEncoder> ResponseWriter<E> {
    /// Prepares for a new part: starts the response and a step that can hold the part.
    pub(super) fn prepare_part(&mut self, out: &mut Frames) {
        if !self.message.is_started {
            self.start(None, out);
        }
        let step = &self.steps.current;
        if step.is_open && step.has_result && !self.steps.is_native && !self.tools.calls.has_open() {
            self.finish_step(out);
        }
        if !self.steps.current.is_open {
            self.start_step(out);
        }
    }

    pub(super) fn start_step(&mut self, out: &mut Frames) {
        let message = self.steps.open.iter().rev().find_map(|step| step.message.as_deref());
        self.encoder.start_step(out, message.unwrap_or(&self.message.id));
        self.steps.is_step_due = false;
        self.steps.current = WireStep { is_open: true, ..WireStep::default() };
        self.steps.has_started = true;
    }

    /// Finishes the step, or defers that until no arguments are streaming.
    pub(super) fn finish_or_defer_step(&mut self, out: &mut Frames) {
        if self.tools.calls.has_open() {
            self.steps.is_finish_deferred = true;
        } else if self.steps.current.is_open {
            self.finish_step(out);
        }
    }

    pub(super) fn finish_step(&mut self, out: &mut Frames) {
        self.steps.is_finish_deferred = false;
        self.end_text_parts(out);
        self.steps.current.is_open = false;
        let reason = if self.steps.current.has_tools {
            "tool-calls"
        } else {
            self.message.finish_reason.as_deref().map_or("stop", encode::finish_reason)
        };
        self.encoder.finish_step(out, reason);
    }

    pub(super) fn step_started(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        self.steps.open.push(OpenStep {
            owner: event.subagent.clone(),
            name: name.into(),
            metadata: event.metadata().cloned(),
            part_id: None,
            is_unnamed: metadata::has_native_flag(event.metadata(), native::UNNAMED),
            message: metadata::native(event.metadata())
                .and_then(|it| it.get_str(native::MESSAGE_ID))
                .map(Into::into),
        });
        if self.options.steps_for_tools {
            return Fidelity::Approximated("steps=tools: shown once it uses a tool");
        }
        self.write_open_steps(out);
        self.steps.is_native = self.steps.open.iter().all(|step| step.is_unnamed);
        if self.steps.is_native && !self.steps.current.is_open {
            self.start_step(out);
        }
        Fidelity::Exact
    }

    /// Writes the data parts of open steps that have none yet.
    pub(super) fn write_open_steps(&mut self, out: &mut Frames) {
        if self.steps.open.iter().all(|step| step.part_id.is_some()) {
            return;
        }
        if !self.steps.has_written() {
            self.finish_or_defer_step(out);
            self.steps.is_step_due = true;
        }
        for index in 0..self.steps.open.len() {
            if self.steps.open[index].part_id.is_none() {
                self.steps.written_count += 1;
                let id = self.step_id();
                let step = &mut self.steps.open[index];
                step.part_id = Some(id.clone());
                let (data, is_unnamed) = (step.data("running"), step.is_unnamed);
                self.write_data(out, data_part::STEP, Some(&id), &data, is_unnamed);
            }
        }
    }

    /// Writes that the steps which an error leaves open have failed.
    pub(super) fn fail_open_steps(&mut self, out: &mut Frames) {
        for mut step in std::mem::take(&mut self.steps.open) {
            if let Some(id) = step.part_id.take() {
                let data = step.data("failed");
                self.write_data(out, data_part::STEP, Some(&id), &data, step.is_unnamed);
            }
        }
    }

    /// The id of the data part of the last step. A client replaces a part of the message that has the same id, so a response
    /// that continues a message, or that belongs to a message of another name, has the run in its ids.
    fn step_id(&self) -> String {
        let (count, message) = (self.steps.written_count, &self.message);
        match *message.id == *message.run.as_str() {
            true => format!("step:{count}"),
            false => format!("step:{}:{count}", message.run),
        }
    }

    pub(super) fn step_finished(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let steps = &mut self.steps;
        let found = steps.open.iter().rposition(|step| *step.name == *name && step.owner == event.subagent);
        let Some(mut step) = found.map(|index| steps.open.remove(index)) else {
            return Fidelity::Dropped("the step is not open");
        };
        let Some(id) = step.part_id.take() else {
            return Fidelity::Dropped("steps=tools: it used no tool");
        };
        let data = step.data(if has_failed(event.metadata()) { "failed" } else { "done" });
        if !self.steps.has_written() {
            if self.steps.current.is_open {
                self.finish_or_defer_step(out);
            } else if self.steps.is_step_due && !self.tools.calls.has_unanswered() {
                self.start_step(out);
                self.finish_step(out);
            }
            self.steps.is_step_due = false;
        }
        self.write_data(out, data_part::STEP, Some(&id), &data, step.is_unnamed);
        Fidelity::Exact
    }
}

/// True if the metadata of the end of a step says that it failed.
fn has_failed(metadata: Option<&Object>) -> bool {
    metadata.and_then(|metadata| metadata.get_str("status")).as_deref() == Some("error")
}
