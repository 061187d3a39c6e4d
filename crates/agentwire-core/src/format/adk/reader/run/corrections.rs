//! Corrections: what was streamed is taken back, for which the conversation must be stated anew.

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
    json::{Json, Path, ReadError},
};

impl AdkRun {
    /// ADK takes back what it has streamed. The turn is built anew under the same ids; what it adds is passed
    /// on, and the conversation is restated, because a text that was sent cannot be changed otherwise.
    pub(in super::super) fn correct(
        &mut self,
        turn: &mut ModelTurn,
        parts: &PartList<'_>,
        at: PartContext<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let thoughts = !turn.thoughts_agree(parts);
        let mut known: Vec<ToolCallId> = turn.codes_made.clone();
        known.extend(turn.streamed.iter().map(|streamed| streamed.id.clone()));
        self.close(turn, emit);
        self.transcript.remove(&turn.messages);
        let mut again = ModelTurn::new(turn.id.clone(), &turn.author);
        again.model = turn.model.clone();
        again.subagent = turn.subagent.clone();
        let mut said = Vec::new();
        let mut seen = StreamedPrefix::default();
        let mut aside = AdkEmitter::new(&mut said, None);
        self.speak_as(turn.subagent.clone(), &mut aside);
        for (index, part) in parts.iter().enumerate() {
            let path = Path::Index(&at.path, index);
            self.part(&mut again, part, Some(&mut seen), PartContext { path, ..at }, &mut aside)?;
        }
        self.close(&mut again, &mut aside);
        for event in said {
            let is_new = match &event.body {
                Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                    !known.contains(call)
                }
                Body::ToolResult(result) => !turn.messages.contains(&result.message),
                Body::File(file) => !turn.messages.contains(&file.id),
                Body::ReasoningEncrypted { value, .. } => !turn.signatures.contains(value),
                _ => false,
            };
            if is_new {
                emit.push(event.body);
            }
        }
        self.tally.note("streamed text replaced", &turn.author);
        self.restate(thoughts, emit);
        emit.custom("adk.corrected", [("messageId", Json::string(&turn.id))]);
        *turn = again;
        Ok(())
    }

    /// What an attempt had begun to say, which nobody has stored, is not said any more.
    pub(in super::super) fn take_back(&mut self, said: &[MessageId], emit: &mut AdkEmitter<'_>) {
        self.transcript.remove(said);
        self.tally.note("streamed text replaced", "an attempt that failed");
        self.restate(true, emit);
        emit.custom("adk.corrected", [("messageId", Json::string(&said[0]))]);
    }

    /// States the conversation anew: what the request brought and what this run has said. Thoughts stay as
    /// the client has them unless they changed, because a snapshot that names some drops the others.
    pub(super) fn restate(&mut self, thoughts: bool, emit: &mut AdkEmitter<'_>) {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| self.transcript.is_whole()) else {
            self.tally.note("correction not sent", "the run is too long to be restated");
            return;
        };
        let wanted = |message: &&Message| thoughts || message.role() != Role::Reasoning;
        let said = self.transcript.messages().iter().filter(wanted);
        let history = self.settings.history.iter().filter(|message| !self.transcript.contains(&message.id));
        let mut messages: Vec<Message> = history.chain(said).cloned().collect();
        // What others are saying goes on behind the snapshot, so it must be in it.
        for open in elsewhere.iter().filter(wanted) {
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
        // The conversation is everybody's.
        let subagent = emit.subagent.take();
        emit.push(Body::MessagesSnapshot { messages });
        emit.subagent = subagent;
    }
}
