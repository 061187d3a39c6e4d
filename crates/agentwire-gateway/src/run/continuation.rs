//! Requests under the id of a run that has ended: an answer to an open item, a repeated request, or a reconnect.
//!
//! Some clients answer under the id of the run that waits, and keep that id for every later question: CopilotKit always
//! does. Such an answer starts a run of its own under a derived id: `r1` is continued by `r1#2`, that by `r1#3`. The
//! runs `r1`, `r1#2`, … form a series, and the client may name any of them.

use agentwire_core::{
    Tally,
    event::{ResumeEntry, RunId, ToolCallId},
    format::ag_ui,
};
use agentwire_store::{Answer, Owner, Pending, PendingFilter, Run, RunStatus};

use super::admission::RunRequest;
use crate::{
    error::ApiError,
    gateway::Gateway,
    human::{
        given::{self, Given},
        pending, validate,
    },
};

/// The decision about a request under the id of a run that exists.
pub(super) enum KnownRun {
    /// It follows this run.
    Join(RunId),
    /// It answers something that is open, so that a new run continues the series.
    Answer,
}

/// The id without the number of the continuation, and that number; 1 for the first run of a series.
fn parts(run: &str) -> (&str, u64) {
    let numbered = run.rsplit_once('#').and_then(|(first, number)| {
        let number: u64 = number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))?;
        (number > 1 && !first.is_empty()).then_some((first, number))
    });
    numbered.unwrap_or((run, 1))
}

/// The id of the first run of a series.
pub(crate) fn first_id(run: &str) -> &str {
    parts(run).0
}

/// True if two runs belong to one series.
pub(crate) fn is_same_series(one: &str, other: &str) -> bool {
    first_id(one) == first_id(other)
}

/// The id after `run` in its series.
pub(super) fn next_id(run: &RunId) -> RunId {
    let (first, number) = parts(run);
    format!("{first}#{}", number.saturating_add(1)).into()
}

impl Gateway {
    /// The first id of the series of `run` that is likely to be free.
    pub(super) async fn free_id(&self, request: &RunRequest, run: &RunId) -> Result<RunId, ApiError> {
        let page = self.store().runs(&request.owner, &request.input.thread, None, 1).await?;
        let newest = page.items.into_iter().next().map(|newest| newest.run);
        Ok(next_id(newest.filter(|newest| is_same_series(newest, run)).as_ref().unwrap_or(run)))
    }

    /// The run of the series that has the thread, if it is another one than `run`.
    pub(crate) async fn live_continuation(&self, owner: &Owner, run: &RunId) -> Option<RunId> {
        let stored = self.store().run(owner, run).await.ok()?;
        let lease = self.store().lease(owner, &stored.thread).await.ok().flatten()?;
        (lease.run != *run && is_same_series(&lease.run, run)).then_some(lease.run)
    }

    /// Decides about a request under the id of `run`, which exists in its thread.
    ///
    /// The same answer again joins the run that it started. If the agent has asked under the same id again meanwhile, the
    /// answer is new once a client has read that run to its end: before, nobody can have seen the second question.
    pub(super) async fn known_run(&self, request: &mut RunRequest, run: &Run) -> Result<KnownRun, ApiError> {
        let join = |run: &RunId| Ok(KnownRun::Join(run.clone()));
        if run.status.is_live() {
            return join(&run.run);
        }
        self.collect_answers(request).await?;
        let RunRequest { owner, input, items, given, .. } = &*request;
        let mut given = given.clone().unwrap_or_default();
        given::add_results(&mut given, input, items.as_deref().unwrap_or_default(), self.store().now());
        let command = ag_ui::input::command_answer(input).filter(|_| !given.has_list);
        if given.answers.is_empty() && given.empty_results.is_empty() && command.is_none() {
            return join(&run.run);
        }
        let items = self.store().pending(owner, &input.thread, PendingFilter::All).await?;
        let answers = stored_answers(&given, &items);
        let is_unanswered = |answer: &Answer| {
            pending::find(&items, answer.id.as_str()).is_some_and(|item| item.answer.is_none())
        };
        let answers_open_item = answers.iter().any(is_unanswered);
        let is_refused = |call: &ToolCallId| {
            pending::find(&items, call)
                .is_some_and(|item| item.answer.is_none() && pending::is_required(item))
        };
        if given.empty_results.iter().any(is_refused) {
            return Ok(KnownRun::Answer);
        }
        let recorded = match &command {
            Some(command) => recorded_run(&items, &run.run, |answered| {
                let ids: Vec<_> = answered.iter().map(|item| item.id.as_str().into()).collect();
                given::entries_of_command(command, &ids).iter().map(validate::entry_for_store).collect()
            }),
            None => recorded_run(&items, &run.run, |_| answers.clone()),
        };
        if let Some(recorded) = recorded {
            let is_new = answers_open_item && self.was_read_to_end(owner, &recorded).await?;
            return if is_new { Ok(KnownRun::Answer) } else { join(&recorded) };
        }
        let is_about_series = |answer: &Answer| {
            pending::find(&items, answer.id.as_str()).is_some_and(|item| is_same_series(&item.run, &run.run))
        };
        if answers_open_item || answers.iter().any(is_about_series) {
            return Ok(KnownRun::Answer);
        }
        let has_entries = command.is_some() || given.entries().next().is_some();
        if run.status == RunStatus::Waiting && has_entries && !self.started_with(owner, run, &given).await? {
            // It answers nothing that is known; validation has the reason.
            return Ok(KnownRun::Answer);
        }
        join(&run.run)
    }

    /// True if the request that started a run had the same resume entries.
    async fn started_with(&self, owner: &Owner, run: &Run, given: &Given) -> Result<bool, ApiError> {
        let Some(text) = self.store().input(owner, &run.run).await? else { return Ok(false) };
        let Ok(stored) = ag_ui::input::from_json(&text, &mut Tally::default()) else { return Ok(false) };
        let stored: Vec<_> = stored.resume.unwrap_or_default();
        let is_stored = |entry: &ResumeEntry| stored.iter().any(|other| other.interrupt == entry.interrupt);
        Ok(!stored.is_empty() && given.entries().all(is_stored))
    }
}

/// The answers to known items, as the store records them.
fn stored_answers(given: &Given, items: &[Pending]) -> Vec<Answer> {
    let entries = given.entries().map(validate::entry_for_store);
    let results = given.results().map(validate::result_for_store);
    entries.chain(results).filter(|answer| pending::find(items, answer.id.as_str()).is_some()).collect()
}

/// The newest run of the series of `run` that was started by the same answers. `answers_to` returns the answers of the
/// request, given the items that such a run answered.
fn recorded_run(
    items: &[Pending],
    run: &RunId,
    answers_to: impl Fn(&[&Pending]) -> Vec<Answer>,
) -> Option<RunId> {
    let started = items.iter().rev().filter_map(|item| Some(&item.answer.as_ref()?.run));
    started.filter(|started| is_same_series(started, run)).find_map(|started| {
        let answered_by = |item: &&Pending| item.answer.as_ref().is_some_and(|answer| answer.run == *started);
        let answered: Vec<_> = items.iter().filter(answered_by).collect();
        let is_recorded = |answer: &Answer| {
            let is_same = |item: &&&Pending| {
                item.id == answer.id && item.answer.as_ref().is_some_and(|it| it.body == answer.body)
            };
            answered.iter().any(|item| is_same(&item))
        };
        let answers = answers_to(&answered);
        (!answers.is_empty() && answers.iter().all(is_recorded)).then(|| started.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuations_are_numbered_within_their_series() {
        let next = |run: &str| next_id(&run.into()).to_string();
        assert_eq!(next("r1"), "r1#2");
        assert_eq!(next("r1#2"), "r1#3");
        // These are names that a client chose.
        for (run, expected) in
            [("r#", "r##2"), ("r#1", "r#1#2"), ("#2", "#2#2"), ("r#+3", "r#+3#2"), ("r#x", "r#x#2")]
        {
            assert_eq!(next(run), expected);
        }
        assert!(is_same_series("r1", "r1#7") && is_same_series("r1#2", "r1#7"));
        assert!(!is_same_series("r1", "r2") && !is_same_series("r1", "r1#x"));
    }
}
