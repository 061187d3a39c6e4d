//! The approval gate: calls of some tools need a person's explicit yes before somebody outside the agent runs them.
//!
//! When a run would end with such a call open, it ends with a question about it instead, with the true arguments. The
//! answer is a run of its own. A yes ends it at once with the call pending, so that the front end runs the tool, with
//! the arguments as the person has changed them if they did; a no becomes the call's result, and the agent goes on with
//! that. A long-running tool of the agent's is held likewise: a yes opens it for its result. Calls that
//! the agent answers itself cannot be held: they are over when the gateway hears of them.
//!
//! What the gate must remember between the question and the answer stands in the pending item, where neither the
//! agent nor a client can put it.

use agentwire_core::{
    event::{
        Content, Interrupt, InterruptId, Message, MessageBody, MessageId, Outcome, ResumeEntry, ResumeStatus,
        RunInput, ToolCallId, ToolResult,
    },
    fold::Fold,
    json::{Json, Object},
};
use agentwire_store::Pending;
use serde_json::{Value, json};

use crate::{agent::pattern, human::pending};

/// Begins the id of a question about a call.
const PREFIX: &str = "approve:";

/// The member of a pending item, and of the metadata of its answer, in which the gate remembers.
const MEMORY: &str = "gate";

/// The member of a pending item with answers that wait for its own.
const CARRIED: &str = "carried";

/// What the gate did at the end of a run.
#[derive(Debug, Default)]
pub(crate) struct Gated {
    /// The questions that it asks, each with the question of the agent's that stands behind it.
    pub(crate) asked: Vec<(InterruptId, Option<Interrupt>)>,
    /// Calls that the front end may run now.
    pub(crate) allowed: Vec<ToolCallId>,
    /// Answers that the agent gets once the rest is answered.
    pub(crate) carried: Vec<ResumeEntry>,
}

impl Gated {
    /// What a pending item remembers for the gate.
    pub(crate) fn remember(&self, id: &str, body: &mut Value) {
        if let Some((_, behind)) = self.asked.iter().find(|(asked, _)| asked.as_str() == id) {
            let behind = behind.as_ref().map(|behind| {
                let mut body = pending::body_of(behind, None, None);
                body["id"] = behind.id.as_str().into();
                body
            });
            body[MEMORY] = json!({"call": body["toolCallId"], "behind": behind});
        }
        if !self.carried.is_empty() {
            let carried = self.carried.iter().map(|entry| {
                let resolved = entry.status == ResumeStatus::Resolved;
                let payload = entry.payload.as_ref().map(Json::to_value);
                json!({"id": entry.interrupt.as_str(), "resolved": resolved, "payload": payload})
            });
            body[CARRIED] = carried.collect();
        }
    }
}

/// Whether a member of a pending item is the gate's, and nobody else's affair.
pub(crate) fn is_memory(member: &str) -> bool {
    member == MEMORY || member == CARRIED
}

/// What is asked instead, if a run that ended like this has calls open that need a yes.
pub(crate) fn question(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    patterns: &[String],
) -> Option<(Outcome, Gated)> {
    let asked = match outcome {
        _ if patterns.is_empty() => return None,
        None | Some(Outcome::Success { .. }) => &[][..],
        Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
        Some(_) => return None,
    };
    let fits = |name: &str| patterns.iter().any(|pattern| pattern::matches(pattern, name));
    let mut gated = Gated::default();
    let mut interrupts = Vec::new();
    for interrupt in asked {
        let call = interrupt
            .tool_call
            .as_ref()
            .filter(|_| pending::kind_of(interrupt) == pending::LONG_RUNNING_TOOL);
        let named = call.and_then(|call| Some((call, pending::call_of(fold, call)?)));
        match named.filter(|(_, (name, _))| fits(name)) {
            Some((call, (name, arguments))) => {
                let question = ask(call, &name, &arguments, None);
                gated.asked.push((question.id.clone(), Some(interrupt.clone())));
                interrupts.push(question);
            }
            None => interrupts.push(interrupt.clone()),
        }
    }
    let guarded =
        |call: &ToolCallId| asked.iter().any(|interrupt| interrupt.tool_call.as_ref() == Some(call));
    for (call, name, arguments) in pending::open_calls(fold, outcome, input) {
        if fits(&name) && !guarded(&call) {
            let tool = input.tools.iter().find(|tool| *tool.name == *name);
            let question =
                ask(&call, &name, &arguments, Some(tool.and_then(|tool| tool.parameters.as_ref())));
            gated.asked.push((question.id.clone(), None));
            interrupts.push(question);
        }
    }
    (!gated.asked.is_empty()).then_some((Outcome::Interrupt { interrupts }, gated))
}

/// A question about a call. `editable` are arguments that can be changed, with their schema if it is known.
fn ask(call: &ToolCallId, name: &str, arguments: &Value, editable: Option<Option<&Json>>) -> Interrupt {
    let mut interrupt = Interrupt::new(format!("{PREFIX}{call}"), "tool_call");
    interrupt.message = Some(format!("Allow `{name}`?").into());
    interrupt.tool_call = Some(call.clone());
    let mut members = json!({"approved": {"type": "boolean"}, "reason": {"type": "string"}});
    if let Some(schema) = editable {
        let schema = schema.map(Json::to_value).filter(|schema| schema.get("type") == Some(&"object".into()));
        members["editedArgs"] = schema.unwrap_or_else(|| json!({"type": "object"}));
    }
    interrupt.response_schema = Object::from_value(&json!({
        "type": "object",
        "properties": members,
        "required": ["approved"],
    }));
    interrupt.metadata = Object::from_value(&json!({"name": name, "arguments": arguments}));
    interrupt
}

/// The answer to an item, with what the gate remembered about the item and nothing that a client says in its place.
pub(crate) fn remembering(entry: &ResumeEntry, item: &Pending) -> ResumeEntry {
    let mut members = entry.metadata.as_ref().map(Object::entries).unwrap_or_default();
    members.retain(|(key, _)| key != MEMORY);
    if let Ok(mut body) = serde_json::from_str::<Value>(&item.body)
        && let Some(memory) = body.get_mut(MEMORY)
    {
        members.push((MEMORY.to_owned(), Json::from(memory.take())));
    }
    let mut entry = entry.clone();
    let members = members.iter().map(|(key, value)| (key.as_str(), value.clone()));
    entry.metadata = (members.len() > 0).then(|| Object::from_entries(members));
    entry
}

/// The answers that waited for the answer to this item.
pub(crate) fn carried(item: &Pending) -> Vec<ResumeEntry> {
    let body: Value = serde_json::from_str(&item.body).unwrap_or_default();
    let entries = body[CARRIED].as_array().into_iter().flatten();
    let entry = |carried: &Value| {
        Some(ResumeEntry {
            interrupt: carried["id"].as_str()?.into(),
            status: if carried["resolved"] == true {
                ResumeStatus::Resolved
            } else {
                ResumeStatus::Cancelled
            },
            payload: Some(&carried["payload"]).filter(|payload| !payload.is_null()).map(Json::from),
            metadata: None,
        })
    };
    entries.filter_map(entry).collect()
}

/// What people decided about held calls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decisions {
    /// Calls that the front end may run now, with their arguments if somebody changed them.
    pub(crate) allowed: Vec<(ToolCallId, Option<Value>)>,
    /// Questions of the agent's that may be answered now.
    pub(crate) opened: Vec<Interrupt>,
    /// Results of calls that must not run.
    pub(crate) denied: Vec<ToolResult>,
}

impl Decisions {
    /// Whether somebody outside the agent has to do something first.
    pub(crate) fn is_open(&self) -> bool {
        !self.allowed.is_empty() || !self.opened.is_empty()
    }
}

/// Takes the decisions about held calls out of a request; the agent never asked. A question of the agent's that must not be
/// answered is answered with that.
pub(crate) fn take_decisions(input: &mut RunInput) -> Decisions {
    let mut decisions = Decisions::default();
    let Some(entries) = input.resume.take() else { return decisions };
    let mut others = Vec::new();
    for entry in entries {
        let Some(memory) = entry.metadata.as_ref().and_then(|metadata| metadata.member(MEMORY)) else {
            others.push(entry);
            continue;
        };
        let memory = memory.to_value();
        let answer = entry.payload.as_ref().map(Json::to_value).unwrap_or_default();
        let said = [&answer, &answer["approved"], &answer["confirmed"]].map(Value::as_bool);
        // One that says both is no yes.
        let yes = said.contains(&Some(true)) && !said.contains(&Some(false));
        let yes = entry.status == ResumeStatus::Resolved && yes;
        let reason = || answer["reason"].as_str().unwrap_or("denied by the user").to_owned();
        let call = ToolCallId::from(memory["call"].as_str().unwrap_or_default());
        match (memory["behind"]["id"].as_str(), yes) {
            (Some(id), true) => decisions.opened.push(pending::interrupt_of(id, &memory["behind"])),
            (Some(id), false) => others.push(ResumeEntry {
                interrupt: id.into(),
                status: ResumeStatus::Resolved,
                payload: Some(Json::from(json!({"status": "denied", "reason": reason()}))),
                metadata: None,
            }),
            (None, true) => {
                let edited = answer.get("editedArgs").filter(|edited| edited.is_object()).cloned();
                decisions.allowed.push((call, edited));
            }
            (None, false) => decisions.denied.push(ToolResult {
                message: MessageId::from(format!("{PREFIX}{call}:denied")),
                call,
                content: Content::from(reason().as_str()),
                error: Some(reason().into()),
                explicit_role: false,
            }),
        }
    }
    input.resume = (!others.is_empty()).then_some(others);
    decisions
}

/// The conversation with the arguments that people changed; `None` if they changed none.
pub(crate) fn edited(messages: &[Message], allowed: &[(ToolCallId, Option<Value>)]) -> Option<Vec<Message>> {
    let edits: Vec<_> = allowed.iter().filter_map(|(call, edited)| Some((call, edited.as_ref()?))).collect();
    if edits.is_empty() {
        return None;
    }
    let mut messages = messages.to_vec();
    for (edited, arguments) in edits {
        let calls = messages.iter_mut().filter_map(|message| match &mut message.body {
            MessageBody::Assistant { tool_calls, .. } => tool_calls.as_mut(),
            _ => None,
        });
        // An id that was used again means the last call.
        if let Some(call) = calls.flatten().rfind(|call| call.id == *edited) {
            call.arguments = arguments.to_string().into();
        }
    }
    Some(messages)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, memory: Option<Value>, payload: Value) -> ResumeEntry {
        ResumeEntry {
            interrupt: id.into(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(payload)),
            metadata: memory.map(|memory| Object::from_entries([(MEMORY, Json::from(memory))])),
        }
    }

    #[test]
    fn a_yes_lets_the_call_go_and_a_no_answers_it() {
        let held = |call: &str| Some(json!({"call": call, "behind": null}));
        let mut input = RunInput::new("t", "r");
        input.resume = Some(vec![
            entry("approve:c1", held("c1"), json!({"approved": true})),
            entry("approve:c2", held("c2"), json!({"approved": false, "reason": "too dear"})),
            entry("approve:c3", held("c3"), json!("whatever")),
            entry("approve:c4", held("c4"), json!({"approved": true, "editedArgs": {"n": 1}})),
            entry("approve:c5", held("c5"), json!({"approved": true, "confirmed": false})),
            entry("approve:mine", None, json!(1)),
        ]);
        let decisions = take_decisions(&mut input);
        assert_eq!(decisions.allowed, [("c1".into(), None), ("c4".into(), Some(json!({"n": 1})))]);
        let denied: Vec<_> = decisions.denied.iter().map(|it| (&*it.call, it.error.as_deref())).collect();
        let no = Some("denied by the user");
        assert_eq!(denied, [("c2", Some("too dear")), ("c3", no), ("c5", no)]);
        let left = input.resume.expect("the agent's own question, whatever it is called");
        assert_eq!((left.len(), &*left[0].interrupt), (1, "approve:mine"));
    }

    #[test]
    fn a_yes_opens_a_question_of_the_agents_and_a_no_answers_it() {
        let held = |id: &str| {
            Some(
                json!({"call": id, "behind": {"id": id, "reason": "tool_call", "toolCallId": id, "message": "Well?"}}),
            )
        };
        let mut input = RunInput::new("t", "r");
        input.resume = Some(vec![
            entry("approve:l1", held("l1"), json!(true)),
            entry("approve:l2", held("l2"), json!({"approved": false, "reason": "not now"})),
        ]);
        let decisions = take_decisions(&mut input);
        let opened: Vec<_> = decisions.opened.iter().map(|it| (&*it.id, it.message.as_deref())).collect();
        assert_eq!(opened, [("l1", Some("Well?"))]);
        let left = input.resume.expect("the answer to the other one");
        assert_eq!(&*left[0].interrupt, "l2");
        let told = left[0].payload.as_ref().map(Json::to_value);
        assert_eq!(told, Some(json!({"status": "denied", "reason": "not now"})));
    }
}
