//! The writer: frames of each mode, and runs that the reader reads back.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::FORMAT, ReadOutput, read_text};
use crate::{
    event::{
        Body, Content, Event, Interrupt, Message, MessageBody, Outcome, RunError, RunFinished, RunInput,
        RunStarted, ToolResult,
    },
    fold::Fold,
    format::{Fidelity, Options, Setup},
    framing::{Frames, Framing},
    json::Json,
};

fn written_with(options: &Options, events: &[Event]) -> (String, Vec<Fidelity>) {
    let setup = Setup { thread: "t".into(), run: "r".into(), options };
    let mut writer = FORMAT.writer.expect("a writer")(&FORMAT.profiles[0], &setup);
    let mut frames = Frames::new(Framing::Sse);
    let mut fidelity = Vec::new();
    for event in events {
        fidelity.push(writer.write(event, &mut frames));
        frames.finish_event(None);
    }
    writer.end(&mut frames);
    (String::from_utf8(frames.take().to_vec()).expect("UTF-8"), fidelity)
}

/// The frames of a run in some modes: name and data.
fn frames(modes: &str, events: &[Event]) -> Vec<(String, Value)> {
    let options = Options::parse([&*format!("modes={modes}")], FORMAT.options).expect("known");
    let (text, _) = written_with(&options, events);
    let each = text.split("\n\n").filter(|frame| !frame.is_empty());
    each.map(|frame| {
        let (name, data) = frame.split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name").to_owned();
        let data = data.strip_prefix("data: ").expect("data");
        (name, serde_json::from_str(data).expect("JSON"))
    })
    .collect()
}

pub(super) fn run_of(inner: Vec<Body>) -> Vec<Event> {
    let started = Body::RunStarted(Box::new(RunStarted::new("t", "r")));
    let finished = Body::RunFinished(Box::new(RunFinished::new("t", "r")));
    std::iter::once(started).chain(inner).chain([finished]).map(Event::new).collect()
}

pub(super) fn text(id: &str, pieces: &[&str]) -> Vec<Body> {
    let mut all = vec![Body::TextStart { message: id.into(), role: None, name: None }];
    all.extend(pieces.iter().map(|piece| Body::TextDelta { message: id.into(), delta: (*piece).into() }));
    all.push(Body::TextEnd { message: id.into() });
    all
}

pub(super) fn call(id: &str, parent: &str, args: &[&str], result: Option<&str>) -> Vec<Body> {
    let mut all = vec![Body::ToolStart { call: id.into(), name: "f".into(), parent: Some(parent.into()) }];
    all.extend(args.iter().map(|args| Body::ToolArgs { call: id.into(), delta: (*args).into() }));
    all.push(Body::ToolEnd { call: id.into() });
    if let Some(content) = result {
        all.push(Body::ToolResult(Box::new(ToolResult {
            message: format!("{id}-result").as_str().into(),
            call: id.into(),
            content: Content::Text(content.into()),
            error: None,
            explicit_role: false,
        })));
    }
    all
}

#[test]
fn modes_have_the_frames_of_the_server() {
    let mut inner = vec![Body::StepStarted { name: "look".into() }];
    inner.extend(text("m", &["a", "b"]));
    inner.push(Body::StepFinished { name: "look".into() });
    inner.push(Body::Custom { name: "n".into(), value: Json::from(json!({"x": 1})) });
    let events = run_of(inner);
    let metadata = ("metadata".to_owned(), json!({"run_id": "r", "attempt": 1}));
    let messages = frames("messages-tuple", &events);
    assert_eq!(messages[0], metadata);
    assert_eq!(messages[1].0, "messages");
    assert_eq!(messages[1].1[0], json!({"content": "a", "type": "AIMessageChunk", "id": "m"}));
    assert_eq!(messages[1].1[1]["langgraph_node"], "look");
    assert_eq!(messages.len(), 3);
    let values = frames("values", &events);
    assert_eq!(values[1], ("values".to_owned(), json!({"messages": []})));
    let ai = json!({"content": "ab", "id": "m", "type": "ai", "name": null, "additional_kwargs": {},
        "response_metadata": {}, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null});
    assert_eq!(values.last().expect("a frame").1, json!({"messages": [ai]}));
    let updates = frames("updates", &events);
    assert_eq!(updates[1].1, json!({"look": {"messages": [ai]}}));
    assert_eq!(
        frames("custom", &events)[1].1,
        json!({"type": "agent_custom_event", "name": "n", "payload": {"x": 1}})
    );
    let tasks = frames("tasks", &events);
    assert_eq!(
        (&tasks[1].1["name"], &tasks[2].1["result"]["messages"][0]["id"]),
        (&json!("look"), &json!("m"))
    );
    let events: Vec<_> = frames("events", &events)
        .iter()
        .skip(1)
        .map(|(_, it)| it["event"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(
        events,
        [
            "on_chain_start",
            "on_chain_start",
            "on_chat_model_stream",
            "on_chat_model_stream",
            "on_chain_end",
            "on_chain_end"
        ]
    );
}

#[test]
fn values_never_have_a_message_that_is_being_streamed() {
    let mut inner = vec![Body::TextStart { message: "m".into(), role: None, name: None }];
    inner.push(Body::TextDelta { message: "m".into(), delta: "half".into() });
    inner.push(Body::StateSnapshot { snapshot: Json::from(json!({"a": 1})) });
    inner.push(Body::TextEnd { message: "m".into() });
    let values = frames("values", &run_of(inner));
    assert_eq!(values[2].1, json!({"a": 1, "messages": []}));
    assert_eq!(values[3].1["messages"][0]["content"], "half");
}

#[test]
fn an_interrupt_has_the_value_of_the_agent() {
    let mut finished = RunFinished::new("t", "r");
    let mut own = Interrupt::new("i", "langgraph:interrupt");
    own.metadata = Json::from(json!({"value": {"ask": 1}})).into_object();
    finished.outcome =
        Some(Outcome::Interrupt { interrupts: vec![own, Interrupt::new("j", "confirmation")] });
    let mut events = run_of(Vec::new());
    events[1] = Event::new(Body::RunFinished(Box::new(finished)));
    let shown = json!([{"value": {"ask": 1}, "id": "i"}, {"value": {"reason": "confirmation"}, "id": "j"}]);
    let frames = frames("updates,values", &events);
    assert_eq!(frames[2], ("updates".into(), json!({"__interrupt__": shown})));
    assert_eq!(frames[3].1["__interrupt__"], shown);
    let (text, _) = written_with(&Options::default(), &events);
    assert!(read_text(&text, &[]).last().starts_with("finish interrupt i"), "{text}");
}

#[test]
fn a_failure_is_an_error_frame() {
    let mut events = run_of(text("m", &["a"]));
    *events.last_mut().expect("an end") =
        Event::new(Body::RunError(Box::new(RunError::new("it broke", Some("BROKEN")))));
    assert_eq!(
        frames("values", &events).last(),
        Some(&("error".into(), json!({"error": "BROKEN", "message": "it broke"})))
    );
    let (text, _) = written_with(&Options::default(), &events);
    assert_eq!(read_text(&text, &[]).last(), "error BROKEN it broke");
}

#[test]
fn the_conversation_before_the_run_is_in_the_values() {
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u", "hi"));
    let (text, _) = written_with(&Options::default().for_request(input), &run_of(text("m", &["a"])));
    let user = r#""id":"u","content":"hi""#;
    assert!(text.contains(user), "{text}");
    let updates: Vec<_> = text.split("\n\n").filter(|frame| frame.starts_with("event: updates")).collect();
    assert!(
        !updates.is_empty() && updates.iter().all(|update| !update.contains(user)),
        "it is no update: {text}"
    );
}

#[test]
fn a_run_that_begins_with_snapshots_has_whole_values_from_the_first() {
    let mut inner = vec![
        Body::StateSnapshot { snapshot: Json::from(json!({"a": 1})) },
        Body::MessagesSnapshot {
            messages: vec![Message::user("u1", "1"), Message::assistant("a1", "2"), Message::user("u2", "3")],
        },
    ];
    inner.extend(text("a2", &["4"]));
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u2", "3"));
    let options = Options::parse(["modes=values,updates"], FORMAT.options).expect("known").for_request(input);
    let (text, _) = written_with(&options, &run_of(inner));
    let data: Vec<Value> = text
        .split("\n\n")
        .filter_map(|frame| Some(serde_json::from_str(frame.split_once("data: ")?.1).expect("JSON")))
        .collect();
    let ids = |values: &Value| -> Vec<String> {
        let messages = values["messages"].as_array().expect("messages").iter();
        messages.map(|message| message["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!((ids(&data[1]), &data[1]["a"]), (vec!["u1".into(), "a1".into(), "u2".into()], &json!(1)));
    assert_eq!(ids(&data[2]["agent"]), ["a2"], "{text}");
    assert_eq!(ids(&data[3]), ["u1", "a1", "u2", "a2"]);
    assert_eq!(data.len(), 4);
}

#[test]
fn reasoning_and_its_answer_are_one_message() {
    for (reasoning, shown) in [("m-r0", "m"), ("own", "own")] {
        let mut inner = vec![
            Body::ReasoningStart { message: reasoning.into(), title: None },
            Body::ReasoningMessageStart { message: reasoning.into() },
            Body::ReasoningDelta { message: reasoning.into(), delta: "hm".into() },
            Body::StateSnapshot { snapshot: Json::from(json!({"a": 1})) },
            Body::ReasoningMessageEnd { message: reasoning.into() },
            Body::ReasoningEnd { message: reasoning.into() },
        ];
        inner.extend(text("m", &["a", "b"]));
        inner.extend(call("c", "m", &["{}"], Some("done")));
        let all = frames("messages-tuple,values", &run_of(inner));
        let chunks: Vec<_> =
            all.iter().filter(|(name, _)| name == "messages").map(|(_, data)| &data[0]).collect();
        let ids: Vec<_> = chunks.iter().map(|chunk| chunk["id"].as_str().expect("an id")).collect();
        assert_eq!(ids, [shown, shown, shown, shown, shown, "c-result"]);
        assert_eq!(chunks[5]["name"], "f");
        let values: Vec<_> = all.iter().filter(|(name, _)| name == "values").map(|(_, data)| data).collect();
        assert_eq!(values[1]["messages"], json!([]), "it is being streamed");
        let last = &values.last().expect("values")["messages"];
        assert_eq!((&last[0]["id"], &last[0]["content"]), (&json!(shown), &json!("ab")));
        assert_eq!(last[0]["additional_kwargs"]["reasoning_content"], "hm");
        assert_eq!(last.as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_call_is_streamed_in_the_message_that_has_it_in_the_values() {
    let call = |parent: Option<&str>| {
        vec![
            Body::ToolStart { call: "c".into(), name: "f".into(), parent: parent.map(Into::into) },
            Body::ToolArgs { call: "c".into(), delta: "{}".into() },
            Body::ToolEnd { call: "c".into() },
        ]
    };
    for parent in [None, Some("m"), Some("elsewhere")] {
        let mut inner = text("m", &["calling"]);
        inner.extend(call(parent));
        let events = run_of(inner);
        let all = frames("messages-tuple,values", &events);
        let chunks = all.iter().filter(|(name, _)| name == "messages").map(|(_, data)| &data[0]);
        let streamed: Vec<_> = chunks
            .filter(|chunk| chunk.get("tool_call_chunks").is_some())
            .map(|chunk| &chunk["id"])
            .collect();
        let (_, last) = all.last().expect("values");
        let messages = last["messages"].as_array().expect("a list");
        let holder = messages.iter().find(|message| message["tool_calls"][0]["id"] == "c").expect("the call");
        assert_eq!(streamed, [&holder["id"], &holder["id"]], "{parent:?}");
        let (text, _) = written_with(&Options::default(), &events);
        assert_eq!(essence(&read_text(&text, &["steps=none"]).events).0, essence(&events).0, "{parent:?}");
    }
}

#[test]
fn a_message_stays_in_the_step_in_which_it_began() {
    let start = |id: &str| Body::TextStart { message: id.into(), role: None, name: None };
    let delta = |id: &str, delta: &str| Body::TextDelta { message: id.into(), delta: delta.into() };
    let step = |name: &str| Body::StepStarted { name: name.into() };
    let inner = vec![
        step("a"),
        start("ma"),
        delta("ma", "one "),
        step("b"),
        start("mb"),
        delta("mb", "three "),
        delta("ma", "two"),
        delta("mb", "four"),
        Body::TextEnd { message: "ma".into() },
        Body::TextEnd { message: "mb".into() },
        Body::StepFinished { name: "a".into() },
        Body::StepFinished { name: "b".into() },
    ];
    let events = run_of(inner);
    let all = frames("messages-tuple", &events);
    let places: Vec<_> = all
        .iter()
        .filter(|(name, _)| name == "messages")
        .map(|(_, data)| {
            let at = &data[1];
            [&data[0]["id"], &at["langgraph_node"], &at["langgraph_step"]].map(ToString::to_string).join(" ")
        })
        .collect();
    let (a, b) = (r#""ma" "a" 1"#, r#""mb" "b" 1"#);
    assert_eq!(places, [a, b, a, b]);
    let (text, _) = written_with(&Options::default(), &events);
    assert_eq!(essence(&read_text(&text, &[]).events).0, essence(&events).0, "{text}");
}

#[test]
fn an_update_has_the_messages_of_its_own_step() {
    let started = |name: &str| Body::StepStarted { name: name.into() };
    let ended = |name: &str| Body::StepFinished { name: name.into() };
    let mut inner = vec![started("a"), started("b")];
    inner.extend(text("mb", &["of b"]));
    inner.extend([started("c")]);
    inner.extend(call("cb", "mb", &["{}"], Some("found")));
    inner.extend(text("mc", &["of c"]));
    inner.push(Body::TextStart { message: "open".into(), role: None, name: None });
    inner.extend([ended("a"), ended("b")]);
    inner.push(Body::TextEnd { message: "open".into() });
    inner.extend([ended("c"), started("d")]);
    inner.extend(text("md", &["of d"]));
    inner.push(ended("d"));
    let events = run_of(inner);
    let updates: Vec<_> = frames("updates", &events)
        .into_iter()
        .filter(|(name, _)| name == "updates")
        .map(|(_, data)| {
            let (node, update) = data.as_object().and_then(|it| it.iter().next()).expect("a node");
            let ids =
                update["messages"].as_array().into_iter().flatten().map(|it| it["id"].as_str().unwrap());
            format!("{node}: {}", ids.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(updates, ["a: ", "b: mb cb-result", "c: mc open", "d: md"]);
}

#[test]
fn a_finish_reason_is_read_back() {
    for message in [Some("m".into()), None] {
        let mut inner = text("m", &["cut"]);
        inner.push(Body::FinishReason { message, reason: "length".into() });
        let events = run_of(inner);
        let last = frames("values", &events).pop().expect("values").1;
        assert_eq!(last["messages"][0]["response_metadata"], json!({"finish_reason": "length"}));
        for modes in ["messages-tuple,values,updates,custom", "messages-tuple", "events"] {
            let options = Options::parse([&*format!("modes={modes}")], FORMAT.options).expect("known");
            let (text, _) = written_with(&options, &events);
            let back = read_text(&text, &["steps=none"]).events;
            let reasons = back.iter().filter_map(|event| match &event.body {
                Body::FinishReason { message, reason } => Some((message.as_deref(), &**reason)),
                _ => None,
            });
            assert_eq!(reasons.collect::<Vec<_>>(), [(Some("m"), "length")], "{modes}: {text}");
            assert_eq!(essence(&back).0, essence(&events).0, "{modes}");
        }
    }
}

#[test]
fn a_member_of_the_state_is_no_interrupt() {
    let snapshot = Json::from(json!({"__interrupt__": [{"value": "?", "id": "x"}], "n": 1}));
    let events = run_of(vec![Body::StateSnapshot { snapshot }]);
    for (_, data) in frames("values", &events).iter().filter(|(name, _)| name == "values") {
        assert_eq!(data, &json!({"n": 1, "messages": []}));
    }
    let (text, _) = written_with(&Options::default(), &events);
    let back = read_text(&text, &[]).events;
    assert!(
        matches!(&back.last().unwrap().body, Body::RunFinished(finished) if finished.outcome.is_none()
        || matches!(finished.outcome, Some(Outcome::Success { .. }))),
        "{text}"
    );
}

#[test]
fn reasoning_alone_is_read_back_once() {
    let inner = vec![
        Body::ReasoningStart { message: "z".into(), title: None },
        Body::ReasoningMessageStart { message: "z".into() },
        Body::ReasoningDelta { message: "z".into(), delta: "first ".into() },
        Body::ReasoningDelta { message: "z".into(), delta: "second".into() },
        Body::ReasoningMessageEnd { message: "z".into() },
        Body::ReasoningEnd { message: "z".into() },
    ];
    let (text, _) = written_with(&Options::default(), &run_of(inner));
    let back = read_text(&text, &[]).events;
    let thought: String = back
        .iter()
        .filter_map(|event| match &event.body {
            Body::ReasoningDelta { delta, .. } => Some(&**delta),
            _ => None,
        })
        .collect();
    assert_eq!(thought, "first second", "{text}");
}

#[test]
fn the_mode_messages_repeats_each_message() {
    let all = frames("messages", &run_of(text("m", &["a", "b"])));
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["metadata", "messages/metadata", "messages/partial", "messages/partial"]);
    assert_eq!(all[1].1["m"]["metadata"]["langgraph_node"], "agent");
    assert_eq!(all[3].1[0]["content"], "ab");
}

/// A part of a run.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Text(Vec<String>),
    Call(String, Option<String>),
    State(u8),
    Custom(u8),
}

pub(super) fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        prop::collection::vec("[a-z \\n\"é]{1,6}", 1..4).prop_map(Part::Text),
        ("[a-z]{1,5}", prop::option::of("[a-z ]{1,8}")).prop_map(|(arg, result)| Part::Call(arg, result)),
        any::<u8>().prop_map(Part::State),
        any::<u8>().prop_map(Part::Custom),
    ]
}

pub(super) fn script(parts: &[Part]) -> Vec<Event> {
    let mut inner = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let id = format!("m{at}");
        match part {
            Part::Text(pieces) => {
                inner.extend(text(&id, &pieces.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            Part::Call(arg, result) => {
                inner.extend(text(&id, &["calling"]));
                let args = format!(r#"{{"a":"{arg}"}}"#);
                let (one, two) = args.split_at(3);
                inner.extend(call(&format!("c{at}"), &id, &[one, two], result.as_deref()));
            }
            Part::State(n) => {
                inner.push(Body::StateSnapshot { snapshot: Json::from(json!({"n": n, "at": at})) })
            }
            Part::Custom(n) => inner.push(Body::Custom { name: "c".into(), value: Json::from(json!(n)) }),
        }
    }
    run_of(inner)
}

/// Messages without the order of members, state and custom events.
pub(super) fn essence(events: &[Event]) -> (Vec<Value>, Value, Vec<String>) {
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let messages = fold.messages().iter().map(|message| match &message.body {
        MessageBody::Assistant { content, tool_calls } => {
            let calls: Vec<_> = tool_calls
                .iter()
                .flatten()
                .map(|call| {
                    let args: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
                    json!([call.id.as_str(), &*call.name, args])
                })
                .collect();
            json!([message.id.as_str(), content.as_deref().unwrap_or_default(), calls])
        }
        MessageBody::Tool { call, content, .. } => {
            json!([message.id.as_str(), call.as_str(), content.text()])
        }
        other => json!(format!("{other:?}")),
    });
    let messages = messages.collect();
    let customs = events.iter().filter_map(|event| match &event.body {
        Body::Custom { name, value } => Some(format!("{name} {}", value.get())),
        _ => None,
    });
    (messages, fold.state().clone(), customs.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_reader_reads_back_what_the_writer_writes(parts in prop::collection::vec(part(), 0..6)) {
        let events = script(&parts);
        for modes in ["messages-tuple,values,updates,custom", "messages-tuple,values,custom", "values,custom", "messages-tuple,values,updates,custom,tasks"] {
            let options = Options::parse([&*format!("modes={modes}")], FORMAT.options).expect("known");
            let (text, _) = written_with(&options, &events);
            let ReadOutput { events: back, failure, .. } = read_text(&text, &["steps=none"]);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(essence(&back), essence(&events), "{}: {}", modes, text);
        }
    }
}
