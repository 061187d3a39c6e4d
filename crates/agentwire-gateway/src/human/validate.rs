//! The rules for the answers of a request, in the order in which they apply.
//!
//! [`validate`] has no side effects. Only answers that it returns reach the store, the approval gate or the agent.

use std::collections::HashMap;

use agentwire_core::{
    event::{GivenAnswer, GivenResult, InterruptId, ResumeEntry, ResumeStatus, ToolCallId},
    format::ag_ui,
    json::Json,
};
use agentwire_store::{Answer, AnswerSet, Pending, Time};
use serde_json::json;

use super::{
    approval::{self, GateQuestion},
    given::Given,
    pending::{self, FRONTEND_TOOL},
    schema,
    votes::{self, Votes},
};
use crate::{codes, error::ApiError};

/// The answers of a request that passed every rule.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Checked {
    /// The answers that `Store::start` records. If all of them were recorded before, the request is a repetition, and the
    /// store names the run that it started.
    pub(crate) for_store: Option<AnswerSet>,
    /// The answers that the run receives, in the order of the request.
    pub(crate) for_run: Vec<CheckedAnswer>,
    /// Calls whose results the request contains although neither the thread nor the agent knows the call.
    pub(crate) unknown_results: Vec<ToolCallId>,
    /// Interrupts that the request answers although the thread does not know them.
    pub(crate) unknown_interrupts: Vec<InterruptId>,
}

/// An answer on its way to the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CheckedAnswer {
    /// For the agent.
    Agent(ResumeEntry),
    /// For the approval gate: the answer to its own question about a call.
    Gate { entry: ResumeEntry, question: GateQuestion },
}

impl CheckedAnswer {
    fn new(entry: &ResumeEntry, item: &Pending) -> Self {
        let entry = approval::without_memory(entry);
        match GateQuestion::of(item) {
            Some(question) => Self::Gate { entry, question },
            None if pending::is_reported_by_custom_event(item) => {
                Self::Agent(ag_ui::marked_for_command(entry))
            }
            None => Self::Agent(entry),
        }
    }

    pub(crate) fn entry(&self) -> &ResumeEntry {
        match self {
            Self::Agent(entry) | Self::Gate { entry, .. } => entry,
        }
    }
}

/// The answers as the `resume` of a run input.
pub(crate) fn resume_of(answers: &[CheckedAnswer]) -> Option<Vec<ResumeEntry>> {
    (!answers.is_empty()).then(|| answers.iter().map(|answer| answer.entry().clone()).collect())
}

/// Checks the answers of a request against the pending items that it can be about.
///
/// `settled` are the calls that have a result in the stored conversation: the agent executed them, and a client repeats
/// their results.
///
/// # Errors
/// The first rule that is broken; see the functions below.
pub(crate) fn validate(
    given: &Given,
    items: &[Pending],
    settled: &HashMap<ToolCallId, usize>,
    now: Time,
    by: &str,
) -> Result<Checked, ApiError> {
    results_have_content(given, items, now)?;
    let mut checked = Checked::default();
    let mut answers: Vec<Answer> = Vec::new();
    let entries: Vec<_> = given.entries().collect();
    for (index, entry) in entries.iter().copied().enumerate() {
        let Some(item) = question_of(entry, items) else {
            checked.unknown_interrupts.push(entry.interrupt.clone());
            continue;
        };
        if is_repetition(entry, &entries[..index])? {
            continue;
        }
        checked.for_run.push(CheckedAnswer::new(entry, item));
        if is_too_late(entry, item, now)? {
            continue;
        }
        matches_schema(entry, item)?;
        answers.push(entry_for_store(entry));
    }
    for result in given.results() {
        if pending::find(items, &result.call).is_some() {
            if answers.iter().all(|other| other.id.as_str() != result.call.as_str()) {
                answers.push(result_for_store(result));
            }
        } else if !settled.contains_key(&result.call) {
            checked.unknown_results.push(result.call.clone());
        }
    }
    answers_something_known(&checked, &answers)?;
    answers_every_question(&answers, items, now)?;
    brings_results(given, items, now)?;
    keep_new_answers(&mut checked.for_run, &mut answers, items, now);
    add_carried_answers(&mut checked.for_run, items);
    // An item on the agent's side is validated like the others, but only the agent records its answer.
    answers.retain(|answer| {
        pending::find(items, answer.id.as_str()).is_some_and(|item| !pending::is_elsewhere(item))
    });
    checked.for_store = (!answers.is_empty()).then(|| AnswerSet { answers, by: by.into() });
    Ok(checked)
}

/// No answer is about a call that others decide about: `NOT_AN_APPROVER`.
pub(crate) fn leaves_votes_alone(given: &Given, items: &[Pending], now: Time) -> Result<(), ApiError> {
    let is_held = |id: &str| {
        pending::find(items, id).is_some_and(|item| pending::is_open(item, now) && Votes::is_held(item))
    };
    // The call itself could carry an answer too.
    let is_about = |call: &str| {
        let mut open =
            pending::current(items).filter(|item| pending::is_open(item, now) && Votes::is_held(item));
        open.any(|item| pending::guarded_call(item).as_deref() == Some(call))
    };
    let is_refused = given.entries().any(|entry| is_held(&entry.interrupt) || is_about(&entry.interrupt))
        || given.results().any(|result| is_held(&result.call) || is_about(&result.call));
    if is_refused { Err(votes::not_an_approver()) } else { Ok(()) }
}

/// Adds the decisions that others have made about open calls. Returns who has made them.
pub(crate) fn add_decisions(given: &mut Given, items: &[Pending], now: Time) -> Option<String> {
    let open = pending::current(items).filter(|item| pending::is_open(item, now));
    let decided: Vec<_> = open.filter_map(|item| Votes::of(item).answer(&item.id.as_str().into())).collect();
    let by: Vec<_> = decided.iter().map(|(_, by)| by.clone()).collect();
    given.answers.extend(decided.into_iter().map(|(entry, _)| GivenAnswer::Entry(entry)));
    (!by.is_empty()).then(|| by.join(", "))
}

/// True if the request answers a question, and not only calls of the front end's tools.
pub(crate) fn answers_a_question(checked: &Checked, items: &[Pending]) -> bool {
    let is_question = |id: &str| pending::find(items, id).is_some_and(pending::is_required);
    let mut answers = checked.for_store.iter().flat_map(|set| &set.answers);
    answers.any(|answer| is_question(answer.id.as_str()))
        || checked.for_run.iter().any(|answer| is_question(&answer.entry().interrupt))
}

/// The result of an open question has content, since a person gives it: `NO_TOOL_RESULTS`. A tool of the front end may
/// return nothing.
fn results_have_content(given: &Given, items: &[Pending], now: Time) -> Result<(), ApiError> {
    let is_question = |item: &&Pending| pending::is_required(item) && pending::is_open(item, now);
    let empty = given.empty_results.iter().find_map(|call| pending::find(items, call).filter(is_question));
    match empty {
        Some(item) => {
            let message =
                format!("the result for `{}` has no content, and the thread waits for an answer", item.id);
            Err(ApiError::new(codes::NO_TOOL_RESULTS, message))
        }
        None => Ok(()),
    }
}

/// The item that an entry answers. A call of a front-end tool is answered by its result only. An entry without an item is
/// ignored if the request answers another one.
fn question_of<'i>(entry: &ResumeEntry, items: &'i [Pending]) -> Option<&'i Pending> {
    pending::find(items, &entry.interrupt).filter(|item| *item.kind != *FRONTEND_TOOL)
}

/// Whether an item was answered by an earlier entry: the same answer twice counts once; two different ones are
/// `BAD_REQUEST`.
fn is_repetition(entry: &ResumeEntry, earlier: &[&ResumeEntry]) -> Result<bool, ApiError> {
    let Some(first) = earlier.iter().find(|other| other.interrupt == entry.interrupt) else {
        return Ok(false);
    };
    if first.status == entry.status && first.payload == entry.payload {
        return Ok(true);
    }
    let message = format!("`{}` is answered twice in one request, and differently", entry.interrupt);
    Err(ApiError::new(codes::BAD_REQUEST, message))
}

/// Whether an item expired without an answer: an answer is `INTERRUPT_EXPIRED`; a cancellation is not recorded, since the
/// item is over either way, but the agent receives it.
fn is_too_late(entry: &ResumeEntry, item: &Pending, now: Time) -> Result<bool, ApiError> {
    match (item.answer.is_none() && pending::is_expired(item, now), entry.status) {
        (false, _) => Ok(false),
        (true, ResumeStatus::Cancelled) => Ok(true),
        (true, ResumeStatus::Resolved) => {
            Err(ApiError::new(codes::INTERRUPT_EXPIRED, format!("`{}` has expired", item.id)))
        }
    }
}

/// The payload of a new answer matches the item's response schema: `SCHEMA_MISMATCH`.
fn matches_schema(entry: &ResumeEntry, item: &Pending) -> Result<(), ApiError> {
    if entry.status == ResumeStatus::Cancelled || item.answer.is_some() {
        return Ok(());
    }
    schema::check(item, entry.payload.as_ref().map(Json::to_value).as_ref())
}

/// At least one answer is for a known item: `UNKNOWN_INTERRUPT`, `UNKNOWN_TOOL_CALL`.
fn answers_something_known(checked: &Checked, answers: &[Answer]) -> Result<(), ApiError> {
    if !checked.for_run.is_empty() || !answers.is_empty() {
        return Ok(());
    }
    if let Some(first) = checked.unknown_interrupts.first() {
        return Err(ApiError::new(codes::UNKNOWN_INTERRUPT, format!("no such interrupt: `{first}`")));
    }
    match checked.unknown_results.first() {
        Some(first) => {
            let message = format!("nothing waits for the result of `{first}`");
            Err(ApiError::new(codes::UNKNOWN_TOOL_CALL, message))
        }
        None => Ok(()),
    }
}

/// Every open question is answered in this request: `INTERRUPT_UNANSWERED`.
fn answers_every_question(answers: &[Answer], items: &[Pending], now: Time) -> Result<(), ApiError> {
    match pending::first_unanswered(items, answers, now) {
        Some(item) => Err(unanswered(item.id.as_str())),
        None => Ok(()),
    }
}

/// An empty list of answers comes with tool results, if calls are open: `NO_TOOL_RESULTS`.
fn brings_results(given: &Given, items: &[Pending], now: Time) -> Result<(), ApiError> {
    let is_open = pending::current(items).any(|item| pending::is_open(item, now));
    match given.is_empty_list() && given.results().next().is_none() && is_open {
        true => Err(ApiError::new(codes::NO_TOOL_RESULTS, "the thread waits for the results of tools")),
        false => Ok(()),
    }
}

/// If an answer is new, drops those given before: the client repeats them. If none is new, the request itself is a repetition,
/// and the store decides. A late cancellation stays.
fn keep_new_answers(
    for_run: &mut Vec<CheckedAnswer>,
    answers: &mut Vec<Answer>,
    items: &[Pending],
    now: Time,
) {
    let is_new = |id: &str| pending::find(items, id).is_some_and(|item| pending::is_open(item, now));
    if answers.iter().any(|answer| is_new(answer.id.as_str())) {
        answers.retain(|answer| is_new(answer.id.as_str()));
        for_run.retain(|answer| {
            pending::find(items, &answer.entry().interrupt).is_some_and(|item| item.answer.is_none())
        });
    }
}

/// Adds the answers that wait in the answered items: the agent gets all answers to its interrupts at once.
fn add_carried_answers(for_run: &mut Vec<CheckedAnswer>, items: &[Pending]) {
    let answered = for_run.iter().filter_map(|answer| pending::find(items, &answer.entry().interrupt));
    let carried: Vec<_> = answered.flat_map(approval::carried).map(CheckedAnswer::Agent).collect();
    for_run.extend(carried);
}

/// The error for an open question that a request does not answer.
pub(crate) fn unanswered(item: &str) -> ApiError {
    ApiError::new(codes::INTERRUPT_UNANSWERED, format!("the thread waits for an answer to `{item}`"))
        .hint("answer all of `GET /threads/{id}/pending` in one request")
}

/// An entry as the store records it.
pub(crate) fn entry_for_store(entry: &ResumeEntry) -> Answer {
    let status = match entry.status {
        ResumeStatus::Resolved => "resolved",
        ResumeStatus::Cancelled => "cancelled",
    };
    let body = json!({"status": status, "payload": entry.payload.as_ref().map(Json::to_value)}).to_string();
    Answer { id: entry.interrupt.as_str().into(), body: body.into() }
}

/// A tool result as the store records it.
pub(crate) fn result_for_store(result: &GivenResult) -> Answer {
    let body = json!({"content": result.content, "error": result.error}).to_string();
    Answer { id: result.call.as_str().into(), body: body.into() }
}

#[cfg(test)]
mod tests {
    use agentwire_store::RecordedAnswer;
    use serde_json::Value;

    use super::*;

    const NOW: Time = Time(1000);

    fn item(id: &str, kind: &str, body: Value) -> Pending {
        Pending {
            id: id.into(),
            run: "r".into(),
            kind: kind.into(),
            body: body.to_string().into(),
            created: Time(0),
            expires: None,
            answer: None,
        }
    }

    fn question(id: &str) -> Pending {
        item(id, "input", json!({}))
    }

    fn call(id: &str) -> Pending {
        item(id, FRONTEND_TOOL, json!({"toolCallId": id}))
    }

    fn answered(mut item: Pending) -> Pending {
        item.answer =
            Some(RecordedAnswer { body: "{}".into(), by: "ann".into(), run: "r2".into(), at: Time(1) });
        item
    }

    fn expired(mut item: Pending) -> Pending {
        item.expires = Some(NOW);
        item
    }

    fn entry(id: &str, payload: Value) -> ResumeEntry {
        let payload = Some(Json::from(payload));
        ResumeEntry { interrupt: id.into(), status: ResumeStatus::Resolved, payload, metadata: None }
    }

    fn cancelled(id: &str) -> ResumeEntry {
        ResumeEntry { status: ResumeStatus::Cancelled, payload: None, ..entry(id, json!(0)) }
    }

    fn given(entries: &[ResumeEntry], results: &[&str]) -> Given {
        let result = |call: &&str| GivenResult { call: (*call).into(), content: "ok".into(), error: None };
        let entries = entries.iter().cloned().map(GivenAnswer::Entry);
        let results = results.iter().map(result).map(GivenAnswer::Result);
        Given { answers: entries.chain(results).collect(), ..Given::default() }
    }

    fn check(given: &Given, items: &[Pending]) -> Result<Checked, ApiError> {
        validate(given, items, &HashMap::new(), NOW, "ann")
    }

    fn code(given: &Given, items: &[Pending]) -> &'static str {
        check(given, items).expect_err("a rule is broken").code
    }

    fn stored(checked: &Checked) -> Vec<(&str, &str)> {
        let answers = checked.for_store.iter().flat_map(|set| &set.answers);
        answers.map(|answer| (answer.id.as_str(), &*answer.body)).collect()
    }

    fn for_agent(checked: &Checked) -> Vec<&str> {
        checked.for_run.iter().map(|answer| &*answer.entry().interrupt).collect()
    }

    #[test]
    fn an_answer_goes_to_the_store_and_to_the_agent() {
        let checked =
            check(&given(&[entry("q", json!(1))], &["c"]), &[question("q"), call("c")]).expect("valid");
        let bodies =
            [("q", r#"{"status":"resolved","payload":1}"#), ("c", r#"{"content":"ok","error":null}"#)];
        assert_eq!(stored(&checked), bodies);
        assert_eq!(checked.for_run, [CheckedAnswer::Agent(entry("q", json!(1)))]);
        assert_eq!(checked.for_store.map(|set| set.by.to_string()).as_deref(), Some("ann"));
    }

    #[test]
    fn an_answer_to_a_question_of_the_gate_carries_its_memory() {
        let gate =
            item("approve:c", "approval", json!({"toolCallId": "c", "gate": {"call": "c", "behind": null}}));
        let checked = check(&given(&[entry("approve:c", json!(true))], &[]), std::slice::from_ref(&gate))
            .expect("valid");
        let question = GateQuestion::of(&gate).expect("it is the gate's");
        assert_eq!(
            checked.for_run,
            [CheckedAnswer::Gate { entry: entry("approve:c", json!(true)), question }]
        );
    }

    #[test]
    fn unknown_answers_are_refused_unless_another_one_is_known() {
        let items = [question("q")];
        assert_eq!(code(&given(&[entry("x", json!(1))], &[]), &items), codes::UNKNOWN_INTERRUPT);
        assert_eq!(code(&given(&[], &["x"]), &items), codes::UNKNOWN_TOOL_CALL);
        assert_eq!(code(&given(&[entry("c", json!(1))], &[]), &[call("c")]), codes::UNKNOWN_INTERRUPT);
        let checked =
            check(&given(&[entry("x", json!(1)), entry("q", json!(1))], &["y"]), &items).expect("valid");
        assert_eq!(for_agent(&checked), ["q"]);
        assert_eq!(checked.unknown_interrupts, ["x".into()]);
        assert_eq!(checked.unknown_results, ["y".into()]);
    }

    #[test]
    fn results_of_the_agents_own_calls_are_not_unknown() {
        let settled = HashMap::from([("own".into(), 0)]);
        let checked = validate(&given(&[], &["own"]), &[], &settled, NOW, "ann").expect("valid");
        assert_eq!(checked, Checked::default());
    }

    #[test]
    fn the_same_answer_twice_counts_once_and_two_different_ones_are_refused() {
        let items = [question("q")];
        let checked =
            check(&given(&[entry("q", json!(1)), entry("q", json!(1))], &[]), &items).expect("valid");
        assert_eq!(for_agent(&checked), ["q"]);
        assert_eq!(
            code(&given(&[entry("q", json!(1)), entry("q", json!(2))], &[]), &items),
            codes::BAD_REQUEST
        );
        assert_eq!(code(&given(&[entry("q", json!(1)), cancelled("q")], &[]), &items), codes::BAD_REQUEST);
    }

    #[test]
    fn an_expired_item_takes_no_answer_and_a_cancellation_only_reaches_the_agent() {
        let items = [expired(question("q"))];
        assert_eq!(code(&given(&[entry("q", json!(1))], &[]), &items), codes::INTERRUPT_EXPIRED);
        let checked = check(&given(&[cancelled("q")], &[]), &items).expect("valid");
        assert_eq!((stored(&checked), for_agent(&checked)), (vec![], vec!["q"]));
    }

    #[test]
    fn rules_apply_entry_by_entry() {
        let schema = json!({"responseSchema": {"type": "string"}});
        let items = [item("s", "input", schema), expired(question("q"))];
        let (wrong, late) = (entry("s", json!(1)), entry("q", json!(1)));
        assert_eq!(code(&given(&[wrong.clone(), late.clone()], &[]), &items), codes::SCHEMA_MISMATCH);
        assert_eq!(code(&given(&[late, wrong.clone()], &[]), &items), codes::INTERRUPT_EXPIRED);
        // An answer that was given before is not checked again: the store compares it.
        assert!(check(&given(&[wrong], &[]), &[answered(items[0].clone())]).is_ok());
    }

    #[test]
    fn every_question_must_be_answered_and_a_front_end_call_need_not() {
        let items = [question("a"), question("b"), call("c")];
        assert_eq!(code(&given(&[entry("a", json!(1))], &[]), &items), codes::INTERRUPT_UNANSWERED);
        assert_eq!(code(&given(&[], &[]), &items), codes::INTERRUPT_UNANSWERED);
        assert!(check(&given(&[entry("a", json!(1)), cancelled("b")], &[]), &items).is_ok());
        // A question that was asked again under its id replaces the first one.
        assert!(check(&given(&[], &[]), &[question("a"), answered(question("a"))]).is_ok());
    }

    #[test]
    fn an_empty_list_needs_results_while_a_call_is_open() {
        let empty = Given { has_list: true, ..Given::default() };
        assert_eq!(code(&empty, &[call("c")]), codes::NO_TOOL_RESULTS);
        assert!(check(&empty, &[answered(call("c"))]).is_ok());
        assert!(check(&Given { has_list: true, ..given(&[], &["c"]) }, &[call("c")]).is_ok());
    }

    #[test]
    fn an_empty_result_answers_no_question() {
        let empty = |call: &str| Given { empty_results: vec![call.into()], ..given(&[], &[call]) };
        for kind in ["input", "approval", "interrupt", "credential", "long-running-tool"] {
            assert_eq!(code(&empty("q"), &[item("q", kind, json!({}))]), codes::NO_TOOL_RESULTS, "{kind}");
        }
        assert!(check(&empty("c"), &[call("c")]).is_ok());
        assert!(check(&empty("q"), &[answered(question("q"))]).is_ok());
    }

    #[test]
    fn repeated_answers_count_only_if_none_is_new() {
        let items = [answered(question("old")), question("new")];
        let both = given(&[entry("old", json!(1)), entry("new", json!(2))], &[]);
        let checked = check(&both, &items).expect("valid");
        assert_eq!((stored(&checked).len(), for_agent(&checked)), (1, vec!["new"]));
        let checked = check(&given(&[entry("old", json!(1))], &[]), &items[..1]).expect("valid");
        assert_eq!((stored(&checked).len(), for_agent(&checked)), (1, vec!["old"]));
    }

    #[test]
    fn answers_that_waited_come_along() {
        let carried = json!({"carried": [{"id": "first", "resolved": true, "payload": "blue"}]});
        let items = [item("q", "long-running-tool", carried)];
        let checked = check(&given(&[entry("q", json!(1))], &[]), &items).expect("valid");
        assert_eq!(for_agent(&checked), ["q", "first"]);
        assert_eq!(stored(&checked).len(), 1, "they were stored when they were given");
    }

    #[test]
    fn items_of_the_agents_side_are_validated_and_not_stored() {
        let mut elsewhere = question("q");
        elsewhere.run = "".into();
        assert_eq!(code(&given(&[], &[]), &[elsewhere.clone()]), codes::INTERRUPT_UNANSWERED);
        let checked = check(&given(&[entry("q", json!(1))], &[]), &[elsewhere]).expect("valid");
        assert_eq!((stored(&checked), for_agent(&checked)), (vec![], vec!["q"]));
    }
}
