//! Rules applied to events: a table of cases, and the limits.

use agentwire_core::{format::Reader, json::Object, order::Guard};
use agentwire_store::Owner;
use serde_json::json;

use super::{
    super::rule::{Place, RuleOptions},
    *,
};

fn context() -> RunContext {
    RunContext {
        agent: "a".into(),
        owner: Owner::new("default", "u", "a"),
        thread: "t".into(),
        run: "r".into(),
        headers: Arc::new([]),
        input: Arc::new(RunInput::new("t", "r")),
        context: None,
        tasks: tokio_util::task::TaskTracker::new(),
    }
}

fn reader() -> Box<dyn Reader> {
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    ag_ui::FORMAT.reader.expect("a reader")(&setup)
}

fn event(value: &Value) -> Event {
    let (text, mut events) = (value.to_string(), Vec::new());
    let frame = Frame { index: 0, offset: 0, event: None, id: None, data: Payload::Text(&text) };
    reader().read(&frame, &mut events).unwrap_or_else(|error| panic!("{error}: {value}"));
    events.pop().expect("one event")
}

fn value(event: &Event) -> Value {
    let logged = Encoder::new(&"t".into(), &"r".into()).encode(event).expect("a log entry");
    serde_json::from_slice(&logged).expect("JSON")
}

/// A rule as in a configuration file.
fn rule(text: &str) -> RuleOptions {
    let value: Value = serde_json::from_str(text).expect("JSON");
    let key = |name: &str| value[name].as_str().map(str::to_owned);
    let action = match key("action").as_deref() {
        Some("drop") => Action::Drop,
        Some("rename") => Action::Rename { to: key("to").expect("a name") },
        _ => Action::Redact { with: key("with").unwrap_or_else(|| "***".into()) },
    };
    let place = key("in").map(|place| match place.as_str() {
        "event" => Place::Event,
        "arguments" => Place::Arguments,
        "result" => Place::Result,
        _ => Place::State,
    });
    RuleOptions {
        action,
        event: key("event"),
        tool: key("tool"),
        name: key("name"),
        place,
        pointer: key("pointer"),
    }
}

fn rewrite(rules: &[&str]) -> Rewrite {
    let rules = rules.iter().map(|text| Rule::new(&rule(text)).unwrap_or_else(|why| panic!("{text}: {why}")));
    let mut rewrite = Rewrite::new(rules.collect(), &context());
    rewrite.begin(&mut RunInput::new("t", "r"));
    rewrite
}

fn all(rules: &[&str], events: &[Value]) -> Vec<Value> {
    let (mut rewrite, mut out) = (rewrite(rules), Vec::new());
    for it in events {
        rewrite.event(event(it), &mut out).expect("no failure");
    }
    assert_eq!(rewrite.buffered, 0, "the buffer is empty at the end");
    out.iter().map(value).collect()
}

fn call(tool: &str, id: &str, pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": tool})];
    events.extend(
        pieces.iter().map(|piece| json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": piece})),
    );
    events.push(json!({"type": "TOOL_CALL_END", "toolCallId": id}));
    events
}

fn result(id: &str, content: &str) -> Value {
    json!({"type": "TOOL_CALL_RESULT", "messageId": format!("m{id}"), "toolCallId": id, "content": content})
}

fn text(delta: &str) -> Value {
    json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta})
}

#[test]
fn rules_make_of_events_what_they_say() {
    let custom = |name: &str| json!({"type": "CUSTOM", "name": name, "value": {"a": {"b": 1}, "c": 2}});
    let raw = json!({"type": "RAW", "event": {"x": 1}});
    let pay = call("pay", "1", &[r#"{"card":"4"#, r#"2","amount":3}"#]);
    let paid = result("1", r#"{"card":"42","ok":true}"#);
    for (name, rules, events, expected) in [
        ("nothing is for it", vec![r#"{"action":"drop","event":"RAW"}"#], vec![text("x")], vec![text("x")]),
        (
            "by type",
            vec![r#"{"action":"drop","event":"RAW"}"#],
            vec![raw.clone(), text("x")],
            vec![text("x")],
        ),
        (
            "by a pattern of types",
            vec![r#"{"action":"drop","event":"TEXT_*"}"#],
            vec![text("x"), raw.clone()],
            vec![raw.clone()],
        ),
        (
            "not the frame of a run",
            vec![r#"{"action":"drop","event":"*"}"#],
            vec![json!({"type": "RUN_ERROR", "message": "m"}), raw.clone()],
            vec![json!({"type": "RUN_ERROR", "message": "m"})],
        ),
        (
            "by name",
            vec![r#"{"action":"drop","name":"debug.*"}"#],
            vec![custom("debug.x"), custom("y")],
            vec![custom("y")],
        ),
        (
            "a call and its result",
            vec![r#"{"action":"drop","tool":"p*"}"#],
            [pay.clone(), vec![paid.clone()], call("look", "2", &["{}"])].concat(),
            call("look", "2", &["{}"]),
        ),
        (
            "the result of a call",
            vec![r#"{"action":"drop","tool":"pay","event":"TOOL_CALL_RESULT"}"#],
            [pay.clone(), vec![paid.clone()]].concat(),
            pay.clone(),
        ),
        (
            "a tool's name",
            vec![r#"{"action":"rename","tool":"pay","to":"spend"}"#],
            pay.clone(),
            call("spend", "1", &[r#"{"card":"4"#, r#"2","amount":3}"#]),
        ),
        (
            "another name",
            vec![r#"{"action":"rename","name":"in*","to":"out"}"#],
            vec![custom("inner")],
            vec![custom("out")],
        ),
        (
            "a step's name, by type",
            vec![r#"{"action":"rename","event":"STEP_*","name":"*","to":"work"}"#],
            vec![
                json!({"type": "STEP_STARTED", "stepName": "s"}),
                custom("s"),
                json!({"type": "STEP_FINISHED", "stepName": "s"}),
            ],
            vec![
                json!({"type": "STEP_STARTED", "stepName": "work"}),
                custom("s"),
                json!({"type": "STEP_FINISHED", "stepName": "work"}),
            ],
        ),
        (
            "streamed arguments and the result",
            vec![r#"{"action":"redact","tool":"pay","pointer":"/card"}"#],
            [pay.clone(), vec![paid.clone()]].concat(),
            [
                call("pay", "1", &[r#"{"card":"***","amount":3}"#]),
                vec![result("1", r#"{"card":"***","ok":true}"#)],
            ]
            .concat(),
        ),
        (
            "only arguments",
            vec![r#"{"action":"redact","in":"arguments","pointer":"/card","with":"-"}"#],
            [pay.clone(), vec![paid.clone()]].concat(),
            [call("pay", "1", &[r#"{"card":"-","amount":3}"#]), vec![paid.clone()]].concat(),
        ),
        (
            "only the result",
            vec![r#"{"action":"drop","in":"result","pointer":"/card"}"#],
            [pay.clone(), vec![paid.clone()]].concat(),
            [pay.clone(), vec![result("1", r#"{"ok":true}"#)]].concat(),
        ),
        (
            "all of a call",
            vec![r#"{"action":"redact","tool":"pay"}"#],
            [pay.clone(), vec![paid.clone()]].concat(),
            [call("pay", "1", &[r#"{"card":"***","amount":"***"}"#]), vec![result("1", "***")]].concat(),
        ),
        (
            "a key of arguments",
            vec![r#"{"action":"rename","tool":"pay","pointer":"/card","to":"number"}"#],
            pay.clone(),
            call("pay", "1", &[r#"{"number":"42","amount":3}"#]),
        ),
        (
            "arguments that are no JSON",
            vec![r#"{"action":"redact","tool":"pay","pointer":"/card"}"#],
            call("pay", "1", &[r#"{"card":"42"#]),
            call("pay", "1", &[r#""***""#]),
        ),
        (
            "arguments that are empty",
            vec![r#"{"action":"redact","tool":"pay"}"#],
            call("pay", "1", &[]),
            call("pay", "1", &[]),
        ),
        (
            "arguments without members",
            vec![r#"{"action":"redact","tool":"pay"}"#],
            call("pay", "1", &["{}"]),
            call("pay", "1", &["{}"]),
        ),
        (
            "arguments that are one value",
            vec![r#"{"action":"redact","tool":"pay"}"#],
            call("pay", "1", &["4", "2"]),
            call("pay", "1", &[r#""***""#]),
        ),
        (
            "a result that is no JSON",
            vec![r#"{"action":"redact","tool":"pay","pointer":"/card"}"#],
            [pay.clone(), vec![result("1", "done")]].concat(),
            [call("pay", "1", &[r#"{"card":"***","amount":3}"#]), vec![result("1", "done")]].concat(),
        ),
        (
            "inside an event",
            vec![r#"{"action":"redact","event":"CUSTOM","pointer":"/value/a/b"}"#],
            vec![custom("n")],
            vec![json!({"type": "CUSTOM", "name": "n", "value": {"a": {"b": "***"}, "c": 2}})],
        ),
        (
            "a member of an event",
            vec![r#"{"action":"drop","name":"n","pointer":"/value/a"}"#],
            vec![custom("n"), custom("m")],
            vec![json!({"type": "CUSTOM", "name": "n", "value": {"c": 2}}), custom("m")],
        ),
        (
            "text",
            vec![r#"{"action":"redact","event":"TEXT_MESSAGE_CONTENT","pointer":"/delta"}"#],
            vec![text("secret")],
            vec![text("***")],
        ),
        (
            "an event without a required member is left out",
            vec![r#"{"action":"drop","event":"CUSTOM","pointer":"/name"}"#],
            vec![custom("n")],
            vec![],
        ),
        (
            "by the agent's own names",
            vec![
                r#"{"action":"rename","name":"inner","to":"outer"}"#,
                r#"{"action":"redact","name":"inner","pointer":"/value/c"}"#,
                r#"{"action":"drop","name":"outer"}"#,
            ],
            vec![custom("inner")],
            vec![json!({"type": "CUSTOM", "name": "outer", "value": {"a": {"b": 1}, "c": "***"}})],
        ),
        (
            "one after the other",
            vec![
                r#"{"action":"redact","tool":"pay","pointer":"/card"}"#,
                r#"{"action":"rename","tool":"pay","to":"spend"}"#,
            ],
            pay.clone(),
            call("spend", "1", &[r#"{"card":"***","amount":3}"#]),
        ),
    ] {
        assert_eq!(all(&rules, &events), expected, "{name}");
    }
}

#[test]
fn content_that_cannot_be_parsed_is_redacted_completely() {
    let deep = format!("{}{{\"card\":42}}{}", "{\"a\":".repeat(200), "}".repeat(200));
    for content in [r#"{"card":42"#, &deep] {
        let pay = call("pay", "1", &[content]);
        let rewritten = all(
            &[r#"{"action":"redact","tool":"pay","pointer":"/card"}"#],
            &[pay, vec![result("1", content)]].concat(),
        );
        let text = Value::from(rewritten).to_string();
        assert!(!text.contains("42"), "{text}");
        assert_eq!(text.matches("***").count(), 2, "{text}");
    }
}

#[test]
fn arguments_are_redacted_at_any_chunk_boundary() {
    let whole = r#"{"a":{"card":"42\"é"},"b":[1,2]}"#;
    for cut in (1..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
        let events = call("pay", "1", &[&whole[..cut], &whole[cut..]]);
        let shown = all(&[r#"{"action":"redact","tool":"pay","pointer":"/a/card"}"#], &events);
        assert_eq!(shown, call("pay", "1", &[r#"{"a":{"card":"***"},"b":[1,2]}"#]), "cut at {cut}");
    }
}

#[test]
fn concurrent_calls_are_kept_separate() {
    let rules = [r#"{"action":"redact","tool":"pay","pointer":"/card"}"#];
    let args = |id: &str, delta: &str| json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": delta});
    let start =
        |id: &str, tool: &str| json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": tool});
    let end = |id: &str| json!({"type": "TOOL_CALL_END", "toolCallId": id});
    let events = [
        start("1", "pay"),
        start("2", "look"),
        start("3", "pay"),
        args("1", "{\"card\""),
        args("2", "{\"card\":1}"),
        args("3", "{\"card\":3}"),
        args("1", ":1}"),
        end("2"),
        end("3"),
        end("1"),
    ];
    let expected = [
        start("1", "pay"),
        start("2", "look"),
        start("3", "pay"),
        args("2", "{\"card\":1}"),
        end("2"),
        args("3", r#"{"card":"***"}"#),
        end("3"),
        args("1", r#"{"card":"***"}"#),
        end("1"),
    ];
    assert_eq!(all(&rules, &events), expected);
}

#[test]
fn arguments_above_the_buffer_limit_end_the_run() {
    let mut rewrite = rewrite(&[r#"{"action":"redact","tool":"pay","pointer":"/card"}"#]);
    let mut out = Vec::new();
    rewrite.event(event(&call("pay", "1", &[])[0]), &mut out).expect("a start");
    let piece = Event::new(Body::ToolArgs { call: "1".into(), delta: "x".repeat(1 << 20).into() });
    let error = (0..9).find_map(|_| rewrite.event(piece.clone(), &mut out).err()).expect("a bound");
    assert_eq!(error.code(), crate::codes::LIMIT_EXCEEDED);
    assert_eq!(out.len(), 1, "no arguments were emitted");
}

#[test]
fn a_snapshot_of_messages_follows_the_same_rules() {
    let snapshot = |calls: Value, tools: Vec<Value>| {
        let mut messages = vec![json!({"id": "a", "role": "assistant", "content": "x", "toolCalls": calls})];
        messages.extend(tools);
        json!({"type": "MESSAGES_SNAPSHOT", "messages": messages})
    };
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let result = |id: &str, content: &str| json!({"id": format!("t{id}"), "role": "tool", "toolCallId": id, "content": content});
    let shown = all(
        &[
            r#"{"action":"redact","tool":"pay","pointer":"/card"}"#,
            r#"{"action":"drop","tool":"debug"}"#,
            r#"{"action":"rename","tool":"pay","to":"spend"}"#,
        ],
        &[snapshot(
            json!([
                call("1", "pay", r#"{"card":1}"#),
                call("2", "debug", "{}"),
                call("3", "look", r#"{"card":1}"#)
            ]),
            vec![result("1", r#"{"card":2}"#), result("2", "x"), result("3", r#"{"card":2}"#)],
        )],
    );
    let expected = snapshot(
        json!([call("1", "spend", r#"{"card":"***"}"#), call("3", "look", r#"{"card":1}"#)]),
        vec![result("1", r#"{"card":"***"}"#), result("3", r#"{"card":2}"#)],
    );
    assert_eq!(shown, [expected]);
}

#[test]
fn a_result_of_an_earlier_runs_call_follows_the_rules() {
    let mut rewrite = rewrite(&[
        r#"{"action":"redact","tool":"pay","pointer":"/card"}"#,
        r#"{"action":"rename","tool":"pay","to":"spend"}"#,
    ]);
    let mut input = RunInput::new("t", "r");
    let messages = r#"[{"id":"a","role":"assistant","toolCalls":[{"id":"1","type":"function","function":{"name":"spend","arguments":"{}"}}]}]"#;
    input.messages =
        ag_ui::messages_from_json(messages, &mut agentwire_core::Tally::default()).expect("messages");
    rewrite.begin(&mut input);
    let MessageBody::Assistant { tool_calls: Some(calls), .. } = &input.messages[0].body else {
        panic!("a call")
    };
    assert_eq!(&*calls[0].name, "pay", "the agent knows it by its own name");
    let mut out = Vec::new();
    rewrite.event(event(&result("1", r#"{"card":1}"#)), &mut out).expect("no failure");
    assert_eq!(value(&out[0]), result("1", r#"{"card":"***"}"#));
}

#[test]
fn the_state_is_redacted_after_any_patch() {
    let rules = [
        r#"{"action":"redact","in":"state","pointer":"/user/ssn"}"#,
        r#"{"action":"drop","in":"state","pointer":"/keys/*/secret"}"#,
    ];
    let patches = [
        json!([{"op": "replace", "path": "/user/ssn", "value": "123"}]),
        json!([{"op": "add", "path": "/user", "value": {"name": "b", "ssn": "456"}}]),
        json!([{"op": "add", "path": "/copy", "value": 1}, {"op": "test", "path": "/user/ssn", "value": "456"}]),
        json!([{"op": "add", "path": "/tmp", "value": "789"}, {"op": "move", "from": "/tmp", "path": "/user/ssn"}]),
        json!([{"op": "add", "path": "/keys/-", "value": {"id": 2, "secret": "s2"}}]),
        json!([{"op": "replace", "path": "/keys/0/secret", "value": "s3"}]),
        json!([{"op": "replace", "path": "", "value": {"user": {"ssn": {"deep": "x"}}}}]),
        json!([{"op": "replace", "path": "/user/ssn/deep", "value": "y"}]),
        json!([{"op": "remove", "path": "/nothing"}]),
    ];
    let mut rewrite = rewrite(&rules);
    let first = json!({"user": {"name": "a", "ssn": "000"}, "keys": [{"id": 1, "secret": "s1"}]});
    let mut shown = json!({});
    let (mut truth, mut out) = (first.clone(), Vec::new());
    rewrite
        .event(event(&json!({"type": "STATE_SNAPSHOT", "snapshot": first})), &mut out)
        .expect("no failure");
    for change in &patches {
        let parsed = event(&json!({"type": "STATE_DELTA", "delta": change}));
        if let Body::StateDelta { patch } = &parsed.body {
            let _ = patch::apply(&mut truth, patch, &patch::Limits::default());
        }
        rewrite.event(parsed, &mut out).expect("no failure");
    }
    for shown_event in &out {
        let text = value(shown_event).to_string();
        for secret in ["000", "123", "456", "s1", "s2", "s3", "\"x\"", "\"y\""] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        match &shown_event.body {
            Body::StateSnapshot { snapshot } => shown = snapshot.to_value(),
            Body::StateDelta { patch } => {
                patch::apply(&mut shown, patch, &patch::Limits::default()).expect("an applicable patch")
            }
            other => panic!("{other:?}"),
        }
    }
    truth["user"]["ssn"] = json!("***");
    assert_eq!(shown, truth);
}

#[test]
fn native_events_are_removed_when_rules_redact() {
    let mut rewrite = rewrite(&[r#"{"action":"redact","tool":"pay","pointer":"/card"}"#]);
    let mut with_raw = event(&text("x"));
    with_raw.extra.get_or_insert_default().raw = Some(json!({"card": 1}).into());
    with_raw.extra.get_or_insert_default().metadata = Object::from_value(&json!({"k": 1}));
    let mut out = Vec::new();
    rewrite.event(with_raw, &mut out).expect("no failure");
    assert!(out[0].raw().is_none() && out[0].metadata().is_some());
}

#[test]
fn the_guard_repairs_the_stream_after_rules() {
    let rules = [r#"{"action":"drop","event":"TEXT_MESSAGE_START"}"#];
    let mut guard = Guard::new("t", "r");
    let mut valid = Vec::new();
    for it in all(&rules, &[json!({"type": "TEXT_MESSAGE_START", "messageId": "m"}), text("x")]) {
        guard.push(event(&it), &mut valid);
    }
    let kinds: Vec<_> = valid.iter().map(Event::kind).collect();
    assert_eq!(kinds, ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]);
}

#[test]
fn rules_without_effect_are_rejected() {
    for (text, why) in [
        (r#"{"action":"drop"}"#, "does not say what to leave out"),
        (r#"{"action":"drop","event":"RUN_FINISHED"}"#, "cannot be dropped"),
        (r#"{"action":"drop","event":"RUN_*"}"#, "cannot be dropped"),
        (r#"{"action":"drop","event":"TEXT"}"#, "no type of event is called `TEXT`"),
        (r#"{"action":"drop","event":"TEXT_*","tool":"x"}"#, "have no tool"),
        (r#"{"action":"drop","event":"RAW","name":"x"}"#, "have no name"),
        (r#"{"action":"drop","tool":"x","name":"y"}"#, "exclude each other"),
        (r#"{"action":"drop","in":"arguments","tool":"x"}"#, "needs a `pointer`"),
        (r#"{"action":"drop","in":"state"}"#, "needs a `pointer`"),
        (r#"{"action":"redact","in":"state","tool":"x","pointer":"/a"}"#, "one for all"),
        (r#"{"action":"redact","in":"arguments","event":"RAW","pointer":"/a"}"#, "not by `event`"),
        (r#"{"action":"redact","event":"RAW"}"#, "does not say what to hide"),
        (r#"{"action":"redact","pointer":"a"}"#, "no JSON pointer"),
        (r#"{"action":"redact","pointer":"/type"}"#, "`type`"),
        (r#"{"action":"rename","event":"RAW","to":"x"}"#, "types of events are the protocol's"),
        (r#"{"action":"rename","event":"TOOL_CALL_START","tool":"x","to":"y"}"#, "leave `event` out"),
    ] {
        let problem = Rule::new(&rule(text)).map(|_| ()).expect_err(text);
        assert!(problem.to_string().contains(why), "{text}: {problem}");
    }
}
