use super::*;
use crate::format::adk::input;

fn add(id: &str, a: u32, b: u32) -> Value {
    json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": "add", "args": {"a": a, "b": b}}}]})
}

fn sum(sum: u32) -> Value {
    response("c1", "add", json!({"result": sum}))
}

/// Three calls of `add`, all with the id `c1`.
fn thrice() -> Vec<Value> {
    let call = |id: &str, content| event(json!({"id": id, "modelVersion": "m", "content": content}));
    vec![
        call("e1", add("c1", 1, 2)),
        event(json!({"id": "e2", "content": sum(3)})),
        call("e3", add("c1", 5, 5)),
        event(json!({"id": "e4", "content": sum(10)})),
        call("e5", add("c1", 1, 2)),
        event(json!({"id": "e6", "content": sum(3)})),
        event(json!({"id": "e7", "modelVersion": "m", "content": text("done")})),
    ]
}

/// The calls with their arguments and results, as a client holds them at the end.
fn calls(messages: &[Message]) -> Vec<(String, String, String)> {
    let result = |id: &str| {
        let mut results = messages.iter().filter_map(|message| match &message.body {
            MessageBody::Tool { call, content, .. } if &**call == id => Some(content.text()),
            _ => None,
        });
        let result = results.next().unwrap_or_default();
        assert_eq!(results.next(), None, "one result for each call");
        result
    };
    let calls = messages.iter().flat_map(Message::tool_calls);
    calls.map(|call| (call.id.to_string(), call.arguments.to_string(), result(&call.id))).collect()
}

fn shown(events: &[Value]) -> Vec<(String, String, String)> {
    folded(&read_for(events, RunInput::new("t", "r")))
}

fn folded(events: &[Event]) -> Vec<(String, String, String)> {
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    calls(fold.messages())
}

fn triple(id: &str, arguments: &str, result: &str) -> (String, String, String) {
    (id.into(), arguments.into(), result.into())
}

fn three() -> Vec<(String, String, String)> {
    vec![
        triple("c1", r#"{"a":1,"b":2}"#, r#"{"result":3}"#),
        triple("c1#2", r#"{"a":5,"b":5}"#, r#"{"result":10}"#),
        triple("c1#3", r#"{"a":1,"b":2}"#, r#"{"result":3}"#),
    ]
}

#[test]
fn reused_id_after_a_result_is_a_new_call() {
    assert_eq!(shown(&thrice()), three());
    let events = read(&thrice());
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty(), "no correction");
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
    let mut nameless = thrice();
    nameless.iter_mut().for_each(|event| event["id"] = Value::Null);
    assert_eq!(shown(&nameless), three());
}

/// Each call is streamed before its closing event, with the event ids of 1.x and of 2.x.
#[test]
fn streamed_calls_with_a_reused_id_are_separate() {
    for generation in [1, 2] {
        let mut events = Vec::new();
        for whole in thrice() {
            let call = &whole["content"]["parts"][0]["functionCall"];
            let pieces = match call["id"].as_str() {
                Some(id) => vec![
                    json!({"id": id, "name": "add", "willContinue": true}),
                    json!({"id": id, "partialArgs": [{"jsonPath": "$.a", "numberValue": call["args"]["a"]}], "willContinue": true}),
                ],
                None => vec![],
            };
            for (number, piece) in pieces.into_iter().enumerate() {
                let mut partial = whole.clone();
                partial["partial"] = true.into();
                partial["content"] = json!({"parts": [{"functionCall": piece}]});
                if generation == 1 {
                    partial["id"] = format!("{}-{number}", whole["id"].as_str().unwrap()).into();
                }
                events.push(partial);
            }
            events.push(whole);
        }
        assert_eq!(shown(&events), three());
        assert!(of_type(&read(&events), "MESSAGES_SNAPSHOT").is_empty());
        // A closing event with other arguments corrects its own call.
        for event in &mut events[4..] {
            if event["partial"].is_null() && event["id"] == "e3" {
                event["content"] = add("c1", 6, 4);
            }
        }
        let corrected = shown(&events);
        assert_eq!(corrected[1], triple("c1#2", r#"{"a":6,"b":4}"#, r#"{"result":10}"#));
        assert_eq!((&corrected[0], &corrected[2]), (&three()[0], &three()[2]));
        // A repeated closing event is no new call.
        let closing = events.iter().position(|event| event["id"] == "e5" && event["partial"].is_null());
        events.push(events[closing.unwrap()].clone());
        assert_eq!(shown(&events), corrected);
    }
}

#[test]
fn repeated_event_is_no_new_call() {
    let mut events = thrice()[..2].to_vec();
    events.push(events[0].clone());
    events.push(events[1].clone());
    assert_eq!(shown(&events), three()[..1]);
}

#[test]
fn reannounced_call_without_a_result_is_the_same_call() {
    let mut events = thrice();
    events.remove(1);
    events.truncate(3);
    assert_eq!(shown(&events), [triple("c1", r#"{"a":1,"b":2}"#, r#"{"result":10}"#)]);
    let waiting = [
        event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
        event(json!({"id": "e2", "content": response("c1", "ask", json!({"status": "pending"}))})),
        event(json!({"id": "e3", "content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
    ];
    assert_eq!(shown(&waiting), [triple("c1", "{}", "")], "a provisional result is no result");
}

#[test]
fn stored_session_separates_calls_with_a_reused_id() {
    let session = json!({"id": "s", "appName": "a", "userId": "u", "state": {}, "events": thrice()});
    assert_eq!(shown(std::slice::from_ref(&session)), three());
    let stored = input::read_session(&session.to_string(), &mut Tally::default()).unwrap();
    assert_eq!(calls(&stored.messages), three());
}

#[test]
fn calls_of_earlier_runs_count_as_used() {
    let mut input = RunInput::new("t", "r");
    let mut fold = Fold::new();
    for run in thrice().chunks(2) {
        let events = read_for(run, input.clone());
        events.iter().for_each(|event| fold.apply(event));
        input.messages = fold.messages().to_vec();
    }
    assert_eq!(calls(fold.messages()), three());
}

/// A recording that is replayed in every run of a thread.
#[test]
fn the_same_events_in_a_later_run_are_other_calls() {
    let (mut input, mut fold) = (RunInput::new("t", "r"), Fold::new());
    for _ in 0..3 {
        let events = read_for(&thrice()[..2], input.clone());
        events.iter().for_each(|event| fold.apply(event));
        input.messages = fold.messages().to_vec();
    }
    let ids: Vec<_> = calls(fold.messages()).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["c1", "c1#2", "c1#3"]);
}

#[test]
fn answer_uses_the_id_from_the_model() {
    let mut events = thrice()[..3].to_vec();
    events[2]["longRunningToolIds"] = json!(["c1"]);
    let session = json!({"id": "s", "events": events});
    let stored = input::read_session(&session.to_string(), &mut Tally::default()).unwrap();
    assert_eq!(stored.interrupts[0].tool_call.as_deref(), Some("c1#2"));
    let waiting = [input::PendingCall::of_interrupt(&stored.interrupts[0]).unwrap()];
    let mut input = RunInput::new("s", "r");
    input.messages = stored.messages;
    let body = MessageBody::Tool { call: "c1#2".into(), content: "10".into(), error: None };
    input.messages.push(Message::new("answer", body));
    let known = input::KnownSession { state: None, pending: &waiting, messages: &[] };
    let request = input::AdkApi::new("a", "u").run(&input, known).unwrap().body.unwrap().to_value();
    assert_eq!(
        request["newMessage"]["parts"],
        json!([{"functionResponse": {"id": "c1", "name": "add", "response": {"result": 10}}}])
    );
}

#[test]
fn confirmation_refers_to_the_emitted_id() {
    let mut events = thrice()[..3].to_vec();
    events.push(event(json!({"id": "e4", "content": response("c1", "add", json!({"error": "confirm"})),
        "actions": {"requestedToolConfirmations": {"c1": {"hint": "Sure?"}}}})));
    events.push(event(
        json!({"id": "e5", "longRunningToolIds": ["q1"], "content": {"parts": [{"functionCall": {
        "id": "q1", "name": "adk_request_confirmation", "args": {
            "originalFunctionCall": {"id": "c1", "name": "add", "args": {"a": 5, "b": 5}},
            "toolConfirmation": {"hint": "Sure?", "confirmed": false}}}}]}}),
    ));
    let asked = read_for(&events, RunInput::new("t", "r"));
    let interrupt = last(&values(&asked))["outcome"]["interrupts"][0].clone();
    assert_eq!((&interrupt["id"], &interrupt["toolCallId"]), (&json!("q1"), &json!("c1#2")));
    // The continued run contains only the result.
    let mut fold = Fold::new();
    asked.iter().for_each(|event| fold.apply(event));
    let mut input = RunInput::new("t", "r2");
    input.messages = fold.messages().to_vec();
    let rest = read_for(&[event(json!({"id": "e6", "content": sum(10)}))], input);
    rest.iter().for_each(|event| fold.apply(event));
    assert_eq!(calls(fold.messages())[..2], three()[..2]);
}
