//! Model-based property test of pending items and run control.
//!
//! A random sequence of operations of users, agents and crashes is applied over HTTP. After each operation the invariants
//! are checked, and every response must be one that the previous state allows. Runs continue concurrently, so an
//! invariant over several reads is polled; a real violation does not go away.

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

/// Longer than the lifetime of expiring questions.
const PAST_EXPIRY: Duration = Duration::from_secs(61);

#[derive(Clone, Debug)]
enum Op {
    /// Starts a run with plain text; [`Op::Emit`] controls how many of its events are emitted.
    Talk(usize),
    /// Starts a run that leaves items pending: a plain question, one with a schema, one that expires, a front-end tool call.
    Ask(usize, [bool; 4]),
    Answer(usize, AnswerKind),
    Control(usize, &'static str),
    /// Permits the agents to emit this many events.
    Emit(usize),
    /// Moves the clock past the expiry of open questions.
    Expire,
    /// Crashes the gateway and starts another one on the same store.
    Crash,
    Delete(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AnswerKind {
    Valid,
    WrongType,
    Unknown,
    Partial,
    Empty,
    /// The last accepted answer again.
    Repeated,
    /// Two different answers concurrently.
    Race,
}

fn op() -> impl Strategy<Value = Op> {
    let thread = 0..2_usize;
    let kind = prop_oneof![
        4 => Just(AnswerKind::Valid), 1 => Just(AnswerKind::WrongType), 1 => Just(AnswerKind::Unknown), 1 => Just(AnswerKind::Partial),
        1 => Just(AnswerKind::Empty), 2 => Just(AnswerKind::Repeated), 2 => Just(AnswerKind::Race),
    ];
    let control = prop_oneof![Just("pause"), Just("resume"), Just("stop")];
    prop_oneof![
        2 => thread.clone().prop_map(Op::Talk),
        4 => (thread.clone(), any::<[bool; 4]>()).prop_map(|(thread, asked)| Op::Ask(thread, asked)),
        5 => (thread.clone(), kind).prop_map(|(thread, kind)| Op::Answer(thread, kind)),
        4 => (thread.clone(), control).prop_map(|(thread, action)| Op::Control(thread, action)),
        4 => prop_oneof![1 => 1..4_usize, 3 => Just(100)].prop_map(Op::Emit),
        1 => Just(Op::Expire),
        1 => Just(Op::Crash),
        1 => thread.prop_map(Op::Delete),
    ]
}

/// The gateway under test and the model of its expected state.
struct World {
    backend: Backend,
    clock: Arc<ManualClock>,
    puppet: Arc<Puppet>,
    server: Option<Server>,
    owner: Owner,
    created: usize,
    /// Every accepted run with its thread and its observed statuses.
    runs: BTreeMap<String, (usize, Vec<RunStatus>)>,
    /// Every answer found in the store, by thread, run and item.
    answers: BTreeMap<(String, String, String), String>,
    /// The last accepted answer of each thread.
    last_answers: BTreeMap<usize, Value>,
    /// Number of deletions of each thread; a deleted thread gets a new name.
    deleted: [usize; 2],
}

impl World {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Time(1_794_787_200_000)));
        let backend = Backend::sqlite_at(clock.clone()).await;
        let mut world = Self {
            backend,
            clock,
            puppet: Puppet::new(asker_script),
            server: None,
            owner: Owner::new("default", "default-user", "demo"),
            created: 0,
            runs: BTreeMap::new(),
            answers: BTreeMap::new(),
            last_answers: BTreeMap::new(),
            deleted: [0; 2],
        };
        world.start_gateway().await;
        world
    }

    async fn start_gateway(&mut self) {
        let plan = plan(self.puppet.clone()).instance_lock(InstanceLock::at(&self.backend.address));
        // The clock jumps, and no lease may expire because of it.
        let plan = plan.set(|settings| settings.lease = Duration::from_secs(1_000_000));
        self.server = Some(plan.killable(&self.backend.store).await);
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("a running server")
    }

    fn name(&self, thread: usize) -> String {
        format!("t{thread}-{}", self.deleted[thread])
    }

    fn body(&mut self, thread: usize, members: &Value) -> Value {
        self.created += 1;
        let mut body = json!({
            "threadId": self.name(thread), "runId": format!("r{}", self.created), "protocolVersion": "1.0", "messages": [], "context": [], "state": {},
            "forwardedProps": {}, "tools": [{"name": "pick", "description": "", "parameters": {}}],
        });
        for (key, value) in members.as_object().expect("members") {
            body[key] = value.clone();
        }
        body
    }

    async fn items(&self, thread: usize, which: PendingFilter) -> Vec<Pending> {
        match self.backend.store.pending(&self.owner, &self.name(thread).as_str().into(), which).await {
            Ok(items) => items,
            Err(StoreError::NotFound(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        }
    }

    async fn is_busy(&self, thread: usize) -> bool {
        let lease = self.backend.store.lease(&self.owner, &self.name(thread).as_str().into()).await;
        lease.is_ok_and(|lease| lease.is_some_and(|lease| lease.live))
    }

    /// Sends a request; returns the id of its run, or the code of the error.
    async fn send(&mut self, thread: usize, body: &Value) -> Result<String, String> {
        let answered = post(self.server(), body).await;
        if let Ok(run) = &answered {
            self.runs.entry(run.clone()).or_insert((thread, Vec::new()));
        }
        answered
    }

    /// An answer to all open items; `number` distinguishes two answers.
    fn full_answer(open: &[Pending], number: usize) -> Value {
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

    async fn apply(&mut self, op: &Op) {
        match *op {
            Op::Talk(thread) => self.start_run(thread, json!("talk")).await,
            Op::Ask(thread, [plain, schema, expiring, call]) => {
                let id = self.created;
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
                let questions: Vec<_> =
                    all.iter().filter(|(selected, _)| *selected).map(|(_, it)| it).collect();
                let calls = if call {
                    json!([{"id": format!("call{id}"), "name": "pick", "args": {}}])
                } else {
                    json!([])
                };
                self.start_run(thread, json!({"ask": questions, "calls": calls})).await;
            }
            Op::Answer(thread, kind) => self.answer(thread, kind).await,
            Op::Control(thread, action) => self.control(thread, action).await,
            Op::Emit(events) => self.puppet.allow(events),
            Op::Expire => self.clock.advance(PAST_EXPIRY),
            Op::Crash => {
                self.server.take().expect("a running server").crash().await;
                self.start_gateway().await;
            }
            Op::Delete(thread) => {
                let path = format!("/thread/{}", self.name(thread));
                let (status, _) = answer(self.server().ask(Method::DELETE, &path)).await;
                let deleted: Vec<_> = self
                    .runs
                    .iter()
                    .filter(|(_, (of, _))| *of == thread)
                    .map(|(run, _)| run.clone())
                    .collect();
                assert_eq!(
                    status.as_u16(),
                    if deleted.is_empty() { 404 } else { 200 },
                    "deleting thread {thread}"
                );
                for run in deleted {
                    assert_eq!(
                        self.server().json(&format!("/runs/{run}")).await.0,
                        404,
                        "{run} of a deleted thread"
                    );
                    self.runs.remove(&run);
                }
                let name = self.name(thread);
                self.answers.retain(|(of, ..), _| *of != name);
                self.last_answers.remove(&thread);
                self.deleted[thread] += 1;
            }
        }
    }

    async fn start_run(&mut self, thread: usize, message: Value) {
        let (busy, open) = (self.is_busy(thread).await, self.items(thread, PendingFilter::Open).await);
        let is_waiting = open.iter().any(|item| &*item.kind != "frontend-tool");
        let text = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
        let messages = json!([{"id": format!("u{}", self.created), "role": "user", "content": text}]);
        let body = self.body(thread, &json!({ "messages": messages }));
        let answered = self.send(thread, &body).await;
        match answered {
            Ok(run) => assert!(
                body["runId"] == run.as_str() && !is_waiting,
                "a run started although questions are open"
            ),
            Err(code) if is_waiting => assert_eq!(code, codes::INTERRUPT_UNANSWERED),
            // The active run may end at any time and leave a question.
            Err(code) => {
                let expected_codes = [codes::THREAD_IS_LOCKED, codes::INTERRUPT_UNANSWERED];
                assert!(busy && expected_codes.contains(&code.as_str()), "refused with {code}");
            }
        }
    }

    async fn answer(&mut self, thread: usize, kind: AnswerKind) {
        let (busy, open) = (self.is_busy(thread).await, self.items(thread, PendingFilter::Open).await);
        let required = open.iter().filter(|item| &*item.kind != "frontend-tool").count();
        let (mut members, expected) = match kind {
            AnswerKind::Valid if !open.is_empty() => (Self::full_answer(&open, self.created), None),
            AnswerKind::WrongType if open.iter().any(|item| item.id.as_str().starts_with("schema")) => {
                let mut members = Self::full_answer(&open, self.created);
                members["resume"]
                    .as_array_mut()
                    .expect("a list")
                    .iter_mut()
                    .for_each(|it| it["payload"] = json!({"n": "x"}));
                (members, Some(codes::SCHEMA_MISMATCH))
            }
            AnswerKind::Unknown => {
                let nothing =
                    json!({"resume": [{"interruptId": "none", "status": "resolved", "payload": 1}]});
                (nothing, Some(codes::UNKNOWN_INTERRUPT))
            }
            AnswerKind::Partial if required > 1 => {
                let mut members = Self::full_answer(&open, self.created);
                members["resume"].as_array_mut().expect("a list").pop();
                (members, Some(codes::INTERRUPT_UNANSWERED))
            }
            AnswerKind::Empty if required > 0 => (json!({"resume": []}), Some(codes::INTERRUPT_UNANSWERED)),
            AnswerKind::Empty if !open.is_empty() => (json!({"resume": []}), Some(codes::NO_TOOL_RESULTS)),
            AnswerKind::Repeated if self.last_answers.contains_key(&thread) && required == 0 && !busy => {
                let (last_answer, first) =
                    (self.last_answers[&thread]["body"].clone(), self.last_answers[&thread]["run"].clone());
                let body = self.body(thread, &last_answer);
                let repeated = self.send(thread, &body).await;
                assert_eq!(
                    repeated.as_deref(),
                    Ok(first.as_str().expect("a run")),
                    "a repeated answer returns the run of the first"
                );
                return;
            }
            AnswerKind::Race if !open.is_empty() && !busy => return self.race(thread, &open).await,
            _ => return,
        };
        if members["messages"].is_null() {
            members["messages"] = json!([]);
        }
        let body = self.body(thread, &members);
        match (self.send(thread, &body).await, expected) {
            (Ok(run), None) => {
                assert_eq!(body["runId"], run.as_str());
                self.last_answers.insert(thread, json!({"body": members, "run": run}));
            }
            (Err(code), None) => {
                let expected_codes = [codes::THREAD_IS_LOCKED, codes::INTERRUPT_UNANSWERED];
                assert!(busy && expected_codes.contains(&code.as_str()), "a valid answer got {code}");
            }
            (Ok(run), Some(code)) => panic!("expected {code}, got the run {run}"),
            (Err(code), Some(expected)) => {
                let is_race = busy && code == codes::INTERRUPT_UNANSWERED;
                assert!(code == expected || is_race, "expected {expected}, got {code}");
                let left = self.items(thread, PendingFilter::Open).await;
                assert!(busy || left == open, "a refused answer has no effect");
            }
        }
    }

    async fn race(&mut self, thread: usize, open: &[Pending]) {
        let bodies: Vec<_> = [1, 2].map(|number| Self::full_answer(open, self.created * 10 + number)).into();
        let (one, two) = (self.body(thread, &bodies[0]), self.body(thread, &bodies[1]));
        let (first, second) = tokio::join!(post(self.server(), &one), post(self.server(), &two));
        let accepted: Vec<_> = [&first, &second].into_iter().flatten().cloned().collect();
        assert_eq!(accepted.len(), 1, "one of two answers is accepted: {first:?} {second:?}");
        let refused = first.as_ref().err().or(second.as_ref().err()).expect("one refusal");
        assert_eq!(refused, codes::ALREADY_ANSWERED);
        self.runs.insert(accepted[0].clone(), (thread, Vec::new()));
        let body = if first.is_ok() { &bodies[0] } else { &bodies[1] };
        self.last_answers.insert(thread, json!({"body": body, "run": accepted[0]}));
    }

    async fn control(&mut self, thread: usize, action: &str) {
        let runs = self.runs.iter().filter(|(_, (of, _))| *of == thread).map(|(run, _)| run);
        let Some(run) = runs.max_by_key(|run| run[1..].parse::<usize>().unwrap_or(0)).cloned() else {
            let (status, _) = answer(self.server().ask(Method::POST, &format!("/runs/none/{action}"))).await;
            assert_eq!(status, 404);
            return;
        };
        let before = self.status(&run).await;
        let (status, body) = answer(self.server().ask(Method::POST, &format!("/runs/{run}/{action}"))).await;
        let after = self.status(&run).await;
        match (action, status.as_u16()) {
            ("stop", 200) => assert!(!after.is_live(), "{run} was {before} and is {after}"),
            ("pause", 200) => assert_eq!((after, &body["mode"]), (RunStatus::Paused, &json!("soft"))),
            ("resume", 200) => assert_ne!(after, RunStatus::Paused),
            ("pause" | "resume", 409) => assert!(!after.is_live(), "{run} was {before} and is {after}"),
            other => panic!("{run}, which was {before}: {other:?}"),
        }
        if !before.is_live() {
            assert_eq!(after, before, "{action} has no effect on an ended run");
        }
    }

    async fn status(&self, run: &str) -> RunStatus {
        self.backend.store.run(&self.owner, &RunId::from(run)).await.expect("a known run").status
    }

    /// Checks the invariants that a single read can observe.
    async fn check(&mut self) {
        for thread in 0..2 {
            let name = self.name(thread);
            for item in self.items(thread, PendingFilter::All).await {
                let key = (name.clone(), item.run.to_string(), item.id.to_string());
                let Some(answered) = &item.answer else {
                    assert!(!self.answers.contains_key(&key), "{key:?} has lost its answer");
                    continue;
                };
                assert!(
                    item.expires.is_none_or(|expires| answered.at < expires),
                    "{key:?} was answered after its expiry"
                );
                let first = self.answers.entry(key.clone()).or_insert_with(|| answered.body.to_string());
                assert_eq!(*first, *answered.body, "the answer to {key:?} has changed");
                assert!(self.runs.contains_key(answered.run.as_str()), "{key:?} started no run");
            }
        }
        let names: Vec<_> = self.runs.keys().cloned().collect();
        for run in names {
            let now = self.status(&run).await;
            let seen = &mut self.runs.get_mut(&run).expect("a known run").1;
            if let Some(before) = seen.last().copied().filter(|before| *before != now) {
                assert!(is_legal(before, now), "{run} was {before} and is {now}");
            }
            seen.push(now);
        }
    }

    /// Checks the invariants over several reads; `Err` describes the violation.
    async fn check_consistency(&self) -> Result<(), String> {
        for thread in 0..2 {
            let open = self.items(thread, PendingFilter::Open).await;
            let mut live = Vec::new();
            for (run, _) in self.runs.iter().filter(|(_, (of, _))| *of == thread) {
                let status = self.status(run).await;
                let has_open_items = open.iter().any(|item| item.run.as_str() == run);
                if has_open_items && status != RunStatus::Waiting {
                    return Err(format!("{run} is {status} and has open items"));
                }
                if status.is_live() {
                    live.push(run.clone());
                }
            }
            if live.len() > 1 {
                return Err(format!("two live runs: {live:?}"));
            }
            if self.is_busy(thread).await == live.is_empty() {
                return Err(format!("the lease of thread {thread} does not match its live runs: {live:?}"));
            }
        }
        Ok(())
    }

    /// Waits until the invariants over several reads hold.
    async fn wait_until_consistent(&self, after: &Op) {
        let deadline = tokio::time::Instant::now() + WAIT_LIMIT;
        while let Err(violation) = self.check_consistency().await {
            assert!(tokio::time::Instant::now() < deadline, "after {after:?}: {violation}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends all runs and checks every stream.
    async fn finish(mut self) {
        for thread in 0..2 {
            for action in ["resume", "stop"] {
                self.control(thread, action).await;
            }
        }
        let runs: BTreeSet<_> = self.runs.keys().cloned().collect();
        for run in runs {
            wait_until("the run ends", async || !self.status(&run).await.is_live()).await;
            let frames = self.server().follow(&format!("/runs/{run}/stream")).await.rest().await;
            assert_valid(&frames);
            let last = frames.last().expect("a last frame").json();
            let outcome = last["outcome"]["type"].as_str().unwrap_or("success");
            let status = self.status(&run).await;
            let is_consistent = match status {
                RunStatus::Stopped => outcome == "cancelled",
                RunStatus::Failed => last["type"] == "RUN_ERROR",
                RunStatus::Waiting => {
                    outcome == "interrupt" || last["outcome"]["pendingToolCallIds"].is_array()
                }
                // An interrupt that is answered or has expired.
                RunStatus::Finished => matches!(outcome, "success" | "interrupt"),
                _ => false,
            };
            assert!(is_consistent, "{run} is {status}: {last}");
        }
        self.check().await;
        self.wait_until_consistent(&Op::Emit(0)).await;
        self.server.take().expect("a running server").crash().await;
    }
}

/// Posts a run request; returns the id of its run, or the code of the error.
async fn post(server: &Server, body: &Value) -> Result<String, String> {
    let mut stream = Stream::of(server.post("/", body)).await;
    assert_eq!(stream.status(), 200);
    let first = stream.next().await.expect("a first frame").json();
    let run = first["runId"].as_str().expect("a run").to_owned();
    if server.json(&format!("/runs/{run}")).await.0 == 200 {
        return Ok(run);
    }
    let last = stream.rest().await.last().expect("a last frame").json();
    Err(last["code"].as_str().expect("a code").to_owned())
}

fn is_legal(from: RunStatus, to: RunStatus) -> bool {
    use RunStatus::*;
    match from {
        Queued => to != Paused,
        Running => to != Queued,
        // A paused run cannot finish, but it may have been resumed between two reads.
        Paused => to != Queued,
        Waiting => to == Finished,
        Finished | Failed | Stopped => false,
    }
}

#[test]
fn any_sequence_of_operations_keeps_the_invariants() {
    // Each case starts a gateway with a store on disk; the default number takes some seconds in total.
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
                world.apply(op).await;
                world.check().await;
                world.wait_until_consistent(op).await;
            }
            world.finish().await;
        });
    });
}
