//! Checkpoints, derived from the logs of a thread's runs: the values before the input of a run, with its input, after each
//! message, and at its end. Their ids are derived too, so that they stay the same.
//!
//! A run that continued the conversation after an earlier message forked it: the parent of its first checkpoint is the one
//! that its request named, or else the first that ends with this message. A checkpoint to which a client returns is found by
//! its id; the run then continues after its last message, with its state. Changes from outside a run are in
//! [`super::records`].

use std::{collections::HashSet, sync::Arc};

use agentwire_core::{
    Tally,
    event::{Body, Event, Message, MessageBody, MessageId, Outcome, RunInput, ThreadId},
    fold::Fold,
    format::{ag_ui, langgraph},
    json::Footprint,
};
use agentwire_store::{Log, Run, RunKey, RunStatus, Seq, StoreError};
use serde_json::{Value, json};

use super::{
    super::super::{request::ApiRequest, threads},
    echo::Echo,
    records::{Change, Records},
    shapes::{self, NODE},
};
use crate::{
    codes, cpu_work,
    error::ApiError,
    limits::HeldBytes,
    run::input::{has_start_in_log, stored_cut},
    settings::History,
    stream::{
        log_codec::{self, Decoder},
        reader,
    },
    thread::history,
    timestamp::iso,
};

/// Runs of which checkpoints are derived, and bytes of their logs and of their requests.
const MAX_RUNS: usize = 64;
const MAX_BYTES: usize = 16 << 20;
const MAX_INPUTS: usize = 64 << 20;

/// Memory of the states and the lists of messages of all checkpoints, about. Checkpoints share those that are the same.
/// Beyond this older runs are left out, and the checkpoints within a run that changes a large state all the time.
const MAX_STATES: usize = Footprint::MAX;

/// Messages that are counted for the checkpoints within a run; further ones have none.
const MAX_ARRANGED: usize = 4 << 20;

/// Bytes of a log that are read at once.
const PAGE: usize = 1 << 20;

/// The numbers of a run's checkpoints, by which ids are derived: before and with its input, then those after its messages, and
/// its end. The last one is of no run: the state was changed from outside.
const BEFORE: u64 = 0;
const INPUT: u64 = 1;
const INNER: u64 = 2;
const END: u64 = 0xffe;
const UPDATE: u64 = 0xfff;
const UPDATE_SOURCE: &str = "update";

/// The error of a node that was cancelled, as the server shows it.
const CANCELLED: &str = "CancelledError()";

/// The values of a thread at one place of its history.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) id: String,
    parent: Option<String>,
    /// The messages of which the first `count` were there.
    all: Arc<Vec<Message>>,
    count: usize,
    pub(super) state: Arc<Value>,
    source: &'static str,
    step: i64,
    /// The nodes that would run next.
    next: Option<&'static str>,
    interrupts: Vec<Value>,
    error: Option<String>,
    run: Option<String>,
    agent: String,
    created: u64,
    /// The bytes in the budget of all that were read together.
    _held: Option<Arc<HeldBytes>>,
}

impl Checkpoint {
    pub(super) fn messages(&self) -> &[Message] {
        &self.all[..self.count]
    }

    /// The message after which a run continues from here; empty if it starts anew.
    pub(super) fn cut(&self) -> MessageId {
        self.messages().last().map_or_else(|| "".into(), |last| last.id.clone())
    }

    fn ends_with(&self, cut: &str) -> bool {
        self.messages().last().map_or("", |last| &last.id) == cut
    }

    /// The difference to the checkpoint before it, if no log has it.
    pub(super) fn to_change(&self, before: Option<&Self>) -> Option<Change> {
        if self.source != UPDATE_SOURCE {
            return None;
        }
        let old = before.map_or(&[][..], Self::messages);
        let kept = self.messages().iter().zip(old).take_while(|(new, old)| new == old).count();
        let old = before.and_then(|before| before.state.as_object().cloned()).unwrap_or_default();
        let new = self.state.as_object().cloned().unwrap_or_default();
        let removed = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        Some(Change {
            id: self.id.clone(),
            parent: before.map(|before| before.id.clone()),
            created: self.created,
            kept,
            messages: ag_ui::messages_to_json(&self.messages()[kept..]),
            set: new.into_iter().filter(|(key, value)| old.get(key) != Some(value)).collect(),
            removed,
        })
    }

    /// The state of a thread as the server shows it.
    pub(super) fn to_json(&self, thread: &ThreadId) -> Value {
        let at = |id: &str| json!({"thread_id": thread.as_str(), "checkpoint_ns": "", "checkpoint_id": id});
        let has_task = self.next == Some(NODE);
        let tasks: Vec<Value> = has_task
            .then(|| shapes::task(&self.id, self.error.clone(), &self.interrupts))
            .into_iter()
            .collect();
        let mut metadata = json!({"source": self.source, "step": self.step, "parents": {},
            "thread_id": thread.as_str(), "graph_id": self.agent, "assistant_id": self.agent});
        if let Some(run) = &self.run {
            metadata["run_id"] = run.as_str().into();
        }
        json!({
            "values": shapes::values(self.messages(), &self.state),
            "next": self.next.into_iter().collect::<Vec<_>>(),
            "tasks": tasks,
            "metadata": metadata,
            "created_at": iso(self.created),
            "checkpoint": at(&self.id),
            "parent_checkpoint": self.parent.as_deref().map(at),
            "interrupts": self.interrupts,
            "checkpoint_id": self.id,
            "parent_checkpoint_id": self.parent,
        })
    }
}

/// A run with its log.
struct Recorded {
    run: Run,
    input: RunInput,
    events: Vec<Event>,
}

/// The checkpoints of a thread, the oldest first.
pub(super) async fn read(request: &ApiRequest, thread: &ThreadId) -> Result<Vec<Checkpoint>, ApiError> {
    read_runs(request, thread, MAX_RUNS).await
}

/// Those of the newest runs.
async fn read_runs(
    request: &ApiRequest,
    thread: &ThreadId,
    limit: usize,
) -> Result<Vec<Checkpoint>, ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let read = async || {
        let (recorded, bytes) = recorded_runs(request, thread, limit).await?;
        let snapshot = gateway.current_snapshot(owner, thread).await?;
        // Most runs have a state of their own.
        let (texts, state) = snapshot.as_ref().map_or((0, 0), |it| (it.length(), it.state.len()));
        let states = state.saturating_mul(recorded.len()).min(MAX_STATES);
        Ok::<_, ApiError>((recorded, snapshot, bytes + texts + states))
    };
    let ((recorded, snapshot, _), held) =
        gateway.read_within_budget(owner, read, |(_, _, bytes)| *bytes).await?;
    let held = held.map(Arc::new);
    let snapshot = threads::or_recalled(request, thread, Ok(snapshot)).await?;
    let Some(snapshot) = snapshot else { return Ok(Vec::new()) };
    let open = match gateway.open_items(owner, thread).await {
        Err(StoreError::NotFound(_)) => Vec::new(),
        open => open?,
    };
    let open = match reader::outcome_of(open.iter()) {
        Some(Outcome::Interrupt { interrupts }) => interrupts,
        _ => snapshot.interrupts.clone(),
    };
    let (stored, records) = match gateway.store().thread(owner, thread).await {
        Ok(stored) => ((stored.updated.0, stored.state_seq), Records::of(&stored)),
        Err(_) => ((gateway.store().now().0, 0), Records::default()),
    };
    let (name, agent) = (thread.clone(), request.state.agent.name.to_string());
    let work = move || {
        let mut derived = Derived::new(&name, &agent, held);
        derived.add_changes(&records);
        for recorded in recorded.iter().filter(|recorded| records.stands(&recorded.run)) {
            derived.add(recorded);
            derived.add_changes(&records);
        }
        let is_live = snapshot.at_run_start.is_some();
        if !is_live {
            let state = serde_json::from_str(&snapshot.state).unwrap_or_else(|_| json!({}));
            derived.finish(log_codec::parse_messages(&snapshot.messages), state, stored);
            let interrupts = open.iter().map(langgraph::server_interrupt).collect();
            derived.set_open(interrupts);
        }
        derived.list
    };
    cpu_work::spawn(owner, work).await
}

/// The newest runs with their logs, the oldest first, and their bytes.
async fn recorded_runs(
    request: &ApiRequest,
    thread: &ThreadId,
    limit: usize,
) -> Result<(Vec<Recorded>, usize), ApiError> {
    let (store, owner) = (request.state.gateway.store(), &request.owner);
    let runs = match store.runs(owner, thread, None, limit).await {
        Ok(page) => page.items,
        Err(StoreError::NotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let (mut recorded, mut bytes, mut inputs) = (Vec::new(), 0, 0);
    for run in runs {
        let key = RunKey { owner: owner.clone(), run: run.run.clone() };
        let Some((events, size)) = log_of(request, &key, thread, MAX_BYTES.saturating_sub(bytes)).await?
        else {
            break;
        };
        let text = store.input(owner, &run.run).await?;
        let length = text.as_ref().map_or(0, |text| text.len());
        if inputs + length > MAX_INPUTS {
            break;
        }
        (bytes, inputs) = (bytes + size, inputs + length);
        let parse = move || text.and_then(|text| ag_ui::input::from_json(&text, &mut Tally::default()).ok());
        let input = cpu_work::by_length(owner, length, parse).await?;
        let input = input.unwrap_or_else(|| RunInput::new(thread.clone(), run.run.clone()));
        recorded.push(Recorded { run, input, events });
    }
    recorded.reverse();
    Ok((recorded, bytes + inputs))
}

/// The events of a log and their bytes; `None` if it is not retained or larger than `limit`.
async fn log_of(
    request: &ApiRequest,
    key: &RunKey,
    thread: &ThreadId,
    limit: usize,
) -> Result<Option<(Vec<Event>, usize)>, ApiError> {
    let (mut entries, mut bytes, mut after) = (Vec::new(), 0, None);
    loop {
        let read = request.state.gateway.store().read(&key.owner, &key.run, after, PAGE).await?;
        let (page, is_last) = match read {
            Log::Exact(slice) => {
                let is_last = slice.events.is_empty();
                (slice.events, is_last)
            }
            Log::Compacted { events, .. } => (events, true),
            Log::NotRetained { .. } | Log::Ahead { .. } => return Ok(None),
        };
        bytes += page.iter().map(bytes::Bytes::len).sum::<usize>();
        if bytes > limit {
            return Ok(None);
        }
        entries.extend(page);
        after = (entries.len() as u64).checked_sub(1).map(Seq);
        if is_last {
            break;
        }
    }
    let (run, thread) = (key.run.clone(), thread.clone());
    let decode = move || {
        let (mut decoder, mut events) = (Decoder::new(&thread, &run), Vec::new());
        entries.iter().for_each(|entry| decoder.decode(entry, &mut events));
        events
    };
    Ok(Some((cpu_work::spawn(&key.owner, decode).await?, bytes)))
}

/// The id of a checkpoint: a UUID of version 7 that begins with its time, and sorts by it.
fn id(thread: &ThreadId, time: u64, number: u64, of: &str) -> String {
    // FNV-1a: the same at every gateway and in every version.
    let text = thread.bytes().chain([0]).chain(of.bytes());
    let hash = text.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (time, number) = (time & 0xffff_ffff_ffff, number & UPDATE);
    let (high, low) = (((hash >> 48) & 0x3fff) | 0x8000, hash & 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-7{number:03x}-{high:04x}-{low:012x}", time >> 16, time & 0xffff)
}

/// The start of a run, and the checkpoints with which its values are announced.
pub(super) struct Around {
    pub(super) messages: Vec<Message>,
    pub(super) state: Arc<Value>,
    /// The checkpoint with the input, and that at the end, as events have them.
    pub(super) checkpoints: [Value; 2],
}

/// The start of a run of a thread. `None` if its log is not retained.
pub(super) async fn around(
    request: &ApiRequest,
    thread: &ThreadId,
    run: &Run,
) -> Result<Option<Around>, ApiError> {
    let mut all = read(request, thread).await?;
    let own = |checkpoint: &Checkpoint| checkpoint.run.as_deref() == Some(run.run.as_str());
    let first = all.iter().position(own);
    let of = |number: u64| id(thread, run.created.0, number, &run.run);
    let (input, end) = (of(INPUT), of(END));
    let envelope = |id: &str, parent: Option<&str>, step: i64| {
        let mut envelope = json!({"id": id, "step": step, "source": "loop"});
        if let Some(parent) = parent {
            envelope["parent_id"] = parent.into();
        }
        envelope
    };
    let start = match all.iter().position(|checkpoint| checkpoint.id == input) {
        Some(at) => at,
        // It goes on from the checkpoint before it.
        None => match first.or(run.status.is_live().then_some(all.len())).and_then(|at| at.checked_sub(1)) {
            Some(at) => at,
            None => return Ok(None),
        },
    };
    let start = all.swap_remove(start);
    let at_start = envelope(&start.id, start.parent.as_deref(), start.step);
    let at_end = envelope(&end, Some(&start.id), start.step + 1);
    Ok(Some(Around {
        messages: start.messages().to_vec(),
        state: start.state.clone(),
        checkpoints: [at_start, at_end],
    }))
}

/// The checkpoints so far.
struct Derived {
    thread: ThreadId,
    agent: String,
    list: Vec<Checkpoint>,
    step: i64,
    /// The memory of their states and lists.
    states: usize,
    held: Option<Arc<HeldBytes>>,
}

/// A checkpoint to be, within a run.
struct Place {
    number: u64,
    all: Arc<Vec<Message>>,
    count: usize,
    state: Arc<Value>,
    source: &'static str,
    next: Option<&'static str>,
}

impl Derived {
    fn new(thread: &ThreadId, agent: &str, held: Option<Arc<HeldBytes>>) -> Self {
        let (thread, agent) = (thread.clone(), agent.to_owned());
        Self { thread, agent, list: Vec::new(), step: -1, states: 0, held }
    }

    fn id(&self, time: u64, number: u64, of: &str) -> String {
        id(&self.thread, time, number, of)
    }

    fn push(&mut self, place: Place, id: String, parent: Option<String>, run: Option<&Run>, created: u64) {
        let Place { number, all, count, state, source, next } = place;
        let agent = run.map_or(&*self.agent, |run| &run.agent).to_owned();
        let run = run.map(|run| run.run.to_string());
        let (interrupts, error) = (Vec::new(), None);
        // Those within a run are one step: the number of its end is known at its start.
        let is_inner = (INNER..END).contains(&number);
        let step = if is_inner { self.step - 1 } else { self.step };
        self.step += i64::from(!is_inner);
        let last = self.list.last();
        let is_new_list = last.is_none_or(|last| !Arc::ptr_eq(&last.all, &all));
        let is_new_state = last.is_none_or(|last| !Arc::ptr_eq(&last.state, &state));
        let list = if is_new_list { size_of_val(&**all) } else { 0 };
        let size = list + if is_new_state { memory_of(&state) } else { 0 };
        self.states += size;
        if self.states > MAX_STATES && size > 0 {
            self.list.clear();
            self.states = size;
        }
        self.list.push(Checkpoint {
            id,
            parent,
            all,
            count,
            state,
            source,
            step,
            next,
            interrupts,
            error,
            run,
            agent,
            created,
            _held: self.held.clone(),
        });
    }

    fn add(&mut self, recorded: &Recorded) {
        let Recorded { run, input, events } = recorded;
        let cut = stored_cut(input);
        let before = self.list.last().map(|last| (last.messages().to_vec(), last.state.clone()));
        let named = Echo::of_run(input).checkpoint;
        let mut parent = match &cut {
            None => self.list.last(),
            Some(cut) => named
                .and_then(|id| self.first_like(&id))
                .or_else(|| self.list.iter().find(|earlier| earlier.ends_with(cut)))
                .or_else(|| self.list.last()),
        }
        .map(|parent| parent.id.clone());
        let stored = before.as_ref().map(|(messages, _)| history::until(messages, cut.as_ref()));
        let (start, state, rest) = starting(input, events, stored, before.as_ref().map(|it| &it.1));
        let sent: HashSet<&MessageId> = input.messages.iter().map(|message| &message.id).collect();
        let is_new = |message: &&Message| sent.contains(&message.id);
        let kept: Vec<Message> = match (&cut, stored) {
            (Some(_), _) => history::until(&start, cut.as_ref()).to_vec(),
            (None, Some(stored)) if start.starts_with(stored) => stored.to_vec(),
            (None, _) => start.iter().filter(|it| !is_new(it)).cloned().collect(),
        };
        let start = Arc::new(start);
        let mut places = Vec::new();
        let has_input = start.len() != kept.len() || input.state.is_some();
        if has_input {
            let state_before = before.map_or_else(|| Arc::new(json!({})), |(_, state)| state);
            let count = kept.len();
            let (all, next) = (Arc::new(kept), Some("__start__"));
            places.push(Place { number: BEFORE, all, count, state: state_before, source: "input", next });
            let (all, count, next) = (start.clone(), start.len(), Some(NODE));
            places.push(Place { number: INPUT, all, count, state: state.clone(), source: "loop", next });
        }
        let (outcome, error) = fold(&start, &state, rest, run.status, &mut places);
        for place in places {
            let id = self.id(run.created.0, place.number, &run.run);
            let created = if place.number < INNER { run.created.0 } else { run.updated.0 };
            self.push(place, id.clone(), parent.replace(id), Some(run), created);
        }
        if let Some(last) = self.list.last_mut() {
            (last.interrupts, last.error) = (outcome, error);
        }
    }

    /// The first of the checkpoints in a row that have the values of this one.
    fn first_like(&self, id: &str) -> Option<&Checkpoint> {
        let find = |id: &str| self.list.iter().find(|checkpoint| checkpoint.id == id);
        let mut first = find(id)?;
        while let Some(before) = first.parent.as_deref().and_then(find)
            && before.messages() == first.messages()
            && before.state == first.state
        {
            first = before;
        }
        Some(first)
    }

    /// Adds the changes from outside a run that were made at this place of the history.
    fn add_changes(&mut self, records: &Records) {
        for change in &records.changes {
            let last = self.list.last();
            if change.parent.as_deref() != last.map(|last| last.id.as_str()) {
                continue;
            }
            let mut messages = last.map_or_else(Vec::new, |last| last.messages().to_vec());
            messages.truncate(change.kept);
            messages.extend(log_codec::parse_messages(&change.messages));
            let mut state = last.map_or_else(|| json!({}), |last| (*last.state).clone());
            if let Some(members) = state.as_object_mut() {
                members.retain(|key, _| !change.removed.contains(key));
                members.extend(change.set.clone());
            }
            self.push_change(messages, state, change.id.clone(), change.created);
        }
    }

    /// Adds the stored thread if it is not what the last run left.
    fn finish(&mut self, messages: Vec<Message>, state: Value, (updated, seq): (u64, u64)) {
        let is_known = match self.list.last() {
            Some(last) => last.messages() == messages && *last.state == state,
            None => messages.is_empty() && state.as_object().is_none_or(serde_json::Map::is_empty),
        };
        if is_known {
            return;
        }
        let id = self.id(updated, UPDATE, &format!("state {seq}"));
        self.push_change(messages, state, id, updated);
    }

    /// Adds a checkpoint of no run. The thread waits for whatever it waited for before.
    fn push_change(&mut self, messages: Vec<Message>, state: Value, id: String, created: u64) {
        let last = self.list.last();
        let (parent, next) = (last.map(|last| last.id.clone()), last.and_then(|last| last.next));
        let (interrupts, error) =
            last.map_or((Vec::new(), None), |last| (last.interrupts.clone(), last.error.clone()));
        let count = messages.len();
        let (all, state) = (Arc::new(messages), Arc::new(state));
        let place = Place { number: UPDATE, all, count, state, source: UPDATE_SOURCE, next };
        self.push(place, id, parent, None, created);
        if let Some(last) = self.list.last_mut() {
            (last.interrupts, last.error) = (interrupts, error);
        }
    }

    /// The newest checkpoint waits for these questions, and only for them.
    fn set_open(&mut self, interrupts: Vec<Value>) {
        if let Some(last) = self.list.last_mut() {
            last.next = match (interrupts.is_empty(), last.error.is_some()) {
                (false, _) => Some(NODE),
                (true, true) => last.next,
                (true, false) => None,
            };
            last.interrupts = interrupts;
        }
    }
}

/// The messages and the state with which a run began, and its events behind them.
fn starting<'e>(
    input: &RunInput,
    events: &'e [Event],
    before: Option<&[Message]>,
    state_before: Option<&Arc<Value>>,
) -> (Vec<Message>, Arc<Value>, &'e [Event]) {
    let first = events.iter().position(|event| matches!(event.body, Body::MessagesSnapshot { .. }));
    if let Some(at) = first.filter(|at| has_start_in_log(input) && *at <= 2)
        && let Body::MessagesSnapshot { messages } = &events[at].body
    {
        let state = events[..at].iter().find_map(|event| match &event.body {
            Body::StateSnapshot { snapshot } => Some(snapshot.to_value()),
            _ => None,
        });
        return (messages.clone(), shared(state, state_before), &events[at + 1..]);
    }
    let messages =
        history::messages(History::Merge, before.unwrap_or_default().to_vec(), &input.messages, None);
    let state = match (&input.state, state_before) {
        (None, Some(before)) => before.clone(),
        (sent, before) => {
            let sent = sent.as_ref().map(agentwire_core::json::Json::to_value);
            shared(Some(history::state(before.map(|before| (**before).clone()), sent, None)), before)
        }
    };
    (messages, state, events)
}

/// A state, which is the one before if that is the same; an empty one if there is none.
fn shared(state: Option<Value>, before: Option<&Arc<Value>>) -> Arc<Value> {
    let state = state.unwrap_or_else(|| json!({}));
    before.filter(|before| ***before == state).cloned().unwrap_or_else(|| Arc::new(state))
}

/// About the memory of a state.
fn memory_of(state: &Value) -> usize {
    Footprint::of(state) + text_of(state)
}

/// The bytes of all texts in a value.
fn text_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(text_of).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + text_of(value)).sum(),
        _ => 0,
    }
}

/// Adds the places within a run and at its end; returns the questions and the error with which it ended.
fn fold(
    start: &Arc<Vec<Message>>,
    state: &Arc<Value>,
    events: &[Event],
    status: RunStatus,
    places: &mut Vec<Place>,
) -> (Vec<Value>, Option<String>) {
    let is_change =
        |event: &Event| matches!(event.body, Body::StateSnapshot { .. } | Body::StateDelta { .. });
    // A state that stays as it is need not be copied.
    let copied = events.iter().any(is_change).then(|| (**state).clone());
    let mut fold = Fold::from_history(start.to_vec(), copied);
    let (mut interrupts, mut error) = (Vec::new(), None);
    // Count of the messages, and the state.
    let mut inner: Vec<(usize, Option<Arc<Value>>)> = Vec::new();
    // The state, unless it has changed since it was last needed.
    let mut current = Some(state.clone());
    let mut room = MAX_STATES;
    let mut last = start.len();
    // Results of calls that were made together are one step.
    let mut is_behind_result = false;
    let mut arranged = 0;
    for event in events {
        let is_next = match &event.body {
            Body::TextStart { .. } | Body::ReasoningMessageStart { .. } => true,
            Body::ToolResult(_) if is_behind_result => false,
            Body::ToolResult(_) => {
                !matches!(fold.messages().last().map(|last| &last.body), Some(MessageBody::Tool { .. }))
            }
            Body::MessagesSnapshot { .. } => {
                // Messages may have another order now.
                inner.clear();
                false
            }
            Body::RunFinished(finished) => {
                if let Some(Outcome::Interrupt { interrupts: asked }) = &finished.outcome {
                    interrupts = asked.iter().map(langgraph::server_interrupt).collect();
                }
                false
            }
            Body::RunError(failure) => {
                let code = failure.code.as_deref().unwrap_or("Error");
                error = Some(json!({"error": code, "message": &*failure.message}).to_string());
                false
            }
            _ => false,
        };
        is_behind_result = match &event.body {
            Body::ToolResult(_) => true,
            Body::TextStart { .. }
            | Body::ReasoningMessageStart { .. }
            | Body::ToolStart { .. }
            | Body::MessagesSnapshot { .. }
            | Body::ActivitySnapshot { .. } => false,
            _ => is_behind_result,
        };
        // Only now: to bring the messages up to date may cost as much as there are, and a long text is copied.
        let messages = if is_next && arranged < MAX_ARRANGED { fold.messages() } else { &[] };
        let count = messages.len();
        arranged += count;
        let is_reasoning = matches!(messages.last().map(|it| &it.body), Some(MessageBody::Reasoning { .. }));
        if count > last && !is_reasoning {
            if current.is_none() && room > 0 {
                room = room.saturating_sub(memory_of(fold.state()));
                current = (room > 0).then(|| Arc::new(fold.state().clone()));
            }
            // The numbers of those that are left out stay free.
            inner.push((count, current.clone()));
            last = count;
        }
        fold.apply(event);
        if is_change(event) {
            current = None;
        }
    }
    let (messages, end) = fold.into_parts();
    let (all, state) = (Arc::new(messages), current.unwrap_or_else(|| Arc::new(end)));
    for (number, (count, state)) in (INNER..END).zip(inner) {
        if let Some(state) = state.filter(|_| count < all.len()) {
            let all = all.clone();
            places.push(Place { number, all, count, state, source: "loop", next: Some(NODE) });
        }
    }
    let next = (status != RunStatus::Finished).then_some(NODE);
    if status == RunStatus::Stopped {
        error = Some(CANCELLED.to_owned());
    }
    if !status.is_live() {
        let count = all.len();
        places.push(Place { number: END, all, count, state, source: "loop", next });
    }
    (interrupts, error)
}

/// The checkpoint with an id, and whether it is the newest one.
pub(super) async fn find(
    request: &ApiRequest,
    thread: &ThreadId,
    id: &str,
) -> Result<(Checkpoint, bool), ApiError> {
    // Most clients name the newest one.
    let newest = read_runs(request, thread, 1).await?.pop();
    if let Some(newest) = newest.filter(|newest| newest.id == id) {
        return Ok((newest, true));
    }
    let mut all = read(request, thread).await?;
    let at = all.iter().position(|checkpoint| checkpoint.id == id);
    let at = at.ok_or_else(|| ApiError::new(codes::UNKNOWN_THREAD, "Checkpoint not found"))?;
    let is_newest = at + 1 == all.len();
    Ok((all.swap_remove(at), is_newest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str) -> [Event; 2] {
        let message = MessageId::from(id);
        let start = Body::TextStart { message: message.clone(), role: None, name: None };
        [Event::new(start), Event::new(Body::TextEnd { message })]
    }

    fn states(events: &[Event], state: &Arc<Value>) -> Vec<Arc<Value>> {
        let mut places = Vec::new();
        fold(&Arc::new(vec![Message::user("u", "x")]), state, events, RunStatus::Finished, &mut places);
        places.into_iter().map(|place| place.state).collect()
    }

    #[test]
    fn checkpoints_share_a_state_until_it_changes() {
        let state = Arc::new(json!({"a": 1}));
        let same = states(&[text("m1"), text("m2"), text("m3")].concat(), &state);
        assert_eq!(same.len(), 3, "two within the run, and its end");
        assert!(same.iter().all(|own| Arc::ptr_eq(own, &state)));
        let change = Event::new(Body::StateSnapshot { snapshot: json!({"a": 2}).into() });
        let events = [&text("m1")[..], &text("m2"), &[change], &text("m3"), &text("m4")].concat();
        let changed = states(&events, &state);
        let values: Vec<_> = changed.iter().map(|state| state["a"].as_u64()).collect();
        assert_eq!(values, [Some(1), Some(2), Some(2), Some(2)]);
        assert!(Arc::ptr_eq(&changed[1], &changed[2]) && Arc::ptr_eq(&changed[2], &changed[3]));
    }

    #[test]
    fn states_that_change_all_the_time_are_not_all_kept() {
        // Each object counts for what it takes at most.
        let large = json!({"list": vec![json!({}); MAX_STATES / 4 / 400]});
        let mut events = Vec::new();
        for number in 0..8 {
            events.push(Event::new(Body::StateSnapshot { snapshot: json!({"number": number}).into() }));
            events.push(Event::new(Body::StateSnapshot { snapshot: large.clone().into() }));
            events.extend(text(&format!("m{number}")));
        }
        let kept = states(&events, &Arc::new(json!({})));
        assert_eq!(kept.len(), 4, "of eight");
        assert_eq!(*kept[kept.len() - 1], large, "the end is always there");
    }
}
