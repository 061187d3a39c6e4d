//! Tool calls: as events, as something to look at, or both; and interrupts as calls of a front-end tool.
//!
//! The standard has one way to ask a person, which is to call a tool that the front end offers. A run that
//! waits for anything else shows it as such a call, and the answer to that call is the answer to the interrupt.

use std::collections::HashSet;

use indexmap::IndexMap;

use super::{
    super::{
        delta::without_hazard,
        nesting::{compose, fits},
        options::{HaiOptions, ToolDisplay},
        reader::attachments::with_parts,
    },
    Framer, HaiWriter, agui_event,
    attachments::parts_json,
    companions::{Companions, marker},
    skipped, stands_for,
};
use crate::{
    event::{Body, Content, ContentPart, Event, Interrupt, MessageId, RunStarted, ToolCallId, ToolResult},
    format::Fidelity,
    framing::{DEFAULT_MAX_FRAME, Frames},
    json::{Json, Object},
};

/// Arguments that are held back until they are whole; beyond that they go out in pieces after all. Escaped,
/// this still fits into a frame.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME / 4;

/// Calls that are remembered; a run has a few dozen.
const MAX_CALLS: usize = 4096;

/// The icon of a list of tool calls, from the set of the reference client.
const ICON: &str = "plx-setting";

const JOINED: Fidelity = Fidelity::Approximated("the pieces of the arguments are joined");

#[derive(Debug)]
pub(crate) struct Tools {
    display: ToolDisplay,
    /// Whether arguments go out whole.
    whole: bool,
    /// The front-end tool that an interrupt is shown as.
    hitl: String,
    /// The tools that the front end offered in this run, if that is known.
    frontend: Option<HashSet<Box<str>>>,
    calls: IndexMap<ToolCallId, Call>,
}

#[derive(Debug)]
struct Call {
    name: Box<str>,
    arguments: String,
    /// How many pieces they came in.
    pieces: u32,
    /// The message that it is shown in.
    shown: Option<MessageId>,
    /// Whether it is shown and nothing else.
    hidden: bool,
    /// How many bytes of the arguments of a hidden call have been told.
    told: usize,
}

impl Call {
    /// The arguments of a hidden call that have not been told yet, as an event beside `event`.
    fn untold(&mut self, call: &ToolCallId, event: &Event) -> Option<Event> {
        let delta = self.arguments.get(self.told..).filter(|rest| !rest.is_empty())?.into();
        self.told = self.arguments.len();
        let body = Body::ToolArgs { call: call.clone(), delta };
        Some(Event::new(body).by(event.subagent.clone()).at(event.timestamp))
    }
}

impl Tools {
    pub(crate) fn new(options: HaiOptions) -> Self {
        Self {
            display: options.tool_display,
            whole: options.whole_arguments,
            hitl: options.interrupt_tool,
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

    /// Shows an interrupt as a call of a front-end tool, unless it is a call already.
    pub(crate) fn show_interrupt(
        &self,
        interrupt: &Interrupt,
        timestamp: Option<i64>,
        frames: &mut Framer,
        out: &mut Frames,
    ) {
        if self.calls.contains_key(&*interrupt.id) {
            return;
        }
        let bare = || Companions::at(timestamp);
        let arguments = interrupt_arguments(interrupt);
        frames.put(out, "TOOL_CALL_START", |w| {
            w.str("toolCallId", &interrupt.id).str("toolCallName", &self.hitl);
            bare().write(w, "TOOL_CALL_START", skipped());
        });
        frames.put(out, "TOOL_CALL_ARGS", |w| {
            w.str("toolCallId", &interrupt.id).str("delta", &without_hazard(arguments.get()));
            bare().write(w, "TOOL_CALL_ARGS", skipped());
        });
        frames.put(out, "TOOL_CALL_END", |w| {
            w.str("toolCallId", &interrupt.id);
            bare().write(w, "TOOL_CALL_END", skipped());
        });
    }
}

/// What a person is asked: `{action, importance?, …payload}`.
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
                let front = self.tools.is_frontend(name);
                let display = if front { ToolDisplay::Events } else { self.tools.display };
                // Without knowing the front end's tools, hiding a call might hide one that it must run.
                let hidden = display == ToolDisplay::Show && self.tools.frontend.is_some();
                if !hidden {
                    let companions = self.companions(event);
                    self.frames.put(out, "TOOL_CALL_START", |w| {
                        w.str("toolCallId", call)
                            .str("toolCallName", name)
                            .opt_str("parentMessageId", parent.as_deref());
                        companions.write(w, "TOOL_CALL_START", None);
                    });
                }
                let shown =
                    (display != ToolDisplay::Events).then(|| self.fresh_message(&format!("{call}:show")));
                let new = Call {
                    name: name.clone(),
                    arguments: String::new(),
                    pieces: 0,
                    shown: shown.clone(),
                    hidden,
                    told: 0,
                };
                if self.tools.calls.len() >= MAX_CALLS {
                    self.tools.calls.shift_remove_index(0);
                }
                self.tools.calls.insert(call.clone(), new);
                if shown.is_some() {
                    let marked = events_marker(hidden, event, std::slice::from_ref(event));
                    self.show_call(call, "running", None, event, marked, out);
                }
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => self.tool_args(event, call, delta, out),
            Body::ToolEnd { call } => self.tool_end(event, call, out),
            Body::ToolResult(result) => self.tool_result(event, result, out),
            _ => unreachable!("not a tool call"),
        }
    }

    fn tool_args(&mut self, event: &Event, call: &ToolCallId, delta: &str, out: &mut Frames) -> Fidelity {
        let whole = self.tools.whole;
        let mut pieces = 1;
        let mut hold = false;
        if let Some(known) = self.tools.calls.get_mut(call)
            && (whole || known.hidden || known.shown.is_some())
        {
            known.pieces = known.pieces.saturating_add(1);
            pieces = known.pieces;
            hold = whole || known.hidden;
            if known.arguments.len() + delta.len() <= MAX_ARGUMENTS {
                known.arguments.push_str(delta);
            } else if known.hidden {
                // Too long to be shown: told all the same.
                if let Some(untold) = known.untold(call, event) {
                    let _ = self.carry(&untold, out);
                }
                return self.carry(event, out);
            } else if whole {
                // Too long to be held back: from here on in pieces.
                let held = std::mem::take(&mut known.arguments);
                let companions = self.companions(event);
                put_args(&mut self.frames, out, call, &held, companions.bare());
                put_args(&mut self.frames, out, call, delta, companions);
                return JOINED;
            }
        }
        let companions = self.companions(event);
        if !hold {
            put_args(&mut self.frames, out, call, delta, companions);
            return Fidelity::Exact;
        }
        if pieces > 1 || !companions.is_empty() { JOINED } else { Fidelity::Exact }
    }

    fn tool_end(&mut self, event: &Event, call: &ToolCallId, out: &mut Frames) -> Fidelity {
        let companions = self.companions(event);
        let Some(known) = self.tools.calls.get_mut(call) else {
            put_end(&mut self.frames, out, call, companions);
            return Fidelity::Exact;
        };
        let (hidden, shown) = (known.hidden, known.shown.is_some());
        let arguments = if hidden { String::new() } else { known.arguments.clone() };
        let untold = if hidden { known.untold(call, event) } else { None };
        if !hidden {
            if self.tools.whole && !arguments.is_empty() {
                // The reference client parses this, commas between braces and all.
                let valid = serde_json::from_str::<serde::de::IgnoredAny>(&arguments).is_ok();
                let text = if valid { without_hazard(&arguments) } else { arguments.as_str().into() };
                put_args(&mut self.frames, out, call, &text, companions.bare());
            }
            put_end(&mut self.frames, out, call, companions);
        }
        let events: Vec<_> = untold.into_iter().chain([event.clone()]).collect();
        if shown {
            let marked = events_marker(hidden, event, &events);
            self.show_call(call, "running", None, event, marked, out);
        } else if hidden {
            // Its answer came first, and ended what was shown.
            for event in &events {
                let _ = self.carry(event, out);
            }
        }
        Fidelity::Exact
    }

    fn tool_result(&mut self, event: &Event, result: &ToolResult, out: &mut Frames) -> Fidelity {
        let known = self.tools.calls.get(&result.call);
        let (hidden, shown) = known.map_or((false, None), |known| (known.hidden, known.shown.clone()));
        // A second answer has nothing left to be shown in.
        let hidden = hidden && shown.is_some();
        if !hidden {
            let mut companions = self.companions(event);
            let role = companions.take_str("role");
            let extra = companions.take_some("extra");
            let (extra, parts) = result_extra(&result.content, extra);
            let marked = parts.and_then(|parts| marker([("parts", parts)]));
            self.frames.put(out, "TOOL_CALL_RESULT", |w| {
                w.str("messageId", &result.message)
                    .str("toolCallId", &result.call)
                    .str("content", &result.content.text())
                    .str("role", role.as_deref().unwrap_or("tool"))
                    .opt_str("error", result.error.as_deref())
                    .opt_json("extra", extra.as_ref());
                companions.write(w, "TOOL_CALL_RESULT", marked);
            });
        }
        if let Some(message) = shown {
            let progress = if result.error.is_some() { "failed" } else { "done" };
            let known = self.tools.calls.get_mut(&result.call).filter(|known| known.hidden);
            let untold = known.and_then(|known| known.untold(&result.call, event));
            let events: Vec<_> = untold.into_iter().chain([event.clone()]).collect();
            let marked = events_marker(hidden, event, &events);
            self.show_call(&result.call, progress, Some(result), event, marked, out);
            let bare = self.companions(event).bare();
            self.hide(&message, &bare, out);
            if let Some(known) = self.tools.calls.get_mut(&result.call) {
                known.shown = None;
            }
        }
        Fidelity::Exact
    }

    /// Draws a call as the list entry that it is.
    fn show_call(
        &mut self,
        call: &ToolCallId,
        progress: &str,
        result: Option<&ToolResult>,
        event: &Event,
        marked: Option<Object>,
        out: &mut Frames,
    ) {
        let Some(known) = self.tools.calls.get(call) else { return };
        let Some(message) = known.shown.clone() else { return };
        let mut tool = vec![
            ("id", Json::string(call)),
            ("name", Json::string(&known.name)),
            ("description", Json::string(&known.arguments)),
            ("progress", Json::string(progress)),
        ];
        if let Some(result) = result {
            let output =
                compose([("type", Json::string("text")), ("content", Json::string(&result.content.text()))]);
            let outputs = serde_json::json!([{ "output": output.to_value() }]);
            let data = [
                ("title", Json::string(&known.name)),
                ("description", Json::string(&known.arguments)),
                ("data", Json::from(outputs)),
            ];
            tool.push(("data", compose(data).into()));
        }
        let tools = serde_json::json!([compose(tool).to_value()]);
        let data = [
            ("title", Json::string(&known.name)),
            ("icon", Json::string(ICON)),
            ("tools", Json::from(tools)),
        ];
        let output = [
            ("type", Json::string("toolCallShow")),
            ("id", Json::string(call)),
            ("data", compose(data).into()),
        ];
        let companions = self.companions(event).bare();
        self.show(&message, &compose(output), companions, marked, out);
    }
}

/// The marker of a shown call: the events it stands for, or nothing that a reader should see.
fn events_marker(hidden: bool, event: &Event, events: &[Event]) -> Option<Object> {
    if !hidden {
        return skipped();
    }
    let texts: Option<Vec<_>> = events.iter().map(|event| agui_event(event, 3)).collect();
    let Some(texts) = texts else { return skipped() };
    let mut marked = stands_for(event.kind());
    let list: Vec<_> = texts.iter().map(Object::to_value).collect();
    marked.push(("events", Json::from(serde_json::Value::from(list))));
    marker(marked)
}

/// `extra` of a result whose content has media, and all of its parts if they cannot be told from that.
fn result_extra(content: &Content, extra: Option<Json>) -> (Option<Json>, Option<Json>) {
    let Content::Parts(parts) = content else {
        return (extra, None);
    };
    let media: Vec<_> = parts.iter().filter(|part| matches!(part, ContentPart::Media { .. })).collect();
    let attachments = parts_json(media.iter().copied());
    let extra = match extra.clone().and_then(Json::into_object) {
        Some(extra) => Some(extra.with("attachments", attachments).into()),
        None if extra.is_none() && !media.is_empty() => Some(compose([("attachments", attachments)]).into()),
        None => extra,
    };
    let told = with_parts(Content::Text(content.text().into()), extra.clone()).0 == *content;
    let all = parts_json(parts);
    (extra, (!told && fits(all.get(), 2)).then_some(all))
}

fn put_args(frames: &mut Framer, out: &mut Frames, call: &str, delta: &str, companions: Companions) {
    frames.put(out, "TOOL_CALL_ARGS", |w| {
        w.str("toolCallId", call).str("delta", delta);
        companions.write(w, "TOOL_CALL_ARGS", None);
    });
}

fn put_end(frames: &mut Framer, out: &mut Frames, call: &str, companions: Companions) {
    frames.put(out, "TOOL_CALL_END", |w| {
        w.str("toolCallId", call);
        companions.write(w, "TOOL_CALL_END", None);
    });
}
