//! Tool calls, from the model's request to the tool's result.
//!
//! Several parts of a stream report one call, each with other facts: the model has the id, the start of a tool only
//! its name and arguments, the end of a tool the id again, and the message of a failed tool is in the output of its
//! node. This table joins them.

use std::{borrow::Cow, collections::HashMap};

use indexmap::IndexMap;
use serde_json::{Value, value::RawValue};

use super::{
    super::{raw_json, wire::NativeMessage},
    ReaderContext, content_blocks,
    messages::{self, ShownIds, default_result_id},
    native_message::MessageKind,
    node_output,
    shown_messages::ShownMessages,
};
use crate::{
    event::{Body, Content, Event, MessageId, SubagentId, ToolCallId, ToolResult},
    json::{Json, Object},
};

/// Bound on the calls in the table; a run has a few dozen. Beyond it the oldest are removed.
const MAX_CALLS: usize = 4096;

/// The CUSTOM event for output of a tool before its result; the AI SDK writer makes it a preliminary output.
const TOOL_PROGRESS: &str = "agentwire.tool_progress";

/// Bound on the argument text that is kept for comparison. Longer arguments are emitted but not compared.
const MAX_ARGS: usize = 64 * 1024;

/// The tool calls of a run and of the messages before it.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    table: IndexMap<ToolCallId, ToolCallState>,
    /// The call that a tool run executes, by run id.
    runs: HashMap<Box<str>, ToolCallId>,
}

/// One tool call.
#[derive(Debug)]
pub(super) struct ToolCallState {
    pub(super) name: Box<str>,
    args: String,
    /// The text that the tool has streamed so far; `None` once it is too long.
    output: Option<String>,
    pub(super) owner: Option<SubagentId>,
    /// Whether this run has shown the call; otherwise it is one of an earlier run.
    pub(super) is_shown: bool,
    pub(super) is_hidden: bool,
    /// Whether a tool run executes it.
    is_started: bool,
    pub(super) has_result: bool,
    /// The error of the tool, until its node returns a message.
    failure: Option<Box<str>>,
    /// The run id of the node in which the tool ran.
    node: Option<Box<str>>,
    /// The text of the interrupt that stopped the tool.
    pub(super) interrupted: Option<Box<str>>,
}

impl Default for ToolCallState {
    fn default() -> Self {
        Self {
            name: Box::default(),
            args: String::new(),
            output: Some(String::new()),
            owner: None,
            is_shown: false,
            is_hidden: false,
            is_started: false,
            has_result: false,
            failure: None,
            node: None,
            interrupted: None,
        }
    }
}

impl ToolCalls {
    pub(super) fn get(&self, id: &str) -> Option<&ToolCallState> {
        self.table.get(id)
    }

    fn entry(&mut self, id: &ToolCallId) -> &mut ToolCallState {
        if self.table.len() >= MAX_CALLS && !self.table.contains_key(id) {
            self.table.shift_remove_index(0);
        }
        self.table.entry(id.clone()).or_default()
    }

    /// Adds a call of an earlier run, which the client has.
    pub(super) fn add_earlier(&mut self, id: &ToolCallId, name: &str, args: &str, has_result: bool) {
        if !self.table.contains_key(id) {
            let call = self.entry(id);
            call.name = name.into();
            call.has_result = has_result;
            if args.len() <= MAX_ARGS {
                call.args.push_str(args);
            }
        }
    }

    pub(super) fn set_answered(&mut self, id: &str) {
        if let Some(call) = self.table.get_mut(id) {
            call.has_result = true;
        }
    }

    /// The shown calls of this run without a result, in order.
    pub(super) fn pending(&self) -> Vec<ToolCallId> {
        let open = self.table.iter().filter(|(_, call)| call.is_shown && !call.is_hidden && !call.has_result);
        open.map(|(id, _)| id.clone()).collect()
    }

    /// All calls without a result.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (&ToolCallId, &ToolCallState)> {
        self.table.iter().filter(|(_, call)| !call.has_result && !call.is_hidden)
    }

    /// Finds the call that the tool `name` executes with this input: the only one assigned to its node, else one
    /// with equal arguments, else the first one of that name. A call whose tool has failed may be retried.
    pub(super) fn find_call(
        &self,
        name: &str,
        input: Option<&RawValue>,
        assigned: &[ToolCallId],
    ) -> Option<ToolCallId> {
        let has_name = |call: &ToolCallState| !call.has_result && (name.is_empty() || *call.name == *name);
        let is_free = |call: &ToolCallState| has_name(call) && !call.is_started;
        let is_retry = |call: &ToolCallState| has_name(call) && call.failure.is_some();
        if let [only] = assigned
            && self.table.get(only).is_some_and(|call| !call.is_started || is_retry(call))
        {
            return Some(only.clone());
        }
        let input: Option<Value> = input.and_then(|input| {
            let text = input.get();
            // In old versions the input is the text of the arguments.
            match serde_json::from_str(text).ok()? {
                Value::String(text) => serde_json::from_str(&text).ok(),
                value => Some(value),
            }
        });
        let has_same_args =
            |call: &ToolCallState| input.is_some() && serde_json::from_str(&call.args).ok() == input;
        let find = |wanted: &dyn Fn(&ToolCallState) -> bool| self.table.iter().find(|(_, call)| wanted(call));
        let found = find(&|call| is_free(call) && has_same_args(call))
            .or_else(|| find(&|call| is_retry(call) && has_same_args(call)))
            .or_else(|| find(&is_free))
            .or_else(|| find(&is_retry));
        found.map(|(id, _)| id.clone())
    }

    /// Records that the tool run `run` executes a call.
    pub(super) fn start_run(&mut self, run: &str, id: &ToolCallId, node: Option<&str>) {
        let call = self.entry(id);
        call.is_started = true;
        call.failure = None;
        call.node = node.map(Into::into);
        if self.runs.len() >= MAX_CALLS {
            self.runs.clear();
        }
        self.runs.insert(run.into(), id.clone());
    }

    /// Corrects the call that a tool run executes.
    pub(super) fn reassign_run(&mut self, run: &str, to: &ToolCallId) {
        let Some(from) = self.runs.get(run).cloned().filter(|from| from != to) else { return };
        let node = self.table.get(&from).and_then(|call| call.node.clone());
        self.release(&from);
        self.start_run(run, to, node.as_deref());
    }

    /// Records that no tool run executes a call.
    pub(super) fn release(&mut self, id: &ToolCallId) {
        self.entry(id).is_started = false;
    }

    pub(super) fn call_of_run(&self, run: &str) -> Option<&ToolCallId> {
        self.runs.get(run)
    }

    /// Records the error of a tool. It is provisional: the node may return a message for the model instead.
    pub(super) fn set_failure(&mut self, id: &ToolCallId, message: &str) {
        self.entry(id).failure = Some(message.into());
    }

    pub(super) fn set_interrupted(&mut self, id: &ToolCallId, text: &str) {
        let call = self.entry(id);
        call.interrupted = Some(text.into());
        call.is_started = false;
    }

    /// Removes and returns the errors without a message: those of one node run, or all.
    pub(super) fn take_failures(&mut self, node: Option<&str>) -> Vec<(ToolCallId, Box<str>)> {
        let mut failures = Vec::new();
        for (id, call) in &mut self.table {
            if !call.has_result
                && (node.is_none() || call.node.as_deref() == node)
                && let Some(failure) = call.failure.take()
            {
                failures.push((id.clone(), failure));
            }
        }
        failures
    }
}

/// Starts a call.
pub(super) fn start_call(
    cx: &mut ReaderContext<'_>,
    id: &ToolCallId,
    name: &str,
    parent: Option<&MessageId>,
    owner: Option<&SubagentId>,
    is_hidden: bool,
) {
    let call = cx.calls.entry(id);
    // A provider may use an id again for another call.
    *call = ToolCallState {
        name: name.into(),
        owner: owner.cloned(),
        is_shown: true,
        is_hidden,
        ..ToolCallState::default()
    };
    if !is_hidden {
        let body = Body::ToolStart { call: id.clone(), name: name.into(), parent: parent.cloned() };
        cx.emit(Event::new(body).by(owner.cloned()));
    }
}

/// Emits a fragment of the arguments.
pub(super) fn send_args(cx: &mut ReaderContext<'_>, id: &ToolCallId, delta: &str) {
    if delta.is_empty() {
        return;
    }
    let Some(call) = cx.calls.table.get_mut(id) else { return };
    if call.args.len() + delta.len() <= MAX_ARGS {
        call.args.push_str(delta);
    }
    if !call.is_hidden {
        let owner = call.owner.clone();
        cx.emit(Event::new(Body::ToolArgs { call: id.clone(), delta: delta.into() }).by(owner));
    }
}

/// Ends the arguments of a call.
pub(super) fn end_call(cx: &mut ReaderContext<'_>, id: &ToolCallId) {
    let Some(call) = cx.calls.table.get(id) else { return };
    if !call.is_hidden {
        let owner = call.owner.clone();
        cx.emit(Event::new(Body::ToolEnd { call: id.clone() }).by(owner));
    }
}

/// Counts a difference between the streamed and the final arguments.
pub(super) fn compare_args(cx: &mut ReaderContext<'_>, id: &ToolCallId, complete: &str) {
    let Some(call) = cx.calls.table.get(id) else { return };
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    let differs = call.args.len() < MAX_ARGS && parse(&call.args) != parse(complete) && call.args != complete;
    // Missing arguments and an empty object are equal.
    if differs && !(call.args.is_empty() && matches!(complete, "" | "{}")) {
        cx.tally.note("tool arguments that differ from those streamed", &call.name.clone());
    }
}

/// Emits a complete call.
pub(super) fn send_complete_call(
    cx: &mut ReaderContext<'_>,
    id: &ToolCallId,
    name: &str,
    arguments: &str,
    parent: Option<&MessageId>,
    owner: Option<&SubagentId>,
    is_hidden: bool,
) {
    start_call(cx, id, name, parent, owner, is_hidden);
    send_args(cx, id, arguments);
    end_call(cx, id);
}

/// Emits a chunk of a tool's output: the chunk as `delta`, and as `output` the output so far. Chunks of text are joined,
/// any other value replaces the one before.
pub(super) fn send_output_chunk(cx: &mut ReaderContext<'_>, id: &ToolCallId, chunk: &RawValue) {
    let message = NativeMessage::read(chunk, cx.tally).and_then(|(_, message)| message.content);
    let chunk = message.unwrap_or(chunk);
    let delta = raw_json::json(chunk, cx.tally);
    let text = raw_json::string(chunk, cx.tally);
    let call = cx.calls.entry(id);
    let output = match (&text, &mut call.output) {
        (None, output) => {
            *output = Some(String::new());
            Some(delta.clone())
        }
        (Some(text), Some(output)) if output.len() + text.len() <= MAX_ARGS => {
            output.push_str(text);
            Some(Json::string(output))
        }
        (Some(_), output) => {
            *output = None;
            None
        }
    };
    if call.is_hidden {
        return;
    }
    let owner = call.owner.clone();
    let members = [("toolCallId", Some(Json::string(id))), ("output", output), ("delta", Some(delta))];
    let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let body = Body::Custom { name: TOOL_PROGRESS.into(), value: Object::from_entries(members).into() };
    cx.emit(Event::new(body).by(owner));
}

/// The outcome of a tool call, before it is emitted.
pub(super) struct NewToolResult {
    pub(super) message: Option<MessageId>,
    pub(super) content: Content,
    pub(super) error: Option<Box<str>>,
    pub(super) metadata: Option<Object>,
}

impl NewToolResult {
    /// The result of a failed tool without a message.
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

/// Emits the result of a call, once.
pub(super) fn send_result(cx: &mut ReaderContext<'_>, id: &ToolCallId, new: NewToolResult) {
    let call = cx.calls.entry(id);
    if std::mem::replace(&mut call.has_result, true) || call.is_hidden {
        return;
    }
    call.is_started = true;
    let owner = call.owner.clone();
    let message = new.message.unwrap_or_else(|| default_result_id(id));
    if cx.shown.contains(&message) {
        return;
    }
    let content = match new.content {
        Content::Text(text) if cx.options.json_results => Content::Text(Json::string(&text).get().into()),
        content => content,
    };
    let result = ToolResult { message, call: id.clone(), content, error: new.error, explicit_role: true };
    let event = Event::new(Body::ToolResult(Box::new(result))).by(owner).with_metadata(new.metadata);
    cx.emit(event);
}

/// Emits a tool message as the result of its call; returns whether there is a call.
///
/// `listed` is the call before it in a list of messages; `scope` is the namespace of the graph of the tool.
pub(super) fn send_result_message(
    cx: &mut ReaderContext<'_>,
    message: &NativeMessage<'_>,
    run: Option<&ToolCallId>,
    listed: Option<ToolCallId>,
    scope: &str,
) -> bool {
    let native = raw_json::non_empty(message.tool_call_id, cx.tally);
    let call = match (&native, run) {
        // A tool that was started without a call id was shown under its run id.
        (Some(native), Some(run)) => {
            let named = cx.shown.call_in_scope(native, scope);
            if cx.calls.get(&named).is_some() {
                // The start of the tool did not distinguish two equal calls.
                if named != *run {
                    cx.calls.release(run);
                }
                named
            } else {
                cx.shown.alias_call(native, run, scope);
                run.clone()
            }
        }
        (Some(native), None) => listed.unwrap_or_else(|| cx.shown.call_in_scope(native, scope)),
        (None, Some(run)) => run.clone(),
        (None, None) => return false,
    };
    let id = message.id(cx.tally);
    let result_id = ShownMessages::result_message_id(cx.shown, id.as_deref(), &call);
    let content = content_blocks::user_content(message.content, cx.tally);
    let error = messages::is_error(message, cx.tally).then(|| content.text().into());
    let metadata = messages::result_metadata(message, cx.tally);
    send_result(cx, &call, NewToolResult { message: Some(result_id), content, error, metadata });
    true
}

/// Emits the output of a tool as the result of its call: a message, a `Command` that contains messages, or a bare
/// value.
pub(super) fn send_tool_output(
    cx: &mut ReaderContext<'_>,
    run: &ToolCallId,
    output: Option<&RawValue>,
    scope: &str,
) {
    if let Some(output) = output {
        let mut found = false;
        for raw in node_output::messages(output) {
            if let Some((MessageKind::Tool, message)) = NativeMessage::read(raw, cx.tally) {
                found |= send_result_message(cx, &message, Some(run), None, scope);
            }
        }
        if found {
            return;
        }
        if node_output::is_command(output) {
            // A hand-over to another graph is not a result.
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
    if !is_text && cx.options.json_results {
        // A value other than a string is JSON already.
        let call = cx.calls.entry(run);
        if !std::mem::replace(&mut call.has_result, true) && !call.is_hidden {
            let result = ToolResult {
                message: default_result_id(run),
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
    let result =
        NewToolResult { message: None, content: Content::Text(text.into()), error: None, metadata: None };
    send_result(cx, run, result);
}
