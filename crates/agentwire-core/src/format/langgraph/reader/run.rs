//! The run itself: how it begins, what it costs, what it waits for, and how it ends.
//!
//! LangGraph says little about endings. Native events end with the root's own end; the server closes its
//! stream after success, after an interrupt and after a cancellation alike. So the ending is put together from
//! what was seen: the root's end, interrupts, failures, what was still open, and the state of the thread if the
//! caller has fetched it.

use std::collections::HashSet;

use serde_json::{Map, Value, value::RawValue};

use super::{
    super::{
        raw_json,
        wire::{self, EventName, Failure},
    },
    LangGraphReader, MAX_EARLY,
    call_ids::Reused,
    cx,
    messages::{self, Kind},
    model_stream::add,
    native_events::member,
    thread_state::{self, Verdict},
};
use crate::{
    event::{
        Body, Event, Extra, Interrupt, Message, Outcome, RunError, RunFinished, RunId, RunStarted, StreamEnd,
        SubagentId, SubagentOutcome, ThreadId, ToolCallId, Usage,
    },
    json::Json,
    patch::{Op, diff},
    tally::Tally,
};

/// The code of a stream that was cut, as the guard has it too.
const STREAM_TRUNCATED: &str = "STREAM_TRUNCATED";

/// How many interrupts one run may raise; a fan-out of approvals has a few dozen.
const MAX_INTERRUPTS: usize = 1024;

/// How many ids of earlier messages are remembered. See `client.rs` for the number.
const MAX_HISTORY: usize = 16_384;

/// How many messages count towards the costs one by one.
const MAX_SPENT: usize = 16_384;

#[derive(Debug, Default)]
pub(super) struct Run {
    ids: Option<(ThreadId, RunId)>,
    /// The run id that the server gave before anything happened.
    pub(super) native: Option<Box<str>>,
    root: Option<Box<str>>,
    phase: Phase,
    pub(super) is_graph: bool,
    pub(super) has_events: bool,
    pub(super) has_tasks: bool,
    /// Whether native modes were seen, so that a closed stream may be a complete one.
    pub(super) has_modes: bool,
    /// The root has ended; the rest of the stream may still say how.
    root_ended: bool,
    result: Option<Json>,
    interrupts: Vec<Interrupt>,
    /// The graph stopped at a breakpoint.
    breakpoint: bool,
    /// Why the run may be about to fail.
    suspect: Option<(Option<Box<str>>, Box<str>)>,
    verdict: Option<Verdict>,
    usage: Vec<Usage>,
    spent: HashSet<Box<str>>,
    /// Messages of earlier runs.
    pub(super) history: HashSet<Box<str>>,
    /// The calls of the last answer in the conversation.
    last_calls: Vec<ToolCallId>,
    /// How many things without a name were emitted by hand.
    pub(super) manual: u64,
    /// Protocol v2: a tool's message that has begun.
    pub(super) tool_message: Option<ToolMessage>,
    /// Subagents that end with the run.
    subagents: Vec<SubagentId>,
    /// Protocol v2: blocks that have ended, of messages at one place.
    pub(super) blocks: Vec<(Box<str>, Box<RawValue>)>,
    /// The nodes that the latest checkpoint of the outermost graph waits for.
    pub(super) next: Vec<Box<str>>,
    /// The conversation when it was last known exactly.
    messages: Option<Vec<Message>>,
}

/// A tool's message of protocol v2, whose text is yet to come.
#[derive(Debug)]
pub(super) struct ToolMessage {
    pub(super) place: Box<str>,
    pub(super) call: ToolCallId,
    pub(super) id: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Active,
    Over,
}

impl Run {
    pub(super) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    pub(super) fn set_root(&mut self, root: &str) {
        self.root = Some(root.into());
    }

    pub(super) fn is_root(&self, run: &str) -> bool {
        self.root.as_deref() == Some(run)
    }

    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn has_interrupts(&self) -> bool {
        !self.interrupts.is_empty()
    }

    pub(super) fn suspect(&mut self, class: Option<Box<str>>, message: Box<str>) {
        self.suspect = Some((class, message));
    }

    /// Adds what one answer cost, once per message.
    pub(super) fn spend(&mut self, usage: Usage, message: Option<&str>) {
        if let Some(message) = message
            && self.spent.len() < MAX_SPENT
            && !self.spent.insert(message.into())
        {
            return;
        }
        let same = |sum: &&mut Usage| sum.provider == usage.provider && sum.model == usage.model;
        match self.usage.iter_mut().find(same) {
            Some(sum) => add(sum, &usage),
            None => self.usage.push(usage),
        }
    }

    /// What a message cost was counted in an earlier run.
    pub(super) fn paid(&mut self, message: &str) {
        if self.spent.len() < MAX_SPENT {
            self.spent.insert(message.into());
        }
    }

    pub(super) fn interrupted(&mut self, interrupts: Vec<Interrupt>) {
        self.breakpoint |= interrupts.is_empty();
        for interrupt in interrupts {
            let room = self.interrupts.len() < MAX_INTERRUPTS;
            match self.interrupts.iter_mut().find(|known| known.id == interrupt.id) {
                Some(known) => known.tool_call = known.tool_call.take().or(interrupt.tool_call),
                None if room => self.interrupts.push(interrupt),
                None => {}
            }
        }
    }
}

impl LangGraphReader {
    /// The run begins, under the ids that the source gives or, failing that, those of the caller.
    pub(super) fn begin(&mut self, thread: Option<&str>, run: Option<&str>, out: &mut Vec<Event>) {
        let given = self.settings.given_ids;
        let thread = thread.filter(|_| !given).map_or_else(|| self.thread.clone(), Into::into);
        let run =
            run.map(Into::into).or_else(|| self.run.native.clone()).filter(|run| !given && !run.is_empty());
        let run: RunId = run.map_or_else(|| self.given_run.clone(), |run| RunId::from(&*run));
        self.run.phase = Phase::Active;
        self.run.ids = Some((thread.clone(), run.clone()));
        out.push(Event::new(Body::RunStarted(Box::new(RunStarted::new(thread, run)))));
    }

    /// Begins the run if nothing has.
    pub(super) fn begin_if_idle(&mut self, out: &mut Vec<Event>) {
        if self.run.phase == Phase::Idle {
            self.begin(None, None, out);
        }
    }

    /// Another run of the same stream is about to begin.
    pub(super) fn next_run(&mut self) {
        let history = std::mem::take(&mut self.run.history);
        self.run = super::Run { history, ..super::Run::default() };
        self.calls = super::Calls::default();
        self.unnamed.next_run();
        self.client.next_run();
    }

    // --- conversation and state -------------------------------------------------------------------------

    /// The conversation of the outermost graph, whole and exact.
    pub(super) fn conversation(&mut self, list: &RawValue, out: &mut Vec<Event>) {
        let first = self.run.messages.is_none();
        if first {
            self.remember(list);
        } else if messages::list(list).len() <= MAX_HISTORY {
            self.returned(list, "", None, out);
        }
        let mut messages = messages::conversation(list, &self.client, &mut self.tally);
        messages.retain(|message| !self.client.is_hidden(&message.id));
        for message in &mut messages {
            message.subagent = self.client.owner(&message.id).cloned();
        }
        // A snapshot takes away what it does not name, so nothing may be streaming now.
        // At the end of the run one is sent anyway.
        if !self.run.root_ended
            && self.lanes.is_empty()
            && self.client.is_part_of(&messages)
            && self.client.lacks_some_of(&messages)
        {
            cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages: messages.clone() }));
        }
        let answer = messages.iter().rev().find(|message| message.role() == crate::event::Role::Assistant);
        let calls = answer.map(Message::tool_calls).unwrap_or_default();
        self.run.last_calls = calls.iter().map(|call| call.id.clone()).collect();
        self.run.messages = Some(messages);
        self.client.settled();
    }

    /// What was there before this run: it is not shown again, and its calls may be answered now.
    fn remember(&mut self, list: &RawValue) {
        use messages::Naming;
        let mut answered = Vec::new();
        let mut reused = Reused::default();
        for raw in messages::list(list) {
            let Some((kind, message)) = wire::Message::read(raw, &mut self.tally) else { continue };
            let id = message.id(&mut self.tally);
            let shown = self.client.message(id.as_deref().unwrap_or_default());
            if let Some(id) = id
                && self.lane_of(&id).is_none()
                && self.run.history.len() < MAX_HISTORY
            {
                self.run.history.insert(id.into());
            }
            match kind {
                Kind::Ai => {
                    for call in messages::calls(&message, &mut self.tally) {
                        if let Some(native) = call.id {
                            let id = reused.call(&native, &shown, &self.client);
                            self.client.alias_call(&native, &id, "");
                            self.client.held(&id, &shown);
                            self.calls.remember(&id, &call.name, &call.args, false);
                        }
                    }
                }
                Kind::Tool => {
                    let native = raw_json::filled(message.tool_call_id, &mut self.tally);
                    answered.extend(
                        native.map(|native| {
                            reused.answer(&native).unwrap_or_else(|| self.client.call(&native))
                        }),
                    );
                }
                _ => {}
            }
        }
        for call in answered {
            if self.calls.get(&call).is_some_and(|call| !call.shown) {
                self.calls.set_answered(&call);
            }
        }
    }

    /// The values of the outermost graph, whole and exact.
    pub(super) fn values(&mut self, values: &RawValue, out: &mut Vec<Event>) {
        let Some(members) = raw_json::members(values) else {
            // A function that is a graph has no state, it returns any value.
            self.run.result = Some(raw_json::json(values, &mut self.tally));
            return;
        };
        let mut state = Map::new();
        for (key, value) in members {
            if key == "messages" {
                if value.get() != "null" {
                    self.conversation(value, out);
                }
            } else if !(key.starts_with("__") && key.ends_with("__")) {
                state.insert(key.into_owned(), raw_json::json(value, &mut self.tally).to_value());
            }
        }
        self.show_state(Value::Object(state), out);
    }

    /// Shows what has changed in the state, in the shorter of two ways.
    pub(super) fn show_state(&mut self, state: Value, out: &mut Vec<Event>) {
        let body = match &self.state {
            None if state.as_object().is_some_and(Map::is_empty) => return,
            None => Body::StateSnapshot { snapshot: Json::from(&state) },
            Some(known) if *known == state => return,
            Some(known) => {
                let patch = diff(known, &state);
                match &patch.0[..] {
                    [only] if only.path.is_empty() && only.op == Op::Replace => {
                        Body::StateSnapshot { snapshot: Json::from(&state) }
                    }
                    _ => Body::StateDelta { patch },
                }
            }
        };
        self.state = Some(state);
        out.push(Event::new(body));
    }

    // --- endings ----------------------------------------------------------------------------------------

    /// The root has ended and has returned `output`.
    pub(super) fn root_end(&mut self, name: EventName, output: Option<&RawValue>, out: &mut Vec<Event>) {
        self.run.root_ended = true;
        let chain = matches!(name, EventName::ChainEnd | EventName::NodeEnd);
        match output {
            Some(output) if self.run.is_graph && raw_json::is_object(output) => {
                if let Some(interrupts) = member(output, "__interrupt__") {
                    self.interrupts(interrupts, None);
                }
                self.close_all(out);
                self.values(output, out);
            }
            Some(output) if chain => {
                self.close_all(out);
                self.run.result = Some(raw_json::json(output, &mut self.tally));
            }
            _ => self.close_all(out),
        }
    }

    /// Interrupts, in any form, and the call that they guard, if it is known.
    pub(super) fn interrupts(&mut self, raw: &RawValue, call: Option<&ToolCallId>) {
        let known = self.run.interrupts.len();
        let mut interrupts = thread_state::interrupts(raw, known, &mut self.tally);
        for interrupt in &mut interrupts {
            interrupt.tool_call = interrupt.tool_call.take().or_else(|| call.cloned());
        }
        self.run.interrupted(interrupts);
    }

    pub(super) fn interrupt(&mut self, interrupt: Interrupt) {
        self.run.interrupted(vec![interrupt]);
    }

    /// What the thread's state or the run's status says about the ending.
    pub(super) fn judge(&mut self, verdict: Verdict) {
        if let Some(interrupts) = &verdict.interrupts
            && !interrupts.is_empty()
        {
            self.run.interrupted(interrupts.clone());
        }
        let known = self.run.verdict.get_or_insert_default();
        known.merge(verdict);
    }

    /// Closes everything that is open, the inner things first.
    pub(super) fn close_all(&mut self, out: &mut Vec<Event>) {
        while let Some(last) = self.lanes.keys().next_back().cloned() {
            self.finish_lane(&last, out);
        }
        self.fail_calls(None, out);
        // Some modes never say that a node has ended, and an interrupt stops its node without a word.
        let says_ends = self.run.has_events || self.run.has_tasks;
        if says_ends && self.run.interrupts.is_empty() && !self.run.breakpoint {
            for name in self.nodes.names() {
                self.tally.note("node without an end", name);
            }
        }
        let left = self.nodes.finish_all(cx!(self, out));
        self.run.subagents.extend(left);
        self.finish_chains(out);
    }

    /// The run has ended without failure.
    pub(super) fn finish(&mut self, out: &mut Vec<Event>) {
        if self.run.phase == Phase::Over {
            return;
        }
        self.begin_if_idle(out);
        self.close_all(out);
        self.last_messages(out);
        let interrupts = self.guarded_interrupts();
        let pending = self.calls.pending();
        let cancelled = self.run.verdict.as_ref().is_some_and(Verdict::is_cancelled);
        if self.settings.legacy {
            for interrupt in &interrupts {
                let value = interrupt
                    .metadata
                    .as_ref()
                    .and_then(|metadata| metadata.member("langgraph")?.into_object()?.member("raw"));
                let value = value.unwrap_or_else(Json::null);
                out.push(Event::new(Body::Custom { name: "on_interrupt".into(), value }));
            }
        }
        let outcome = if !interrupts.is_empty() && self.settings.outcome {
            Some(Outcome::Interrupt { interrupts })
        } else if cancelled {
            Some(Outcome::Cancelled)
        } else if pending.is_empty() {
            None
        } else {
            Some(Outcome::Success { pending })
        };
        let waits = matches!(outcome, Some(Outcome::Interrupt { .. }));
        let suspended = waits.then(|| SubagentOutcome::Suspended { interrupts: Vec::new() });
        self.finish_subagents(&Body::SubagentFinished { result: None, outcome: suspended }, out);
        let (thread, run) = self.run.ids.clone().expect("the run has begun");
        let finished = RunFinished {
            thread,
            run,
            result: self.run.result.take().filter(|result| !result.is_null()),
            outcome,
            usage: std::mem::take(&mut self.run.usage),
        };
        self.run.phase = Phase::Over;
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    /// Subagents that have not ended on their own end as the run does.
    fn finish_subagents(&mut self, body: &Body, out: &mut Vec<Event>) {
        for subagent in std::mem::take(&mut self.run.subagents) {
            out.push(Event::new(body.clone()).by(Some(subagent)));
        }
    }

    /// Restates the conversation as the graph holds it, in the graph's order.
    fn last_messages(&mut self, out: &mut Vec<Event>) {
        let Some(messages) = self.run.messages.take() else { return };
        // What has been shown since then is not in the list, and the list would take it away.
        if messages.is_empty() && self.client.is_empty() || self.client.has_more_than(&messages) {
            return;
        }
        if let Some(place) = self.client.misplaced_after(&messages) {
            let messages = messages[..place].to_vec();
            cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages }));
        }
        cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages }));
    }

    /// The interrupts of the run, each with the call that it guards, where that is known.
    fn guarded_interrupts(&mut self) -> Vec<Interrupt> {
        let mut interrupts = std::mem::take(&mut self.run.interrupts);
        // The caller's word about the ending counts more than the last checkpoint.
        let (next, waits) = match &self.run.verdict {
            Some(verdict) => (&verdict.next, verdict.is_breakpoint()),
            None => (&self.run.next, !self.run.next.is_empty()),
        };
        if interrupts.is_empty() && (self.run.breakpoint || waits) {
            interrupts = thread_state::breakpoints(next);
        }
        let alone = interrupts.len() == 1;
        // An old call that nobody ever answered has nothing to do with it.
        let recent: Vec<_> = self
            .calls
            .open()
            .filter(|(id, call)| {
                call.shown || call.interrupted.is_some() || self.run.last_calls.contains(*id)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for interrupt in &mut interrupts {
            if interrupt.tool_call.is_some() {
                continue;
            }
            let stopped =
                |text: &Option<Box<str>>| text.as_deref().is_some_and(|text| text.contains(&*interrupt.id));
            let mut open = self.calls.open();
            let named = open.find(|(_, call)| stopped(&call.interrupted));
            let asked =
                || thread_state::asked_call(interrupt, self.calls.open().map(|(id, call)| (id, &*call.name)));
            let only = || match &recent[..] {
                [only] if alone => Some(only.clone()),
                _ => None,
            };
            interrupt.tool_call = named.map(|(id, _)| id.clone()).or_else(asked).or_else(only);
        }
        interrupts
    }

    /// The run has failed: `{"error": CLASS, "message": TEXT}`, or only a text.
    pub(super) fn failed(&mut self, raw: Option<&RawValue>, out: &mut Vec<Event>) {
        if self.run.phase == Phase::Over {
            return self.tally.note("event after the end", "error");
        }
        let (class, message) = failure(raw, &mut self.tally);
        self.fail(class.as_deref(), &message, out);
    }

    fn fail(&mut self, code: Option<&str>, message: &str, out: &mut Vec<Event>) {
        self.begin_if_idle(out);
        self.close_all(out);
        let body = Body::SubagentError { message: message.into(), code: code.map(Into::into) };
        self.finish_subagents(&body, out);
        let mut error = RunError::new(message, code);
        error.usage = std::mem::take(&mut self.run.usage);
        self.run.phase = Phase::Over;
        out.push(Event::new(Body::RunError(Box::new(error))));
    }

    /// The stream has closed: says what that means.
    pub(super) fn closed(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if self.run.phase == Phase::Over
            || self.run.phase == Phase::Idle && self.run.native.is_none() && self.run.verdict.is_none()
        {
            return;
        }
        self.begin_if_idle(out);
        if self.run.root_ended {
            return self.finish(out);
        }
        if let StreamEnd::Failed { code, message } = end {
            return self.fail(Some(code), message, out);
        }
        if let Some(verdict) = &self.run.verdict {
            if let Some((class, message)) = verdict.failure.clone() {
                return self.fail(class.as_deref(), &message, out);
            }
            return self.finish(out);
        }
        if let Some((class, message)) = self.run.suspect.take() {
            return self.fail(class.as_deref(), &message, out);
        }
        if !self.run.interrupts.is_empty() {
            return self.finish(out);
        }
        // The server closes its stream without a word. Native events end with the root; in the other modes a
        // run is complete unless something visibly is not.
        let cut = self.lanes.values().any(|lane| lane.positioned && !lane.last);
        // Events of bridges that never said what the root is end where they end.
        let rootless = self.run.has_events && self.run.root.is_none();
        let complete = rootless || self.run.has_modes && !self.run.has_events;
        if !complete || cut || (rootless || self.run.has_tasks) && self.nodes.has_open() {
            return self.fail(Some(STREAM_TRUNCATED), "the stream ended before the run did", out);
        }
        self.finish(out);
    }

    /// Carries the native frame along: on the first event it became, or as an event of its own while the run goes on.
    pub(super) fn attach_raw(&mut self, text: &str, before: usize, out: &mut Vec<Event>) {
        let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
        let raw = raw_json::json(raw, &mut self.tally);
        let alone = |event| Event::new(Body::Raw { event, source: Some("langgraph".into()) });
        match out.get_mut(before) {
            Some(event) => {
                let extra: &mut Extra = event.extra.get_or_insert_default();
                extra.raw = Some(raw);
                if matches!(event.body, Body::RunStarted(_)) {
                    let early = std::mem::take(&mut self.early).into_iter().map(alone);
                    out.splice(before + 1..before + 1, early);
                }
            }
            None if self.run.is_active() => out.push(alone(raw)),
            None if self.run.is_over() => {}
            None if self.early.len() < MAX_EARLY => self.early.push(raw),
            None => {}
        }
    }

    /// The text of an answer by hand.
    pub(super) fn say(&mut self, id: &str, text: &str, out: &mut Vec<Event>) {
        let mut lane = super::Lane::new(id, "");
        let cx = cx!(self, out);
        lane.text(text, cx);
        lane.finish(cx);
    }
}

/// The class and the text of a failure in any form: `{"error", "message"}`, `{"detail"}`, a text such as
/// `ValueError('…')`, or anything else.
pub(in crate::format::langgraph) fn failure(
    raw: Option<&RawValue>,
    tally: &mut Tally,
) -> (Option<Box<str>>, Box<str>) {
    let Some(raw) = raw else { return (None, "the run failed".into()) };
    if let Some(text) = raw_json::string(raw, tally) {
        let class = text.split_once('(').map(|(class, _)| class);
        let class = class.filter(|class| {
            !class.is_empty() && class.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        });
        return (class.map(Into::into), text.into());
    }
    let Some(failure) = Failure::of(raw) else {
        return (None, raw_json::json(raw, tally).get().into());
    };
    // `{"error": {"error": …}}`, but no deeper: nothing that a peer sends may exhaust the stack.
    let failure = match failure.error.and_then(Failure::of) {
        Some(inner) => inner,
        None => failure,
    };
    let class = raw_json::filled(failure.error, tally);
    let message =
        raw_json::filled(failure.message, tally).or_else(|| raw_json::filled(failure.detail, tally));
    match (class, message) {
        (class, Some(message)) => (class.map(Into::into), message.into()),
        (Some(class), None) => (None, class.into()),
        (None, None) => (None, raw_json::json(raw, tally).get().into()),
    }
}
