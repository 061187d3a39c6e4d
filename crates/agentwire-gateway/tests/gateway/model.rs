//! Any sequence of what people, agents and machines do keeps what the pending and control model promises.
//!
//! Operations are drawn at random and done over HTTP against a gateway that may die in between. After each of them the
//! invariants are looked at, and every answer of the gateway must be one that the state before it allows. Runs go
//! on by themselves, so an invariant over several reads is given a moment; one that is broken stays broken.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agentwire_core::event::RunId;
use agentwire_gateway::{InstanceLock, codes};
use agentwire_store::{Clock, ManualClock, Owner, Pending, PendingFilter, RunStatus, StoreError, Time};
use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// Longer than the questions that expire are open.
const LATER: Duration = Duration::from_secs(61);

#[derive(Clone, Debug)]
enum Op {
    /// A run that says something; how much of it is heard depends on [`Op::Let`].
    Talk(usize),
    /// A run that asks: a plain question, one with a schema, one that expires, a tool of the front end.
    Ask(usize, [bool; 4]),
    Answer(usize, How),
    Control(usize, &'static str),
    /// Lets the agents say so many events.
    Let(usize),
    /// The questions that expire do.
    Later,
    /// The gateway dies, and another one takes its place.
    Crash,
    Delete(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Right,
    WrongType,
    Unknown,
    Partial,
    Empty,
    /// As it was answered last.
    Again,
    /// Two different answers at once.
    Race,
}

fn op() -> impl Strategy<Value = Op> {
    let thread = 0..2_usize;
    let how = prop_oneof![
        4 => Just(How::Right), 1 => Just(How::WrongType), 1 => Just(How::Unknown), 1 => Just(How::Partial),
        1 => Just(How::Empty), 2 => Just(How::Again), 2 => Just(How::Race),
    ];
    let control = prop_oneof![Just("pause"), Just("resume"), Just("stop")];
    prop_oneof![
        2 => thread.clone().prop_map(Op::Talk),
        4 => (thread.clone(), any::<[bool; 4]>()).prop_map(|(thread, asked)| Op::Ask(thread, asked)),
        5 => (thread.clone(), how).prop_map(|(thread, how)| Op::Answer(thread, how)),
        4 => (thread.clone(), control).prop_map(|(thread, what)| Op::Control(thread, what)),
        4 => prop_oneof![1 => 1..4_usize, 3 => Just(100)].prop_map(Op::Let),
        1 => Just(Op::Later),
        1 => Just(Op::Crash),
        1 => thread.prop_map(Op::Delete),
    ]
}

/// A gateway under test, and what is known to have happened.
struct World {
    place: Place,
    clock: Arc<ManualClock>,
    puppet: Arc<Puppet>,
    server: Option<Server>,
    owner: Owner,
    made: usize,
    /// Every accepted run, and the statuses that it was seen in.
    runs: BTreeMap<String, (usize, Vec<RunStatus>)>,
    /// Every answer that was seen in the store, by thread, asking run and item.
    answers: BTreeMap<(String, String, String), String>,
    /// The last right answer of a thread.
    given: BTreeMap<usize, Value>,
    /// How often a thread was deleted; a deleted one gets a new name.
    deleted: [usize; 2],
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Time(1_794_787_200_000)));
        let place = Place::sqlite_at(clock.clone()).await;
        let mut world = Self {
            place,
            clock,
            puppet: Puppet::new(said),
            server: None,
            owner: Owner::new("default", "default-user"),
            made: 0,
            runs: BTreeMap::new(),
            answers: BTreeMap::new(),
            given: BTreeMap::new(),
            deleted: [0; 2],
        };
        world.begin().await;
        world
    }

    async fn begin(&mut self) {
        let plan = plan(self.puppet.clone()).process(InstanceLock::at(&self.place.address));
        // The clock moves in leaps, and nobody loses a run by that.
        let plan = plan.set(|settings| settings.lease = Duration::from_secs(1_000_000));
        self.server = Some(plan.mortal(&self.place.store).await);
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("one is there between operations")
    }

    fn name(&self, thread: usize) -> String {
        format!("t{thread}-{}", self.deleted[thread])
    }

    fn body(&mut self, thread: usize, members: &Value) -> Value {
        self.made += 1;
        let mut body = json!({
            "threadId": self.name(thread), "runId": format!("r{}", self.made), "messages": [], "context": [], "state": {},
            "forwardedProps": {}, "tools": [{"name": "pick", "description": "", "parameters": {}}],
        });
        for (key, value) in members.as_object().expect("members") {
            body[key] = value.clone();
        }
        body
    }

    async fn items(&self, thread: usize, which: PendingFilter) -> Vec<Pending> {
        match self.place.store.pending(&self.owner, &self.name(thread).as_str().into(), which).await {
            Ok(items) => items,
            Err(StoreError::NotFound(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    async fn is_busy(&self, thread: usize) -> bool {
        let lease = self.place.store.lease(&self.owner, &self.name(thread).as_str().into()).await;
        lease.is_ok_and(|lease| lease.is_some_and(|lease| lease.live))
    }

    /// Sends a request: the run that answers it, or why none does.
    async fn send(&mut self, thread: usize, body: &Value) -> Result<String, String> {
        let answered = post(self.server(), body).await;
        if let Ok(run) = &answered {
            self.runs.entry(run.clone()).or_insert((thread, Vec::new()));
        }
        answered
    }

    /// A full answer to everything that is open; `number` tells two of them apart.
    fn right(open: &[Pending], number: usize) -> Value {
        let (calls, asked): (Vec<_>, Vec<_>) = open.iter().partition(|item| &*item.kind == "frontend-tool");
        let resume: Vec<_> = asked
            .iter()
            .map(|item| json!({"interruptId": item.id.as_str(), "status": "resolved", "payload": {"n": number}}))
            .collect();
        let messages: Vec<_> = calls
            .iter()
            .map(|item| json!({"id": format!("tool-{}-{number}", item.id), "role": "tool", "toolCallId": item.id.as_str(), "content": number.to_string()}))
            .collect();
        if resume.is_empty() {
            json!({"messages": messages})
        } else {
            json!({"resume": resume, "messages": messages})
        }
    }

    async fn act(&mut self, op: &Op) {
        match *op {
            Op::Talk(thread) => self.ask(thread, json!("talk")).await,
            Op::Ask(thread, [plain, schema, expiring, call]) => {
                let id = self.made;
                let now = self.clock.now().0 / 1000 % 86_400 + 60;
                let until = format!(
                    "2026-11-{:02}T{:02}:{:02}:{:02}Z",
                    16 + now / 86_400,
                    now / 3600 % 24,
                    now / 60 % 60,
                    now % 60
                );
                let schema_of =
                    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
                let all = [
                    (plain, json!({"id": format!("plain{id}")})),
                    (schema, json!({"id": format!("schema{id}"), "responseSchema": schema_of})),
                    (expiring, json!({"id": format!("brief{id}"), "expiresAt": until})),
                ];
                let asked: Vec<_> = all.iter().filter(|(wanted, _)| *wanted).map(|(_, it)| it).collect();
                let calls = if call {
                    json!([{"id": format!("call{id}"), "name": "pick", "args": {}}])
                } else {
                    json!([])
                };
                self.ask(thread, json!({"ask": asked, "calls": calls})).await;
            }
            Op::Answer(thread, how) => self.answer(thread, how).await,
            Op::Control(thread, what) => self.control(thread, what).await,
            Op::Let(events) => self.puppet.allow(events),
            Op::Later => self.clock.advance(LATER),
            Op::Crash => {
                self.server.take().expect("it is there").crash().await;
                self.begin().await;
            }
            Op::Delete(thread) => {
                let path = format!("/thread/{}", self.name(thread));
                let (status, _) = answer(self.server().ask(Method::DELETE, &path)).await;
                let gone: Vec<_> = self
                    .runs
                    .iter()
                    .filter(|(_, (of, _))| *of == thread)
                    .map(|(run, _)| run.clone())
                    .collect();
                assert_eq!(
                    status.as_u16(),
                    if gone.is_empty() { 404 } else { 200 },
                    "deleting thread {thread}"
                );
                for run in gone {
                    assert_eq!(
                        self.server().json(&format!("/runs/{run}")).await.0,
                        404,
                        "{run} of a deleted thread"
                    );
                    self.runs.remove(&run);
                }
                let name = self.name(thread);
                self.answers.retain(|(of, ..), _| *of != name);
                self.given.remove(&thread);
                self.deleted[thread] += 1;
            }
        }
    }

    async fn ask(&mut self, thread: usize, told: Value) {
        let (busy, open) = (self.is_busy(thread).await, self.items(thread, PendingFilter::Open).await);
        let waits = open.iter().any(|item| &*item.kind != "frontend-tool");
        let text = told.as_str().map_or_else(|| told.to_string(), str::to_owned);
        let message = json!([{"id": format!("u{}", self.made), "role": "user", "content": text}]);
        let body = self.body(thread, &json!({ "messages": message }));
        let answered = self.send(thread, &body).await;
        match answered {
            Ok(run) => assert!(body["runId"] == run.as_str() && !waits, "a run began while the thread waits"),
            Err(code) if waits => assert_eq!(code, codes::INTERRUPT_UNANSWERED),
            // Whoever has the thread may end at any time, and leave a question.
            Err(code) => {
                let may_be = [codes::THREAD_IS_LOCKED, codes::INTERRUPT_UNANSWERED];
                assert!(busy && may_be.contains(&code.as_str()), "refused with {code}");
            }
        }
    }

    async fn answer(&mut self, thread: usize, how: How) {
        let (busy, open) = (self.is_busy(thread).await, self.items(thread, PendingFilter::Open).await);
        let must = open.iter().filter(|item| &*item.kind != "frontend-tool").count();
        let (mut members, expected) = match how {
            How::Right if !open.is_empty() => (Self::right(&open, self.made), None),
            How::WrongType if open.iter().any(|item| item.id.as_str().starts_with("schema")) => {
                let mut members = Self::right(&open, self.made);
                members["resume"]
                    .as_array_mut()
                    .expect("a list")
                    .iter_mut()
                    .for_each(|it| it["payload"] = json!({"n": "x"}));
                (members, Some(codes::SCHEMA_MISMATCH))
            }
            How::Unknown => {
                let nothing =
                    json!({"resume": [{"interruptId": "none", "status": "resolved", "payload": 1}]});
                (nothing, Some(codes::UNKNOWN_INTERRUPT))
            }
            How::Partial if must > 1 => {
                let mut members = Self::right(&open, self.made);
                members["resume"].as_array_mut().expect("a list").pop();
                (members, Some(codes::INTERRUPT_UNANSWERED))
            }
            How::Empty if must > 0 => (json!({"resume": []}), Some(codes::INTERRUPT_UNANSWERED)),
            How::Empty if !open.is_empty() => (json!({"resume": []}), Some(codes::NO_TOOL_RESULTS)),
            How::Again if self.given.contains_key(&thread) && must == 0 && !busy => {
                let (given, first) =
                    (self.given[&thread]["body"].clone(), self.given[&thread]["run"].clone());
                let body = self.body(thread, &given);
                let again = self.send(thread, &body).await;
                assert_eq!(again.as_deref(), Ok(first.as_str().expect("a run")), "the first one's run");
                return;
            }
            How::Race if !open.is_empty() && !busy => return self.race(thread, &open).await,
            _ => return,
        };
        if members["messages"].is_null() {
            members["messages"] = json!([]);
        }
        let body = self.body(thread, &members);
        match (self.send(thread, &body).await, expected) {
            (Ok(run), None) => {
                assert_eq!(body["runId"], run.as_str());
                self.given.insert(thread, json!({"body": members, "run": run}));
            }
            (Err(code), None) => {
                let may_be = [codes::THREAD_IS_LOCKED, codes::INTERRUPT_UNANSWERED];
                assert!(busy && may_be.contains(&code.as_str()), "a right answer got {code}");
            }
            (Ok(run), Some(code)) => panic!("expected {code}, got the run {run}"),
            (Err(code), Some(expected)) => {
                let may_be = busy && code == codes::INTERRUPT_UNANSWERED;
                assert!(code == expected || may_be, "expected {expected}, got {code}");
                let left = self.items(thread, PendingFilter::Open).await;
                assert!(busy || left == open, "a refused answer changes nothing");
            }
        }
    }

    async fn race(&mut self, thread: usize, open: &[Pending]) {
        let bodies: Vec<_> = [1, 2].map(|number| Self::right(open, self.made * 10 + number)).into();
        let (one, two) = (self.body(thread, &bodies[0]), self.body(thread, &bodies[1]));
        let (first, second) = tokio::join!(post(self.server(), &one), post(self.server(), &two));
        let won: Vec<_> = [&first, &second].into_iter().flatten().cloned().collect();
        assert_eq!(won.len(), 1, "one wins: {first:?} {second:?}");
        let lost = first.as_ref().err().or(second.as_ref().err()).expect("one lost");
        assert_eq!(lost, codes::ALREADY_ANSWERED);
        self.runs.insert(won[0].clone(), (thread, Vec::new()));
        let body = if first.is_ok() { &bodies[0] } else { &bodies[1] };
        self.given.insert(thread, json!({"body": body, "run": won[0]}));
    }

    async fn control(&mut self, thread: usize, what: &str) {
        let mine = self.runs.iter().filter(|(_, (of, _))| *of == thread).map(|(run, _)| run);
        let Some(run) = mine.max_by_key(|run| run[1..].parse::<usize>().unwrap_or(0)).cloned() else {
            let (status, _) = answer(self.server().ask(Method::POST, &format!("/runs/none/{what}"))).await;
            assert_eq!(status, 404);
            return;
        };
        let before = self.status(&run).await;
        let (status, body) = answer(self.server().ask(Method::POST, &format!("/runs/{run}/{what}"))).await;
        let after = self.status(&run).await;
        match (what, status.as_u16()) {
            ("stop", 200) => assert!(!after.is_live(), "{run} was {before} and is {after}"),
            ("pause", 200) => assert_eq!((after, &body["mode"]), (RunStatus::Paused, &json!("soft"))),
            ("resume", 200) => assert_ne!(after, RunStatus::Paused),
            ("pause" | "resume", 409) => assert!(!after.is_live(), "{run} was {before} and is {after}"),
            other => panic!("{run}, which was {before}: {other:?}"),
        }
        if !before.is_live() {
            assert_eq!(after, before, "{what} changes nothing about what is over");
        }
    }

    async fn status(&self, run: &str) -> RunStatus {
        self.place.store.run(&self.owner, &RunId::from(run)).await.expect("a known run").status
    }

    /// What holds at any time, as far as it can be read at once.
    async fn check(&mut self) {
        for thread in 0..2 {
            let name = self.name(thread);
            for item in self.items(thread, PendingFilter::All).await {
                let key = (name.clone(), item.run.to_string(), item.id.to_string());
                let Some(answered) = &item.answer else {
                    assert!(!self.answers.contains_key(&key), "{key:?} was answered and is not any more");
                    continue;
                };
                assert!(
                    item.expires.is_none_or(|expires| answered.at < expires),
                    "{key:?} was answered too late"
                );
                let first = self.answers.entry(key.clone()).or_insert_with(|| answered.body.to_string());
                assert_eq!(*first, *answered.body, "{key:?} has another answer now");
                assert!(self.runs.contains_key(answered.run.as_str()), "{key:?} started no run");
            }
        }
        let names: Vec<_> = self.runs.keys().cloned().collect();
        for run in names {
            let now = self.status(&run).await;
            let seen = &mut self.runs.get_mut(&run).expect("it is known").1;
            if let Some(before) = seen.last().copied().filter(|before| *before != now) {
                assert!(is_legal(before, now), "{run} was {before} and is {now}");
            }
            seen.push(now);
        }
    }

    /// What holds when nothing happens between two reads; why not, otherwise.
    async fn settled(&self) -> Result<(), String> {
        for thread in 0..2 {
            let open = self.items(thread, PendingFilter::Open).await;
            let mut live = Vec::new();
            for (run, _) in self.runs.iter().filter(|(_, (of, _))| *of == thread) {
                let status = self.status(run).await;
                let is_asked = open.iter().any(|item| item.run.as_str() == run);
                if is_asked && status != RunStatus::Waiting {
                    return Err(format!("{run} is {status} and has something open"));
                }
                if status.is_live() {
                    live.push(run.clone());
                }
            }
            if live.len() > 1 {
                return Err(format!("two runs at once: {live:?}"));
            }
            if self.is_busy(thread).await == live.is_empty() {
                return Err(format!("thread {thread} is not held by the one that runs: {live:?}"));
            }
        }
        Ok(())
    }

    /// Waits until it holds; what is broken is named.
    async fn settle(&self, after: &Op) {
        let patience = tokio::time::Instant::now() + PATIENCE;
        while let Err(broken) = self.settled().await {
            assert!(tokio::time::Instant::now() < patience, "after {after:?}: {broken}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets everything end, and looks at every stream.
    async fn end(mut self) {
        for thread in 0..2 {
            for what in ["resume", "stop"] {
                self.control(thread, what).await;
            }
        }
        let runs: BTreeSet<_> = self.runs.keys().cloned().collect();
        for run in runs {
            until("the run ends", async || !self.status(&run).await.is_live()).await;
            let frames = self.server().follow(&format!("/runs/{run}/stream")).await.rest().await;
            valid(&frames);
            let last = frames.last().expect("an ending").json();
            let outcome = last["outcome"]["type"].as_str().unwrap_or("success");
            let status = self.status(&run).await;
            let fits = match status {
                RunStatus::Stopped => outcome == "cancelled",
                RunStatus::Failed => last["type"] == "RUN_ERROR",
                RunStatus::Waiting => {
                    outcome == "interrupt" || last["outcome"]["pendingToolCallIds"].is_array()
                }
                // What was asked is answered or has expired.
                RunStatus::Finished => matches!(outcome, "success" | "interrupt"),
                _ => false,
            };
            assert!(fits, "{run} is {status}: {last}");
        }
        self.check().await;
        self.settle(&Op::Let(0)).await;
        self.server.take().expect("it is there").crash().await;
    }
}

/// The run that answers a request, or the code of the refusal.
async fn post(server: &Server, body: &Value) -> Result<String, String> {
    let mut stream = Stream::of(server.post("/", body)).await;
    assert_eq!(stream.status(), 200);
    let first = stream.next().await.expect("a beginning").json();
    let run = first["runId"].as_str().expect("a run").to_owned();
    if server.json(&format!("/runs/{run}")).await.0 == 200 {
        return Ok(run);
    }
    let last = stream.rest().await.last().expect("an ending").json();
    Err(last["code"].as_str().expect("a code").to_owned())
}

fn is_legal(from: RunStatus, to: RunStatus) -> bool {
    use RunStatus::*;
    match from {
        Queued => to != Paused,
        Running => to != Queued,
        // Whoever holds a run does not let it finish; it may have gone on in between.
        Paused => to != Queued,
        Waiting => to == Finished,
        Finished | Failed | Stopped => false,
    }
}

#[test]
fn any_sequence_of_operations_keeps_the_invariants() {
    // Each case is a gateway with a store on disk; these take some seconds altogether.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    let config = Config {
        cases,
        max_shrink_iters: 60,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    proptest!(config, |(ops in prop::collection::vec(op(), 1..25))| {
        runtime.block_on(async {
            let mut world = World::new().await;
            for op in &ops {
                world.act(op).await;
                world.check().await;
                world.settle(op).await;
            }
            world.end().await;
        });
    });
}
