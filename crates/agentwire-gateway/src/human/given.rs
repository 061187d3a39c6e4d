//! Collects the answers of a request from the places in which its protocol carries them.
//!
//! Every protocol ends in the same two forms: resume entries, and tool results. An answer that is no part of the
//! conversation (in HAI, every answer to a question has the form of a tool result) is removed from it.

use std::collections::{HashMap, HashSet};

use agentwire_core::{
    event::{
        Content, GivenAnswer, GivenResult, InterruptId, Message, MessageBody, ResumeEntry, ResumeStatus,
        RunInput, ToolCallId,
    },
    format::{ag_ui, ai_sdk, hai},
    json::Json,
};
use agentwire_store::{Pending, Time};
use serde_json::Value;

use super::{
    pending::{self, APPROVAL, FRONTEND_TOOL, LONG_RUNNING_TOOL},
    schema,
};

/// The protocol of a request, with the answers for which the run input has no place.
#[derive(Debug, Default)]
pub(crate) enum AnswerProtocol {
    #[default]
    AgUi,
    Hai,
    AiSdk {
        /// Answers given before the user's last message. The page repeats them with every request, so they count only
        /// while their items are open.
        earlier: Vec<ResumeEntry>,
    },
}

/// The answers of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) answers: Vec<GivenAnswer>,
    /// The request has a `resume` list, which may be empty.
    pub(crate) has_list: bool,
    /// The ids of tool results without content.
    pub(crate) empty_results: Vec<ToolCallId>,
}

impl Given {
    /// Whether the request has a `resume` list and no entries.
    pub(crate) fn is_empty_list(&self) -> bool {
        self.has_list && self.entries().next().is_none()
    }

    /// The resume entries among the answers.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ResumeEntry> {
        self.answers.iter().filter_map(|answer| match answer {
            GivenAnswer::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    /// The tool results among the answers.
    pub(crate) fn results(&self) -> impl Iterator<Item = &GivenResult> {
        self.answers.iter().filter_map(|answer| match answer {
            GivenAnswer::Result(result) => Some(result),
            _ => None,
        })
    }
}

/// Collects the resume entries of a request, including those made from tool results, and leaves `input.resume` empty.
/// `stored` are the messages of the thread, needed if [`asks_about_calls`].
///
/// The order matters where a request has several forms: in AG-UI `command` counts before tool results, in the other
/// protocols only if there is no other answer ([`add_results`]).
pub(crate) fn entries(
    input: &mut RunInput,
    protocol: &mut AnswerProtocol,
    items: &[Pending],
    stored: &[Message],
    now: Time,
) -> Given {
    let resume = input.resume.take();
    let has_list = resume.is_some();
    let mut entries = resume.unwrap_or_default();
    let mut empty_results = Vec::new();
    match protocol {
        AnswerProtocol::AgUi => {
            if !has_list {
                entries = command_entries(input, items);
            }
            // The result of a long-running tool is a tool result, and stays in the conversation as one.
            let is_question =
                |item: &Pending| *item.kind != *FRONTEND_TOOL && *item.kind != *LONG_RUNNING_TOOL;
            take_results_of_questions(input, items, &mut entries, &mut empty_results, is_question);
            take_cancelled_calls(input, items, stored, &mut entries, now);
        }
        AnswerProtocol::Hai => {
            take_results_of_questions(input, items, &mut entries, &mut empty_results, pending::is_required);
            take_cancelled_calls(input, items, stored, &mut entries, now);
            remove_answered_questions(&mut input.messages, items);
        }
        AnswerProtocol::AiSdk { earlier } => {
            take_empty_outputs(&mut entries, &mut empty_results);
            clear_null_results(&mut input.messages, items);
            take_results_of_questions(input, items, &mut entries, &mut empty_results, pending::is_required);
            let is_open = |entry: &ResumeEntry| {
                let item = pending::find(items, &entry.interrupt);
                item.is_some_and(|item| pending::is_open(item, now))
            };
            entries.extend(std::mem::take(earlier).into_iter().filter(is_open));
            take_outputs(input, items, stored, &mut entries, &mut empty_results);
        }
    }
    Given { has_list, answers: entries.into_iter().map(GivenAnswer::Entry).collect(), empty_results }
}

/// Adds `command`, if there is no entry, and the tool results that can be answers: those at the end of the conversation,
/// and the results of open calls wherever they stand, since a person may answer and write a message in one request.
pub(crate) fn add_results(given: &mut Given, input: &RunInput, items: &[Pending], now: Time) {
    if !given.has_list && given.answers.is_empty() {
        given.answers.extend(command_entries(input, items).into_iter().map(GivenAnswer::Entry));
    }
    let messages = &input.messages;
    let mut results = ag_ui::input::trailing_results(messages);
    for item in items.iter().filter(|item| pending::is_open(item, now) && is_call(item)) {
        let id = item.id.as_str();
        let is_known = results.iter().any(|result| result.call.as_str() == id);
        if !is_known && (!is_asked_again(item, items) || has_call(messages, id)) {
            results.extend(ag_ui::input::result_of_call(messages, id));
        }
    }
    if !results.is_empty() {
        let (empty, answered) = (calls_with_empty_result(messages), given.entries());
        let answered: HashSet<&str> = answered.map(|entry| entry.interrupt.as_str()).collect();
        let is_empty = |call: &&ToolCallId| empty.contains(*call) && !answered.contains(call.as_str());
        let empty: Vec<_> = results.iter().map(|result| &result.call).filter(is_empty).cloned().collect();
        given.empty_results.extend(empty);
    }
    given.answers.extend(results.into_iter().map(GivenAnswer::Result));
}

/// The calls whose last result has neither content nor an error. In one pass: a client may send any number of results.
fn calls_with_empty_result(messages: &[Message]) -> HashSet<&ToolCallId> {
    let mut found = HashSet::new();
    for message in messages {
        if let MessageBody::Tool { call, content, error } = &message.body {
            match content.is_empty() && error.is_none() {
                true => found.insert(call),
                false => found.remove(call),
            };
        }
    }
    found
}

/// Makes the results of questions empty that an AI SDK page sent without a value: it has the form of the JSON `null`.
fn clear_null_results(messages: &mut [Message], items: &[Pending]) {
    for message in messages {
        if let MessageBody::Tool { call, content, error: None } = &mut message.body
            && content.text() == "null"
            && pending::find(items, call)
                .is_some_and(|item| pending::is_required(item) && item.answer.is_none())
        {
            *content = Content::from("");
        }
    }
}

/// Removes the entries that an AI SDK page made from outputs without a value. An approval always has one.
fn take_empty_outputs(entries: &mut Vec<ResumeEntry>, empty_results: &mut Vec<ToolCallId>) {
    entries.retain(|entry| {
        let is_empty = entry.status == ResumeStatus::Resolved
            && entry.payload.as_ref().is_none_or(|payload| payload.is_null() || payload.get() == "\"\"");
        if is_empty {
            empty_results.push(entry.interrupt.as_str().into());
        }
        !is_empty
    });
}

/// Whether a request contains an answer, to any item.
pub(crate) fn has_answer(input: &RunInput) -> bool {
    input.resume.as_ref().is_some_and(|entries| !entries.is_empty())
        || !ag_ui::input::trailing_results(&input.messages).is_empty()
        || ag_ui::input::command_answer(input).is_some()
}

/// Whether a request without messages answers nothing that is open here, so that it asks for the current state of the
/// thread. An empty list of answers is an (insufficient) answer if an item is open.
pub(crate) fn has_no_answer(input: &RunInput, given: Option<&Given>, items: &[Pending], now: Time) -> bool {
    if given.is_some_and(|given| !given.empty_results.is_empty()) {
        return false;
    }
    let listed = input.resume.as_ref().map(Vec::len);
    let listed = given.map_or(listed, |given| {
        let count = given.entries().count();
        (given.has_list || count > 0).then_some(count)
    });
    let mut open = items.iter().filter(|item| pending::is_open(item, now) && !pending::is_elsewhere(item));
    match listed {
        Some(0) => open.next().is_none(),
        Some(_) => false,
        None => ag_ui::input::command_answer(input).is_none() || !open.any(pending::is_required),
    }
}

/// Whether an open item asks about a call of the agent's.
pub(crate) fn asks_about_calls(items: &[Pending]) -> bool {
    items.iter().any(|item| {
        pending::is_required(item) && item.answer.is_none() && pending::guarded_call(item).is_some()
    })
}

/// The entries of `forwardedProps.command.resume`: the answer to the only open question, or an object with an answer to
/// each under its id.
fn command_entries(input: &RunInput, items: &[Pending]) -> Vec<ResumeEntry> {
    let Some(answer) = ag_ui::input::command_answer(input) else { return Vec::new() };
    let open: Vec<_> = pending::current(items)
        .filter(|item| item.answer.is_none() && pending::is_required(item))
        .map(|item| InterruptId::from(item.id.as_str()))
        .collect();
    entries_of_command(&answer, &open)
}

/// The entries of a command that answers these questions; none if it does not.
pub(crate) fn entries_of_command(answer: &Json, questions: &[InterruptId]) -> Vec<ResumeEntry> {
    let by_id = || {
        let answers = answer.clone().into_object()?;
        questions.iter().map(|id| Some(resolved(id, answers.member(id)?))).collect::<Option<Vec<_>>>()
    };
    match questions {
        [only] => by_id().unwrap_or_else(|| vec![resolved(only, answer.clone())]),
        _ => by_id().unwrap_or_default(),
    }
}

/// Turns the tool results that answer questions into entries and removes them from the conversation. The whole
/// conversation comes with every request, so a result for a question that has an answer counts only at its end, where it
/// is the same answer sent again. An entry of the request itself takes precedence.
fn take_results_of_questions(
    input: &mut RunInput,
    items: &[Pending],
    entries: &mut Vec<ResumeEntry>,
    empty_results: &mut Vec<ToolCallId>,
    is_question: impl Fn(&Pending) -> bool,
) {
    if items.is_empty() {
        return;
    }
    let is_empty: HashSet<_> = calls_with_empty_result(&input.messages).into_iter().cloned().collect();
    let last = ag_ui::input::trailing_results(&input.messages);
    let last: HashSet<&str> = last.iter().map(|result| result.call.as_str()).collect();
    let is_answered_here = |item: &&Pending| {
        let is_last = last.contains(item.id.as_str());
        is_question(item) && (is_last || (item.answer.is_none() && !is_asked_again(item, items)))
    };
    let questions: Vec<_> = items.iter().filter(is_answered_here).collect();
    let ids: Vec<_> = questions.iter().map(|item| InterruptId::from(item.id.as_str())).collect();
    for GivenResult { call, content, error } in hai::input::take_answers(&mut input.messages, &ids) {
        if entries.iter().any(|entry| entry.interrupt.as_str() == call.as_str()) {
            continue;
        }
        if is_empty.contains(&call) {
            empty_results.push(call);
            continue;
        }
        let item = questions.iter().rev().find(|item| item.id.as_str() == call.as_str());
        let interrupt = InterruptId::from(call.as_str());
        entries.extend(item.map(|item| match error {
            None if *item.kind == *APPROVAL && is_cancellation(&content) => cancelled(interrupt),
            None => resolved(&interrupt, Json::from(schema::value_of_text(item, &content))),
            // A tool that failed to ask has no answer.
            Some(_) => cancelled(interrupt),
        }));
    }
}

/// Turns the result of a call about which a question is open into a cancellation of the question, if it says that the person
/// did not decide: front ends add such a result when the person writes something else. The call has not run, so any
/// other result is forged, unless it is in `stored`: then it is the agent's own.
fn take_cancelled_calls(
    input: &mut RunInput,
    items: &[Pending],
    stored: &[Message],
    entries: &mut Vec<ResumeEntry>,
    now: Time,
) {
    let open = items.iter().filter(|item| pending::is_required(item) && pending::is_open(item, now));
    for item in open {
        let is_answered = entries.iter().any(|entry| entry.interrupt.as_str() == item.id.as_str());
        let Some(call) = pending::guarded_call(item).filter(|_| !is_answered) else { continue };
        let Some(result) = ag_ui::input::result_of_call(&input.messages, &call) else { continue };
        let is_stored = stored.iter().filter_map(GivenResult::of).any(|known| known == result);
        if !is_stored && (result.error.is_some() || is_cancellation(&result.content)) {
            remove_results(&mut input.messages, |answered| *answered == result.call);
            entries.push(cancelled(item.id.as_str().into()));
        }
    }
}

/// True if the content of a tool result states that the person cancelled instead of deciding: "cancelled by user", or a
/// member `cancelled: true`. Front ends have no other form for it.
fn is_cancellation(content: &str) -> bool {
    match serde_json::from_str(content) {
        Ok(Value::Object(members)) => {
            let is_decision = |key: &str| members.get(key).is_some_and(Value::is_boolean);
            !is_decision("approved")
                && !is_decision("confirmed")
                && members.iter().any(|(key, value)| match value {
                    Value::String(text) => names_cancellation(text),
                    value => key.to_lowercase().contains("cancel") && *value == true,
                })
        }
        Ok(Value::String(text)) => names_cancellation(&text),
        Ok(_) => false,
        Err(_) => names_cancellation(content),
    }
}

/// True for `cancel` alone, and for text with the word `cancelled` that does not deny it.
fn names_cancellation(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    let mut words = text.split(|letter: char| !letter.is_alphanumeric());
    let is_denied = text.contains("n't") || words.clone().any(|word| matches!(word, "not" | "never" | "no"));
    text == "cancel" || !is_denied && words.any(|word| matches!(word, "cancelled" | "canceled"))
}

/// Turns the output that an AI SDK page gives to a guarded call into the answer to the question about the call. The SDK's
/// approvals have no room for anything but yes, no and a reason; an output has. Where a yes or no is asked for, the output
/// must contain one. An output in `stored` is the agent's own.
fn take_outputs(
    input: &mut RunInput,
    items: &[Pending],
    stored: &[Message],
    entries: &mut Vec<ResumeEntry>,
    empty_results: &mut Vec<ToolCallId>,
) {
    const MEMBERS: &[&str] = &["approved", "confirmed", "reason", "editedArgs", "payload"];
    if !asks_about_calls(items) {
        return;
    }
    let is_decision = |answer: &Value| {
        answer.as_object().is_some_and(|answer| {
            ["approved", "confirmed"].iter().any(|key| answer.get(*key).is_some_and(Value::is_boolean))
                && answer.keys().all(|key| MEMBERS.contains(&key.as_str()))
        })
    };
    let is_stored = |output: &GivenResult| {
        let same = |it: GivenResult| it.call == output.call && it.content == output.content;
        stored.iter().filter_map(GivenResult::of).any(same)
    };
    let mut seen = HashSet::new();
    // The last one of a call comes first, and counts.
    for output in ai_sdk::input::outputs_of_last_turn(&input.messages) {
        if !seen.insert(output.call.clone()) {
            continue;
        }
        let asks = |item: &&Pending| {
            pending::is_required(item)
                && item.answer.is_none()
                && pending::guarded_call(item).as_deref() == Some(output.call.as_str())
        };
        let Some(item) = items.iter().rev().find(asks) else { continue };
        if output.error.is_some() || is_stored(&output) {
            continue;
        }
        let answer = schema::value_of_text(item, &output.content);
        if *item.kind != *APPROVAL && (answer.is_null() || answer == "") {
            empty_results.push(item.id.as_str().into());
            continue;
        }
        if *item.kind != *APPROVAL || is_decision(&answer) {
            remove_results(&mut input.messages, |call| *call == output.call);
            entries.push(resolved(&item.id.as_str().into(), Json::from(answer)));
        }
    }
}

/// Removes results that answered a question in an earlier request: in HAI they are no results of the agent's calls.
fn remove_answered_questions(messages: &mut Vec<Message>, items: &[Pending]) {
    remove_results(messages, |call| {
        items.iter().any(|item| pending::is_required(item) && item.id.as_str() == call.as_str())
    });
}

/// Removes results of calls that neither the thread nor the conversation of the client contains.
pub(crate) fn remove_unknown_results(messages: &mut Vec<Message>, unknown: &[ToolCallId]) {
    if unknown.is_empty() {
        return;
    }
    let own = messages.iter().flat_map(Message::tool_calls).map(|call| &call.id);
    let own: HashSet<ToolCallId> = own.cloned().collect();
    let forged: HashSet<_> = unknown.iter().filter(|call| !own.contains(*call)).collect();
    remove_results(messages, |call| forged.contains(call));
}

/// Removes results of calls about which a question is open. Such a call runs only after the answer is yes, so nothing can
/// have produced the result; the agent would believe it whatever the answer is.
pub(crate) fn remove_guarded_results(messages: &mut Vec<Message>, items: &[Pending]) {
    for item in items.iter().filter(|item| item.answer.is_none()) {
        let Some(call) = pending::guarded_call(item) else { continue };
        // Those before it are of an earlier call of the same id.
        let is_call = |message: &Message| message.tool_calls().iter().any(|made| *made.id == *call);
        let after = messages.iter().rposition(is_call).map_or(0, |at| at + 1);
        let mut later = messages.split_off(after);
        remove_results(&mut later, |answered| answered.as_str() == call);
        messages.append(&mut later);
    }
}

/// True if there is the result of a call that the thread does not wait for.
pub(crate) fn has_other_results(messages: &[Message], items: &[Pending], now: Time) -> bool {
    messages.iter().any(|message| match &message.body {
        MessageBody::Tool { call, .. } => !waits_for(items, call, now),
        _ => false,
    })
}

/// Removes the results of calls that the thread does not wait for, except those that it has: `stored`.
pub(crate) fn remove_other_results(
    messages: &mut Vec<Message>,
    items: &[Pending],
    now: Time,
    stored: &HashMap<ToolCallId, usize>,
) {
    remove_results(messages, |call| !waits_for(items, call, now) && !stored.contains_key(call));
}

fn waits_for(items: &[Pending], call: &ToolCallId, now: Time) -> bool {
    pending::find(items, call).is_some_and(|item| is_call(item) && pending::is_open(item, now))
}

/// Removes `forwardedProps.command`. If it answers a question, the answer was taken from it; it can do nothing else.
pub(crate) fn remove_command(input: &mut RunInput) {
    let Some(Value::Object(mut forwarded)) = input.forwarded.as_ref().map(Json::to_value) else { return };
    if forwarded.remove("command").is_some() {
        input.forwarded = Some(Json::from(&Value::Object(forwarded)));
    }
}

fn remove_results(messages: &mut Vec<Message>, is_removed: impl Fn(&ToolCallId) -> bool) {
    messages.retain(|message| !matches!(&message.body, MessageBody::Tool { call, .. } if is_removed(call)));
}

fn resolved(interrupt: &InterruptId, payload: Json) -> ResumeEntry {
    ResumeEntry {
        interrupt: interrupt.clone(),
        status: ResumeStatus::Resolved,
        payload: Some(payload).filter(|payload| !payload.is_null()),
        metadata: None,
    }
}

fn cancelled(interrupt: InterruptId) -> ResumeEntry {
    ResumeEntry { interrupt, status: ResumeStatus::Cancelled, payload: None, metadata: None }
}

/// Whether an item is a call that waits for its result.
fn is_call(item: &Pending) -> bool {
    *item.kind == *FRONTEND_TOOL || *item.kind == *LONG_RUNNING_TOOL
}

/// Whether an item of the same id was answered before: a LangGraph node that asks until the answer is acceptable asks under
/// one id. A result that is not at the end of the conversation may then be the old answer.
fn is_asked_again(item: &Pending, items: &[Pending]) -> bool {
    items.iter().any(|other| other.id == item.id && other.answer.is_some())
}

/// Whether a conversation contains a call.
fn has_call(messages: &[Message], call: &str) -> bool {
    messages.iter().flat_map(|message| message.tool_calls()).any(|made| made.id.as_str() == call)
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::ToolCall;
    use agentwire_store::PendingId;

    use super::*;

    /// As many as fit into a body, about. With a pass for each, these tests would take minutes.
    const MANY: usize = 100_000;

    fn result(number: usize, call: &str) -> Message {
        let (call, content) = (call.into(), Content::from("yes"));
        Message::new(format!("r{number}"), MessageBody::Tool { call, content, error: None })
    }

    #[test]
    fn forged_results_are_removed_in_one_pass() {
        let call = |id: &str| {
            let call = ToolCall {
                id: "c".into(),
                name: "f".into(),
                arguments: "{}".into(),
                encrypted: None,
                metadata: None,
            };
            Message::new(id, MessageBody::Assistant { content: None, tool_calls: Some(vec![call]) })
        };
        let item = Pending {
            id: PendingId::from("q"),
            run: "r".into(),
            kind: APPROVAL.into(),
            body: r#"{"toolCallId":"c"}"#.into(),
            created: Time(0),
            expires: None,
            answer: None,
        };
        let mut messages = vec![call("m1"), result(0, "c"), call("m2"), result(1, "other")];
        let kept = messages.clone();
        messages.extend((2..MANY).map(|number| result(number, "c")));
        remove_guarded_results(&mut messages, &[item]);
        assert_eq!(messages, kept, "the result of the earlier call of this id stays");

        let mut messages = kept.clone();
        messages.extend((2..MANY).map(|number| result(number, &format!("c{number}"))));
        let unknown: Vec<ToolCallId> = (2..MANY).map(|number| format!("c{number}").into()).collect();
        remove_unknown_results(&mut messages, &unknown);
        assert_eq!(messages, kept);
    }

    #[test]
    fn a_cancellation_is_stated_and_not_merely_mentioned() {
        for text in [
            "Tool call cancelled by user",
            "canceled",
            "cancel",
            r#"{"cancelled":true}"#,
            r#"{"status":"cancelled"}"#,
        ] {
            assert!(is_cancellation(text), "{text}");
        }
        for text in [
            "please cancel my subscription",
            "it was not cancelled",
            "blue",
            "true",
            r#"{"approved":true,"note":"cancelled"}"#,
        ] {
            assert!(!is_cancellation(text), "{text}");
        }
    }
}
