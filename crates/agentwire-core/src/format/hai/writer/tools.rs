//! Writes tool calls as events, as `toolCallShow` outputs, or both; and interrupts as calls of a front-end tool.
//!
//! The standard has one way to ask a person: a call of a front-end tool. Every interrupt is therefore written as
//! such a call, and the result of that call is the answer to the interrupt.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::{
    super::{
        delta::escape_brace_pairs,
        nesting::{compose, fits},
        options::{HaiOptions, ToolDisplay},
    },
    FrameWriter, HaiWriter, agui_event,
    attachments::with_attachments,
    marker_entries,
    members::{EventMembers, build_marker},
    skip_marker,
};
use crate::{
    event::{Body, Event, Interrupt, MessageId, RunStarted, ToolCallId, ToolResult},
    format::Fidelity,
    framing::{DEFAULT_MAX_FRAME, Frames},
    json::{Json, Object},
};

/// Limit of buffered arguments; beyond it they are written as deltas. Escaped, this fits into a frame.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME / 4;

/// Limit of stored calls; a run has a few dozen.
const MAX_CALLS: usize = 4096;

/// The icon of a tool list, from the icons of the reference client.
const ICON: &str = "plx-setting";

const JOINED: Fidelity = Fidelity::Approximated("the pieces of the arguments are joined");

/// The tool calls of a run.
#[derive(Debug)]
pub(crate) struct ToolCalls {
    display: ToolDisplay,
    /// Whether arguments are buffered until the call ends.
    whole: bool,
    /// The front-end tool that represents an interrupt.
    interrupt_tool: String,
    /// The front-end tools of this run, if known.
    frontend: Option<HashSet<Box<str>>>,
    calls: IndexMap<ToolCallId, ToolCallState>,
}

/// A tool call that was started.
#[derive(Debug)]
struct ToolCallState {
    name: Box<str>,
    arguments: String,
    /// Number of argument deltas.
    pieces: u32,
    /// The message that displays it.
    display_message: Option<MessageId>,
    /// Whether it is only displayed, without TOOL_CALL_* events.
    is_hidden: bool,
    /// Number of bytes of the arguments of a hidden call that are written.
    written: usize,
}

impl ToolCallState {
    /// The unwritten arguments of a hidden call, as an event with the members of `event`.
    fn unwritten(&mut self, call: &ToolCallId, event: &Event) -> Option<Event> {
        let delta = self.arguments.get(self.written..).filter(|rest| !rest.is_empty())?.into();
        self.written = self.arguments.len();
        let body = Body::ToolArgs { call: call.clone(), delta };
        Some(Event::new(body).by(event.subagent.clone()).at(event.timestamp))
    }
}

impl ToolCalls {
    pub(crate) fn new(options: HaiOptions) -> Self {
        Self {
            display: options.tool_display,
            whole: options.whole_arguments,
            interrupt_tool: options.interrupt_tool,
            frontend: None,
            calls: IndexMap::new(),
        }
    }

    pub(crate) fn reset(&mut self, started: &RunStarted) {
        self.calls.clear();
        self.frontend =
            started.input.as_ref().map(|input| input.tools.iter().map(|tool| tool.name.clone()).collect());
    }

    fn is_frontend(&self, name: &str) -> bool {
        self.frontend.as_ref().is_some_and(|tools| tools.contains(name))
    }

    /// Writes an interrupt as a call of a front-end tool, unless it belongs to a call.
    pub(crate) fn write_interrupt(
        &self,
        interrupt: &Interrupt,
        timestamp: Option<i64>,
        frames: &mut FrameWriter,
        out: &mut Frames,
    ) {
        if self.calls.contains_key(&*interrupt.id) {
            return;
        }
        let bare = || EventMembers::at(timestamp);
        let arguments = interrupt_arguments(interrupt);
        frames.put(out, "TOOL_CALL_START", |w| {
            w.str("toolCallId", &interrupt.id).str("toolCallName", &self.interrupt_tool);
            bare().write(w, "TOOL_CALL_START", skip_marker());
        });
        frames.put(out, "TOOL_CALL_ARGS", |w| {
            w.str("toolCallId", &interrupt.id).str("delta", &escape_brace_pairs(arguments.get()));
            bare().write(w, "TOOL_CALL_ARGS", skip_marker());
        });
        frames.put(out, "TOOL_CALL_END", |w| {
            w.str("toolCallId", &interrupt.id);
            bare().write(w, "TOOL_CALL_END", skip_marker());
        });
    }
}

/// The arguments of the call for an interrupt: `{action, importance?, …payload}`.
fn interrupt_arguments(interrupt: &Interrupt) -> Object {
    let metadata = interrupt.metadata.as_ref();
    let member = |key: &str| metadata.and_then(|metadata| metadata.member(key));
    let payload = member("payload").or_else(|| member("value"));
    let asked = payload.as_ref().and_then(Json::as_str);
    let action = interrupt.message.as_deref().or(asked.as_deref()).unwrap_or(&interrupt.reason);
    let mut arguments = vec![("action".to_owned(), Json::string(action))];
    arguments.extend(member("importance").map(|importance| ("importance".to_owned(), importance)));
    if let Some(payload) = payload {
        match payload.clone().into_object() {
            Some(payload) => arguments.extend(payload.entries()),
            None if asked.as_deref() == Some(action) => {}
            None => arguments.push(("payload".to_owned(), payload)),
        }
    }
    compose(arguments.iter().map(|(key, value)| (key.as_str(), value.clone())))
}

impl HaiWriter {
    pub(crate) fn tool(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::ToolStart { call, name, parent } => {
                let is_frontend = self.tools.is_frontend(name);
                let display = if is_frontend { ToolDisplay::Events } else { self.tools.display };
                // Unless the front-end tools are known, a hidden call could be one that the front end must run.
                let is_hidden = display == ToolDisplay::Show && self.tools.frontend.is_some();
                if !is_hidden {
                    let members = self.members(event);
                    // The messages of the run have one id.
                    let shown_parent = parent.as_ref().map(|parent| self.wire_id(parent));
                    let source_parent = parent.as_ref().filter(|_| shown_parent != *parent);
                    self.frames.put(out, "TOOL_CALL_START", |w| {
                        w.str("toolCallId", call)
                            .str("toolCallName", name)
                            .opt_str("parentMessageId", shown_parent.as_deref())
                            .opt_str("sourceParentMessageId", source_parent.map(|parent| &**parent));
                        members.write(w, "TOOL_CALL_START", None);
                    });
                }
                let display_message =
                    (display != ToolDisplay::Events).then(|| self.unused_message_id(&format!("{call}:show")));
                let new = ToolCallState {
                    name: name.clone(),
                    arguments: String::new(),
                    pieces: 0,
                    display_message: display_message.clone(),
                    is_hidden,
                    written: 0,
                };
                if self.tools.calls.len() >= MAX_CALLS {
                    self.tools.calls.shift_remove_index(0);
                }
                self.tools.calls.insert(call.clone(), new);
                // In serial order nothing is displayed inside the open call.
                if display_message.is_some() && (is_hidden || !self.is_serial) {
                    let marker = events_marker(is_hidden, event, std::slice::from_ref(event));
                    self.write_call_entry(call, "running", None, event, marker, out);
                }
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => self.tool_args(event, call, delta, out),
            Body::ToolEnd { call } => self.tool_end(event, call, out),
            Body::ToolResult(result) => self.tool_result(event, result, out),
            _ => unreachable!("called for tool events only"),
        }
    }

    fn tool_args(&mut self, event: &Event, call: &ToolCallId, delta: &str, out: &mut Frames) -> Fidelity {
        let whole = self.tools.whole;
        let mut pieces = 1;
        let mut is_buffered = false;
        if let Some(state) = self.tools.calls.get_mut(call)
            && (whole || state.is_hidden || state.display_message.is_some())
        {
            state.pieces = state.pieces.saturating_add(1);
            pieces = state.pieces;
            is_buffered = whole || state.is_hidden;
            if state.arguments.len() + delta.len() <= MAX_ARGUMENTS {
                state.arguments.push_str(delta);
            } else if state.is_hidden {
                // Too long to be displayed: wrapped in CUSTOM events.
                if let Some(unwritten) = state.unwritten(call, event) {
                    let _ = self.write_wrapped(&unwritten, out);
                }
                return self.write_wrapped(event, out);
            } else if whole {
                // Too long to be buffered: further arguments are written as deltas.
                let buffered = std::mem::take(&mut state.arguments);
                let members = self.members(event);
                put_args(&mut self.frames, out, call, &buffered, members.bare());
                put_args(&mut self.frames, out, call, delta, members);
                return JOINED;
            }
        }
        let members = self.members(event);
        if !is_buffered {
            put_args(&mut self.frames, out, call, delta, members);
            return Fidelity::Exact;
        }
        if pieces > 1 || !members.is_empty() { JOINED } else { Fidelity::Exact }
    }

    fn tool_end(&mut self, event: &Event, call: &ToolCallId, out: &mut Frames) -> Fidelity {
        let members = self.members(event);
        let Some(state) = self.tools.calls.get_mut(call) else {
            put_end(&mut self.frames, out, call, members);
            return Fidelity::Exact;
        };
        let (is_hidden, is_displayed) = (state.is_hidden, state.display_message.is_some());
        let arguments = if is_hidden { String::new() } else { state.arguments.clone() };
        let unwritten = if is_hidden { state.unwritten(call, event) } else { None };
        if !is_hidden {
            if self.tools.whole && !arguments.is_empty() {
                // The reference client inserts commas between braces here too.
                let valid = serde_json::from_str::<serde::de::IgnoredAny>(&arguments).is_ok();
                let text = if valid { escape_brace_pairs(&arguments) } else { arguments.as_str().into() };
                put_args(&mut self.frames, out, call, &text, members.bare());
            }
            put_end(&mut self.frames, out, call, members);
        }
        let events: Vec<_> = unwritten.into_iter().chain([event.clone()]).collect();
        if is_displayed {
            let marker = events_marker(is_hidden, event, &events);
            self.write_call_entry(call, "running", None, event, marker, out);
        } else if is_hidden {
            // The result came first and closed the display.
            for event in &events {
                let _ = self.write_wrapped(event, out);
            }
        }
        Fidelity::Exact
    }

    fn tool_result(&mut self, event: &Event, result: &ToolResult, out: &mut Frames) -> Fidelity {
        let state = self.tools.calls.get(&result.call);
        let (is_hidden, display_message) =
            state.map_or((false, None), |state| (state.is_hidden, state.display_message.clone()));
        // After the first result the display is closed.
        let is_hidden = is_hidden && display_message.is_some();
        if !is_hidden {
            let mut members = self.members(event);
            let role = members.remove_str("role");
            let extra = members.remove_non_null("extra");
            let (extra, parts) = with_attachments(&result.content, extra);
            let parts = parts.filter(|parts| fits(parts.get(), 2));
            let marker = parts.and_then(|parts| build_marker([("parts", parts)]));
            self.frames.put(out, "TOOL_CALL_RESULT", |w| {
                w.str("messageId", &result.message)
                    .str("toolCallId", &result.call)
                    .str("content", &result.content.text())
                    .str("role", role.as_deref().unwrap_or("tool"))
                    .opt_str("error", result.error.as_deref())
                    .opt_json("extra", extra.as_ref());
                members.write(w, "TOOL_CALL_RESULT", marker);
            });
        }
        if let Some(message) = display_message {
            let progress = if result.error.is_some() { "failed" } else { "done" };
            let state = self.tools.calls.get_mut(&result.call).filter(|state| state.is_hidden);
            let unwritten = state.and_then(|state| state.unwritten(&result.call, event));
            let events: Vec<_> = unwritten.into_iter().chain([event.clone()]).collect();
            let marker = events_marker(is_hidden, event, &events);
            self.write_call_entry(&result.call, progress, Some(result), event, marker, out);
            let bare = self.members(event).bare();
            self.close_tool_list(&message, &bare, out);
            if let Some(state) = self.tools.calls.get_mut(&result.call) {
                state.display_message = None;
            }
        }
        Fidelity::Exact
    }

    /// Writes the tool list entry of a call.
    fn write_call_entry(
        &mut self,
        call: &ToolCallId,
        progress: &str,
        result: Option<&ToolResult>,
        event: &Event,
        marker: Option<Object>,
        out: &mut Frames,
    ) {
        let Some(state) = self.tools.calls.get(call) else { return };
        let Some(message) = state.display_message.clone() else { return };
        let mut tool = vec![
            ("id", Json::string(call)),
            ("name", Json::string(&state.name)),
            ("description", Json::string(&state.arguments)),
            ("progress", Json::string(progress)),
        ];
        if let Some(result) = result {
            let output =
                compose([("type", Json::string("text")), ("content", Json::string(&result.content.text()))]);
            let outputs = serde_json::json!([{ "output": output.to_value() }]);
            let data = [
                ("title", Json::string(&state.name)),
                ("description", Json::string(&state.arguments)),
                ("data", Json::from(outputs)),
            ];
            tool.push(("data", compose(data).into()));
        }
        let tools = serde_json::json!([compose(tool).to_value()]);
        let data = [
            ("title", Json::string(&state.name)),
            ("icon", Json::string(ICON)),
            ("tools", Json::from(tools)),
        ];
        let output = [
            ("type", Json::string("toolCallShow")),
            ("id", Json::string(call)),
            ("data", compose(data).into()),
        ];
        let members = self.members(event).bare();
        self.write_tool_list(&message, &compose(output), members, marker, out);
    }
}

/// The marker of a displayed call: the events that it represents, or the skip marker.
fn events_marker(is_hidden: bool, event: &Event, events: &[Event]) -> Option<Object> {
    if !is_hidden {
        return skip_marker();
    }
    let texts: Option<Vec<_>> = events.iter().map(|event| agui_event(event, 3)).collect();
    let Some(texts) = texts else { return skip_marker() };
    let mut entries = marker_entries(event.kind());
    let list: Vec<_> = texts.iter().map(Object::to_value).collect();
    entries.push(("events", Json::from(serde_json::Value::from(list))));
    build_marker(entries)
}

fn put_args(frames: &mut FrameWriter, out: &mut Frames, call: &str, delta: &str, members: EventMembers) {
    frames.put(out, "TOOL_CALL_ARGS", |w| {
        w.str("toolCallId", call).str("delta", delta);
        members.write(w, "TOOL_CALL_ARGS", None);
    });
}

fn put_end(frames: &mut FrameWriter, out: &mut Frames, call: &str, members: EventMembers) {
    frames.put(out, "TOOL_CALL_END", |w| {
        w.str("toolCallId", call);
        members.write(w, "TOOL_CALL_END", None);
    });
}
