//! Effects of each hook on a run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agentwire_core::event::{Body, Event, Message, RunInput};
use agentwire_gateway::{
    AgentConfig, InstanceLock, UpstreamError,
    agent::{Agent, BoxFuture, EventSink, NativeEvent, Request, Translation},
    codes,
    hooks::{Hooked, Hooks, refused},
};
use serde_json::{Value, json};

use super::{code_of, recorded, text};
use crate::support::*;

/// Hooks made of plain functions.
#[derive(Default)]
struct Acts {
    input: Option<fn(RunInput) -> Result<RunInput, UpstreamError>>,
    native: Option<fn(NativeEvent) -> Vec<NativeEvent>>,
    translate: Option<fn(&NativeEvent, &mut Vec<Event>) -> Translation>,
    event: Option<fn(Event) -> Vec<Event>>,
    state: Option<fn(Value) -> Value>,
    output: Option<fn(Event) -> Event>,
}

impl Hooks for Acts {
    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        let act = self.input;
        Box::pin(async move { act.map_or(Ok(input.clone()), |act| act(input)) })
    }

    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        out.extend(self.native.map_or_else(|| vec![native.clone()], |act| act(native.clone())));
        Box::pin(async { Ok(()) })
    }

    fn translate<'h>(&'h self, native: &'h NativeEvent, out: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        let done = self.translate.map_or(Translation::Default, |act| act(native, out));
        Box::pin(async { Ok(done) })
    }

    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        out.extend(self.event.map_or_else(|| vec![event.clone()], |act| act(event.clone())));
        Box::pin(async { Ok(()) })
    }

    fn state(&self, state: Value) -> Hooked<'_, Value> {
        let state = self.state.map_or_else(|| state.clone(), |act| act(state.clone()));
        Box::pin(async { Ok(state) })
    }

    fn output(&self, event: Event) -> Hooked<'_, Event> {
        let event = self.output.map_or_else(|| event.clone(), |act| act(event.clone()));
        Box::pin(async { Ok(event) })
    }
}

async fn serve(agent: Arc<dyn Agent>, acts: fn() -> Acts) -> Server {
    plan(agent).wire(move |builder| builder.hooks(move |_| acts())).on_memory().await
}

/// An agent with the native events of one message.
fn message_agent(words: &[&str]) -> Arc<dyn Agent> {
    let mut events = vec![json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})];
    events.push(json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}));
    events.extend(
        words.iter().map(|word| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": word})),
    );
    events.push(json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}));
    events.push(json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}));
    recorded(&events)
}

#[tokio::test]
async fn the_input_hook_changes_the_agents_input_but_not_the_thread() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server = serve(puppet.clone(), || Acts {
        input: Some(|mut input| {
            input.messages.push(Message::user("extra", "from the hook"));
            (input.thread, input.run) = ("another".into(), "other".into());
            Ok(input)
        }),
        ..Acts::default()
    })
    .await;
    assert_valid(&server.run_to_end("t", "r", "hello").await);
    let input = puppet.last_request().input;
    assert_eq!(input.messages.len(), 2);
    assert_eq!((&*input.thread, &*input.run), ("t", "r"), "a hook cannot move a run");
    let (_, kept) = server.json("/message_snapshot/t").await;
    let roles: Vec<_> =
        kept["messages"].as_array().expect("messages").iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"]);
}

#[tokio::test]
async fn a_refused_input_never_reaches_the_agent() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server = serve(puppet.clone(), || Acts {
        input: Some(|_| Err(refused("no questions on Sundays"))),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(types(&frames), ["RUN_STARTED", "RUN_ERROR"]);
    let error = frames[1].json();
    assert_eq!(
        (error["code"].as_str(), error["message"].as_str()),
        (Some(codes::HOOK_REFUSED), Some("no questions on Sundays"))
    );
    assert_eq!(puppet.calls(), 0);
    assert_eq!(server.status("r").await, "failed");
}

#[tokio::test]
async fn native_events_can_be_dropped_changed_and_duplicated() {
    let server = serve(message_agent(&["keep", "drop", "change", "double"]), || Acts {
        native: Some(|native| {
            let mut value = native.to_json().expect("JSON");
            match value["delta"].as_str() {
                Some("drop") => vec![],
                Some("change") => {
                    value["delta"] = json!("changed");
                    vec![native.with_json(&value)]
                }
                Some("double") => vec![native.clone(), native],
                _ => vec![native],
            }
        }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(text(&frames), "keepchangeddoubledouble");
}

#[tokio::test]
async fn translate_adds_events_skips_or_replaces() {
    let server = serve(message_agent(&["own", "skip", "replace", "default"]), || Acts {
        translate: Some(|native, out| {
            let mut value = native.to_json().expect("JSON");
            match value["delta"].as_str() {
                Some("own") => {
                    out.push(Event::new(Body::Custom { name: "mine".into(), value: json!(1).into() }));
                    Translation::Default
                }
                Some("skip") => Translation::Skip,
                Some("replace") => {
                    value["delta"] = json!("replaced");
                    Translation::Replace(native.clone().with_json(&value))
                }
                _ => Translation::Default,
            }
        }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(text(&frames), "ownreplaceddefault");
    let kinds = types(&frames);
    let custom = kinds.iter().position(|kind| kind == "CUSTOM").expect("the added event");
    assert_eq!(kinds[custom + 1], "TEXT_MESSAGE_CONTENT", "added events precede those of the reader");
}

#[tokio::test]
async fn the_stream_stays_valid_when_events_are_dropped_and_added() {
    let server = serve(Puppet::eager(|input| talk(input, 3)), || Acts {
        event: Some(|event| match &event.body {
            // The guard opens the message instead.
            Body::TextStart { .. } => vec![],
            Body::TextDelta { message, delta } if &**delta == "w1 " => {
                vec![delta_of(message, "a "), delta_of(message, "b ")]
            }
            Body::TextDelta { delta, .. } if &**delta == "w2 " => vec![],
            _ => vec![event],
        }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(text(&frames), "w0 a b ");
}

fn delta_of(message: &str, text: &str) -> Event {
    delta(message, text)
}

#[tokio::test]
async fn a_run_ends_even_if_the_event_hook_drops_the_terminal_event() {
    let server = serve(message_agent(&["x"]), || Acts {
        event: Some(|event| if event.is_terminal() { vec![] } else { vec![event] }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
}

#[tokio::test]
async fn the_state_hook_replaces_the_final_state() {
    let agent = Puppet::eager(|input| {
        let mut events =
            vec![Event::new(Body::StateSnapshot { snapshot: json!({"secret": 1, "n": 2}).into() })];
        events.extend(talk(input, 1));
        events.push(finished(input));
        events
    });
    let server = serve(agent, || Acts {
        state: Some(|mut state| {
            state.as_object_mut().expect("an object").remove("secret");
            state
        }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    let snapshots: Vec<_> = frames.iter().filter(|frame| frame.kind() == "STATE_SNAPSHOT").collect();
    assert_eq!(snapshots.len(), 2);
    assert_eq!(snapshots[1].json()["snapshot"], json!({"n": 2}));
    assert_eq!(types(&frames)[frames.len() - 2], "STATE_SNAPSHOT", "right before the terminal event");
    let (_, kept) = server.json("/state_snapshot/t").await;
    assert_eq!(kept["snapshot"], json!({"n": 2}));
}

#[tokio::test]
async fn the_output_hook_changes_events_but_not_the_terminal_one() {
    let server = serve(Puppet::eager(|input| talk(input, 2)), || Acts {
        output: Some(|event| match &event.body {
            Body::TextDelta { message, .. } => delta(message, "*"),
            Body::RunFinished(_) => {
                Event::new(Body::Custom { name: "no end".into(), value: json!(1).into() })
            }
            _ => event,
        }),
        ..Acts::default()
    })
    .await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(text(&frames), "**");
    let logged = server.follow("/runs/r/stream").await.rest().await;
    assert_eq!(frames, logged, "the log has the same events");
}

/// Hooks with a native timeout of 100 ms.
struct Impatient {
    fallback: bool,
    hangs: bool,
}

impl Hooks for Impatient {
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        Box::pin(async move {
            if self.hangs && native.to_json().is_some_and(|value| value["delta"] == "slow") {
                std::future::pending::<()>().await;
            }
            out.push(native);
            Ok(())
        })
    }

    fn native_timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        Box::pin(async move {
            if !self.fallback {
                return Ok(Vec::new());
            }
            out.push(Event::new(Body::Custom { name: "late".into(), value: json!(true).into() }));
            let sorry = json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "sorry"});
            Ok(vec![NativeEvent::json(None, &sorry)])
        })
    }
}

/// A command that starts a message, then stays silent without exiting.
fn silent() -> Arc<dyn Agent> {
    let start = r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#;
    let line =
        format!(r#"echo '{{"type":"RUN_STARTED","threadId":"t","runId":"r"}}'; echo '{start}'; sleep 600"#);
    let command = ["sh", "-c", &line].map(String::from).to_vec();
    let options = agentwire_gateway::upstream::ExecOptions { command, ..Default::default() };
    Arc::new(agentwire_gateway::upstream::Exec::new(options).expect("a command"))
}

#[tokio::test]
async fn the_fallback_replaces_late_native_events() {
    for (agent, hangs) in [(message_agent(&["fast", "slow", "never read"]), true), (silent(), false)] {
        let server = plan(agent)
            .wire(move |builder| builder.hooks(move |_| Impatient { fallback: true, hangs }))
            .on_memory()
            .await;
        let frames = server.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        assert_eq!(text(&frames), if hangs { "fastsorry" } else { "sorry" });
        let kinds = types(&frames);
        assert_eq!(kinds.last().map(String::as_str), Some("RUN_FINISHED"));
        assert!(kinds.iter().any(|kind| kind == "CUSTOM"));
    }
}

#[tokio::test]
async fn without_a_fallback_the_run_times_out() {
    for (agent, hangs) in [(message_agent(&["fast", "slow"]), true), (silent(), false)] {
        let server = plan(agent)
            .wire(move |builder| builder.hooks(move |_| Impatient { fallback: false, hangs }))
            .on_memory()
            .await;
        let frames = server.run_to_end("t", "r", "hello").await;
        assert_valid(&frames);
        assert_eq!(code_of(&frames), codes::UPSTREAM_TIMEOUT);
    }
}

/// An agent that supports `attach`: the second puppet replays the run.
struct Reattachable(Arc<Puppet>, Arc<Puppet>);

impl Agent for Reattachable {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        self.0.run(request, sink)
    }

    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let replay = self.1.clone();
        Some(Box::pin(async move { replay.run(request, sink).await }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reattached_run_has_its_hooks() {
    let acts = || Acts {
        event: Some(|event| match &event.body {
            Body::TextDelta { delta: text, .. } if &**text == "w1 " => vec![],
            Body::TextDelta { message, .. } => vec![event.clone(), delta(message, "! ")],
            _ => vec![event],
        }),
        output: Some(|event| match &event.body {
            Body::TextDelta { message, delta: text } => delta(message, &text.to_uppercase()),
            _ => event,
        }),
        ..Acts::default()
    };
    let backend = Backend::sqlite().await;
    let agent =
        Arc::new(Reattachable(Puppet::new(|input| talk(input, 4)), Puppet::eager(|input| talk(input, 4))));
    let here = InstanceLock::at(&backend.address);
    let planned = plan(agent.clone()).instance_lock(here).wire(move |builder| builder.hooks(move |_| acts()));
    let server = planned.killable(&backend.store).await;
    let mut stream = server.run("t", "r", "hello").await;
    agent.0.allow(4);
    let seen = stream.take(6).await;
    server.crash().await;
    let store = backend.reopened().await;
    let here = InstanceLock::at(&backend.address);
    let planned = plan(agent.clone()).instance_lock(here).wire(move |builder| builder.hooks(move |_| acts()));
    let server = planned.on(&store).await;
    let rest = server.follow("/runs/r/stream?after=r:5").await.rest().await;
    let whole: Vec<Frame> = seen.into_iter().chain(rest).collect();
    assert_valid(&whole);
    assert_eq!(text(&whole), "W0 ! W2 ! W3 ! ");
    assert_eq!(types(&whole).last().map(String::as_str), Some("RUN_FINISHED"));
}

#[tokio::test]
async fn hooks_of_the_builder_apply_to_agents_without_hooks() {
    struct Named(&'static str);
    impl Hooks for Named {
        fn output(&self, event: Event) -> Hooked<'_, Event> {
            let name = self.0;
            Box::pin(async move {
                Ok(match &event.body {
                    Body::TextDelta { message, .. } => delta(message, name),
                    _ => event,
                })
            })
        }
    }
    let store = Backend::memory().await.store;
    let agent = || Puppet::eager(|input| talk(input, 1));
    let gateway =
        agentwire_gateway::Gateway::builder(store, agentwire_gateway::settings::Settings::default())
            .hooks(|_| Named("all"))
            .agent("one", AgentConfig::shared(agent()))
            .agent(
                "two",
                AgentConfig::shared(agent()).hooks(|run| -> Box<dyn Hooks> {
                    match &*run.agent {
                        "two" => Box::new(Named("two")),
                        _ => Box::new(NoHooks),
                    }
                }),
            )
            .build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let served = tokio::spawn(agentwire_gateway::serve(gateway, listener, std::future::pending()));
    let mut texts = BTreeMap::new();
    for name in ["one", "two"] {
        let client = agentwire_client::transport::builder().no_proxy().build().expect("a client");
        let body = Server::input("t", name, "hello");
        let frames = Stream::of(client.post(format!("{base}/agents/{name}")).json(&body)).await.rest().await;
        texts.insert(name, text(&frames));
    }
    served.abort();
    assert_eq!(texts, BTreeMap::from([("one", "all".to_owned()), ("two", "two".to_owned())]));
}

struct NoHooks;

impl Hooks for NoHooks {}

#[tokio::test]
async fn hooks_that_do_nothing_change_nothing() {
    let words = ["hello", "tools think", "state", "subagents", "confirm", "interrupt", "fail", "everything"];
    let demo = || Arc::new(agentwire_gateway::agent::Demo::without_pauses());
    let plain = plan(demo()).on_memory().await;
    let hooked = plan(demo()).wire(|builder| builder.hooks(|_| NoHooks)).on_memory().await;
    for word in words {
        let mut runs = Vec::new();
        for server in [&plain, &hooked] {
            let frames = server.run_to_end(word, word, word).await;
            assert_valid(&frames);
            let without_time = |frame: &Frame| {
                let mut event = frame.json();
                event.as_object_mut().expect("an object").remove("timestamp");
                event
            };
            runs.push(frames.iter().map(without_time).collect::<Vec<_>>());
        }
        assert_eq!(runs[0], runs[1], "{word}");
    }
}

#[tokio::test]
async fn events_of_the_gateway_itself_pass_the_output_hooks() {
    let puppet = Puppet::new(|input| {
        let mut events = vec![Event::new(Body::StateSnapshot { snapshot: json!({"n": 1}).into() })];
        // A patch that does not apply: the gateway emits a snapshot instead.
        let patch = agentwire_core::patch::Patch(vec![agentwire_core::patch::PatchOp::remove("/nothing")]);
        events.push(Event::new(Body::StateDelta { patch }));
        events.extend(talk(input, 1));
        events
    });
    let journal = super::Journal::default();
    let notes = journal.clone();
    struct Notes(super::Journal);
    impl Hooks for Notes {
        fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
            self.0.note(event.kind());
            Box::pin(async { Ok(()) })
        }
    }
    let server = plan(puppet.clone())
        .wire(move |builder| builder.hooks(move |_| Notes(notes.clone())))
        .on_memory()
        .await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(2);
    let mut frames = stream.take(4).await;
    let patched = server
        .ask(reqwest::Method::PATCH, "/state/t")
        .json(&json!([{"op": "add", "path": "/m", "value": 2}]));
    assert_eq!(answer(patched).await.0, 200);
    assert_eq!(answer(server.ask(reqwest::Method::POST, "/runs/r/pause")).await.0, 200);
    assert_eq!(answer(server.ask(reqwest::Method::POST, "/runs/r/resume")).await.0, 200);
    puppet.allow(100);
    frames.extend(stream.rest().await);
    assert_valid(&frames);
    assert_eq!(journal.read(), types(&frames));
    for kind in ["STATE_DELTA", "STATE_SNAPSHOT", "CUSTOM"] {
        assert!(journal.read().iter().any(|line| line == kind), "{kind}");
    }
}
