//! The calls of a run: which of them a model means by an id that it uses again, which of them still wait.

use super::{
    super::{
        emitter::AdkEmitter,
        interrupts::{self, Waiting},
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
    json::{Json, Object, Path, ReadError, json},
};

#[derive(Debug)]
pub(super) struct ToolCallRecord {
    pub(super) name: Box<str>,
    /// Of a call that waits: its arguments.
    pub(super) waiting: Option<Json>,
    pub(super) provisional: Option<Json>,
    pub(super) answered: bool,
    /// A model made it, so ADK answers it in the same run.
    by_model: bool,
    /// Whose it is, where subagents are shown.
    subagent: Option<SubagentId>,
    /// The turn that made it, and the event that said so: in 1.x their ids differ.
    events: [MessageId; 2],
}

impl ToolCallRecord {
    /// How many bytes its name and ids take.
    fn size(&self, id: &ToolCallId) -> usize {
        id.len() + self.name.len() + self.events.iter().map(|event| event.len()).sum::<usize>()
    }
}

impl AdkRun {
    /// How many calls a run may have before answers to the oldest are no longer recognised; agents that are
    /// left to themselves stop at some hundred model turns (ADK's default is 500).
    const MAX_CALLS: usize = 16 * 1024;

    /// How many bytes their ids and names may take: 256 for each of them.
    const MAX_NAMED: usize = 4 * 1024 * 1024;

    /// How much of what calls wait with is held: a hundred times the largest call that a model can make.
    const MAX_HELD: usize = 32 * 1024 * 1024;

    /// Takes in the ids of calls that the request brought, because the user interface knows these calls.
    pub(super) fn recall(&mut self) {
        let history = std::mem::take(&mut self.settings.history);
        for message in &history {
            for call in message.tool_calls() {
                let native = reused::native(&call.id, |native| {
                    let last = self.reused.get(native).map_or(native, ToolCallId::as_str);
                    self.calls.get(last).is_some_and(|call| call.answered)
                });
                if native != call.id.as_str() {
                    self.reused.insert(native.into(), call.id.clone());
                }
                self.record(&call.id, &call.name, None, false, [message.id.clone(), message.id.clone()]);
            }
            if let MessageBody::Tool { call, .. } = &message.body
                && let Some(record) = self.calls.get_mut(call)
            {
                record.answered = true;
            }
        }
        // What nobody has answered may still be announced, and is then told like any other call.
        self.calls.retain(|_, call| call.answered);
        self.named = self.calls.iter().map(|(id, call)| call.size(id)).sum();
        self.settings.history = history;
    }

    /// The id under which the last call that a model has named `native` is shown.
    pub(in super::super) fn shown(&mut self, native: &str) -> ToolCallId {
        match self.reused.get(native) {
            Some(shown) => shown.clone(),
            None => self.interner.get(native),
        }
    }

    /// The id under which to show a call that `turn` announces as `native`: what was answered and is then
    /// announced by another event is another call.
    pub(super) fn announced(&mut self, native: &str, turn: &ModelTurn, source: &str) -> ToolCallId {
        let last = self.shown(native);
        // No id says nothing about which event it is.
        let is_same = |event: &MessageId| *event == turn.id || (!source.is_empty() && **event == *source);
        let is_other =
            self.calls.get(&last).is_some_and(|call| call.answered && !call.events.iter().any(is_same));
        if !is_other {
            return last;
        }
        let shown = reused::next(native, &last, |id| !self.calls.contains_key(id));
        self.reused.insert(native.into(), shown.clone());
        shown
    }

    /// A piece of a call: only the name and the growing arguments are of interest. What comes whole waits for
    /// the closing event, because some releases of 1.x give the call another id there.
    pub(super) fn stream_call(
        &mut self,
        turn: &mut ModelTurn,
        call: &FunctionCall<'_>,
        source: &str,
        emit: &mut AdkEmitter<'_>,
    ) -> Option<ToolCallId> {
        let native = call.id.as_ref().map_or("", AdkText::as_str);
        let mut known = turn.streamed.iter().position(|streamed| *streamed.native == *native);
        if known.is_none() && call.name.is_none() {
            // What follows a beginning has no id of the model's, and 1.x gives each piece one of its own.
            known = turn.streamed.len().checked_sub(1);
        }
        let index = match (known, &call.name) {
            (Some(known), _) => known,
            (None, Some(name)) if call.will_continue == Some(true) && !native.is_empty() => {
                let id = self.announced(native, turn, source);
                if self.calls.contains_key(&id) {
                    return None;
                }
                emit.push(Body::ToolStart {
                    call: id.clone(),
                    name: name.as_str().into(),
                    parent: Some(turn.id.clone()),
                });
                turn.own();
                turn.streamed.push(StreamedCall {
                    id,
                    native: native.into(),
                    name: name.as_str().into(),
                    args: PartialArgsText::default(),
                });
                turn.streamed.len() - 1
            }
            _ => return None,
        };
        let streamed = &mut turn.streamed[index];
        for piece in call.partial_args.iter().flatten() {
            streamed.args.push(piece);
        }
        let call = streamed.id.clone();
        if let Some(delta) = streamed.args.take() {
            emit.push(Body::ToolArgs { call, delta: delta.into() });
        }
        None
    }

    /// A whole call.
    pub(super) fn call(
        &mut self,
        turn: &mut ModelTurn,
        call: &FunctionCall<'_>,
        at: PartContext<'_>,
        path: Path<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<Option<ToolCallId>, ReadError> {
        let name = call.name.as_ref().map_or("", AdkText::as_str);
        let arguments = match call.args {
            Some(raw) => json(raw, Path::Key(&path, "args"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = call.id.as_ref().map_or("", AdkText::as_str);
        let streamed = turn.streamed.iter().position(|streamed| *streamed.native == *native);
        let id: ToolCallId = match (native, streamed) {
            ("", _) => turn.part_id("call", turn.calls),
            (_, Some(index)) => turn.streamed[index].id.clone(),
            (native, None) => self.announced(native, turn, at.source),
        };
        turn.calls += 1;
        let waits =
            interrupts::always_waits(name) || at.long_running.iter().any(|waiting| *waiting.0 == *native);
        if streamed.is_none() && self.calls.contains_key(&id) {
            self.tally.note("repeated call", name);
            return Ok(None);
        }
        let mut rest = arguments.get().to_owned();
        if let Some(index) = streamed {
            let streamed = turn.streamed.remove(index);
            // `calls_agree` has made sure that there is one.
            rest = remainder(streamed.args.sent(), &arguments).unwrap_or_default();
        } else {
            emit.push(Body::ToolStart { call: id.clone(), name: name.into(), parent: Some(turn.id.clone()) });
        }
        if !rest.is_empty() {
            emit.push(Body::ToolArgs { call: id.clone(), delta: rest.into() });
        }
        emit.push(Body::ToolEnd { call: id.clone() });
        self.transcript.call(&turn.id, ToolCall::new(id.clone(), name, arguments.get()));
        turn.own();
        let waiting = waits.then(|| self.hold(arguments));
        self.record(&id, name, waiting, turn.model.is_some(), [turn.id.clone(), at.source.into()]);
        Ok(Some(id))
    }

    pub(super) fn record(
        &mut self,
        id: &ToolCallId,
        name: &str,
        waiting: Option<Json>,
        by_model: bool,
        events: [MessageId; 2],
    ) {
        let record = ToolCallRecord {
            name: name.into(),
            waiting,
            provisional: None,
            answered: false,
            by_model,
            subagent: self.transcript.subagent.clone(),
            events,
        };
        self.named = self.named.saturating_add(record.size(id));
        while self.calls.len() >= Self::MAX_CALLS || self.named > Self::MAX_NAMED {
            let Some((id, call)) = self.calls.shift_remove_index(0) else {
                break;
            };
            self.named = self.named.saturating_sub(call.size(&id));
            if let Some(native) = self.native(&id).map(Box::<str>::from) {
                self.reused.remove(&native);
            }
            self.tally.note("call forgotten", "too many calls in one run");
        }
        self.calls.insert(id.clone(), record);
    }

    /// The id that the model gave to the call `shown`, if that is the last one of an id used again.
    fn native<'s>(&self, shown: &'s ToolCallId) -> Option<&'s str> {
        let native = reused::native(shown, |native| self.reused.get(native) == Some(shown));
        (native != shown.as_str()).then_some(native)
    }

    /// The value, if there is still room for it; `null` otherwise.
    pub(super) fn hold(&mut self, value: Json) -> Json {
        self.held = self.held.saturating_add(value.get().len());
        if self.held <= Self::MAX_HELD {
            return value;
        }
        self.tally.note("value not kept", "too much waits in one run");
        Json::null()
    }

    /// Whether a streamed call agrees with what its closing event says.
    pub(in super::super) fn calls_agree(&mut self, turn: &ModelTurn, parts: &PartList<'_>) -> bool {
        turn.streamed.iter().all(|streamed| {
            let whole = parts
                .iter()
                .filter_map(|part| part.call.as_ref())
                .find(|call| call.id.as_ref().is_some_and(|id| *id.0 == *streamed.native));
            let Some(call) = whole else {
                return false;
            };
            let arguments = match call.args {
                Some(raw) => Json::from_raw(raw).map(|(json, _)| json).ok(),
                None => Some(Object::empty().into()),
            };
            arguments.is_some_and(|arguments| remainder(streamed.args.sent(), &arguments).is_some())
        })
    }

    /// The call hands a task to an agent, which may need more than one run for it.
    pub(in super::super) fn delegated(&mut self, native: &str) {
        let call = self.shown(native);
        if let Some(record) = self.calls.get_mut(&call) {
            record.by_model = false;
        }
    }

    /// The calls so far are history: those that wait still do, the others are over.
    pub(in super::super) fn settle(&mut self) {
        for call in self.calls.values_mut().filter(|call| call.waiting.is_none()) {
            call.answered = true;
        }
    }

    /// A call of a model that nobody has answered: ADK runs its tools before it ends.
    pub(in super::super) fn unanswered(&self) -> Option<&str> {
        let open = |call: &&ToolCallRecord| {
            call.by_model && !call.answered && call.waiting.is_none() && call.provisional.is_none()
        };
        self.calls.values().find(open).map(|call| &*call.name)
    }

    /// What the run waits for: interrupts, and calls of tools that the user interface runs itself.
    pub(in super::super) fn pending(&self) -> (Vec<Interrupt>, Vec<ToolCallId>) {
        let (mut interrupts, mut frontend) = (Vec::new(), Vec::new());
        for (id, call) in &self.calls {
            let ToolCallRecord {
                name, waiting: Some(arguments), provisional, answered: false, subagent, ..
            } = call
            else {
                continue;
            };
            if self.settings.frontend_tools.contains(name) {
                frontend.push(id.clone());
                continue;
            }
            let native = self.native(id);
            let provisional = provisional.as_ref();
            let mut interrupt = interrupts::interrupt(&Waiting { id, native, name, arguments, provisional });
            // ADK's questions name the call that they are about as the model did.
            if let Some(shown) = interrupt.tool_call.as_ref().and_then(|call| self.reused.get(call.as_str()))
            {
                interrupt.tool_call = Some(shown.clone());
            }
            interrupt.subagent.clone_from(subagent);
            interrupts.push(interrupt);
        }
        (interrupts, frontend)
    }
}

/// What is missing of the arguments behind the text that was sent; `None` if that text was wrong. The text was
/// made from values, so it is compared with the arguments in the same spelling if need be.
fn remainder(sent: &str, arguments: &Json) -> Option<String> {
    if let Some(rest) = arguments.get().strip_prefix(sent) {
        return Some(rest.to_owned());
    }
    let spelt = arguments.to_value().to_string();
    spelt.strip_prefix(sent).map(str::to_owned)
}
