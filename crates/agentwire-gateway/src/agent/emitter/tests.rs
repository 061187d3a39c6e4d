use std::time::Duration;

use agentwire_core::{
    event::{Message, RunStarted},
    order::Checker,
    patch::{self, Limits, Patch},
};
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::{codes, error::UpstreamError};

/// The capacity of the channel between agent and receiver.
const CAPACITY: usize = 3;

/// Runs an agent; returns its events and its result.
async fn run<A>(
    input: RunInput,
    agent: impl FnOnce(Request, Emitter) -> A,
) -> (Vec<Event>, Result<(), UpstreamError>)
where
    A: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let (sink, mut received) = EventSink::new(CAPACITY);
    let receiver = async move {
        let mut events = Vec::new();
        while received.recv_many(&mut events, 100).await > 0 {}
        events
    };
    let running = emitting(Request::new(input), sink, agent);
    // Polled in this order, the receiver is always behind the agent.
    let (end, events) = tokio::join!(running, receiver);
    (events, end)
}

/// The events of an agent that succeeds, after a check of their order.
async fn events_of<A>(agent: impl FnOnce(Request, Emitter) -> A) -> Vec<Event>
where
    A: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let (events, end) = run(RunInput::new("t", "r"), agent).await;
    assert_eq!(end, Ok(()));
    valid(&events, "");
    events
}

/// Checks that the events need no repair.
fn valid(events: &[Event], case: &str) {
    let mut checker = Checker::new();
    let started = Event::new(Body::RunStarted(Box::new(RunStarted::new("t", "r"))));
    for event in [&started].into_iter().chain(events) {
        assert_eq!(checker.check(event), None, "{case}: {event:?}");
    }
    assert_eq!(checker.end(), None, "{case}");
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

/// The state that a client derives from the events.
fn state_of(events: &[Event]) -> Value {
    let mut state = json!({});
    for event in events {
        match &event.body {
            Body::StateSnapshot { snapshot } => state = snapshot.to_value(),
            Body::StateDelta { patch } => {
                patch::apply(&mut state, patch, &Limits::default()).expect("an applicable patch")
            }
            _ => {}
        }
    }
    state
}

#[tokio::test]
async fn dropped_handles_are_closed() {
    let events = events_of(|_, emit| async move {
        let _step = emit.step("all").await?;
        let mut message = emit.message();
        message.push("a").await?;
        let _call = message.open_call("tool").await?;
        let mut thought = emit.thought();
        thought.push("b").await?;
        Ok(())
    })
    .await;
    assert_eq!(
        kinds(&events),
        [
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TOOL_CALL_START",
            "REASONING_START",
            "REASONING_MESSAGE_START",
            "REASONING_MESSAGE_CONTENT",
            "REASONING_MESSAGE_END",
            "REASONING_END",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED"
        ]
    );
}

/// Random combinations of open handles, dropped in random order.
#[tokio::test]
async fn random_use_emits_a_valid_stream() {
    #[expect(dead_code, reason = "only held and dropped")]
    enum Held {
        Message(TextMessage),
        Reasoning(Reasoning),
        ToolCall(ToolCallEmitter),
        Step(Step),
        Subagent(Subagent),
        Activity(Activity),
    }
    for seed in 1..400_u64 {
        let (events, end) = run(RunInput::new("t", "r"), move |_, emit| async move {
            let mut random = seed;
            let mut dice = move |sides: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random % sides as u64) as usize
            };
            let mut held = Vec::new();
            for _ in 0..dice(60) {
                let subagents: Vec<Emitter> = held
                    .iter()
                    .filter_map(|held| match held {
                        Held::Subagent(subagent) => Some((**subagent).clone()),
                        _ => None,
                    })
                    .chain([emit.clone()])
                    .collect();
                let by = &subagents[dice(subagents.len())];
                match dice(14) {
                    0 => held.push(Held::Message(by.message())),
                    1 => held.push(Held::Reasoning(by.thought().titled("t"))),
                    2 => held.push(Held::ToolCall(by.open_call("tool").await?)),
                    3 => held.push(Held::Step(by.step(["a", "b"][dice(2)]).await?)),
                    4 => held.push(Held::Subagent(by.subagent("s").start().await?)),
                    5 => held.push(Held::Activity(by.activity("a", json!({})).await?)),
                    6 => drop(by.text("text").await?),
                    7 => drop(by.reasoning("thought").await?),
                    8 => by.state().append("/log", 1).await?,
                    9 => drop(by.interrupt(Question::new("well?"))),
                    10 | 11 if !held.is_empty() => drop(held.swap_remove(dice(held.len()))),
                    _ if !held.is_empty() => {
                        let at = dice(held.len());
                        match &mut held[at] {
                            Held::Message(message) if dice(4) == 0 => message.close().await?,
                            Held::Message(message) => message.push("more").await?,
                            Held::Reasoning(thought) => thought.push("more").await?,
                            Held::ToolCall(call) if dice(4) == 0 => call.close().await?,
                            Held::ToolCall(call) => call.push("1").await?,
                            Held::Activity(activity) => activity.set("/a/b", dice(5)).await?,
                            Held::Step(_) | Held::Subagent(_) => {}
                        }
                    }
                    _ => {}
                }
            }
            while !held.is_empty() {
                held.swap_remove(dice(held.len()));
            }
            Ok(())
        })
        .await;
        assert_eq!(end, Ok(()), "seed {seed}");
        valid(&events, &format!("seed {seed}"));
    }
}

#[tokio::test]
async fn ids_derive_from_the_run_and_are_deterministic() {
    let agent = |_, emit: Emitter| async move {
        let id = emit.text("a").await?;
        assert_eq!(id.as_str(), "r:m1");
        emit.call("tool", json!({})).await?.result("b").await?;
        Ok(())
    };
    assert_eq!(events_of(agent).await, events_of(agent).await);
}

#[tokio::test]
async fn a_stopped_run_ends_the_agent_at_its_next_event() {
    let (sink, mut received) = EventSink::new(CAPACITY);
    let agent = emitting(Request::new(RunInput::new("t", "r")), sink, |_, emit| async move {
        let mut message = emit.message();
        loop {
            message.push("for ever ").await?;
        }
    });
    let stop = async {
        received.recv().await;
        received.close();
        // Drains the events that were sent before.
        while received.recv().await.is_some() {}
    };
    let (end, ()) = tokio::join!(agent, stop);
    assert_eq!(end, Err(Stopped.into()));
}

#[tokio::test]
async fn an_agent_waits_for_the_receiver() {
    let (sink, mut received) = EventSink::new(CAPACITY);
    let emitted = Arc::new(AtomicU64::new(0));
    let count = emitted.clone();
    let agent = emitting(Request::new(RunInput::new("t", "r")), sink, |_, emit| async move {
        for n in 0..1000 {
            emit.custom("n", n).await?;
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let receive = async {
        let mut events = Vec::new();
        while let Some(event) = received.recv().await {
            events.push(event);
            let ahead = emitted.load(Ordering::SeqCst) as usize;
            assert!(ahead <= events.len() + CAPACITY, "{ahead} of {}", events.len());
        }
        events.len()
    };
    let (end, count) = tokio::join!(agent, receive);
    assert_eq!((end, count), (Ok(()), 1001));
}

#[tokio::test]
async fn the_end_event_of_a_dropped_handle_does_not_wait_for_the_agent() {
    let (sink, mut received) = EventSink::new(1);
    let agent = emitting(Request::new(RunInput::new("t", "r")), sink, |_, emit| async move {
        let mut message = emit.message();
        message.push("a word that fills the channel").await?;
        drop(message);
        std::future::pending().await
    });
    let receive = async {
        let mut last = received.recv().await.expect("a first event");
        while last.kind() != "TEXT_MESSAGE_END" {
            last = received.recv().await.expect("an end");
        }
    };
    tokio::select! {
        end = agent => panic!("the agent must not end: {end:?}"),
        () = receive => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("no end event within 60 s"),
    }
}

/// `select!` drops the futures of the other branches.
#[tokio::test]
async fn a_cancelled_push_keeps_its_position() {
    let (sink, mut received) = EventSink::new(1);
    let agent = emitting(Request::new(RunInput::new("t", "r")), sink, |_, emit| async move {
        let mut message = emit.message();
        for word in ["one ", "two ", "three "] {
            let push = message.push(word);
            let _ = tokio::time::timeout(Duration::ZERO, push).await;
        }
        drop(message);
        emit.text("after").await?;
        Ok(())
    });
    let receive = async {
        tokio::task::yield_now().await;
        let mut events = Vec::new();
        while let Some(event) = received.recv().await {
            events.push(event);
        }
        events
    };
    let (end, events) = tokio::join!(agent, receive);
    assert_eq!(end, Ok(()));
    valid(&events, "");
    let text: String = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TextDelta { delta, .. } => Some(&**delta),
            _ => None,
        })
        .collect();
    assert_eq!(text, "one two three after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_state_changes_keep_their_order() {
    let events = events_of(|_, emit| async move {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let state = emit.state();
                tokio::spawn(async move {
                    for n in 0..20 {
                        state.append("/log", json!([task, n])).await?;
                        state.set(&format!("/tasks/{task}"), n).await?;
                    }
                    Ok::<_, EmitError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        assert_eq!(emit.state().get("/log").and_then(|log| Some(log.as_array()?.len())), Some(160));
        Ok(())
    })
    .await;
    let state = state_of(&events);
    assert_eq!(state["log"].as_array().map(Vec::len), Some(160));
    assert_eq!(state["tasks"], json!({"0":19,"1":19,"2":19,"3":19,"4":19,"5":19,"6":19,"7":19}));
}

#[tokio::test]
async fn state_changes_become_patches() {
    let mut input = RunInput::new("t", "r");
    input.state = Some(json!({"list": [1, 2], "a/b": {"~": 1}, "text": "x"}).into());
    let (events, end) = run(input, |_, emit| async move {
        let state = emit.state();
        state.set("/new/deep/er", true).await?;
        state.set("/list/0", 10).await?;
        state.set("/list/-", 3).await?;
        state.append("/list", 4).await?;
        state.set("/a~1b/~0", 2).await?;
        state.set("/odd~1key/in~0ner", 1).await?;
        state.update(|state| state["text"] = json!("y")).await?;
        state.update(|_| {}).await?;
        state.remove("/new/deep").await?;
        for refused in [
            state.set("/text/inner", 1).await,
            state.set("no pointer", 1).await,
            state.set("/list/9", 1).await,
            state.remove("/nothing").await,
            state.append("/text", 1).await,
        ] {
            assert!(matches!(refused, Err(EmitError::Patch(_) | EmitError::NotAnArray(_))), "{refused:?}");
        }
        let whole = state.get("");
        assert_eq!(
            whole,
            Some(json!({
                "list": [10, 2, 3, 4], "a/b": {"~": 2}, "text": "y", "new": {}, "odd/key": {"in~ner": 1},
            }))
        );
        state.set("", json!({"whole": 1})).await?;
        Ok(())
    })
    .await;
    assert_eq!(end, Ok(()));
    assert_eq!(events.iter().filter(|event| event.kind() == "STATE_DELTA").count(), 8);
    assert_eq!(events[8].kind(), "STATE_SNAPSHOT", "the whole state is a snapshot");
}

#[tokio::test]
async fn invalid_values_are_rejected_without_side_effects() {
    let events = events_of(|_, emit| async move {
        let deep = (0..500).fold(json!(0), |inner, _| json!([inner]));
        assert!(matches!(emit.custom("deep", deep.clone()).await, Err(EmitError::Value(_))));
        assert!(matches!(emit.state().set("/deep", deep.clone()).await, Err(EmitError::Value(_))));
        assert!(matches!(emit.call("tool", deep.clone()).await, Err(EmitError::Value(_))));
        let updated = emit.state().update(|state| state["deep"] = deep.clone()).await;
        assert!(matches!(updated, Err(EmitError::Value(_))));
        assert!(matches!(emit.activity("plan", json!([1])).await, Err(EmitError::NotAnObject(_))));
        let mut plan = emit.activity("plan", json!({})).await?;
        assert!(matches!(plan.set("", 1).await, Err(EmitError::NotAnObject(_))));
        assert_eq!(plan.content(), &json!({}));
        emit.interrupt(Question::new("well?").schema(deep.clone()).metadata(1));
        // Each value is within the depth limit by itself, but not at its target.
        let high = (0..120).fold(json!(0), |inner, _| json!([inner]));
        emit.state().set("/a", high.clone()).await?;
        let beyond = emit.state().set("/b/c/d/e/f/g/h/i", high).await;
        assert!(matches!(beyond, Err(EmitError::Value(_) | EmitError::Patch(_))), "{beyond:?}");
        emit.state().set("/fine", 1).await?;
        Ok(())
    })
    .await;
    assert_eq!(state_of(&events)["fine"], 1);
}

#[tokio::test]
async fn run_finished_has_outcome_result_and_usage() {
    let finished = async |interrupt: bool, call: bool| {
        let mut events = events_of(move |_, emit| async move {
            if call {
                emit.front_end_call("pick", json!({})).await?;
            }
            if interrupt {
                emit.interrupt(Question::new("well?"));
            }
            emit.usage(Usage { input: Some(1), ..Usage::default() });
            emit.result(json!({"done": true}))?;
            Ok(())
        })
        .await;
        match events.pop().expect("an ending").body {
            Body::RunFinished(finished) => *finished,
            other => panic!("{other:?}"),
        }
    };
    let pending = |id: &str| Some(Outcome::Success { pending: vec![id.into()] });
    assert_eq!(finished(false, true).await.outcome, pending("r:c1"));
    assert_eq!(finished(false, false).await.outcome, None);
    let both = finished(true, true).await;
    assert!(matches!(&both.outcome, Some(Outcome::Interrupt { interrupts })
        if interrupts.len() == 1 && &*interrupts[0].reason == "input_required"));
    assert_eq!((both.usage.len(), both.result), (1, Some(json!({"done": true}).into())));
}

#[tokio::test]
async fn only_upstream_errors_reach_the_client() {
    let failed = async |error: fn() -> BoxError| {
        let input = RunInput::new("t", "r");
        let (events, end) = run(input, move |_, emit| async move {
            let mut message = emit.message();
            message.push("half").await?;
            Err(error())
        })
        .await;
        assert_eq!(kinds(&events), ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]);
        end.expect_err("an error")
    };
    let own = failed(|| UpstreamError::new("NO_MONEY", "the account is empty").into()).await;
    assert_eq!((own.code(), &*own.to_string()), ("NO_MONEY", "the account is empty"));
    let other = failed(|| std::io::Error::other("password `hunter2` was refused").into()).await;
    assert_eq!((other.code(), &*other.to_string()), (codes::UPSTREAM_FAILED, "the agent failed"));
    assert_eq!(other.detail(), Some("password `hunter2` was refused"));
    let stopped = failed(|| EmitError::from(Stopped).into()).await;
    assert_eq!(stopped, Stopped.into());
}

#[tokio::test]
async fn a_stopped_agent_that_ignores_errors_queues_no_events() {
    let (sink, received): (_, mpsc::Receiver<Event>) = EventSink::new(CAPACITY);
    drop(received);
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u", "hello"));
    let agent = emitting(Request::new(input), sink, |request, emit| async move {
        for _ in 0..10 {
            let mut message = emit.message();
            assert!(message.push(request.user_text()).await.is_err());
        }
        assert!(emit.state_mut().queue.is_empty(), "the queue stays empty");
        let patch = Patch::default();
        emit.state().patch(patch).await?;
        Ok(())
    });
    assert_eq!(agent.await, Err(Stopped.into()));
}
