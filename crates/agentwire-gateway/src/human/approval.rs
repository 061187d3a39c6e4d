//! The approval gate: calls of configured tools need a person's explicit yes before anything outside the agent runs them.
//!
//! A run that would end with such a call open ends with a question about it instead, which shows the true arguments. The
//! answer starts a run of its own. A yes ends that run at once with the call pending, so that the front end runs the tool, with
//! the arguments as the person edited them; a no becomes the result of the call, and the agent continues with it. A
//! long-running tool of the agent's is treated alike: a yes opens it for its result. Calls that the agent executes
//! itself cannot be gated: they are over when the gateway reads them.
//!
//! The gate's memory between question and answer ([`GateQuestion`]) is stored in the pending item, where neither the agent
//! nor a client can write. The run receives it as [`CheckedAnswer::Gate`]; only in the stored run input, which a reattached
//! run starts from, it is a member of the entry's metadata.

use std::collections::HashSet;

use agentwire_core::{
    event::{
        Content, Interrupt, InterruptId, Message, MessageBody, MessageId, Outcome, ResumeEntry, ResumeStatus,
        RunInput, ToolCallId, ToolResult,
    },
    fold::Fold,
    json::{Json, Object},
};
use agentwire_store::{Pending, Time};
use serde_json::{Value, json};

use super::{
    pending::{self, Calls},
    schema,
    validate::CheckedAnswer,
    votes::{VOTES, Votes},
};
use crate::{agent::pattern, codes, error::ApiError, settings::ApprovalRule, timestamp::iso};

/// Prefix of the id of a question about a call.
const PREFIX: &str = "approve:";

/// The member of a pending item, and of the metadata of a stored answer, that contains the [`GateQuestion`].
const MEMORY: &str = "gate";

/// The member of a pending item with the answers that the agent receives together with the answer to the item.
const CARRIED: &str = "carried";

/// A question of the gate: the call it is about, and the agent's own interrupt that the answer yes opens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GateQuestion {
    call: ToolCallId,
    /// The interrupt of a long-running tool, hidden until the call is approved.
    behind: Option<Interrupt>,
}

impl GateQuestion {
    /// The question of a pending item; `None` if it is not the gate's.
    pub(crate) fn of(item: &Pending) -> Option<Self> {
        serde_json::from_str::<Value>(&item.body).ok()?.get(MEMORY).map(Self::from_json)
    }

    fn from_json(memory: &Value) -> Self {
        let behind = &memory["behind"];
        Self {
            call: memory["call"].as_str().unwrap_or_default().into(),
            behind: behind["id"].as_str().map(|id| pending::interrupt_of(id, behind)),
        }
    }

    fn to_json(&self) -> Value {
        let behind = self.behind.as_ref().map(|behind| {
            let mut body = pending::body_of(behind, None, None);
            body["id"] = behind.id.as_str().into();
            body
        });
        json!({"call": self.call.as_str(), "behind": behind})
    }
}

/// The ids in the gate's memory of a pending item: of the call, and of the interrupt behind it.
pub(crate) fn ids_of_question(body: &Value) -> impl Iterator<Item = String> {
    let memory = &body[MEMORY];
    let ids = [memory["call"].as_str(), memory["behind"]["id"].as_str()];
    ids.into_iter().flatten().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The effect of the gate on the end of a run.
#[derive(Debug, Default)]
pub(crate) struct Gated {
    /// The questions that it asks, by the id of the pending item.
    pub(crate) asked: Vec<(InterruptId, GateQuestion)>,
    /// The votes on questions that others than their requester decide.
    pub(crate) votes: Vec<(InterruptId, Votes)>,
    /// Calls that the front end may run now.
    pub(crate) allowed: Vec<ToolCallId>,
    /// Answers that the agent receives once the open items are answered.
    pub(crate) carried: Vec<ResumeEntry>,
}

impl Gated {
    /// Gives a question its deadline, and remembers who decides about it.
    fn apply_rule(&mut self, mut question: Interrupt, rule: Option<&ApprovalRule>, now: Time) -> Interrupt {
        let Some(rule) = rule else { return question };
        question.expires_at = rule.expires.map(|expires| iso(now.after(expires).0).into());
        if let Some(votes) = Votes::of_rule(rule) {
            self.votes.push((question.id.clone(), votes));
        }
        question
    }

    /// Adds the gate's memory to the body of a pending item.
    pub(crate) fn remember(&self, id: &str, body: &mut Value) {
        if let Some((_, question)) = self.asked.iter().find(|(asked, _)| asked.as_str() == id) {
            body[MEMORY] = question.to_json();
        }
        if let Some((_, votes)) = self.votes.iter().find(|(asked, _)| asked.as_str() == id) {
            body[VOTES] = votes.to_json();
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

/// Whether a member of a pending item is the gate's and hidden from clients.
pub(crate) fn is_memory(member: &str) -> bool {
    member == MEMORY || member == CARRIED || member == VOTES
}

/// The outcome that replaces `outcome` if calls are open that need an approval.
pub(crate) fn question(
    fold: &mut Fold,
    outcome: Option<&Outcome>,
    input: &RunInput,
    rules: &[ApprovalRule],
    now: Time,
) -> Option<(Outcome, Gated)> {
    let asked = match outcome {
        _ if rules.is_empty() => return None,
        None | Some(Outcome::Success { .. }) => &[][..],
        Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
        Some(_) => return None,
    };
    let rule_of = |name: &str| rules.iter().find(|rule| pattern::matches(&rule.tool, name));
    let is_gated = |name: &str| rule_of(name).is_some();
    let mut gated = Gated::default();
    let mut interrupts = Vec::new();
    let open = pending::open_calls(fold, outcome, input);
    let known = if asked.is_empty() { Calls::of(&[]) } else { Calls::of(fold.messages()) };
    for interrupt in asked {
        let call = interrupt
            .tool_call
            .as_ref()
            .filter(|_| pending::kind_of(interrupt) == pending::LONG_RUNNING_TOOL);
        let named = call.and_then(|call| Some((call, known.find(call)?)));
        match named.filter(|(_, (name, _))| is_gated(name)) {
            Some((call, (name, arguments))) => {
                let question = ask(call, &name, &arguments, None);
                let question = gated.apply_rule(question, rule_of(&name), now);
                let behind = Some(interrupt.clone());
                gated.asked.push((question.id.clone(), GateQuestion { call: call.clone(), behind }));
                interrupts.push(question);
            }
            None => interrupts.push(interrupt.clone()),
        }
    }
    let guarded: HashSet<_> = asked.iter().filter_map(|interrupt| interrupt.tool_call.as_ref()).collect();
    for (call, name, arguments) in open {
        if is_gated(&name) && !guarded.contains(&call) {
            let tool = input.tools.iter().find(|tool| *tool.name == *name);
            let question =
                ask(&call, &name, &arguments, Some(tool.and_then(|tool| tool.parameters.as_ref())));
            let question = gated.apply_rule(question, rule_of(&name), now);
            gated.asked.push((question.id.clone(), GateQuestion { call, behind: None }));
            interrupts.push(question);
        }
    }
    (!gated.asked.is_empty()).then_some((Outcome::Interrupt { interrupts }, gated))
}

/// A question about a call. `editable`: the person may change the arguments; their schema, if it is known.
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

/// Checks the arguments as an approver wants them: `BAD_REQUEST`, `SCHEMA_MISMATCH`.
pub(crate) fn check_edit(item: &Pending, edited: &Value) -> Result<(), ApiError> {
    if GateQuestion::of(item).is_some_and(|question| question.behind.is_some()) {
        let message = "the arguments of a long-running tool cannot be edited: the agent has called it";
        return Err(ApiError::new(codes::BAD_REQUEST, message));
    }
    schema::check(item, Some(&json!({"approved": true, "editedArgs": edited})))
}

/// An entry without the metadata member that stands for the gate's memory in stored answers: a client could forge it.
pub(crate) fn without_memory(entry: &ResumeEntry) -> ResumeEntry {
    with_metadata(entry, None)
}

fn with_metadata(entry: &ResumeEntry, question: Option<&GateQuestion>) -> ResumeEntry {
    let mut members = entry.metadata.as_ref().map(Object::entries).unwrap_or_default();
    members.retain(|(key, _)| key != MEMORY);
    members.extend(question.map(|question| (MEMORY.to_owned(), Json::from(question.to_json()))));
    let members = members.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let metadata = (members.len() > 0).then(|| Object::from_entries(members));
    ResumeEntry { metadata, ..entry.clone() }
}

/// A checked answer as an entry of the stored run input.
pub(crate) fn to_stored(answer: &CheckedAnswer) -> ResumeEntry {
    match answer {
        CheckedAnswer::Agent(entry) => entry.clone(),
        CheckedAnswer::Gate { entry, question } => with_metadata(entry, Some(question)),
    }
}

/// The inverse of [`to_stored`]. Stored entries were validated, so their metadata is the gate's.
pub(crate) fn from_stored(entry: ResumeEntry) -> CheckedAnswer {
    match entry.metadata.as_ref().and_then(|metadata| metadata.member(MEMORY)) {
        Some(memory) => CheckedAnswer::Gate {
            question: GateQuestion::from_json(&memory.to_value()),
            entry: without_memory(&entry),
        },
        None => CheckedAnswer::Agent(entry),
    }
}

/// The answers that the agent receives together with the answer to this item.
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

/// The decisions about gated calls.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decisions {
    /// Calls that the front end may run now, with the edited arguments if the person edited them.
    pub(crate) allowed: Vec<(ToolCallId, Option<Value>)>,
    /// Interrupts of the agent's that may be answered now.
    pub(crate) opened: Vec<Interrupt>,
    /// Results of calls that must not run.
    pub(crate) denied: Vec<ToolResult>,
}

impl Decisions {
    /// Whether a call has to run outside the agent before the agent continues.
    pub(crate) fn is_open(&self) -> bool {
        !self.allowed.is_empty() || !self.opened.is_empty()
    }
}

/// Takes the answers to the gate's questions out of a run input: the agent did not ask them. A denied interrupt of the
/// agent's is answered with the denial.
pub(crate) fn take_decisions(input: &mut RunInput, answers: &[CheckedAnswer]) -> Decisions {
    let mut decisions = Decisions::default();
    let Some(entries) = input.resume.take() else { return decisions };
    let mut others = Vec::new();
    for entry in entries {
        let question = answers.iter().find_map(|answer| match answer {
            CheckedAnswer::Gate { entry: asked, question } if asked.interrupt == entry.interrupt => {
                Some(question)
            }
            _ => None,
        });
        let Some(GateQuestion { call, behind }) = question.cloned() else {
            others.push(entry);
            continue;
        };
        let answer = entry.payload.as_ref().map(Json::to_value).unwrap_or_default();
        let votes = [&answer, &answer["approved"], &answer["confirmed"]].map(Value::as_bool);
        // A contradiction is no yes.
        let is_yes = votes.contains(&Some(true)) && !votes.contains(&Some(false));
        let is_yes = entry.status == ResumeStatus::Resolved && is_yes;
        let reason = || answer["reason"].as_str().unwrap_or("denied by the user").to_owned();
        match (behind, is_yes) {
            (Some(interrupt), true) => decisions.opened.push(interrupt),
            (Some(interrupt), false) => others.push(ResumeEntry {
                interrupt: interrupt.id,
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

/// The conversation with the edited arguments; `None` if none were edited.
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
        // A reused id means the last call.
        if let Some(call) = calls.flatten().rfind(|call| call.id == *edited) {
            call.arguments = arguments.to_string().into();
        }
    }
    Some(messages)
}

/// The message of a tool result.
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

    fn entry(id: &str, payload: Value) -> ResumeEntry {
        let payload = Some(Json::from(payload));
        ResumeEntry { interrupt: id.into(), status: ResumeStatus::Resolved, payload, metadata: None }
    }

    fn gate(call: &str, behind: Option<Interrupt>, payload: Value) -> CheckedAnswer {
        let question = GateQuestion { call: call.into(), behind };
        CheckedAnswer::Gate { entry: entry(&format!("{PREFIX}{call}"), payload), question }
    }

    fn decide(answers: &[CheckedAnswer]) -> (Decisions, Vec<ResumeEntry>) {
        let mut input = RunInput::new("t", "r");
        input.resume = Some(answers.iter().map(|answer| answer.entry().clone()).collect());
        let decisions = take_decisions(&mut input, answers);
        (decisions, input.resume.unwrap_or_default())
    }

    #[test]
    fn a_yes_allows_the_call_and_a_no_becomes_its_result() {
        let (decisions, left) = decide(&[
            gate("c1", None, json!({"approved": true})),
            gate("c2", None, json!({"approved": false, "reason": "too dear"})),
            gate("c3", None, json!("whatever")),
            gate("c4", None, json!({"approved": true, "editedArgs": {"n": 1}})),
            gate("c5", None, json!({"approved": true, "confirmed": false})),
            CheckedAnswer::Agent(entry("approve:mine", json!(1))),
        ]);
        assert_eq!(decisions.allowed, [("c1".into(), None), ("c4".into(), Some(json!({"n": 1})))]);
        let denied: Vec<_> = decisions.denied.iter().map(|it| (&*it.call, it.error.as_deref())).collect();
        let no = Some("denied by the user");
        assert_eq!(denied, [("c2", Some("too dear")), ("c3", no), ("c5", no)]);
        assert_eq!(
            left,
            [entry("approve:mine", json!(1))],
            "an interrupt of the agent's with such an id is its own"
        );
    }

    fn long_running(id: &str) -> Interrupt {
        let mut interrupt = Interrupt::new(id, "tool_call");
        interrupt.tool_call = Some(id.into());
        interrupt.message = Some("Well?".into());
        interrupt
    }

    #[test]
    fn a_yes_opens_the_interrupt_behind_the_call_and_a_no_answers_it() {
        let (decisions, left) = decide(&[
            gate("l1", Some(long_running("l1")), json!(true)),
            gate("l2", Some(long_running("l2")), json!({"approved": false, "reason": "not now"})),
        ]);
        assert_eq!(decisions.opened, [long_running("l1")]);
        assert_eq!(left, [entry("l2", json!({"status": "denied", "reason": "not now"}))]);
    }

    /// A gateway of any version writes and reads this form when it reattaches to a run.
    #[test]
    fn stored_answers_restore_the_question_of_the_gate() {
        let behind = json!({"reason": "tool_call", "message": "Well?", "toolCallId": "l1", "id": "l1"});
        for (answer, stored) in [
            (gate("c1", None, json!(true)), json!({"gate": {"call": "c1", "behind": null}})),
            (
                gate("l1", Some(long_running("l1")), json!(1)),
                json!({"gate": {"call": "l1", "behind": behind}}),
            ),
        ] {
            let entry = to_stored(&answer);
            let metadata = entry.metadata.as_ref().map(|metadata| metadata.to_value().to_string());
            assert_eq!(metadata, Some(stored.to_string()));
            assert_eq!(from_stored(entry), answer);
        }
        let own = CheckedAnswer::Agent(entry("q", json!(1)));
        assert_eq!(from_stored(to_stored(&own)), own);
    }

    #[test]
    fn a_client_cannot_forge_the_memory_of_the_gate() {
        let metadata = Object::from_value(&json!({"gate": {"call": "c", "behind": null}, "mine": 1}));
        let forged = ResumeEntry { metadata, ..entry("q", json!(1)) };
        let metadata = without_memory(&forged).metadata.map(|metadata| metadata.to_value());
        assert_eq!(metadata, Some(json!({"mine": 1})));
    }
}
