use serde_json::{Value, json};

use crate::{
    event::{
        Content, ContentPart, Context, MediaKind, Message, MessageBody, PartSource, ResumeEntry,
        ResumeStatus, RunInput, ThreadId, Tool, ToolCall,
    },
    format::adk::input::{AdkApi, KnownSession, PendingCall, read_session, read_session_list},
    json::{Json, Object},
    tally::Tally,
};

fn api() -> AdkApi {
    AdkApi::new("demo", "u1")
}

fn waiting(id: &str, name: &str, arguments: Value) -> PendingCall {
    PendingCall { id: id.into(), native_id: None, name: name.into(), arguments: arguments.into() }
}

fn body(input: &RunInput, known: KnownSession<'_>) -> Value {
    let request = api().run(input, known).unwrap();
    assert_eq!((request.method, &*request.path), ("POST", "/run_sse"));
    request.body.unwrap().to_value()
}

fn asked(content: impl Into<Content>) -> RunInput {
    let mut input = RunInput::new("s1", "r1");
    input.messages.push(Message::user("u1", content));
    input
}

fn called(id: &str, name: &str) -> Message {
    let body =
        MessageBody::Assistant { content: None, tool_calls: Some(vec![ToolCall::new(id, name, "{}")]) };
    Message::new("a1", body)
}

fn answered(id: &str, content: &str, error: Option<&str>) -> Message {
    let body = MessageBody::Tool { call: id.into(), content: content.into(), error: error.map(Into::into) };
    Message::new(format!("t-{id}"), body)
}

fn resumed(id: &str, status: ResumeStatus, payload: Option<Value>) -> RunInput {
    let mut input = RunInput::new("s1", "r1");
    let payload = payload.map(Json::from);
    input.resume = Some(vec![ResumeEntry { interrupt: id.into(), status, payload, metadata: None }]);
    input
}

fn response(input: &RunInput, waiting: PendingCall) -> Value {
    let known = KnownSession { pending: &[waiting], ..KnownSession::default() };
    body(input, known)["newMessage"]["parts"][0]["functionResponse"]["response"].clone()
}

#[test]
fn run_request_contains_only_new_messages() {
    let mut input = asked("first");
    input.messages.push(Message::assistant("a1", "Yes?"));
    input.messages.push(Message::user("u2", "second"));
    input.messages.push(Message::user("u3", "and third"));
    assert_eq!(
        body(&input, KnownSession::default()),
        json!({"appName": "demo", "userId": "u1", "sessionId": "s1", "streaming": true,
            "newMessage": {"role": "user", "parts": [{"text": "second"}, {"text": "and third"}]}})
    );
    input.messages.truncate(2);
    assert_eq!(body(&input, KnownSession::default()).get("newMessage"), None, "no new messages");
}

#[test]
fn media_are_sent_with_the_message() {
    let data = |value: &str| PartSource::Data { value: value.into(), mime_type: "image/png".into() };
    let url =
        |value: &str| PartSource::Url { value: value.into(), mime_type: Some("application/pdf".into()) };
    let input = asked(Content::Parts(vec![
        ContentPart::text("look"),
        ContentPart::media(MediaKind::Image, data("+/8=")),
        ContentPart::media(MediaKind::Document, url("gs://b/x.pdf")),
        ContentPart::media(MediaKind::Image, url("data:image/gif;base64,R0lG")),
        ContentPart::media(MediaKind::Image, data("+/\r\n8=")),
        ContentPart::media(MediaKind::Document, url("DATA:text/plain;charset=utf-8;Base64,aGk%3D")),
        ContentPart::media(MediaKind::Document, url("data:text/csv,a%2Cb")),
        ContentPart::media(MediaKind::Document, url("data:;base64,aGk=")),
    ]));
    assert_eq!(
        body(&input, KnownSession::default())["newMessage"]["parts"],
        json!([
            {"text": "look"},
            {"inlineData": {"mimeType": "image/png", "data": "-_8="}},
            {"fileData": {"fileUri": "gs://b/x.pdf", "mimeType": "application/pdf"}},
            {"inlineData": {"mimeType": "image/gif", "data": "R0lG"}},
            {"inlineData": {"mimeType": "image/png", "data": "-_8="}},
            {"inlineData": {"mimeType": "text/plain;charset=utf-8", "data": "aGk="}},
            {"inlineData": {"mimeType": "text/csv", "data": "YSxi"}},
            {"inlineData": {"mimeType": "application/pdf", "data": "aGk="}},
        ])
    );
}

#[test]
fn only_changed_keys_of_the_state_are_sent() {
    let mut input = asked("hi");
    input.state =
        Json::parse(r#"{"same":1,"new":[],"other":2,"user:x":1,"app:y":1,"agentwire:tools":["mine"]}"#).ok();
    let state = Json::parse(r#"{"same":1,"other":1,"gone":1}"#).unwrap().into_object().unwrap();
    let known = KnownSession { state: Some(&state), pending: &[], messages: &[] };
    assert_eq!(body(&input, known)["stateDelta"], json!({"new": [], "other": 2}));
    let mut trusting = api();
    trusting.allow_shared_state = true;
    let delta = trusting.run(&input, known).unwrap().body.unwrap().to_value()["stateDelta"].clone();
    assert_eq!(delta, json!({"new": [], "other": 2, "user:x": 1, "app:y": 1}));
    assert_eq!(
        body(&input, KnownSession::default()).get("stateDelta"),
        None,
        "the new session has it already"
    );
}

#[test]
fn frontend_tools_are_set_in_the_state_and_cleared_later() {
    let mut input = asked("hi");
    let parameters = Json::parse(r#"{"type":"object"}"#).ok();
    input.tools.push(Tool { name: "pick".into(), description: "Picks.".into(), parameters, metadata: None });
    input.context.push(Context { description: "page".into(), value: "/cart".into() });
    let empty = Object::empty();
    let delta =
        body(&input, KnownSession { state: Some(&empty), pending: &[], messages: &[] })["stateDelta"].clone();
    assert_eq!(
        delta,
        json!({
            "agentwire:tools": [{"name": "pick", "description": "Picks.", "parameters": {"type": "object"}}],
            "agentwire:context": [{"description": "page", "value": "/cart"}],
        })
    );
    let held = Object::from_value(&delta).unwrap();
    assert_eq!(
        body(&input, KnownSession { state: Some(&held), pending: &[], messages: &[] }).get("stateDelta"),
        None
    );
    assert_eq!(
        body(&asked("hi"), KnownSession { state: Some(&held), pending: &[], messages: &[] })["stateDelta"],
        json!({"agentwire:tools": [], "agentwire:context": []})
    );
    assert_eq!(api().create_session(&input).body.unwrap().to_value()["state"], delta);
}

#[test]
fn tool_results_are_wrapped_in_objects() {
    for (content, wanted) in [
        (r#"{"ok":true}"#, json!({"ok": true})),
        ("[1,2]", json!({"result": [1, 2]})),
        ("42", json!({"result": 42})),
        ("plain text", json!({"result": "plain text"})),
        ("", json!({"success": true, "result": null})),
        ("  ", json!({"success": true, "result": null})),
    ] {
        let mut input = asked("go");
        input.messages.push(called("c1", "pick"));
        input.messages.push(answered("c1", content, None));
        assert_eq!(response(&input, waiting("c1", "pick", json!({}))), wanted, "{content:?}");
    }
    let mut input = RunInput::new("s1", "r1");
    input.messages.push(answered("c1", "ignored", Some("declined")));
    assert_eq!(response(&input, waiting("c1", "pick", json!({}))), json!({"error": "declined"}));
}

#[test]
fn several_tool_results_are_one_message() {
    let mut input = asked("go");
    input.messages.push(called("c1", "pick"));
    input.messages.push(answered("c1", "1", None));
    input.messages.push(answered("c2", "2", None));
    input.messages.push(Message::user("u2", "there"));
    let all = [waiting("c1", "pick", json!({})), waiting("c2", "ask", json!({}))];
    let known = KnownSession { state: None, pending: &all, messages: &[] };
    assert_eq!(
        body(&input, known)["newMessage"]["parts"],
        json!([
            {"functionResponse": {"id": "c1", "name": "pick", "response": {"result": 1}}},
            {"functionResponse": {"id": "c2", "name": "ask", "response": {"result": 2}}},
        ])
    );
    // ADK rejects answers and text in one message.
    let then = api().run_then(&input, known).expect("the input has text").body.unwrap().to_value();
    assert_eq!(then["newMessage"]["parts"], json!([{"text": "there"}]));
    assert_eq!(then["sessionId"], "s1");
    assert_eq!(api().run_then(&input, KnownSession::default()), None, "no answers");
    input.messages.pop();
    assert_eq!(api().run_then(&input, known), None, "no text");
}

#[test]
fn answers_without_a_pending_call_are_rejected() {
    let mut input = asked("go");
    input.messages.push(called("c1", "pick"));
    input.messages.push(answered("c1", "1", None));
    let error = api().run(&input, KnownSession::default()).unwrap_err();
    assert_eq!((error.code(), &*error.to_string()), ("UNKNOWN_TOOL_CALL", "no call `c1` waits for a result"));
    // With a known answer or text beside it, the message is the result of a tool that ADK executed.
    input.messages.push(Message::user("u2", "next"));
    assert_eq!(body(&input, KnownSession::default())["newMessage"]["parts"], json!([{"text": "next"}]));
    let error = api().run(&resumed("x", ResumeStatus::Resolved, None), KnownSession::default()).unwrap_err();
    assert_eq!((error.code(), &*error.to_string()), ("UNKNOWN_INTERRUPT", "nothing waits under `x`"));
}

#[test]
fn confirmation_accepts_yes_or_no() {
    let wait = || waiting("q1", "adk_request_confirmation", json!({}));
    for (payload, wanted) in [
        (json!(true), json!({"confirmed": true})),
        (json!("false"), json!({"confirmed": false})),
        (json!({"confirmed": true}), json!({"confirmed": true})),
        (json!({"approved": false, "reason": "no"}), json!({"confirmed": false})),
        (json!({"approved": true, "editedArgs": {"n": 1}}), json!({"confirmed": true, "payload": {"n": 1}})),
        (json!({"confirmed": true, "payload": {"n": 2}}), json!({"confirmed": true, "payload": {"n": 2}})),
        (json!({"response": r#"{"confirmed": true}"#}), json!({"confirmed": true})),
        (json!(r#"{"confirmed": false}"#), json!({"confirmed": false})),
    ] {
        assert_eq!(response(&resumed("q1", ResumeStatus::Resolved, Some(payload)), wait()), wanted);
    }
    assert_eq!(response(&resumed("q1", ResumeStatus::Cancelled, None), wait()), json!({"confirmed": false}));
    let mut message = RunInput::new("s1", "r1");
    message.messages.push(answered("q1", "true", None));
    assert_eq!(response(&message, wait()), json!({"confirmed": true}));
    for payload in [None, Some(json!({"reason": "well"})), Some(json!(7)), Some(json!("maybe"))] {
        let input = resumed("q1", ResumeStatus::Resolved, payload);
        let all = [wait()];
        let error =
            api().run(&input, KnownSession { state: None, pending: &all, messages: &[] }).unwrap_err();
        assert_eq!(error.code(), "BAD_ANSWER");
    }
}

#[test]
fn answers_are_wrapped_by_kind_of_call() {
    let input = |payload| resumed("q1", ResumeStatus::Resolved, payload);
    assert_eq!(
        response(&input(Some(json!("blue"))), waiting("q1", "adk_request_input", json!({}))),
        json!({"result": "blue"})
    );
    assert_eq!(response(&input(Some(json!({"a": 1}))), waiting("q1", "ask", json!({}))), json!({"a": 1}));
    let cancelled = resumed("q1", ResumeStatus::Cancelled, None);
    assert_eq!(response(&cancelled, waiting("q1", "ask", json!({}))), json!({"status": "cancelled"}));
    let asked = json!({"functionCallId": "c1", "authConfig": {
        "authScheme": {"type": "oauth2"},
        "exchangedAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "i", "state": "s"}}}});
    let wait = || waiting("q1", "adk_request_credential", asked.clone());
    let wanted = json!({"authScheme": {"type": "oauth2"}, "exchangedAuthCredential": {"authType": "oauth2",
        "oauth2": {"clientId": "i", "state": "s", "authResponseUri": "https://x/cb?code=1"}}});
    assert_eq!(response(&input(Some(json!("https://x/cb?code=1"))), wait()), wanted);
    assert_eq!(response(&input(Some(json!({"authResponseUri": "https://x/cb?code=1"}))), wait()), wanted);
    assert_eq!(response(&input(Some(wanted.clone())), wait()), wanted);
    assert_eq!(
        response(&input(None), waiting("q1", "adk_request_input", json!({}))),
        json!({"result": null}),
        "a workflow takes the value out of its wrapping only if that holds nothing else"
    );
}

#[test]
fn credential_is_placed_in_the_auth_config() {
    let asked = |scheme: Value| {
        waiting(
            "q1",
            "adk_request_credential",
            json!({"functionCallId": "c1", "authConfig": {"authScheme": scheme}}),
        )
    };
    let key = || asked(json!({"type": "apiKey", "in": "header", "name": "k"}));
    let exchanged = |waiting: PendingCall, payload: Value| {
        let config = response(&resumed("q1", ResumeStatus::Resolved, Some(payload)), waiting);
        assert!(config["authScheme"].is_object(), "{config}");
        config["exchangedAuthCredential"].clone()
    };
    let wanted = json!({"authType": "apiKey", "apiKey": "s3cret"});
    assert_eq!(exchanged(key(), json!("s3cret")), wanted);
    assert_eq!(exchanged(key(), json!({"apiKey": "s3cret"})), wanted);
    assert_eq!(exchanged(key(), json!({"exchangedAuthCredential": {"apiKey": "s3cret"}})), wanted);
    assert_eq!(
        exchanged(asked(json!({"type": "http", "scheme": "bearer"})), json!("t")),
        json!({"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": "t"}}})
    );
    let cancelled = response(&resumed("q1", ResumeStatus::Cancelled, None), key());
    assert_eq!(
        cancelled,
        json!({"authScheme": {"type": "apiKey", "in": "header", "name": "k"}, "status": "cancelled"})
    );
    let nothing = resumed("q1", ResumeStatus::Resolved, None);
    let error =
        api().run(&nothing, KnownSession { state: None, pending: &[key()], messages: &[] }).unwrap_err();
    assert_eq!(error.code(), "BAD_ANSWER");
}

#[test]
fn call_gets_one_answer() {
    let mut input = resumed("c1", ResumeStatus::Resolved, Some(json!(1)));
    input
        .resume
        .as_mut()
        .unwrap()
        .extend(resumed("c1", ResumeStatus::Resolved, Some(json!(2))).resume.unwrap());
    input.messages.push(called("c1", "pick"));
    input.messages.push(answered("c1", "3", None));
    let known = KnownSession { pending: &[waiting("c1", "pick", json!({}))], ..KnownSession::default() };
    assert_eq!(
        body(&input, known)["newMessage"]["parts"],
        json!([{"functionResponse": {"id": "c1", "name": "pick", "response": {"result": 1}}}])
    );
}

#[test]
fn paths_are_percent_encoded() {
    let api = AdkApi::new("my app", "a/b");
    let thread = ThreadId::from("ü?#");
    assert_eq!(api.get_session(&thread).path, "/apps/my%20app/users/a%2Fb/sessions/%C3%BC%3F%23");
    assert_eq!(api.delete_session(&thread).method, "DELETE");
    assert_eq!(api.list_sessions().path, "/apps/my%20app/users/a%2Fb/sessions");
    assert_eq!(
        api.get_artifact(&"s".into(), "user:r.txt", Some(2)).path,
        "/apps/my%20app/users/a%2Fb/sessions/s/artifacts/user%3Ar.txt/versions/2"
    );
    let delta = Object::from_entries([("k", Json::null())]);
    let patch = api.patch_state(&"s".into(), &delta);
    assert_eq!((patch.method, patch.body.unwrap().get()), ("PATCH", r#"{"stateDelta":{"k":null}}"#));
    assert_eq!(api.create_session(&RunInput::new("s1", "r")).body.unwrap().get(), r#"{"sessionId":"s1"}"#);
}

#[test]
fn stored_session_contains_pending_calls() {
    let stored = include_str!("../fixtures/lro_silent.session.json");
    let mut value: Value = serde_json::from_str(stored).unwrap();
    let whole = read_session(stored, &mut Tally::default()).unwrap();
    assert_eq!(&*whole.thread, "s1");
    assert!(whole.interrupts.is_empty());
    let roles: Vec<_> = whole.messages.iter().map(|message| message.role().as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    value["events"].as_array_mut().unwrap().truncate(2);
    value["state"] = json!({"k": 1, "agentwire:tools": []});
    let cut = read_session(&value.to_string(), &mut Tally::default()).unwrap();
    let waits = PendingCall::of_interrupt(&cut.interrupts[0]).unwrap();
    assert_eq!((&*waits.name, waits.arguments.get()), ("ask_silently", r#"{"question":"Which colour?"}"#));
    assert_eq!(cut.state.get(), r#"{"k":1}"#);
    assert_eq!(cut.raw_state.get(), r#"{"k":1,"agentwire:tools":[]}"#);
    assert_eq!(
        read_session(r#"{"detail":"Session not found"}"#, &mut Tally::default()).unwrap_err().to_string(),
        "`id` is missing, expected a string"
    );
}

#[test]
fn reads_a_list_of_sessions() {
    let list = r#"[{"id":"a","appName":"x","state":{},"events":[],"lastUpdateTime":1.5},{"id":"b"}]"#;
    let list = read_session_list(list).unwrap();
    assert_eq!((&*list[0].thread, list[0].updated), ("a", Some(1500)));
    assert_eq!(
        read_session_list("[{}]").unwrap_err().to_string(),
        "at `/0`: `id` is missing, expected a string"
    );
    assert_eq!(read_session_list("{}").unwrap_err().to_string(), "expected an array, found an object");
}
