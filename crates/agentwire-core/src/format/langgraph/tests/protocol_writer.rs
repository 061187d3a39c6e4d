//! The writer of protocol v2: envelopes, blocks, namespaces, numbers, and runs that the reader reads back.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{FORMAT, PROTOCOL},
    ReadOutput, read_text,
    writer::{call, essence, part, run_of, script, text},
};
use crate::{
    event::{
        Body, Event, Interrupt, Message, Outcome, RunError, RunFinished, RunInput, SubagentId,
        SubagentOutcome, SubagentStarted,
    },
    format::{Options, Setup},
    framing::{Frames, Framing},
    json::Json,
};

fn written(options: &Options, events: &[Event]) -> String {
    let setup = Setup { thread: "t".into(), run: "r".into(), options };
    let profile = FORMAT.profile(PROTOCOL).expect("a profile");
    let mut writer = FORMAT.writer.expect("a writer")(profile, &setup);
    let mut frames = Frames::new(Framing::Sse);
    for event in events {
        writer.write(event, &mut frames);
        frames.finish_event(Some("not this"));
    }
    writer.end(&mut frames);
    String::from_utf8(frames.take().to_vec()).expect("UTF-8")
}

/// With the numbers of a thread, 0 unless the pairs have another.
fn options(pairs: &[&str]) -> Options {
    let has_first = pairs.iter().any(|pair| pair.starts_with("first_seq="));
    let first = (!has_first).then_some("first_seq=0");
    Options::parse(pairs.iter().copied().chain(first), FORMAT.options).expect("known")
}

#[test]
fn frames_outside_a_thread_have_the_ids_of_their_events() {
    let none = Options::parse([], FORMAT.options).expect("known");
    let text = written(&none, &[Event::new(Body::Custom { name: "n".into(), value: Json::null() })]);
    let ids: Vec<_> = text.lines().filter(|line| line.starts_with("id: ")).collect();
    assert!(!ids.is_empty() && ids.iter().all(|id| id.starts_with("id: not this")), "{text}");
}

/// The events of a stream; the names and ids of the frames are those of the events.
fn parsed(text: &str) -> Vec<Value> {
    let each = text.split("\n\n").filter(|frame| !frame.is_empty());
    each.map(|frame| {
        let lines: Vec<_> = frame.lines().collect();
        let data: Value = serde_json::from_str(lines[1].strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(lines[0].strip_prefix("event: "), data["method"].as_str(), "{frame}");
        assert_eq!(lines[2].strip_prefix("id: "), Some(&*data["seq"].to_string()), "{frame}");
        assert_eq!((lines.len(), &data["type"]), (3, &json!("event")), "{frame}");
        data
    })
    .collect()
}

fn all(pairs: &[&str], events: &[Event]) -> Vec<Value> {
    parsed(&written(&options(pairs), events))
}

/// The data of a channel.
fn channel(name: &str, events: &[Event]) -> Vec<Value> {
    all(&[&*format!("channels={name}")], events).iter().map(|it| it["params"]["data"].clone()).collect()
}

#[test]
fn a_message_is_written_block_by_block() {
    let mut inner = text("m", &["a", "b"]);
    inner.extend(call("c", "m", &["{\"q\"", ":1}"], Some("done")));
    inner.extend(text("n", &["end"]));
    let events = run_of(inner);
    let content = json!({"type": "tool_call_chunk", "args": ":1}"});
    let call = json!({"type": "tool_call", "id": "c", "name": "f", "args": {"q": 1}});
    assert_eq!(
        channel("messages", &events)[..10],
        [
            json!({"event": "message-start", "role": "ai", "id": "m"}),
            json!({"event": "content-block-start", "index": 0, "content": {"type": "text", "text": ""}}),
            json!({"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": "a"}}),
            json!({"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": "b"}}),
            json!({"event": "content-block-finish", "index": 0, "content": {"type": "text", "text": "ab"}}),
            json!({"event": "content-block-start", "index": 1,
                "content": {"type": "tool_call_chunk", "id": "c", "name": "f", "args": "", "index": 1}}),
            json!({"event": "content-block-delta", "index": 1, "delta": {"type": "tool-call-delta", "args": "{\"q\""},
                "content": {"type": "tool_call_chunk", "args": "{\"q\""}}),
            json!({"event": "content-block-delta", "index": 1, "delta": {"type": "tool-call-delta", "args": ":1}"},
                "content": content}),
            json!({"event": "content-block-finish", "index": 1, "content": call}),
            json!({"event": "message-finish"}),
        ]
    );
    let tools = channel("tools", &events);
    assert_eq!(
        tools[0],
        json!({"event": "tool-started", "tool_call_id": "c", "tool_name": "f", "input": {"q": 1}})
    );
    assert_eq!(
        (&tools[1]["event"], &tools[1]["output"]["content"]),
        (&json!("tool-finished"), &json!("done"))
    );
    let values = channel("values", &events);
    let ids = |at: usize| -> Vec<&str> {
        values[at]["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|it| it["id"].as_str().unwrap())
            .collect()
    };
    assert_eq!((ids(0), ids(1), ids(2)), (vec![], vec!["m", "c-result"], vec!["m", "c-result", "n"]));
    let statuses = channel("lifecycle", &events);
    assert_eq!((&statuses[0]["event"], &statuses[1]["event"]), (&json!("running"), &json!("completed")));
}

#[test]
fn numbers_and_ids_do_not_depend_on_the_filter() {
    let mut inner = vec![Body::StepStarted { name: "look".into() }];
    inner.extend(text("m", &["a", "b"]));
    inner.push(Body::StepFinished { name: "look".into() });
    inner.push(Body::Custom { name: "n".into(), value: Json::from(json!(1)) });
    let events = run_of(inner);
    let whole = all(&["first_seq=100"], &events);
    let seqs: Vec<_> = whole.iter().map(|it| it["seq"].as_u64().expect("a number")).collect();
    assert!(seqs[0] == 101 && seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    for channels in ["messages", "values,lifecycle", "custom:n", "tasks,updates", "tools"] {
        let some = all(&["first_seq=100", &*format!("channels={channels}")], &events);
        assert!(some.iter().all(|event| whole.contains(event)), "{channels}");
    }
    let custom = all(&["channels=custom:n"], &events);
    assert_eq!(custom[0]["params"]["data"], json!({"name": "n", "payload": 1}));
    assert_eq!(all(&["channels=custom:other"], &events), Vec::<Value>::new());
    let since = all(&["first_seq=100", &*format!("since={}", seqs[4])], &events);
    assert_eq!(since, whole[5..]);
    let checkpoint = r#"checkpoint={"id":"c","step":1,"source":"loop"}"#;
    let announced = all(&["first_seq=100", checkpoint], &events);
    assert!(whole.iter().all(|event| announced.contains(event)), "checkpoints are counted in any case");
    assert_eq!(whole[0]["event_id"], "synth:r:lc||running");
    assert_eq!(whole[1]["event_id"], "r:3");
    let marked = all(&["id_mark=c"], &events);
    assert_eq!((&marked[0]["event_id"], &marked[1]["event_id"]), (&whole[0]["event_id"], &json!("r:c3")));
}

#[test]
fn two_messages_at_once_have_different_nodes() {
    let start = |id: &str| Body::TextStart { message: id.into(), role: None, name: None };
    let delta = |id: &str| Body::TextDelta { message: id.into(), delta: id.into() };
    let end = |id: &str| Body::TextEnd { message: id.into() };
    let inner = vec![
        start("a"),
        start("b"),
        delta("a"),
        delta("b"),
        end("a"),
        delta("b"),
        end("b"),
        start("c"),
        end("c"),
    ];
    let messages = all(&["channels=messages"], &run_of(inner));
    let mut open: std::collections::HashMap<String, String> = Default::default();
    for event in &messages {
        let (node, data) = (event["params"]["node"].to_string(), &event["params"]["data"]);
        match data["event"].as_str().expect("a name") {
            "message-start" => assert_eq!(open.insert(node, data["id"].as_str().unwrap().into()), None),
            "content-block-delta" => assert_eq!(open[&node], data["delta"]["text"].as_str().unwrap()),
            "message-finish" => assert!(open.remove(&node).is_some()),
            _ => assert!(open.contains_key(&node)),
        }
    }
    assert!(open.is_empty());
    assert_eq!(messages.iter().filter(|it| it["params"]["data"]["event"] == "message-finish").count(), 3);
}

#[test]
fn a_message_that_goes_on_is_written_whole() {
    let mut inner = text("m", &["before"]);
    inner.extend(call("c", "m", &["{}"], Some("done")));
    inner.extend(call("d", "m", &["{}"], None));
    let messages = channel("messages", &run_of(inner));
    let start = messages.iter().rposition(|it| it["event"] == "message-start").expect("a start");
    let blocks: Vec<_> = messages[start..]
        .iter()
        .filter(|it| it["event"] == "content-block-finish")
        .map(|it| (it["index"].clone(), it["content"]["type"].clone()))
        .collect();
    assert_eq!(
        blocks,
        [(json!(0), json!("text")), (json!(1), json!("tool_call")), (json!(2), json!("tool_call"))]
    );
}

#[test]
fn reasoning_is_a_block_of_its_message() {
    let mut inner = vec![
        Body::ReasoningMessageStart { message: "m-r0".into() },
        Body::ReasoningDelta { message: "m-r0".into(), delta: "hm".into() },
        Body::ReasoningMessageEnd { message: "m-r0".into() },
    ];
    inner.extend(text("m", &["a"]));
    let messages = channel("messages", &run_of(inner));
    assert_eq!(messages[0]["id"], "m");
    assert_eq!(messages[2]["delta"], json!({"type": "reasoning-delta", "reasoning": "hm"}));
    assert_eq!(messages[3]["content"], json!({"type": "reasoning", "reasoning": "hm"}));
    assert_eq!(messages[4]["index"], 1);
    assert_eq!(messages.len(), 8, "one message: {messages:?}");
}

#[test]
fn a_finish_reason_is_that_of_its_message() {
    let mut inner = text("m", &["cut"]);
    inner.push(Body::FinishReason { message: Some("m".into()), reason: "length".into() });
    let events = run_of(inner);
    let written = written(&options(&[]), &events);
    let back = read_text(&written, &["steps=none"]).events;
    let reasons = back.iter().filter_map(|event| match &event.body {
        Body::FinishReason { message, reason } => Some((message.as_deref(), &**reason)),
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [(Some("m"), "length")], "{written}");
}

#[test]
fn ends_have_a_status_and_questions() {
    let mut own = Interrupt::new("i", "langgraph:interrupt");
    own.metadata = Json::from(json!({"value": {"ask": 1}})).into_object();
    for (outcome, status, asked) in [
        (Some(Outcome::Interrupt { interrupts: vec![own] }), "interrupted", 1),
        (Some(Outcome::Cancelled), "interrupted", 0),
        (None, "completed", 0),
    ] {
        let mut finished = RunFinished::new("t", "r");
        finished.outcome = outcome;
        let mut events = run_of(text("m", &["a"]));
        *events.last_mut().expect("an end") = Event::new(Body::RunFinished(Box::new(finished)));
        let frames = all(&["channels=input,lifecycle"], &events);
        assert_eq!(frames.last().expect("an end")["params"]["data"]["event"], status);
        assert_eq!(frames.len(), 2 + asked);
        if asked > 0 {
            assert_eq!(frames[1]["params"]["data"], json!({"interrupt_id": "i", "payload": {"ask": 1}}));
        }
    }
    let mut events = run_of(vec![
        Body::TextStart { message: "m".into(), role: None, name: None },
        Body::TextDelta { message: "m".into(), delta: "half".into() },
    ]);
    *events.last_mut().expect("an end") =
        Event::new(Body::RunError(Box::new(RunError::new("it broke", None))));
    let frames = all(&["channels=messages,lifecycle", "graph_name=demo"], &events);
    let last = &frames.last().expect("an end")["params"]["data"];
    assert_eq!(*last, json!({"event": "failed", "graph_name": "demo", "error": "it broke"}));
    assert_eq!(frames[frames.len() - 2]["params"]["data"]["event"], "message-finish");
}

#[test]
fn a_subagent_is_a_namespace() {
    let started = |name: &str, parent: Option<&str>, call: Option<&str>| {
        Body::SubagentStarted(Box::new(SubagentStarted {
            name: name.into(),
            description: None,
            parent_subagent: parent.map(SubagentId::from),
            parent_call: call.map(Into::into),
            parent_message: None,
        }))
    };
    let by = |id: &str, body: Body| Event::new(body).by(Some(id.into()));
    let mut events = run_of(call("c", "m", &["{}"], None));
    let end = events.pop().expect("an end");
    events.push(by("s1", started("research", None, Some("c"))));
    events.push(by("s2", started("web", Some("s1"), None)));
    events.extend(text("x", &["deep"]).into_iter().map(|body| by("s2", body)));
    events.push(by("s2", Body::SubagentFinished { result: None, outcome: None }));
    let outcome = Some(SubagentOutcome::Suspended { interrupts: vec!["i".into()] });
    events.push(by("s1", Body::SubagentFinished { result: None, outcome }));
    let mut finished = RunFinished::new("t", "r");
    let mut asked = Interrupt::new("i", "confirmation");
    asked.subagent = Some("s1".into());
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![asked] });
    events.push(Event::new(Body::RunFinished(Box::new(finished))));
    drop(end);
    let frames = all(&["channels=messages,lifecycle,input"], &events);
    let nested: Vec<_> = frames.iter().filter(|it| it["params"]["namespace"] != json!([])).collect();
    assert_eq!(nested[0]["params"]["namespace"], json!(["tools:c"]));
    assert_eq!(
        nested[0]["params"]["data"],
        json!({"event": "started", "graph_name": "research", "cause": {"type": "toolCall", "tool_call_id": "c"}})
    );
    let text = nested.iter().find(|it| it["params"]["data"]["delta"]["text"] == "deep").expect("its text");
    assert_eq!(text["params"]["namespace"], json!(["tools:c", "web:s2"]));
    let asked = frames.iter().find(|it| it["method"] == "input.requested").expect("a question");
    assert_eq!(asked["params"]["namespace"], json!(["tools:c"]));
    // The filter of a page's main stream.
    let shallow = all(&["channels=messages,lifecycle", "namespaces=[[]]", "depth=1"], &events);
    assert!(shallow.iter().all(|it| it["params"]["namespace"].as_array().expect("a path").len() <= 1));
    assert!(!shallow.is_empty());
}

#[test]
fn values_are_announced_by_a_checkpoint() {
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u", "hi"));
    let pairs = [
        "channels=checkpoints,values",
        r#"checkpoint={"id":"c1","parent_id":"c0","step":3,"source":"loop"}"#,
        r#"end_checkpoint={"id":"c2","parent_id":"c1","step":4,"source":"loop"}"#,
    ];
    let text = written(&options(&pairs).for_request(input), &run_of(text("m", &["a"])));
    let frames = parsed(&text);
    let data: Vec<_> = frames.iter().map(|it| &it["params"]["data"]).collect();
    assert_eq!(*data[0], json!({"id": "c1", "parent_id": "c0", "step": 3, "source": "loop"}));
    assert_eq!(data[1]["messages"][0]["id"], "u");
    assert_eq!(data[2]["id"], "c2");
    assert_eq!(data[3]["messages"][1]["id"], "m");
    assert_eq!(data.len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_reader_reads_back_what_the_writer_writes(parts in prop::collection::vec(part(), 0..6)) {
        let events = script(&parts);
        for channels in ["", "channels=messages,tools,values,custom,lifecycle,input", "channels=messages,values,custom,lifecycle"] {
            let pairs: Vec<_> = [channels].into_iter().filter(|pair| !pair.is_empty()).collect();
            let text = written(&options(&pairs), &events);
            let ReadOutput { events: back, failure, .. } = read_text(&text, &["steps=none"]);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(essence(&back), essence(&events), "{}: {}", channels, text);
        }
    }
}
