//! Reports violations of the order rules.

use std::fmt;

use super::{
    guard::Guard,
    rule::Rule,
    track::{Phase, Track},
};
use crate::event::{Body, Event};

/// One broken rule of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The index of the event, from 0; one past the last for an event that is missing at the end.
    pub position: u64,
    /// The broken rule.
    pub rule: Rule,
    /// The event that the rule requires.
    pub expected: String,
    /// The event found.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, rule, expected, found } = self;
        write!(f, "event {position}: {rule}: expected {expected}, found {found}")
    }
}

/// Checks a stream and reports each violation.
///
/// After a violation it continues as the [`Guard`] would, so that one mistake is reported once and not for every
/// event that depends on it.
#[derive(Debug)]
pub struct Checker {
    guard: Guard,
    position: u64,
    scratch: Vec<Event>,
}

impl Default for Checker {
    fn default() -> Self {
        Self { guard: Guard::new("", ""), position: 0, scratch: Vec::new() }
    }
}

impl Checker {
    /// A checker for one stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next event.
    pub fn check(&mut self, event: &Event) -> Option<Violation> {
        let verdict = self.guard.track.judge(event);
        let violation = verdict.err().map(|rule| {
            let (expected, found) = explain(&self.guard.track, rule, event);
            Violation { position: self.position, rule, expected, found }
        });
        self.position += 1;
        match verdict {
            // The client accepts a late failure and ends the run, so the checker does as well.
            Ok(()) | Err(Rule::OneTerminal) => self.guard.track.advance(event),
            Err(_) => {
                self.guard.push(event.clone(), &mut self.scratch);
                self.scratch.clear();
            }
        }
        violation
    }

    /// Ends the stream.
    pub fn end(&mut self) -> Option<Violation> {
        let found = match self.guard.track.phase {
            Phase::Finished | Phase::Errored => return None,
            Phase::Empty => "an empty stream",
            Phase::Active => "the end of the stream",
        };
        Some(Violation {
            position: self.position,
            rule: Rule::NoTerminal,
            expected: "RUN_FINISHED or RUN_ERROR".into(),
            found: found.into(),
        })
    }

    /// The number of checked events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.position
    }
}

/// The expectation of `rule` and a description of `event`.
fn explain(track: &Track, rule: Rule, event: &Event) -> (String, String) {
    let found = describe(event);
    let owner = |known: &Option<crate::event::SubagentId>| match known {
        Some(subagent) => format!("subagent `{subagent}`"),
        None => "the main agent".to_owned(),
    };
    let expected = match rule {
        Rule::RunFirst => "RUN_STARTED or RUN_ERROR first".to_owned(),
        Rule::RunActive => match &track.run {
            Some((_, run)) => format!("the end of run `{run}` first"),
            None => "the end of the active run first".to_owned(),
        },
        Rule::RunOver => match track.phase {
            Phase::Errored => "RUN_STARTED or nothing after RUN_ERROR".to_owned(),
            _ => "RUN_STARTED or nothing after RUN_FINISHED".to_owned(),
        },
        Rule::OneTerminal => "nothing of the run after RUN_FINISHED".to_owned(),
        Rule::RunIds => match &track.run {
            Some((thread, run)) => format!("thread `{thread}` and run `{run}`"),
            None => "the ids of RUN_STARTED".to_owned(),
        },
        Rule::OneThread => match &track.thread {
            Some(thread) => format!("thread `{thread}`, as in the first run"),
            None => "the thread of the first run".to_owned(),
        },
        Rule::Unclosed => format!("the end of {} first", track.describe_open()),
        Rule::StepOwner => {
            let Body::StepFinished { name } = &event.body else {
                return (rule.about().to_owned(), found);
            };
            let owners: Vec<_> = track.step_owners(name).iter().map(owner).collect();
            format!("the end of step `{name}` by {}", owners.join(" or "))
        }
        Rule::Owner | Rule::ParentOwner => {
            let known = match &event.body {
                Body::TextStart { message, .. }
                | Body::TextDelta { message, .. }
                | Body::TextEnd { message } => track.messages.get(message.as_str()),
                Body::ToolStart { parent: Some(parent), .. } if rule == Rule::ParentOwner => {
                    track.messages.get(parent.as_str())
                }
                Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                    track.calls.get(call.as_str())
                }
                _ => None,
            };
            match known {
                Some(entry) => format!("the owner, {}, or no owner", owner(&entry.owner)),
                None => "the owner of what it continues, or no owner".to_owned(),
            }
        }
        Rule::TextNotOpen | Rule::ToolNotOpen | Rule::ReasoningNotOpen | Rule::SpanNotOpen => {
            let start = match rule {
                Rule::TextNotOpen => "TEXT_MESSAGE_START",
                Rule::ToolNotOpen => "TOOL_CALL_START",
                Rule::ReasoningNotOpen => "REASONING_MESSAGE_START",
                _ => "REASONING_START",
            };
            format!("{start} of the same id first")
        }
        Rule::TextOpen | Rule::ToolOpen | Rule::ReasoningOpen | Rule::SpanOpen => {
            "the end of the one that is open first".to_owned()
        }
        Rule::StepNotOpen => "STEP_STARTED of the same name first".to_owned(),
        Rule::SubagentNotOpen => "SUBAGENT_STARTED of the same id first".to_owned(),
        _ => rule.about().to_owned(),
    };
    (expected, found)
}

/// The kind of the event and its main id.
fn describe(event: &Event) -> String {
    let name: &str = match &event.body {
        Body::RunStarted(started) => &started.run,
        Body::RunFinished(finished) => &finished.run,
        Body::StepStarted { name } | Body::StepFinished { name } => name,
        Body::TextStart { message, .. }
        | Body::TextDelta { message, .. }
        | Body::TextEnd { message }
        | Body::ActivitySnapshot { message, .. }
        | Body::ActivityDelta { message, .. }
        | Body::ReasoningStart { message, .. }
        | Body::ReasoningMessageStart { message }
        | Body::ReasoningDelta { message, .. }
        | Body::ReasoningMessageEnd { message }
        | Body::ReasoningEnd { message } => message,
        Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => call,
        Body::ToolResult(result) => &result.call,
        Body::SubagentStarted(_) | Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
            event.subagent.as_deref().unwrap_or("")
        }
        _ => "",
    };
    let mut text = event.kind().to_owned();
    if !name.is_empty() {
        let shown: String = name.chars().take(60).collect();
        text.push_str(&format!(" `{shown}`"));
    }
    if let Some(subagent) = &event.subagent
        && &**subagent != name
    {
        text.push_str(&format!(" of subagent `{subagent}`"));
    }
    text
}
