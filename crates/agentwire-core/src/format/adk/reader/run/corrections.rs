//! Corrections: streamed text that ADK replaced or discarded is corrected with a snapshot of the conversation.

use super::{
    super::{
        emitter::AdkEmitter,
        model_turn::{ModelTurn, StreamedPrefix},
    },
    AdkRun, PartContext,
};
use crate::{
    event::{Body, Message, MessageBody, MessageId, Role, ToolCallId},
    format::adk::wire::PartList,
    json::{Json, Path, ReadResult},
};

impl AdkRun {
    /// Replaces a streamed turn by the different turn of its closing event, under the same ids. New calls, results and
    /// files are emitted; changed text needs a snapshot, because emitted text cannot be changed otherwise.
    pub(in super::super) fn correct_turn(
        &mut self,
        turn: &mut ModelTurn,
        parts: &PartList<'_>,
        context: PartContext<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let thoughts_changed = !turn.thoughts_agree(parts);
        let mut emitted_calls: Vec<ToolCallId> = turn.emitted.code_calls.clone();
        emitted_calls.extend(turn.streamed_calls.iter().map(|streamed| streamed.id.clone()));
        self.close_turn(turn, emitter);
        self.transcript.remove(&turn.emitted.messages);
        let mut corrected = ModelTurn::new(turn.id.clone(), &turn.author);
        corrected.model = turn.model.clone();
        corrected.subagent = turn.subagent.clone();
        let mut events = Vec::new();
        let mut prefix = StreamedPrefix::default();
        let mut unsent = AdkEmitter::new(&mut events, None);
        self.set_subagent(turn.subagent.clone(), &mut unsent);
        for (index, part) in parts.iter().enumerate() {
            let path = Path::Index(&context.path, index);
            let context = PartContext { path, ..context };
            self.read_part(&mut corrected, part, Some(&mut prefix), context, &mut unsent)?;
        }
        self.close_turn(&mut corrected, &mut unsent);
        for event in events {
            let is_new = match &event.body {
                Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                    !emitted_calls.contains(call)
                }
                Body::ToolResult(result) => !turn.emitted.messages.contains(&result.message),
                Body::File(file) => !turn.emitted.messages.contains(&file.id),
                Body::ReasoningEncrypted { value, .. } => !turn.emitted.signatures.contains(value),
                _ => false,
            };
            if is_new {
                emitter.push(event.body);
            }
        }
        self.tally.note("streamed text replaced", &turn.author);
        self.emit_snapshot(thoughts_changed, emitter);
        emitter.custom("adk.corrected", [("messageId", Json::string(&turn.id))]);
        *turn = corrected;
        Ok(())
    }

    /// Removes the messages of a failed attempt, which ADK does not store.
    pub(in super::super) fn retract_messages(&mut self, ids: &[MessageId], emitter: &mut AdkEmitter<'_>) {
        self.transcript.remove(ids);
        self.tally.note("streamed text replaced", "an attempt that failed");
        self.emit_snapshot(true, emitter);
        emitter.custom("adk.corrected", [("messageId", Json::string(&ids[0]))]);
    }

    /// Emits a snapshot of the conversation: the messages of the request and of this run. It contains thoughts only
    /// if they changed: without any thought in the snapshot, a client keeps its own; with some, it drops the others.
    pub(super) fn emit_snapshot(&mut self, with_thoughts: bool, emitter: &mut AdkEmitter<'_>) {
        let Some(unfinished) = self.unfinished_elsewhere.as_ref().filter(|_| self.transcript.is_complete())
        else {
            self.tally.note("correction not sent", "the run is too long to be restated");
            return;
        };
        let is_wanted = |message: &&Message| with_thoughts || message.role() != Role::Reasoning;
        let own = self.transcript.messages().iter().filter(is_wanted);
        let history = self.options.history.iter().filter(|message| !self.transcript.contains(&message.id));
        let mut messages: Vec<Message> = history.chain(own).cloned().collect();
        // Other agents continue their open messages after the snapshot, so it must contain them.
        for open in unfinished.iter().filter(is_wanted) {
            let known = messages.iter_mut().rev().find(|message| message.id == open.id);
            match (known.map(|known| &mut known.body), &open.body) {
                (
                    Some(MessageBody::Assistant { tool_calls: calls, .. }),
                    MessageBody::Assistant { tool_calls: Some(more), .. },
                ) => calls.get_or_insert_default().extend(more.iter().cloned()),
                (Some(_), _) => {}
                (None, _) => messages.push(open.clone()),
            }
        }
        // The snapshot belongs to the run, not to the current subagent.
        let subagent = emitter.subagent.take();
        emitter.push(Body::MessagesSnapshot { messages });
        emitter.subagent = subagent;
    }
}
