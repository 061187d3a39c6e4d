//! The rules for the answers of a request, in the order in which they apply.
//!
//! [`validate`] has no side effects. Only answers that it returns reach the store, the approval gate or the agent.

use std::collections::HashMap;

use agentwire_core::{
    event::{GivenResult, InterruptId, ResumeEntry, ResumeStatus, ToolCallId},
    json::Json,
};
use agentwire_store::{Answer, AnswerSet, Pending, Time};
use serde_json::json;

use super::{
    approval::{self, GateQuestion},
    given::Given,
    pending::{self, FRONTEND_TOOL},
    schema,
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

fn entry_for_store(entry: &ResumeEntry) -> Answer {
    let status = match entry.status {
        ResumeStatus::Resolved => "resolved",
        ResumeStatus::Cancelled => "cancelled",
    };
    let body = json!({"status": status, "payload": entry.payload.as_ref().map(Json::to_value)}).to_string();
    Answer { id: entry.interrupt.as_str().into(), body: body.into() }
}

fn result_for_store(result: &GivenResult) -> Answer {
    let body = json!({"content": result.content, "error": result.error}).to_string();
    Answer { id: result.call.as_str().into(), body: body.into() }
}
