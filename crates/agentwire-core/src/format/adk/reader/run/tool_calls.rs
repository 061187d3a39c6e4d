//! The tool calls of a run: reused ids, streamed arguments, and pending calls.

use super::{
    super::{
        emitter::AdkEmitter,
        interrupts::{self, InterruptingCall},
        model_turn::{ModelTurn, StreamedCall},
        partial_args::PartialArgsText,
    },
    AdkRun, PartContext,
};
use crate::{
    event::{Body, Interrupt, MessageBody, MessageId, SubagentId, ToolCall, ToolCallId},
    format::{
        adk::wire::{AdkText, FunctionCall, PartList},
        reused,
    },
    json::{Json, Object, Path, ReadResult, json},
};

#[derive(Debug)]
pub(super) struct ToolCallRecord {
    pub(super) name: Box<str>,
    /// The arguments of a pending call.
    pub(super) pending_arguments: Option<Json>,
    pub(super) provisional: Option<Json>,
    pub(super) has_result: bool,
    /// True if a model made the call; ADK then executes it in the same run.
    by_model: bool,
    /// The subagent of the call, with `subagents=on`.
    subagent: Option<SubagentId>,
    /// The ids of the turn and of the event that announced the call; in 1.x they differ. Empty for calls of earlier runs.
    events: [MessageId; 2],
}

impl ToolCallRecord {
    /// Bytes of the name and the ids.
    fn size(&self, id: &ToolCallId) -> usize {
        id.len() + self.name.len() + self.events.iter().map(|event| event.len()).sum::<usize>()
    }
}

impl AdkRun {
    /// Maximum number of calls per run; above it, results of the oldest calls are no longer recognised. Unattended
    /// agents stop after a few hundred model turns (ADK's default is 500).
    const MAX_CALLS: usize = 16 * 1024;

    /// Maximum bytes of ids and names: 256 per call.
    const MAX_NAME_BYTES: usize = 4 * 1024 * 1024;

    /// Maximum bytes of retained arguments and provisional results: a hundred times the largest call that a model can
    /// make.
    const MAX_RETAINED_BYTES: usize = 32 * 1024 * 1024;

    /// Records the calls of the request's history that have a result, because the client knows them.
    pub(super) fn record_history(&mut self) {
        let history = std::mem::take(&mut self.options.history);
        for message in &history {
            for call in message.tool_calls() {
                let native = reused::native(&call.id, |native| {
                    let last = self.reused_ids.get(native).map_or(native, ToolCallId::as_str);
                    self.calls.get(last).is_some_and(|call| call.has_result)
                });
                if native != call.id.as_str() {
                    self.reused_ids.insert(native.into(), call.id.clone());
                }
                // Its event belongs to an earlier run: an event of this run with the same id is another one.
                self.record_call(
                    &call.id,
                    &call.name,
                    None,
                    false,
                    [MessageId::from(""), MessageId::from("")],
                );
            }
            if let MessageBody::Tool { call, .. } = &message.body
                && let Some(record) = self.calls.get_mut(call)
            {
                record.has_result = true;
            }
        }
        // The stream may announce calls without a result again; they are then emitted like new calls.
        self.calls.retain(|_, call| call.has_result);
        self.name_bytes = self.calls.iter().map(|(id, call)| call.size(id)).sum();
        self.options.history = history;
    }

    /// The emitted id of the last call with the id `native` from the model.
    pub(in super::super) fn shown_id(&mut self, native: &str) -> ToolCallId {
        match self.reused_ids.get(native) {
            Some(shown) => shown.clone(),
            None => self.interner.get(native),
        }
    }

    /// The id to emit for a call that `turn` announces as `native`. If the last call of that id has a result and another
    /// event announces the id again, it is a new call.
    pub(super) fn announced_id(&mut self, native: &str, turn: &ModelTurn, event_id: &str) -> ToolCallId {
        let last = self.shown_id(native);
        // An empty event id identifies no event.
        let is_same = |event: &MessageId| !event.is_empty() && (*event == turn.id || **event == *event_id);
        let is_other =
            self.calls.get(&last).is_some_and(|call| call.has_result && !call.events.iter().any(is_same));
        if !is_other {
            return last;
        }
        let shown = reused::next(native, &last, |id| !self.calls.contains_key(id));
        self.reused_ids.insert(native.into(), shown.clone());
        shown
    }

    /// A call in a partial event. Only calls with streamed arguments are emitted here; a whole call waits for the
    /// closing event, because some releases of 1.x change its id there.
    pub(super) fn read_partial_call(
        &mut self,
        turn: &mut ModelTurn,
        call: &FunctionCall<'_>,
        event_id: &str,
        emitter: &mut AdkEmitter<'_>,
    ) -> Option<ToolCallId> {
        let native = call.id.as_ref().map_or("", AdkText::as_str);
        let mut known = turn.streamed_calls.iter().position(|streamed| *streamed.native_id == *native);
        if known.is_none() && call.name.is_none() {
            // Later pieces carry no id from the model, and 1.x generates an id for each piece.
            known = turn.streamed_calls.len().checked_sub(1);
        }
        let index = match (known, &call.name) {
            (Some(known), _) => known,
            (None, Some(name)) if interrupts::is_request(name.as_str()) => return None,
            (None, Some(name)) if call.will_continue == Some(true) && !native.is_empty() => {
                let id = self.announced_id(native, turn, event_id);
                if self.calls.contains_key(&id) {
                    return None;
                }
                emitter.push(Body::ToolStart {
                    call: id.clone(),
                    name: name.as_str().into(),
                    parent: Some(turn.id.clone()),
                });
                turn.note_own_message();
                turn.streamed_calls.push(StreamedCall {
                    id,
                    native_id: native.into(),
                    name: name.as_str().into(),
                    args: PartialArgsText::default(),
                });
                turn.streamed_calls.len() - 1
            }
            _ => return None,
        };
        let streamed = &mut turn.streamed_calls[index];
        for piece in call.partial_args.iter().flatten() {
            streamed.args.push(piece);
        }
        let call = streamed.id.clone();
        if let Some(delta) = streamed.args.take_unsent() {
            emitter.push(Body::ToolArgs { call, delta: delta.into() });
        }
        None
    }

    /// A call in a closing event.
    pub(super) fn read_call(
        &mut self,
        turn: &mut ModelTurn,
        call: &FunctionCall<'_>,
        context: PartContext<'_>,
        path: Path<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult<Option<ToolCallId>> {
        let name = call.name.as_ref().map_or("", AdkText::as_str);
        let arguments = match call.args {
            Some(raw) => json(raw, Path::Key(&path, "args"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = call.id.as_ref().map_or("", AdkText::as_str);
        let streamed = turn.streamed_calls.iter().position(|streamed| *streamed.native_id == *native);
        let id: ToolCallId = match (native, streamed) {
            ("", _) => turn.part_id("call", turn.counts.calls),
            (_, Some(index)) => turn.streamed_calls[index].id.clone(),
            (native, None) => self.announced_id(native, turn, context.event_id),
        };
        turn.counts.calls += 1;
        let is_request = interrupts::is_request(name);
        let is_pending = is_request || context.long_running.iter().any(|pending| *pending.0 == *native);
        if streamed.is_none() && self.calls.contains_key(&id) {
            self.tally.note("repeated call", name);
            return Ok(None);
        }
        let events = [turn.id.clone(), context.event_id.into()];
        if is_request {
            let arguments = self.retain_value(arguments);
            self.record_call(&id, name, Some(arguments), false, events);
            return Ok(None);
        }
        let mut rest = arguments.get().to_owned();
        if let Some(index) = streamed {
            let streamed = turn.streamed_calls.remove(index);
            // `calls_agree` has verified that the sent text is a prefix.
            rest = missing_arguments(streamed.args.sent(), &arguments).unwrap_or_default();
        } else {
            emitter.push(Body::ToolStart {
                call: id.clone(),
                name: name.into(),
                parent: Some(turn.id.clone()),
            });
        }
        if !rest.is_empty() {
            emitter.push(Body::ToolArgs { call: id.clone(), delta: rest.into() });
        }
        emitter.push(Body::ToolEnd { call: id.clone() });
        self.transcript.add_call(&turn.id, ToolCall::new(id.clone(), name, arguments.get()));
        turn.note_own_message();
        let pending_arguments = is_pending.then(|| self.retain_value(arguments));
        self.record_call(&id, name, pending_arguments, turn.model.is_some(), events);
        Ok(Some(id))
    }

    pub(super) fn record_call(
        &mut self,
        id: &ToolCallId,
        name: &str,
        pending_arguments: Option<Json>,
        by_model: bool,
        events: [MessageId; 2],
    ) {
        let record = ToolCallRecord {
            name: name.into(),
            pending_arguments,
            provisional: None,
            has_result: false,
            by_model,
            subagent: self.transcript.subagent.clone(),
            events,
        };
        self.name_bytes = self.name_bytes.saturating_add(record.size(id));
        while self.calls.len() >= Self::MAX_CALLS || self.name_bytes > Self::MAX_NAME_BYTES {
            let Some((id, call)) = self.calls.shift_remove_index(0) else {
                break;
            };
            self.name_bytes = self.name_bytes.saturating_sub(call.size(&id));
            if let Some(native) = self.native_id(&id).map(Box::<str>::from) {
                self.reused_ids.remove(&native);
            }
            self.tally.note("call forgotten", "too many calls in one run");
        }
        self.calls.insert(id.clone(), record);
    }

    /// The id from the model for the call `shown`, if that is the last call of a reused id.
    fn native_id<'s>(&self, shown: &'s ToolCallId) -> Option<&'s str> {
        let native = reused::native(shown, |native| self.reused_ids.get(native) == Some(shown));
        (native != shown.as_str()).then_some(native)
    }

    /// The value, or `null` once [`Self::MAX_RETAINED_BYTES`] are exceeded.
    pub(super) fn retain_value(&mut self, value: Json) -> Json {
        self.retained_bytes = self.retained_bytes.saturating_add(value.get().len());
        if self.retained_bytes <= Self::MAX_RETAINED_BYTES {
            return value;
        }
        self.tally.note("value not kept", "too much waits in one run");
        Json::null()
    }

    /// True if the streamed calls agree with the closing event.
    pub(in super::super) fn calls_agree(&mut self, turn: &ModelTurn, parts: &PartList<'_>) -> bool {
        turn.streamed_calls.iter().all(|streamed| {
            let whole = parts
                .iter()
                .filter_map(|part| part.call.as_ref())
                .find(|call| call.id.as_ref().is_some_and(|id| *id.0 == *streamed.native_id));
            let Some(call) = whole else {
                return false;
            };
            let arguments = match call.args {
                Some(raw) => Json::from_raw(raw).map(|(json, _)| json).ok(),
                None => Some(Object::empty().into()),
            };
            arguments.is_some_and(|arguments| missing_arguments(streamed.args.sent(), &arguments).is_some())
        })
    }

    /// Marks a call as delegated to an agent, which may need more than one run for the result.
    pub(in super::super) fn mark_delegated(&mut self, native: &str) {
        let call = self.shown_id(native);
        if let Some(record) = self.calls.get_mut(&call) {
            record.by_model = false;
        }
    }

    /// Marks all calls but the pending ones as finished: they belong to the history.
    pub(in super::super) fn settle_calls(&mut self) {
        for call in self.calls.values_mut().filter(|call| call.pending_arguments.is_none()) {
            call.has_result = true;
        }
    }

    /// The name of a model's call without a result. ADK executes all tools before it ends a run.
    pub(in super::super) fn unanswered_call(&self) -> Option<&str> {
        let is_open = |call: &&ToolCallRecord| {
            call.by_model
                && !call.has_result
                && call.pending_arguments.is_none()
                && call.provisional.is_none()
        };
        self.calls.values().find(is_open).map(|call| &*call.name)
    }

    /// True if a call is pending.
    pub(in super::super) fn has_pending_call(&self) -> bool {
        self.calls.values().any(|call| call.pending_arguments.is_some() && !call.has_result)
    }

    /// The pending items of the run: interrupts and calls of front-end tools.
    pub(in super::super) fn pending_items(&self) -> (Vec<Interrupt>, Vec<ToolCallId>) {
        let (mut interrupts, mut frontend_calls) = (Vec::new(), Vec::new());
        for (id, call) in &self.calls {
            let ToolCallRecord {
                name,
                pending_arguments: Some(arguments),
                provisional,
                has_result: false,
                subagent,
                ..
            } = call
            else {
                continue;
            };
            if self.options.frontend_tools.contains(name) && !interrupts::is_request(name) {
                frontend_calls.push(id.clone());
                continue;
            }
            let native_id = self.native_id(id);
            let provisional = provisional.as_ref();
            let call = InterruptingCall { id, native_id, name, arguments, provisional };
            let mut interrupt = interrupts::interrupt(&call);
            // ADK's requests refer to the guarded call by the id from the model.
            if let Some(shown) =
                interrupt.tool_call.as_ref().and_then(|call| self.reused_ids.get(call.as_str()))
            {
                interrupt.tool_call = Some(shown.clone());
            }
            interrupt.subagent.clone_from(subagent);
            interrupts.push(interrupt);
        }
        (interrupts, frontend_calls)
    }
}

/// The arguments behind the text that was sent; `None` if that text is not a prefix. The sent text was encoded from
/// values, so the arguments are also compared in their re-encoded spelling.
fn missing_arguments(sent: &str, arguments: &Json) -> Option<String> {
    if let Some(rest) = arguments.get().strip_prefix(sent) {
        return Some(rest.to_owned());
    }
    let encoded = arguments.to_value().to_string();
    encoded.strip_prefix(sent).map(str::to_owned)
}
