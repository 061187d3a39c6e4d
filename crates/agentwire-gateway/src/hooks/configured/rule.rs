//! Rules for events by configuration: drop, rename, redact.
//!
//! A rule selects events by type, tool or name, each a pattern in which `*` stands for any text, and acts on the whole
//! event or, with a JSON pointer, on values in the event, a tool's arguments or result, or the state.

use agentwire_core::event::{Body, Event};

use super::pointer::Pointer;
use crate::agent::pattern::matches;

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drops the event or value.
    Drop,
    /// Renames it.
    Rename {
        /// The new name.
        to: String,
    },
    /// Replaces it by a text.
    Redact {
        /// The text.
        with: String,
    },
}

/// The document to which a pointer applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The event as it is logged: AG-UI JSON.
    Event,
    /// The arguments of a tool call.
    Arguments,
    /// The result of a tool call.
    Result,
    /// The state.
    State,
}

/// The options of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// The action.
    pub action: Action,
    /// A pattern of event types, as in [`EVENTS`].
    pub event: Option<String>,
    /// A pattern of tool names.
    pub tool: Option<String>,
    /// A pattern of names of custom events and steps, and of kinds of activities.
    pub name: Option<String>,
    /// The document of the pointer. By default arguments and result if there is a tool pattern, else the event.
    pub place: Option<Place>,
    /// The JSON pointer; `*` stands for every member or element.
    pub pointer: Option<String>,
}

impl RuleOptions {
    /// A rule with an action and no selection.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { action, event: None, tool: None, name: None, place: None, pointer: None }
    }

    /// Checks that the rule can have an effect.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self) -> Result<(), RuleError> {
        Rule::new(self).map(|_| ())
    }

    /// True if all events of this type are dropped, with any call or name.
    #[must_use]
    pub fn drops(&self, kind: &str) -> bool {
        let rule = Rule::new(self).ok().filter(|rule| rule.is_whole(&Action::Drop));
        rule.is_some_and(|rule| rule.tool.is_none() && rule.name.is_none() && rule.events.contains(&kind))
    }
}

/// The reason why a rule can never have an effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    /// The invalid key of the configuration; empty if it is the rule as a whole.
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

/// The types that cannot be dropped.
const FRAME_OF_A_RUN: &[&str] = &["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"];

/// The types of a tool call's events.
const OF_TOOLS: &[&str] = &["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"];

/// The types of events with a name.
const OF_NAMES: &[&str] = &["CUSTOM", "STEP_STARTED", "STEP_FINISHED", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"];

/// A checked rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    pub(super) target: Target,
    /// The event types; all that the rest of the rule allows if empty.
    events: Vec<&'static str>,
    tool: Option<String>,
    name: Option<String>,
}

/// The target of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// The event, the tool call, or its name.
    Whole,
    /// Values of the event.
    Event(Pointer),
    /// Values of arguments, of results, or of both.
    Call { arguments: bool, result: bool, pointer: Option<Pointer> },
    /// Values of the state.
    State(Pointer),
}

impl Rule {
    /// Checks a rule.
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
            let member = if tool.is_some() { "tool" } else { "name" };
            return Err(RuleError::at("event", format!("events of that type have no {member}")));
        }
        Ok(Self { action: action.clone(), target, events, tool: tool.clone(), name: name.clone() })
    }

    /// True if the rule applies to this tool; a rule without a tool pattern applies to all.
    pub(super) fn fits_tool(&self, tool: &str) -> bool {
        self.name.is_none() && self.tool.as_deref().is_none_or(|pattern| matches(pattern, tool))
    }

    /// True if calls of this tool are dropped completely.
    pub(super) fn drops_calls_of(&self, tool: &str) -> bool {
        self.is_whole(&Action::Drop) && self.events.is_empty() && self.tool.is_some() && self.fits_tool(tool)
    }

    /// The new name of this tool.
    pub(super) fn new_name_of_tool(&self, tool: &str) -> Option<&str> {
        match &self.action {
            Action::Rename { to } if self.target == Target::Whole && self.tool.is_some() => {
                self.fits_tool(tool).then_some(to)
            }
            _ => None,
        }
    }

    /// The new and the old name, if the rule renames a single tool.
    pub(super) fn old_name_of_tool(&self) -> Option<(&str, &str)> {
        let tool = self.tool.as_deref().filter(|tool| !tool.contains('*'))?;
        Some((self.new_name_of_tool(tool)?, tool))
    }

    /// The new name of an event other than a tool call.
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

    /// True if the rule applies to this event; `tool` is the tool of its call.
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

    /// True if the event is dropped.
    pub(super) fn drops(&self, event: &Event, tool: Option<&str>) -> bool {
        self.is_whole(&Action::Drop) && !FRAME_OF_A_RUN.contains(&event.kind()) && self.fits(event, tool)
    }
}

/// The name of an event, if it has one.
pub(super) fn name_of(body: &Body) -> Option<&str> {
    match body {
        Body::Custom { name, .. } | Body::StepStarted { name } | Body::StepFinished { name } => Some(name),
        Body::ActivitySnapshot { kind, .. } | Body::ActivityDelta { kind, .. } => Some(kind),
        _ => None,
    }
}

/// The same, mutable.
pub(super) fn name_mut(body: &mut Body) -> Option<&mut Box<str>> {
    match body {
        Body::Custom { name, .. } | Body::StepStarted { name } | Body::StepFinished { name } => Some(name),
        Body::ActivitySnapshot { kind, .. } | Body::ActivityDelta { kind, .. } => Some(kind),
        _ => None,
    }
}
