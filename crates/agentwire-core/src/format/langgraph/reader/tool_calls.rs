//! The calls of tools, from the model that asks to the tool that answers.
//!
//! Several parts of a stream tell of one call, and each knows something else: the model knows the id, the
//! start of a tool only its name and arguments, the end of a tool the id again, and a failed tool's message is
//! in the output of its node. This table brings them together.

use std::{borrow::Cow, collections::HashMap};

use indexmap::IndexMap;
use serde_json::{Value, value::RawValue};

use super::{
    super::{raw_json, wire},
    Cx, content_blocks,
    messages::{self, Kind, Naming, result_id},
    node_output,
    shown_messages::Client,
};
use crate::{
    event::{Body, Content, Event, MessageId, SubagentId, ToolCallId, ToolResult},
    json::{Json, Object},
};

/// How many calls are kept in mind; a run has a few dozen. Beyond it the oldest are forgotten.
const MAX_CALLS: usize = 4096;

/// How much argument text is kept to compare with. Arguments beyond it are passed on, but not compared.
const MAX_ARGS: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Calls {
    table: IndexMap<ToolCallId, Call>,
    /// Which call a tool's run answers.
    runs: HashMap<Box<str>, ToolCallId>,
}

#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) name: Box<str>,
    args: String,
    pub(super) owner: Option<SubagentId>,
    /// Whether this run's events have shown the call; otherwise it is one of an earlier run.
    pub(super) shown: bool,
    pub(super) hidden: bool,
    /// Whether a tool has begun to work on it.
    taken: bool,
    pub(super) answered: bool,
    /// What went wrong, until somebody says it better.
    failure: Option<Box<str>>,
    /// Where the tool ran.
    node: Option<Box<str>>,
    /// The text of the interrupt that stopped the tool.
    pub(super) interrupted: Option<Box<str>>,
}

impl Calls {
    pub(super) fn get(&self, id: &str) -> Option<&Call> {
        self.table.get(id)
    }

    fn entry(&mut self, id: &ToolCallId) -> &mut Call {
        if self.table.len() >= MAX_CALLS && !self.table.contains_key(id) {
            self.table.shift_remove_index(0);
        }
        self.table.entry(id.clone()).or_default()
    }

    /// A call that the user interface knows from an earlier run.
    pub(super) fn remember(&mut self, id: &ToolCallId, name: &str, args: &str, answered: bool) {
        if !self.table.contains_key(id) {
            let call = self.entry(id);
            call.name = name.into();
            call.answered = answered;
            if args.len() <= MAX_ARGS {
                call.args.push_str(args);
            }
        }
    }

    pub(super) fn set_answered(&mut self, id: &str) {
        if let Some(call) = self.table.get_mut(id) {
            call.answered = true;
        }
    }

    /// The calls of this run that nobody has answered, in the order in which they were made.
    pub(super) fn pending(&self) -> Vec<ToolCallId> {
        let open = self.table.iter().filter(|(_, call)| call.shown && !call.hidden && !call.answered);
        open.map(|(id, _)| id.clone()).collect()
    }

    /// All calls that nobody has answered.
    pub(super) fn open(&self) -> impl Iterator<Item = (&ToolCallId, &Call)> {
        self.table.iter().filter(|(_, call)| !call.answered && !call.hidden)
    }

    /// The call that the tool `name` with this input works on, unless it is unknown: the only one that its
    /// node was given, else one with equal arguments, else the first one of that name. A call whose tool has
    /// failed may be tried again.
    pub(super) fn take(
        &mut self,
        name: &str,
        input: Option<&RawValue>,
        given: &[ToolCallId],
    ) -> Option<ToolCallId> {
        let named = |call: &Call| !call.answered && (name.is_empty() || *call.name == *name);
        let free = |call: &Call| named(call) && !call.taken;
        let again = |call: &Call| named(call) && call.failure.is_some();
        if let [only] = given
            && self.table.get(only).is_some_and(|call| !call.taken || again(call))
        {
            return Some(only.clone());
        }
        let input: Option<Value> = input.and_then(|input| {
            let text = input.get();
            // Old versions give the input as the text of the arguments.
            match serde_json::from_str(text).ok()? {
                Value::String(text) => serde_json::from_str(&text).ok(),
                value => Some(value),
            }
        });
        let same = |call: &Call| input.is_some() && serde_json::from_str(&call.args).ok() == input;
        let find = |wanted: &dyn Fn(&Call) -> bool| self.table.iter().find(|(_, call)| wanted(call));
        let found = find(&|call| free(call) && same(call))
            .or_else(|| find(&|call| again(call) && same(call)))
            .or_else(|| find(&free))
            .or_else(|| find(&again));
        found.map(|(id, _)| id.clone())
    }

    /// A tool run begins to work on a call.
    pub(super) fn begin(&mut self, run: &str, id: &ToolCallId, node: Option<&str>) {
        let call = self.entry(id);
        call.taken = true;
        call.failure = None;
        call.node = node.map(Into::into);
        if self.runs.len() >= MAX_CALLS {
            self.runs.clear();
        }
        self.runs.insert(run.into(), id.clone());
    }

    /// The run of a tool turns out to work on another call than it seemed.
    pub(super) fn correct(&mut self, run: &str, to: &ToolCallId) {
        let Some(from) = self.runs.get(run).cloned().filter(|from| from != to) else { return };
        let node = self.table.get(&from).and_then(|call| call.node.clone());
        self.release(&from);
        self.begin(run, to, node.as_deref());
    }

    /// A call was announced, but no tool works on it yet.
    pub(super) fn release(&mut self, id: &ToolCallId) {
        self.entry(id).taken = false;
    }

    pub(super) fn of_run(&self, run: &str) -> Option<&ToolCallId> {
        self.runs.get(run)
    }

    /// A tool failed. That is not the last word: the node may turn it into a message for the model.
    pub(super) fn fail(&mut self, id: &ToolCallId, message: &str) {
        self.entry(id).failure = Some(message.into());
    }

    pub(super) fn interrupt(&mut self, id: &ToolCallId, text: &str) {
        let call = self.entry(id);
        call.interrupted = Some(text.into());
        call.taken = false;
    }

    /// The failures that nobody has turned into a message: those of one node, or all that are left.
    pub(super) fn failures(&mut self, node: Option<&str>) -> Vec<(ToolCallId, Box<str>)> {
        let mut failures = Vec::new();
        for (id, call) in &mut self.table {
            if !call.answered
                && (node.is_none() || call.node.as_deref() == node)
                && let Some(failure) = call.failure.take()
            {
                failures.push((id.clone(), failure));
            }
        }
        failures
    }
}

/// Opens a call.
pub(super) fn start(
    cx: &mut Cx<'_>,
    id: &ToolCallId,
    name: &str,
    parent: Option<&MessageId>,
    owner: Option<&SubagentId>,
    hidden: bool,
) {
    let call = cx.calls.entry(id);
    // A provider may use an id again for another call.
    *call = Call { name: name.into(), owner: owner.cloned(), shown: true, hidden, ..Call::default() };
    if !hidden {
        let body = Body::ToolStart { call: id.clone(), name: name.into(), parent: parent.cloned() };
        cx.emit(Event::new(body).by(owner.cloned()));
    }
}

/// A piece of a call's arguments.
pub(super) fn args(cx: &mut Cx<'_>, id: &ToolCallId, delta: &str) {
    if delta.is_empty() {
        return;
    }
    let Some(call) = cx.calls.table.get_mut(id) else { return };
    if call.args.len() + delta.len() <= MAX_ARGS {
        call.args.push_str(delta);
    }
    if !call.hidden {
        let owner = call.owner.clone();
        cx.emit(Event::new(Body::ToolArgs { call: id.clone(), delta: delta.into() }).by(owner));
    }
}

/// A call's arguments are complete.
pub(super) fn end(cx: &mut Cx<'_>, id: &ToolCallId) {
    let Some(call) = cx.calls.table.get(id) else { return };
    if !call.hidden {
        let owner = call.owner.clone();
        cx.emit(Event::new(Body::ToolEnd { call: id.clone() }).by(owner));
    }
}

/// Whether what was streamed is what the model meant in the end.
pub(super) fn compare(cx: &mut Cx<'_>, id: &ToolCallId, whole: &str) {
    let Some(call) = cx.calls.table.get(id) else { return };
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    let differs = call.args.len() < MAX_ARGS && parse(&call.args) != parse(whole) && call.args != whole;
    // No arguments may be said as nothing or as an empty object.
    if differs && !(call.args.is_empty() && matches!(whole, "" | "{}")) {
        cx.tally.note("tool arguments that differ from those streamed", &call.name.clone());
    }
}

/// A whole call at once.
pub(super) fn whole(
    cx: &mut Cx<'_>,
    id: &ToolCallId,
    name: &str,
    arguments: &str,
    parent: Option<&MessageId>,
    owner: Option<&SubagentId>,
    hidden: bool,
) {
    start(cx, id, name, parent, owner, hidden);
    args(cx, id, arguments);
    end(cx, id);
}

/// What a call returned.
pub(super) struct Answer {
    pub(super) message: Option<MessageId>,
    pub(super) content: Content,
    pub(super) error: Option<Box<str>>,
    pub(super) metadata: Option<Object>,
}

impl Answer {
    /// A failure that has no message of its own.
    pub(super) fn failure(text: &str) -> Self {
        let status = Object::from_entries([("status", Json::string("error"))]);
        Self {
            message: None,
            content: Content::Text(text.into()),
            error: Some(text.into()),
            metadata: Some(status),
        }
    }
}

/// Answers a call, once.
pub(super) fn answer(cx: &mut Cx<'_>, id: &ToolCallId, answer: Answer) {
    let call = cx.calls.entry(id);
    if std::mem::replace(&mut call.answered, true) || call.hidden {
        return;
    }
    call.taken = true;
    let owner = call.owner.clone();
    let message = answer.message.unwrap_or_else(|| result_id(id));
    if cx.client.has(&message) {
        return;
    }
    let content = match answer.content {
        Content::Text(text) if cx.settings.json_results => Content::Text(Json::string(&text).get().into()),
        content => content,
    };
    let result = ToolResult { message, call: id.clone(), content, error: answer.error, explicit_role: true };
    let event = Event::new(Body::ToolResult(Box::new(result))).by(owner).with_metadata(answer.metadata);
    cx.emit(event);
}

/// Answers a call with a tool message. Says whether `message` is one.
///
/// `place` is the call that it answers by its place in a conversation, where it came in one; `scope` is the place
/// of the graph whose tool has spoken.
pub(super) fn answer_message(
    cx: &mut Cx<'_>,
    message: &wire::Message<'_>,
    run: Option<&ToolCallId>,
    place: Option<ToolCallId>,
    scope: &str,
) -> bool {
    let native = raw_json::filled(message.tool_call_id, cx.tally);
    let call = match (&native, run) {
        // A tool that was started without an id was shown under its run's.
        (Some(native), Some(run)) => {
            let known = cx.client.call_at(native, scope);
            if cx.calls.get(&known).is_some() {
                // The start of the tool did not say which of two equal calls it was.
                if known != *run {
                    cx.calls.release(run);
                }
                known
            } else {
                cx.client.alias_call(native, run, scope);
                run.clone()
            }
        }
        (Some(native), None) => place.unwrap_or_else(|| cx.client.call_at(native, scope)),
        (None, Some(run)) => run.clone(),
        (None, None) => return false,
    };
    let id = message.id(cx.tally);
    let name = Client::result(cx.client, id.as_deref(), &call);
    let content = content_blocks::body(message.content, cx.tally);
    let error = messages::is_error(message, cx.tally).then(|| content.text().into());
    let metadata = messages::result_metadata(message, cx.tally);
    answer(cx, &call, Answer { message: Some(name), content, error, metadata });
    true
}

/// Answers the call of a tool's run with whatever the tool returned: a message, an order to change the state
/// that holds messages, or a bare value.
pub(super) fn answer_output(cx: &mut Cx<'_>, run: &ToolCallId, output: Option<&RawValue>, scope: &str) {
    if let Some(output) = output {
        let mut found = false;
        for raw in node_output::messages(output) {
            if let Some((Kind::Tool, message)) = wire::Message::read(raw, cx.tally) {
                found |= answer_message(cx, &message, Some(run), None, scope);
            }
        }
        if found {
            return;
        }
        if node_output::is_command(output) {
            // A hand-over to another graph answers nothing itself.
            return;
        }
    }
    let text: Cow<'_, str> = match output {
        None => Cow::Borrowed("null"),
        Some(output) => match raw_json::string(output, cx.tally) {
            Some(text) => text,
            None => Cow::Owned(raw_json::json(output, cx.tally).get().to_owned()),
        },
    };
    let is_text = output.is_some_and(|output| output.get().starts_with('"'));
    if !is_text && cx.settings.json_results {
        // A value that is no string is JSON already.
        let call = cx.calls.entry(run);
        if !std::mem::replace(&mut call.answered, true) && !call.hidden {
            let result = ToolResult {
                message: result_id(run),
                call: run.clone(),
                content: Content::Text(text.into()),
                error: None,
                explicit_role: true,
            };
            let owner = call.owner.clone();
            cx.emit(Event::new(Body::ToolResult(Box::new(result))).by(owner));
        }
        return;
    }
    let answer_text =
        Answer { message: None, content: Content::Text(text.into()), error: None, metadata: None };
    answer(cx, run, answer_text);
}
