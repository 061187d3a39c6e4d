//! Written frames: message ids, timestamps, tool calls, interrupts, snapshots, collaborations.

use super::{super::input, *};
use crate::{
    event::{Interrupt, Message, MessageBody, Outcome, RunInput, Tool},
    format::{Fidelity, Options, Setup},
    framing::Frames,
    json::Json,
    tally::Tally,
};

#[test]
fn braces_in_text_are_safe_for_the_reference_client() {
    let deltas = ["a}{b", "}{", "}", "{", "\"}{\\", "中文 }{ 😀\n\t\u{1}"];
    let bytes = write(&FORMAT, "", None, &run(text("m", &deltas)), &[]);
    assert!(String::from_utf8(bytes.clone()).unwrap().contains("中文"), "nothing is escaped to ASCII");
    let text: String = parsed(&frames(&bytes), "m")
        .iter()
        .map(|document| document["output"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, deltas.concat());
}

#[test]
fn empty_message_has_parsable_content() {
    let frames = written(&run(text("m", &[])), "", &[]);
    assert_eq!(parsed(&frames, "m"), [json!({"output": {"type": "text", "content": ""}})]);
    assert_same("empty", &run(text("m", &[])), &round_trip(&run(text("m", &[])), "", &[]));
}

#[test]
fn result_with_empty_call_id_round_trips() {
    let result = crate::event::ToolResult {
        message: "m".into(),
        call: "".into(),
        content: crate::event::Content::from("x"),
        error: None,
        explicit_role: false,
    };
    let events = run([Body::ToolResult(Box::new(result))]);
    for profile in PROFILES {
        assert_same(profile, &events, &round_trip(&events, profile, &[]));
    }
}

#[test]
fn events_inherit_the_latest_timestamp() {
    let mut events = run(text("m", &["a"]));
    let unstamped = written(&events, "", &[]);
    assert!(unstamped.iter().all(|frame| frame["timestamp"].is_null()));
    let stamped = written(&events, "", &["stamp=7"]);
    assert!(stamped.iter().all(|frame| frame["timestamp"] == 7));
    events[2].timestamp = Some(1_620_000_000_500);
    let times: Vec<_> =
        written(&events, "", &["stamp=7"]).iter().map(|frame| frame["timestamp"].clone()).collect();
    assert_eq!(times, [7, 7, 1_620_000_000_500_i64, 1_620_000_000_500, 1_620_000_000_500].map(Value::from));
}

#[test]
fn messages_of_a_run_can_share_one_id() {
    let events = run(text("m1", &["a"]).into_iter().chain(text("m2", &["b"])));
    let frames = written(&events, "", &["message_ids=per-run"]);
    let business: Vec<_> =
        frames.iter().filter(|frame| frame["type"].as_str().unwrap().starts_with("BUSINESS")).collect();
    assert!(business.iter().all(|frame| frame["messageId"] == "run-msg-r"));
    // One message: a client that replaces a message at a second start keeps all text.
    let shown: Vec<_> = business
        .iter()
        .map(|frame| (frame["type"].as_str().unwrap(), frame["sourceMessageId"].as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("BUSINESS_DATA_START", Some("m1")),
            ("BUSINESS_DATA_CONTENT", Some("m1")),
            ("BUSINESS_DATA_CONTENT", Some("m2")),
            ("BUSINESS_DATA_END", Some("m1")),
        ]
    );
    assert_eq!(parsed(&frames, "run-msg-r").len(), 2);
}

#[test]
fn parent_of_a_call_is_the_message_that_the_run_shares() {
    let start =
        |parent: &str| Body::ToolStart { call: "c".into(), name: "f".into(), parent: Some(parent.into()) };
    let mut bodies = text("m1", &["a"]);
    bodies.extend([start("m1"), Body::ToolEnd { call: "c".into() }]);
    let events = run(bodies);
    let frames = written(&events, "", &["message_ids=per-run"]);
    let call = frames.iter().find(|frame| frame["type"] == "TOOL_CALL_START").unwrap();
    assert_eq!(
        (&call["parentMessageId"], &call["sourceParentMessageId"]),
        (&json!("run-msg-r"), &json!("m1"))
    );
    assert_same("restored", &events, &round_trip(&events, "", &["message_ids=per-run"]));
    let plain = written(&events, "", &[]);
    let call = plain.iter().find(|frame| frame["type"] == "TOOL_CALL_START").unwrap();
    assert_eq!((&call["parentMessageId"], &call["sourceParentMessageId"]), (&json!("m1"), &Value::Null));
}

/// The types of the frames that a client of 2025 refuses: those inside an open message or call of another.
fn refused_by_old_clients(frames: &[Value]) -> Vec<String> {
    let (mut open, mut refused) = (None::<(String, Value)>, Vec::new());
    for frame in frames {
        let kind = frame["type"].as_str().unwrap();
        let (group, part) = kind.rsplit_once('_').unwrap_or((kind, ""));
        let id = if group == "TOOL_CALL" { &frame["toolCallId"] } else { &frame["messageId"] };
        let is_item = ["BUSINESS_DATA", "TOOL_CALL", "AGENT_COLLABORATIVE_MESSAGE"].contains(&group);
        match &open {
            None if is_item && part == "START" => open = Some((group.to_owned(), id.clone())),
            None => {}
            Some((group_of_open, open_id)) => {
                let is_own = group_of_open == group && open_id == id && part != "START" && part != "RESULT";
                if !is_own && kind != "RAW" {
                    refused.push(frame.to_string());
                } else if part == "END" {
                    open = None;
                }
            }
        }
    }
    refused
}

#[test]
fn serial_order_opens_nothing_inside_an_open_message() {
    let delta = |message: &str, text: &str| Body::TextDelta { message: message.into(), delta: text.into() };
    let start = |message: &str| Body::TextStart { message: message.into(), role: None, name: None };
    let end = |message: &str| Body::TextEnd { message: message.into() };
    let tool = |call: &str| call_parts(call);
    let bodies = [
        start("m1"),
        delta("m1", "a"),
        Body::StepStarted { name: "s".into() },
        tool("c1")[0].clone(),
        tool("c2")[0].clone(),
        delta("m1", "b"),
        tool("c2")[1].clone(),
        start("m2"),
        delta("m2", "x"),
        tool("c1")[1].clone(),
        tool("c2")[2].clone(),
        end("m1"),
        tool("c1")[2].clone(),
        Body::StateSnapshot { snapshot: json!({"n": 1}).into() },
        end("m2"),
        Body::StepFinished { name: "s".into() },
    ];
    let events = run(bodies);
    assert!(!refused_by_old_clients(&written(&events, "", &[])).is_empty());
    for display in ["events", "show", "both"] {
        for ids in ["per-message", "per-run"] {
            let options = ["order=serial", &format!("tool_display={display}"), &format!("message_ids={ids}")];
            let frames = written(&events, "", &options);
            assert_eq!(refused_by_old_clients(&frames), Vec::<String>::new(), "{display} {ids}");
            let of = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
            assert_eq!(
                (of("TOOL_CALL_ARGS"), of("STATE_SNAPSHOT"), of("STEP_FINISHED")),
                (2, 1, 1),
                "{display}"
            );
        }
    }
    // The open text does not wait for the others.
    let mut source = events.iter();
    let first: Vec<_> = source.by_ref().take(7).cloned().collect();
    let frames = written(&first, "", &["order=serial"]);
    assert_eq!(frames.iter().filter(|frame| frame["type"] == "BUSINESS_DATA_CONTENT").count(), 2);
}

fn call_parts(id: &str) -> Vec<Body> {
    call(id, "f", &["{}"])
}

#[test]
fn serial_order_keeps_every_fixture_whole() {
    let all = all_fixtures(&ag_ui::FORMAT, AG_UI_FIXTURES).into_iter().chain(all_fixtures(&FORMAT, FIXTURES));
    for (name, events) in all {
        let mut plain = written(&events, "", &["include_developer=yes"]);
        let mut serial = written(&events, "", &["include_developer=yes", "order=serial"]);
        assert_eq!(refused_by_old_clients(&serial), Vec::<String>::new(), "{name}");
        let texts = |frames: &mut Vec<Value>| {
            let mut all: Vec<_> = frames
                .iter()
                .filter(|frame| frame["type"] == "BUSINESS_DATA_CONTENT" && frame["agui"]["skip"].is_null())
                .map(|frame| frame["delta"].to_string())
                .collect();
            all.sort();
            all
        };
        assert_eq!(texts(&mut serial), texts(&mut plain), "{name}");
    }
}

#[test]
fn step_of_the_same_name_is_not_opened_twice() {
    let step = |is_start: bool, owner: Option<&str>| {
        let name: Box<str> = "search".into();
        let body = if is_start { Body::StepStarted { name } } else { Body::StepFinished { name } };
        Event::new(body).by(owner.map(Into::into))
    };
    let mut events = run([]);
    let steps = [
        step(true, None),
        step(true, Some("a")),
        step(false, None),
        step(true, Some("b")),
        step(false, Some("a")),
        step(false, Some("b")),
    ];
    events.splice(1..1, steps);
    let frames = written(&events, "", &[]);
    let shown: Vec<_> = kinds(&frames).into_iter().filter(|kind| kind.starts_with("STEP")).collect();
    assert_eq!(shown, ["STEP_STARTED", "STEP_FINISHED"]);
    assert_same("restored", &events, &round_trip(&events, "", &[]));
}

#[test]
fn changing_activity_stays_in_one_message() {
    let content = |n: i32| crate::json::Object::from_value(&json!({"n": n})).unwrap();
    let snapshot = |n| Body::ActivitySnapshot {
        message: "a".into(),
        kind: "plan".into(),
        content: content(n),
        replace: None,
    };
    let patch = crate::patch::Patch(vec![crate::patch::PatchOp::replace("/n", json!(2).into())]);
    let change = Body::ActivityDelta { message: "a".into(), kind: "plan".into(), patch };
    let mut inside = text("m", &["x"]);
    inside.insert(2, snapshot(1));
    inside.extend([change.clone(), snapshot(3)]);
    for bodies in [vec![snapshot(1), change.clone(), snapshot(3)], inside] {
        let frames = written(&run(bodies), "", &[]);
        let shown: Vec<_> = frames.iter().filter(|frame| frame["blockId"] == "a").collect();
        assert_eq!(shown.len(), 3);
        assert!(shown.iter().all(|frame| frame["messageId"] == shown[0]["messageId"]), "{shown:?}");
    }
}

#[test]
fn text_for_developers_is_not_streamed() {
    let mut events = run(text("m", &["shown"]));
    let hidden = [
        Body::TextStart { message: "d".into(), role: Some(crate::event::Role::Developer), name: None },
        Body::TextDelta { message: "d".into(), delta: "secret".into() },
        Body::TextEnd { message: "d".into() },
    ];
    events.splice(2..2, hidden.map(Event::new));
    if let Body::RunStarted(started) = &mut events[0].body {
        let mut input = crate::event::RunInput::new("t", "r");
        let body = crate::event::MessageBody::Developer { content: "secret too".into() };
        input.messages.push(crate::event::Message::new("i", body));
        started.input = Some(Box::new(input));
    }
    for profile in PROFILES {
        for order in ["order=interleaved", "order=serial"] {
            let frames = written(&events, profile, &[order]);
            let all = json!(frames).to_string();
            assert!(all.contains("shown") && !all.contains("secret"), "{all}");
            assert!(
                json!(written(&events, profile, &["include_developer=yes", order]))
                    .to_string()
                    .contains("secret too")
            );
        }
    }
}

fn call(id: &str, name: &str, pieces: &[&str]) -> Vec<Body> {
    let call = crate::event::ToolCallId::from(id);
    let mut bodies = vec![Body::ToolStart { call: call.clone(), name: name.into(), parent: None }];
    bodies.extend(pieces.iter().map(|piece| Body::ToolArgs { call: call.clone(), delta: (*piece).into() }));
    bodies.push(Body::ToolEnd { call });
    bodies
}

#[test]
fn arguments_can_be_written_whole() {
    let events = run(call("c", "f", &[r#"{"a":"}"#, r#"{","id":1}"#]));
    let streamed = written(&events, "", &[]);
    assert_eq!(streamed.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").count(), 2);
    let whole = written(&events, "", &["tool_args=whole"]);
    let args: Vec<_> = whole.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").collect();
    assert_eq!(args.len(), 1);
    // Parsed like the reference client, which inserts commas.
    let delta = args[0]["delta"].as_str().unwrap().replace("}{", "},{");
    assert_eq!(value(&format!("[{delta}]")), json!([{"a": "}{", "id": 1}]));
}

#[test]
fn backend_calls_can_be_displayed() {
    let mut input = RunInput::new("t", "r");
    input.tools.push(Tool { name: "ask".into(), description: "".into(), parameters: None, metadata: None });
    let mut started = RunStarted::new("t", "r");
    started.input = Some(Box::new(input));
    let result = crate::event::ToolResult {
        message: "tm".into(),
        call: "c".into(),
        content: "7".into(),
        error: None,
        explicit_role: true,
    };
    let mut events = run(call("c", "count", &["{}"])
        .into_iter()
        .chain([Body::ToolResult(Box::new(result))])
        .chain(call("d", "ask", &["{}"])));
    events[0] = Event::new(Body::RunStarted(Box::new(started)));
    for (option, calls, shows) in [("events", 7, 0), ("show", 3, 3), ("both", 7, 3)] {
        let option = format!("tool_display={option}");
        let frames = written(&events, "", &[&option]);
        assert_eq!(
            kinds(&frames).iter().filter(|kind| kind.starts_with("TOOL_CALL")).count(),
            calls,
            "{option}"
        );
        let shown = parsed(&frames, "c:show");
        assert_eq!(shown.len(), shows, "{option}");
        if let Some(last) = shown.last() {
            assert_eq!(last["output"]["data"]["tools"][0]["progress"], "done");
        }
        assert_same(&option, &events, &round_trip(&events, "", &[&option]));
    }
    // A result before the end of the arguments closes the display only; a second result is written too.
    let [start, args, end] = [2, 3, 4].map(|at| events[at - 1].clone());
    let result = events[4].clone();
    let odd: Vec<_> = [&events[0], &start, &args, &result, &args, &end, &result, events.last().unwrap()]
        .into_iter()
        .cloned()
        .collect();
    assert_same("early result", &odd, &round_trip(&odd, "", &["tool_display=show"]));
    // If the front-end tools are unknown, no call is hidden.
    let frames = written(&run(call("d", "ask", &["{}"])), "", &["tool_display=show"]);
    assert_eq!(kinds(&frames).iter().filter(|kind| kind.starts_with("TOOL_CALL")).count(), 3);
}

#[test]
fn interrupt_is_written_as_a_front_end_call() {
    let mut interrupt = Interrupt::new("i1", "confirmation");
    interrupt.message = Some("Deploy?".into());
    interrupt.metadata =
        Json::parse(r#"{"importance":"high","payload":{"env":"production"}}"#).unwrap().into_object();
    let plain = Interrupt::new("i2", "input_required");
    let mut events = run([]);
    let mut finished = RunFinished::new("t", "r");
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![interrupt, plain] });
    events[1] = Event::new(Body::RunFinished(Box::new(finished)));
    let frames = written(&events, "", &["hitl_tool=askPerson"]);
    let call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
    assert_eq!(kinds(&frames), [&["RUN_STARTED"][..], &call, &call, &["RUN_FINISHED"]].concat());
    assert_eq!((&frames[1]["toolCallId"], &frames[1]["toolCallName"]), (&json!("i1"), &json!("askPerson")));
    let arguments = value(frames[2]["delta"].as_str().unwrap());
    assert_eq!(arguments, json!({"action": "Deploy?", "importance": "high", "env": "production"}));
    assert_eq!(value(frames[5]["delta"].as_str().unwrap()), json!({"action": "input_required"}));
    assert_eq!(frames[7]["outcome"]["interrupts"][0]["id"], "i1");
    assert_same("interrupt", &events, &round_trip(&events, "", &[]));

    let body = json!({"threadId": "t", "runId": "r2", "messages": [
        {"id": "u", "role": "user", "content": "go"},
        {"id": "a1", "role": "tool", "toolCallId": "i1", "content": "true"},
        {"id": "a2", "role": "tool", "toolCallId": "other", "content": "{}"},
    ]});
    let mut input =
        input::from_json(&body.to_string(), &"x".into(), &"y".into(), &mut Tally::default()).unwrap();
    let answers = input::take_answers(&mut input.messages, &["i1".into(), "i2".into()]);
    assert_eq!(answers.len(), 1);
    assert_eq!((&*answers[0].call, answers[0].error.as_deref()), ("i1", None));
    assert_eq!(input::parse_answer(&answers[0].content).get(), "true");
    assert_eq!(input.messages.len(), 2, "only the answer is removed from the messages");
}

#[test]
fn interrupt_of_a_call_is_not_written_as_another_call() {
    let mut events = run(call("c", "approve", &["{}"]));
    let mut finished = RunFinished::new("t", "r");
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("c", "tool_call")] });
    *events.last_mut().unwrap() = Event::new(Body::RunFinished(Box::new(finished)));
    let frames = written(&events, "", &[]);
    assert_eq!(kinds(&frames).iter().filter(|kind| **kind == "TOOL_CALL_START").count(), 1);
}

#[test]
fn developer_messages_are_left_out_of_snapshots() {
    let developer = Message::new("d", MessageBody::Developer { content: "trace".into() });
    let messages = vec![developer, Message::assistant("a", "hi")];
    let event = Event::new(Body::MessagesSnapshot { messages });
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = FORMAT.writer.unwrap()(&FORMAT.profiles[0], &setup);
    let mut out = Frames::new(Framing::Sse);
    assert!(matches!(writer.write(&event, &mut out), Fidelity::Approximated(_)));
    let shown = frames(&out.take());
    assert_eq!(shown[0]["type"], "MESSAGE_SNAPSHOT");
    assert_eq!(
        shown[0]["messages"],
        json!([{"id": "a", "role": "assistant", "content": r#"{"output":{"type":"text","content":"hi"}}"#}])
    );
    let shown = written(&[event], "text", &["include_developer=yes", "snapshot_name=MESSAGES_SNAPSHOT"]);
    assert_eq!(shown[0]["type"], "MESSAGES_SNAPSHOT");
    assert_eq!(shown[0]["messages"][0]["role"], "developer");
    assert_eq!(shown[0]["messages"][1]["content"], "hi", "profile @text has no documents");
}

#[test]
fn subagents_and_collaborations_are_written_for_the_reference_client() {
    let task = |id: &str| Json::from(json!({"id": id, "name": "n"}));
    let bodies = [
        Body::CollaborationStart { id: "x".into(), message: None, from: "A".into(), to: "B".into() },
        Body::CollaborationTask { id: "x".into(), task: task("1") },
        Body::CollaborationTask { id: "x".into(), task: task("2") },
        Body::CollaborationEnd { id: "x".into() },
        Body::CollaborationStart { id: "y".into(), message: None, from: "A".into(), to: "C".into() },
        Body::CollaborationEnd { id: "y".into() },
    ];
    let mut events = run(bodies);
    let started = crate::event::SubagentStarted {
        name: "helper".into(),
        description: Some("helps".into()),
        parent_subagent: None,
        parent_call: None,
        parent_message: None,
    };
    let body = Body::SubagentFinished { result: None, outcome: None };
    events.insert(1, Event::new(body).by(Some("s".into())));
    events.insert(1, Event::new(Body::SubagentStarted(Box::new(started))).by(Some("s".into())));
    let frames = written(&events, "", &[]);
    // The client joins the content since the start and parses it at the end, as one document.
    let mut buffer = String::new();
    let mut tasks = Vec::new();
    for frame in &frames {
        match frame["type"].as_str().unwrap() {
            "AGENT_COLLABORATIVE_MESSAGE_START" => buffer.clear(),
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => buffer.push_str(frame["delta"].as_str().unwrap()),
            "AGENT_COLLABORATIVE_MESSAGE_END" => tasks.push(value(&buffer)["task"]["id"].clone()),
            _ => {}
        }
    }
    assert_eq!(tasks, ["s", "1", "2", "y"]);
    assert_same("collaborations", &events, &round_trip(&events, "", &[]));
}
