//! The approval gate: calls of some tools need a person's explicit yes before the front end gets to run them.
//!
//! When a run would end with such a call open, it ends with a question about it instead, with the true arguments. The
//! answer is a run of its own. A yes ends it at once with the call pending, so that the front end runs the tool; a no
//! becomes the call's result, and the agent goes on with that. Calls that the agent answers itself cannot be
//! held: they are over when the gateway hears of them.

use agentwire_core::{
    event::{
        Content, Interrupt, Message, MessageBody, MessageId, Outcome, ResumeStatus, RunInput, ToolCallId,
        ToolResult,
    },
    fold::Fold,
    json::{Json, Object},
};
use serde_json::{Value, json};

use crate::pending;

/// Begins the id of a question about a call.
const PREFIX: &str = "approve:";

/// What is asked instead, if a run that ended like this has calls open that need a yes.
pub(crate) fn question(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    patterns: &[String],
) -> Option<Outcome> {
    if patterns.is_empty() || !matches!(outcome, None | Some(Outcome::Success { .. })) {
        return None;
    }
    let held: Vec<_> = pending::open_calls(fold, outcome, input)
        .into_iter()
        .filter(|(_, name, _)| patterns.iter().any(|pattern| matches(pattern, name)))
        .collect();
    let interrupts: Vec<_> =
        held.into_iter().map(|(call, name, arguments)| ask(&call, &name, &arguments)).collect();
    (!interrupts.is_empty()).then_some(Outcome::Interrupt { interrupts })
}

fn ask(call: &ToolCallId, name: &str, arguments: &Value) -> Interrupt {
    let mut interrupt = Interrupt::new(format!("{PREFIX}{call}"), "tool_call");
    interrupt.message = Some(format!("Allow `{name}`?").into());
    interrupt.tool_call = Some(call.clone());
    interrupt.response_schema = Object::from_value(&json!({
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["approved"],
    }));
    interrupt.metadata = Object::from_value(&json!({"name": name, "arguments": arguments}));
    interrupt
}

/// What people decided about held calls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decisions {
    /// Calls that the front end may run now.
    pub(crate) allowed: Vec<ToolCallId>,
    /// Results of calls that must not run.
    pub(crate) denied: Vec<ToolResult>,
}

/// Takes the decisions about held calls out of a request; the agent never asked.
pub(crate) fn take_decisions(input: &mut RunInput) -> Decisions {
    let mut decisions = Decisions::default();
    let Some(entries) = input.resume.take() else { return decisions };
    let mut others = Vec::new();
    for entry in entries {
        let Some(call) = entry.interrupt.strip_prefix(PREFIX).map(ToolCallId::from) else {
            others.push(entry);
            continue;
        };
        let answer = entry.payload.as_ref().map(Json::to_value).unwrap_or_default();
        let yes = answer.as_bool().or_else(|| answer["approved"].as_bool()).unwrap_or(false);
        if entry.status == ResumeStatus::Resolved && yes {
            decisions.allowed.push(call);
        } else {
            let reason =
                answer["reason"].as_str().map_or_else(|| "denied by the user".to_owned(), str::to_owned);
            decisions.denied.push(ToolResult {
                message: MessageId::from(format!("{PREFIX}{call}:denied")),
                call,
                content: Content::from(reason.as_str()),
                error: Some(reason.into()),
                explicit_role: false,
            });
        }
    }
    input.resume = (!others.is_empty()).then_some(others);
    decisions
}

/// A result as the message that it makes.
pub(crate) fn message(result: &ToolResult) -> Message {
    let body = MessageBody::Tool {
        call: result.call.clone(),
        content: result.content.clone(),
        error: result.error.clone(),
    };
    Message::new(result.message.clone(), body)
}

/// Whether a name fits a pattern, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::ResumeEntry;

    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, fits) in [
            ("delete_*", "delete_file", true),
            ("delete_*", "undelete_file", false),
            ("*", "anything", true),
            ("pay", "pay", true),
            ("pay", "payment", false),
            ("*_file", "delete_file", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn a_yes_lets_the_call_go_and_a_no_answers_it() {
        let entry = |id: &str, payload: Value| ResumeEntry {
            interrupt: id.into(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(payload)),
            metadata: None,
        };
        let mut input = RunInput::new("t", "r");
        input.resume = Some(vec![
            entry("approve:c1", json!({"approved": true})),
            entry("approve:c2", json!({"approved": false, "reason": "too dear"})),
            entry("approve:c3", json!("whatever")),
            entry("other", json!(1)),
        ]);
        let decisions = take_decisions(&mut input);
        assert_eq!(decisions.allowed, ["c1".into()]);
        let denied: Vec<_> = decisions.denied.iter().map(|it| (&*it.call, it.error.as_deref())).collect();
        assert_eq!(denied, [("c2", Some("too dear")), ("c3", Some("denied by the user"))]);
        assert_eq!(input.resume.expect("the agent's own question").len(), 1);
    }
}
