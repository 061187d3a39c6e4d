//! What becomes of events without a line of code: dropped, renamed, redacted.
//!
//! A rule chooses by event type, tool or name, each a pattern in which `*` stands for anything, and acts on the whole
//! or, with a JSON pointer, on values inside: of the event, of a tool's arguments or result, of the state.

use agentwire_core::event::{Body, Event};

use super::pointer::Pointer;
use crate::agent::pattern::matches;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is left out.
    Drop,
    /// It gets another name.
    Rename {
        /// The name.
        to: String,
    },
    /// It is replaced by a text.
    Redact {
        /// The text.
        with: String,
    },
}

/// Where a pointer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the event, as the log has it: AG-UI JSON.
    Event,
    /// At the arguments of a tool call.
    Arguments,
    /// At the result of a tool call.
    Result,
    /// At the state.
    State,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// What is done.
    pub action: Action,
    /// The types of events, as in [`EVENTS`]; `*` stands for anything.
    pub event: Option<String>,
    /// The tools whose calls it is about; `*` stands for anything.
    pub tool: Option<String>,
    /// The names of custom events and steps and the kinds of activities that it is about; `*` stands for anything.
    pub name: Option<String>,
    /// Where the pointer begins. If absent: at arguments and result where a tool is named, otherwise at the event.
    pub place: Option<Place>,
    /// Where the value is; `*` stands for every member or element.
    pub pointer: Option<String>,
}

impl RuleOptions {
    /// A rule that says nothing yet about what it is for.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { action, event: None, tool: None, name: None, place: None, pointer: None }
    }

    /// Whether the rule can do anything.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> Result<(), RuleError> {
        Rule::new(self).map(|_| ())
    }

    /// Whether events of this type are left out, whatever their call or name.
    #[must_use]
    pub fn drops(&self, kind: &str) -> bool {
        let rule = Rule::new(self).ok().filter(|rule| rule.is_whole(&Action::Drop));
        rule.is_some_and(|rule| rule.tool.is_none() && rule.name.is_none() && rule.events.contains(&kind))
    }
}

/// Why a rule can never do anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    /// The key that is wrong, as it is called in a file; empty if it is the rule as a whole.
    pub key: &'static str,
    message: String,
}

impl RuleError {
    fn at(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }
}

/// The types of events.
pub const EVENTS: &[&str] = &[
    "RUN_STARTED",
    "RUN_FINISHED",
    "RUN_ERROR",
    "STEP_STARTED",
    "STEP_FINISHED",
    "TEXT_MESSAGE_START",
    "TEXT_MESSAGE_CONTENT",
    "TEXT_MESSAGE_END",
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    "STATE_SNAPSHOT",
    "STATE_DELTA",
    "MESSAGES_SNAPSHOT",
    "ACTIVITY_SNAPSHOT",
    "ACTIVITY_DELTA",
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_END",
    "REASONING_ENCRYPTED_VALUE",
    "SUBAGENT_STARTED",
    "SUBAGENT_FINISHED",
    "SUBAGENT_ERROR",
    "RAW",
    "CUSTOM",
    "SOURCE",
    "FILE",
    "BLOCK",
    "COLLABORATION_START",
    "COLLABORATION_TASK",
    "COLLABORATION_END",
    "FINISH_REASON",
];

/// Without these there is no run.
const FRAME_OF_A_RUN: &[&str] = &["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"];

/// Those of a tool call.
const OF_TOOLS: &[&str] = &["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"];

/// Those that have a name.
const OF_NAMES: &[&str] = &["CUSTOM", "STEP_STARTED", "STEP_FINISHED", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"];

/// A rule that can do something.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) target: Target,
    /// The types of events; all that the rest of the rule allows if empty.
    events: Vec<&'static str>,
    tool: Option<String>,
    name: Option<String>,
}

/// What a rule acts on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// The event, the call, or its name.
    Whole,
    /// Values of the event.
    Event(Pointer),
    /// Values of arguments, of results, or of both.
    Call { arguments: bool, result: bool, pointer: Option<Pointer> },
    /// Values of the state.
    State(Pointer),
}

impl Rule {
    /// The rule, or why it can never do anything.
    pub(super) fn new(options: &RuleOptions) -> Result<Self, RuleError> {
        let RuleOptions { action, event, tool, name, place, pointer } = options;
        let parsed = match pointer {
            None => None,
            Some(text) => Some(
                Pointer::parse(text)
                    .ok_or_else(|| RuleError::at("pointer", format!("`{text}` is no JSON pointer")))?,
            ),
        };
        let mut events: Vec<_> = match event {
            None => Vec::new(),
            Some(pattern) => EVENTS.iter().copied().filter(|kind| matches(pattern, kind)).collect(),
        };
        if let Some(pattern) = event
            && events.is_empty()
        {
            return Err(RuleError::at("event", format!("no type of event is called `{pattern}`")));
        }
        if tool.is_some() && name.is_some() {
            return Err(RuleError::at("name", "`tool` and `name` exclude each other: no event has both"));
        }
        let (action_name, is_redact) = match action {
            Action::Drop => ("drop", false),
            Action::Rename { .. } => ("rename", false),
            Action::Redact { .. } => ("redact", true),
        };
        let target = match (place, parsed) {
            (Some(Place::State), None) => {
                return Err(RuleError::at("in", "`in = \"state\"` needs a `pointer` into it"));
            }
            (Some(Place::State), Some(pointer)) => {
                if event.is_some() || tool.is_some() || name.is_some() {
                    return Err(RuleError::at(
                        "in",
                        "the state has neither `event` nor `tool` nor `name`: it is one for all",
                    ));
                }
                Target::State(pointer)
            }
            (Some(place @ (Place::Arguments | Place::Result)), pointer) => {
                if pointer.is_none() && !is_redact {
                    return Err(RuleError::at(
                        "pointer",
                        format!("`{action_name}` in a tool call needs a `pointer`"),
                    ));
                }
                if name.is_some() || event.is_some() {
                    return Err(RuleError::at(
                        "in",
                        "a tool call is chosen by `tool`, not by `event` or `name`",
                    ));
                }
                let (arguments, result) = (*place == Place::Arguments, *place == Place::Result);
                Target::Call { arguments, result, pointer }
            }
            (None, pointer) if tool.is_some() && event.is_none() && (pointer.is_some() || is_redact) => {
                Target::Call { arguments: true, result: true, pointer }
            }
            (Some(Place::Event) | None, Some(pointer)) => {
                if pointer.is_member("type") {
                    return Err(RuleError::at("pointer", "the `type` of an event cannot be changed"));
                }
                Target::Event(pointer)
            }
            (Some(Place::Event) | None, None) if is_redact => {
                return Err(RuleError::at(
                    "",
                    "`redact` needs a `pointer` or a `tool`: it does not say what to hide",
                ));
            }
            (Some(Place::Event) | None, None) => Target::Whole,
        };
        if target == Target::Whole {
            match action {
                Action::Rename { .. } if tool.is_none() && name.is_none() => {
                    return Err(RuleError::at(
                        "",
                        "`rename` needs a `tool`, a `name` or a `pointer`: types of events are the protocol's",
                    ));
                }
                Action::Rename { .. } if tool.is_some() && event.is_some() => {
                    return Err(RuleError::at(
                        "event",
                        "a tool has one name in all events of a call: leave `event` out",
                    ));
                }
                Action::Drop if event.is_none() && tool.is_none() && name.is_none() => {
                    return Err(RuleError::at(
                        "",
                        "`drop` needs an `event`, a `tool` or a `name`: it does not say what to leave out",
                    ));
                }
                Action::Drop => {
                    let before = events.len();
                    events.retain(|kind| !FRAME_OF_A_RUN.contains(kind));
                    if before > 0 && events.is_empty() {
                        return Err(RuleError::at(
                            "event",
                            "the beginning and the ending of a run cannot be dropped",
                        ));
                    }
                }
                _ => {}
            }
        }
        let fits: &[&str] = match (tool, name) {
            (Some(_), _) => OF_TOOLS,
            (_, Some(_)) => OF_NAMES,
            _ => EVENTS,
        };
        let before = events.len();
        events.retain(|kind| fits.contains(kind));
        if before > 0 && events.is_empty() {
            let what = if tool.is_some() { "tool" } else { "name" };
            return Err(RuleError::at("event", format!("events of that type have no {what}")));
        }
        Ok(Self { action: action.clone(), target, events, tool: tool.clone(), name: name.clone() })
    }

    /// Whether the rule is for this tool, by name; one that names none is for all.
    pub(super) fn fits_tool(&self, tool: &str) -> bool {
        self.name.is_none() && self.tool.as_deref().is_none_or(|pattern| matches(pattern, tool))
    }

    /// Whether whole calls of this tool are left out.
    pub(super) fn drops_calls_of(&self, tool: &str) -> bool {
        self.is_whole(&Action::Drop) && self.events.is_empty() && self.tool.is_some() && self.fits_tool(tool)
    }

    /// The name that this tool gets.
    pub(super) fn new_name_of_tool(&self, tool: &str) -> Option<&str> {
        match &self.action {
            Action::Rename { to } if self.target == Target::Whole && self.tool.is_some() => {
                self.fits_tool(tool).then_some(to)
            }
            _ => None,
        }
    }

    /// The tool that is called otherwise outside, if it is one.
    pub(super) fn old_name_of_tool(&self) -> Option<(&str, &str)> {
        let tool = self.tool.as_deref().filter(|tool| !tool.contains('*'))?;
        Some((self.new_name_of_tool(tool)?, tool))
    }

    /// The name that something else gets.
    pub(super) fn new_name_of(&self, kind: &str, name: &str) -> Option<&str> {
        let Action::Rename { to } = &self.action else { return None };
        let pattern = self.name.as_deref().filter(|_| self.target == Target::Whole)?;
        (self.has_type(kind) && matches(pattern, name)).then_some(to)
    }

    fn has_type(&self, kind: &str) -> bool {
        self.events.is_empty() || self.events.contains(&kind)
    }

    fn is_whole(&self, action: &Action) -> bool {
        self.target == Target::Whole && self.action == *action
    }

    /// Whether the rule is for this event; `tool` is the tool of its call.
    pub(super) fn fits(&self, event: &Event, tool: Option<&str>) -> bool {
        let kind = event.kind();
        if !self.has_type(kind) {
            return false;
        }
        match (&self.tool, &self.name) {
            (Some(pattern), _) => tool.is_some_and(|tool| matches(pattern, tool)),
            (_, Some(pattern)) => name_of(&event.body).is_some_and(|name| matches(pattern, name)),
            _ => true,
        }
    }

    /// Whether the event is left out.
    pub(super) fn drops(&self, event: &Event, tool: Option<&str>) -> bool {
        self.is_whole(&Action::Drop) && !FRAME_OF_A_RUN.contains(&event.kind()) && self.fits(event, tool)
    }
}

/// The name of what has one.
pub(super) fn name_of(body: &Body) -> Option<&str> {
    match body {
        Body::Custom { name, .. } | Body::StepStarted { name } | Body::StepFinished { name } => Some(name),
        Body::ActivitySnapshot { kind, .. } | Body::ActivityDelta { kind, .. } => Some(kind),
        _ => None,
    }
}

/// The same, to be changed.
pub(super) fn name_mut(body: &mut Body) -> Option<&mut Box<str>> {
    match body {
        Body::Custom { name, .. } | Body::StepStarted { name } | Body::StepFinished { name } => Some(name),
        Body::ActivitySnapshot { kind, .. } | Body::ActivityDelta { kind, .. } => Some(kind),
        _ => None,
    }
}
