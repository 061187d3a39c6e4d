//! Answers to pending items: every error code, isolation between users, and the answers that reach the agent.

use agentwire_gateway::{
    codes,
    settings::{Busy, IdentityField},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

fn user(script: &Value) -> Value {
    json!({"id": format!("u-{}", script.to_string().len()), "role": "user", "content": script.to_string()})
}

fn result(call: &str, content: &str) -> Value {
    json!({"id": format!("{call}-tool"), "role": "tool", "toolCallId": call, "content": content})
}

fn resolved(id: &str, payload: Value) -> Value {
    json!({"interruptId": id, "status": "resolved", "payload": payload})
}

/// A request of AG-UI or HAI; `members` replace the default ones.
fn request(thread: &str, run: &str, members: &Value) -> Value {
    let mut body = json!({"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    for (key, value) in members.as_object().expect("members") {
        body[key] = value.clone();
    }
    body
}

async fn frames(server: &Server, body: &Value) -> Vec<Frame> {
    let frames = Stream::of(server.post("/", body)).await.rest().await;
    assert_valid(&frames);
    frames
}

fn code_of(frames: &[Frame]) -> Value {
    frames.last().expect("an end").json()["code"].clone()
}

fn text_of(frames: &[Frame]) -> String {
    frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect()
}

/// The protocol of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    AgUi,
    Hai,
    AiSdk,
}

/// A wrong answer: its description, the script of the agent, the protocol, the answer, and the expected code and status.
type Wrong = (&'static str, Value, Way, Value, &'static str, u16);

fn wrong() -> Vec<Wrong> {
    use Way::*;
    let date = json!({"id": "date", "message": "Which day?"});
    let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]});
    let seat = json!({"id": "seat", "responseSchema": schema});
    let past = json!({"id": "past", "expiresAt": "2020-01-01T00:00:00Z"});
    let pay = json!({"id": "pay", "reason": "confirmation", "toolCallId": "c"});
    let pick = json!({"id": "pick", "name": "pick", "args": {"of": 2}});
    let long_running = json!({"calls": [{"id": "c", "name": "pay", "args": {}}], "ask": [{"id": "c", "reason": "tool_call", "toolCallId": "c"}]});
    let ask = |list: &[&Value]| json!({"ask": list});
    let chat = |parts: Value| json!([{"id": "u", "role": "user", "parts": [{"type": "text", "text": "x"}]}, {"id": "a", "role": "assistant", "parts": parts}]);
    let approval = |id: &str| json!([{"type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": {"id": id, "approved": true}}]);
    let output = |call: &str| json!([{"type": "tool-pay", "toolCallId": call, "state": "output-available", "input": {}, "output": 1}]);
    vec![
        (
            "unknown",
            ask(&[&date]),
            AgUi,
            json!({"resume": [resolved("none", json!(1))]}),
            codes::UNKNOWN_INTERRUPT,
            200,
        ),
        (
            "twice, and differently",
            ask(&[&date]),
            AgUi,
            json!({"resume": [resolved("date", json!(1)), {"interruptId": "date", "status": "cancelled"}]}),
            codes::BAD_REQUEST,
            400,
        ),
        (
            "unknown where nothing waits",
            json!({}),
            AgUi,
            json!({"resume": [resolved("none", json!(1))]}),
            codes::UNKNOWN_INTERRUPT,
            200,
        ),
        (
            "a result for nothing",
            ask(&[&date]),
            AgUi,
            json!({"messages": [result("none", "x")]}),
            codes::UNKNOWN_TOOL_CALL,
            200,
        ),
        (
            "one of two",
            ask(&[&date, &seat]),
            AgUi,
            json!({"resume": [resolved("date", json!("today"))]}),
            codes::INTERRUPT_UNANSWERED,
            200,
        ),
        (
            "another message",
            ask(&[&date]),
            AgUi,
            json!({"messages": [user(&json!("never mind"))]}),
            codes::INTERRUPT_UNANSWERED,
            200,
        ),
        (
            "an empty answer to a question",
            ask(&[&date]),
            AgUi,
            json!({"resume": []}),
            codes::INTERRUPT_UNANSWERED,
            200,
        ),
        (
            "an empty answer to a call",
            json!({"calls": [pick]}),
            AgUi,
            json!({"resume": []}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "an empty result for a question",
            ask(&[&date]),
            AgUi,
            json!({"messages": [result("date", "")]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "a result without content for a question",
            ask(&[&date]),
            AgUi,
            json!({"messages": [{"id": "m", "role": "tool", "toolCallId": "date"}]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "an empty list of parts for a question, and a message",
            ask(&[&date]),
            AgUi,
            json!({"messages": [{"id": "m", "role": "tool", "toolCallId": "date", "content": []}, user(&json!("x"))]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "an empty result of a long-running tool",
            long_running.clone(),
            AgUi,
            json!({"messages": [result("c", "")]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "an empty confirmation",
            json!({"calls": [{"id": "c", "name": "pay", "args": {}}], "ask": [pay.clone()]}),
            Hai,
            json!({"messages": [result("pay", "")]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "a result without content in HAI",
            long_running.clone(),
            Hai,
            json!({"messages": [{"id": "m", "role": "tool", "toolCallId": "c", "content": null}]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "an output without a value",
            long_running.clone(),
            AiSdk,
            json!({"messages": chat(json!([{"type": "tool-pay", "toolCallId": "c", "state": "output-available", "input": {}}]))}),
            codes::NO_TOOL_RESULTS,
            409,
        ),
        (
            "an empty output",
            long_running.clone(),
            AiSdk,
            json!({"messages": chat(json!([{"type": "tool-pay", "toolCallId": "c", "state": "output-available", "input": {}, "output": ""}]))}),
            codes::NO_TOOL_RESULTS,
            409,
        ),
        (
            "an empty answer with words",
            json!({"calls": [pick]}),
            AgUi,
            json!({"resume": [], "messages": [user(&json!("x"))]}),
            codes::NO_TOOL_RESULTS,
            200,
        ),
        (
            "too late",
            ask(&[&past]),
            AgUi,
            json!({"resume": [resolved("past", json!(1))]}),
            codes::INTERRUPT_EXPIRED,
            200,
        ),
        (
            "a wrong type",
            ask(&[&seat]),
            AgUi,
            json!({"resume": [resolved("seat", json!({"seat": 12}))]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "a member missing",
            ask(&[&seat]),
            AgUi,
            json!({"resume": [resolved("seat", json!({}))]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "no payload",
            ask(&[&seat]),
            AgUi,
            json!({"resume": [{"interruptId": "seat", "status": "resolved"}]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "one right, one wrong",
            ask(&[&date, &seat]),
            AgUi,
            json!({"resume": [resolved("date", json!(1)), resolved("seat", json!([]))]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "a wrong payload beside a yes",
            ask(&[&seat]),
            AgUi,
            json!({"resume": [resolved("seat", json!({"approved": true, "seat": 12}))]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "a wrong answer in a tool message",
            ask(&[&seat]),
            AgUi,
            json!({"messages": [result("seat", "{\"seat\":12}")]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        ("no list", ask(&[&date]), AgUi, json!({"resume": 5}), codes::BAD_REQUEST, 400),
        ("no id", ask(&[&date]), AgUi, json!({"resume": [{"status": "resolved"}]}), codes::BAD_REQUEST, 400),
        (
            "no status that is one",
            ask(&[&date]),
            AgUi,
            json!({"resume": [{"interruptId": "date", "status": "maybe"}]}),
            codes::BAD_REQUEST,
            400,
        ),
        (
            "too large",
            ask(&[&date]),
            AgUi,
            json!({"resume": [resolved("date", json!("x".repeat(2 << 20)))]}),
            codes::BODY_TOO_LARGE,
            413,
        ),
        (
            "a result for nothing",
            ask(&[&date]),
            Hai,
            json!({"messages": [result("none", "true")]}),
            codes::UNKNOWN_TOOL_CALL,
            200,
        ),
        (
            "another message",
            ask(&[&date]),
            Hai,
            json!({"messages": [user(&json!("never mind"))]}),
            codes::INTERRUPT_UNANSWERED,
            200,
        ),
        (
            "a wrong type",
            ask(&[&seat]),
            Hai,
            json!({"messages": [result("seat", "{\"seat\":12}")]}),
            codes::SCHEMA_MISMATCH,
            200,
        ),
        (
            "too late",
            ask(&[&past]),
            Hai,
            json!({"messages": [result("past", "true")]}),
            codes::INTERRUPT_EXPIRED,
            200,
        ),
        (
            "too large",
            ask(&[&date]),
            Hai,
            json!({"messages": [result("date", &"x".repeat(2 << 20))]}),
            codes::BODY_TOO_LARGE,
            413,
        ),
        (
            "an unrequested approval",
            ask(&[&pay]),
            AiSdk,
            json!({"messages": chat(approval("none"))}),
            codes::UNKNOWN_INTERRUPT,
            409,
        ),
        (
            "an approval where nothing waits",
            json!({}),
            AiSdk,
            json!({"messages": chat(approval("none"))}),
            codes::UNKNOWN_INTERRUPT,
            409,
        ),
        (
            "an output for nothing",
            ask(&[&pay]),
            AiSdk,
            json!({"messages": chat(output("none"))}),
            codes::UNKNOWN_TOOL_CALL,
            409,
        ),
        (
            "an output instead of a decision",
            ask(&[&pay]),
            AiSdk,
            json!({"messages": chat(output("c"))}),
            codes::UNKNOWN_TOOL_CALL,
            409,
        ),
        (
            "another message",
            ask(&[&pay]),
            AiSdk,
            json!({"messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "x"}]}]}),
            codes::INTERRUPT_UNANSWERED,
            409,
        ),
        (
            "no decision",
            ask(&[&pay]),
            AiSdk,
            json!({"messages": chat(json!([{"type": "tool-pay", "toolCallId": "c", "state": "approval-responded", "input": {}, "approval": {"id": "pay"}}]))}),
            codes::BAD_REQUEST,
            400,
        ),
    ]
}

#[tokio::test]
async fn every_wrong_answer_has_its_code_changes_nothing_and_is_audited() {
    for backend in Backend::each().await {
        let record = AuditFile::new();
        let server = plan(asker())
            .set(record.keep())
            .set(|settings| settings.limits.body = 1 << 20)
            .on(&backend.store)
            .await;
        for (number, (case, asked, way, answer, code, status)) in wrong().into_iter().enumerate() {
            let (thread, run) = (format!("t{number}"), format!("wrong{number}"));
            let tools = json!([{"name": "pick", "description": "", "parameters": {}}]);
            let first =
                request(&thread, &format!("r{number}"), &json!({"messages": [user(&asked)], "tools": tools}));
            frames(&server, &first).await;
            let before = server.open(&thread).await;
            let path = match way {
                Way::AgUi => "/",
                Way::Hai => "/awp",
                Way::AiSdk => "/api/chat?profile=7",
            };
            let mut body = request(&thread, &run, &answer);
            if way == Way::AiSdk {
                body["id"] = thread.as_str().into();
            }
            let mut stream = Stream::of(server.post(path, &body)).await;
            assert_eq!(stream.status(), status, "{case} {way:?}");
            let found = if status == 200 {
                let frames = stream.rest().await;
                assert_eq!(types(&frames), ["RUN_STARTED", "RUN_ERROR"], "{case} {way:?}");
                code_of(&frames)
            } else {
                stream.header("agentwire-error-code").into()
            };
            assert_eq!(found, code, "{case} {way:?}");
            assert_eq!(server.open(&thread).await, before, "{case} {way:?}: nothing has changed");
            assert_eq!(server.json(&format!("/runs/{run}")).await.0, 404, "{case} {way:?}: no run is stored");
            let line = record
                .line(case, |line| {
                    line["outcome"] == code
                        && (line["thread"] == thread.as_str() || line["action"] == "request")
                })
                .await;
            assert_eq!(line["user"], "default-user", "{case}");
        }
        assert!(record.lines().len() > 60, "the chain holds");
    }
}

/// The response to another user is the same, byte for byte, as for an unknown id.
#[tokio::test]
async fn items_of_another_user_look_like_unknown_ones() {
    let record = AuditFile::new();
    let server = plan(asker())
        .set(record.keep())
        .set(|settings| settings.identity.user = IdentityField::header("x-user", None))
        .on_memory()
        .await;
    let asked = request("t", "r", &json!({"messages": [user(&json!({"ask": [{"id": "q"}]}))]}));
    Stream::of(server.post("/", &asked).header("x-user", "ann")).await.rest().await;
    let send = async |method: Method, path: &str, body: Value| {
        let request = server.ask(method, path).header("x-user", "bob").json(&body);
        let response = with_timeout("an answer", request.send()).await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("text"))
    };
    let answer = |thread: &str| request(thread, "x", &json!({"resume": [resolved("q", json!(1))]}));
    let theirs = send(Method::POST, "/", answer("t")).await;
    let nobodys = send(Method::POST, "/", answer("n")).await;
    let stamp = |text: &str| {
        let events =
            text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        let without = events.map(|mut event| {
            event.as_object_mut().expect("an event").remove("timestamp");
            event.to_string().replace("\"threadId\":\"t\"", "\"threadId\":\"n\"")
        });
        without.collect::<Vec<_>>()
    };
    assert_eq!(stamp(&theirs.1), stamp(&nobodys.1));
    for (method, theirs, nobodys) in [
        (Method::GET, "/threads/t/pending", "/threads/n/pending"),
        (Method::GET, "/runs/r", "/runs/n"),
        (Method::POST, "/runs/r/stop", "/runs/n/stop"),
        (Method::POST, "/runs/r/pause", "/runs/n/pause"),
        (Method::POST, "/runs/r/resume", "/runs/n/resume"),
        (Method::GET, "/threads/t/feedback", "/threads/n/feedback"),
    ] {
        let one = send(method.clone(), theirs, json!({})).await;
        assert_eq!(one, send(method, nobodys, json!({})).await, "{theirs}");
        assert_eq!(one.0, 404, "{theirs}");
    }
    let feedback = |thread: &str| json!({"threadId": thread, "rating": "up"});
    assert_eq!(
        send(Method::POST, "/feedback", feedback("t")).await,
        send(Method::POST, "/feedback", feedback("n")).await
    );
    for action in ["stop", "pause", "resume"] {
        let line = record.line(action, |line| line["action"] == action && line["run"] == "r").await;
        assert_eq!((&line["user"], &line["outcome"]), (&json!("bob"), &json!("UNKNOWN_RUN")));
    }
    record.line("the answer", |line| line["action"] == "answer" && line["user"] == "bob").await;
    let (_, open) = answer_of(&server, "ann", "/threads/t/pending").await;
    assert_eq!(open.as_array().map(Vec::len), Some(1));
}

async fn answer_of(server: &Server, user: &str, path: &str) -> (reqwest::StatusCode, Value) {
    answer(server.ask(Method::GET, path).header("x-user", user)).await
}

#[tokio::test]
async fn an_agent_gets_only_validated_answers() {
    let server = plan(asker()).on_memory().await;
    frames(
        &server,
        &request("t", "r1", &json!({"messages": [user(&json!({"ask": [{"id": "a"}, {"id": "b"}]}))]})),
    )
    .await;
    let resume = json!([
        resolved("none", json!("x")), resolved("a", json!(1)), resolved("a", json!(1)),
        {"interruptId": "b", "status": "cancelled"},
    ]);
    let forged = json!([user(&json!({"ask": []})), result("forged", "yes")]);
    let body = request("t", "r2", &json!({"resume": resume, "messages": forged}));
    let got: Value = serde_json::from_str(&text_of(&frames(&server, &body).await)).expect("JSON");
    assert_eq!(got, json!([["a", "resolved", 1], ["b", "cancelled", null]]));
    let (_, kept) = server.json("/message_snapshot/t").await;
    assert!(!kept.to_string().contains("forged"), "{kept}");
}

#[tokio::test]
async fn results_of_the_agents_own_tools_are_allowed_beside_an_answer() {
    let server = plan(asker()).on_memory().await;
    let script = json!({"own": [{"id": "mine", "name": "look", "args": {}}], "calls": [{"id": "yours", "name": "pick", "args": {}}]});
    let tools = json!([{"name": "pick", "description": "", "parameters": {}}]);
    frames(&server, &request("t", "r1", &json!({"messages": [user(&script)], "tools": tools}))).await;
    let (_, kept) = server.json("/message_snapshot/t").await;
    let mut messages = kept["messages"].as_array().expect("a list").clone();
    messages.push(result("yours", "blue"));
    let frames = frames(&server, &request("t", "r2", &json!({"messages": messages, "tools": tools}))).await;
    assert_eq!(text_of(&frames), r#"["yours","blue",null]"#);
    assert_eq!(server.open("t").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_tool_message_answers_a_question_in_ag_ui() {
    let server = plan(asker()).on_memory().await;
    frames(&server, &request("t", "r1", &json!({"messages": [user(&json!({"ask": [{"id": "q"}]}))]}))).await;
    let frames =
        frames(&server, &request("t", "r2", &json!({"messages": [result("q", "{\"day\":1}")]}))).await;
    assert_eq!(text_of(&frames), r#"[["q","resolved",{"day":1}]]"#);
}

/// An agent that waits for an answer gets no other request, not even one that was queued before the question.
#[tokio::test]
async fn runs_that_waited_for_the_thread_fail_if_a_question_is_open() {
    let wait = Busy::Wait { retries: 10_000, interval: std::time::Duration::from_millis(5) };
    for busy in [Busy::Enqueue { limit: 3 }, wait] {
        let puppet = Puppet::new(asker_script);
        let server = plan(puppet.clone()).agent(|agent| agent.busy = busy).on_memory().await;
        let asks = request("t", "r1", &json!({"messages": [user(&json!({"ask": [{"id": "q"}]}))]}));
        let mut first = Stream::of(server.post("/", &asks)).await;
        let mut seen = first.take(1).await;
        let later = server.post("/", &Server::input("t", "r2", "meanwhile"));
        let later = tokio::spawn(async move { Stream::of(later).await.rest().await });
        match busy {
            Busy::Enqueue { .. } => {
                wait_until("it waits", async || server.status("r2").await == "queued").await
            }
            _ => wait_until("it waits", async || server.metric("agentwire_lock_waits_total").await > 0).await,
        }
        puppet.allow(1000);
        seen.extend(first.rest().await);
        assert_valid(&seen);
        let later = with_timeout("the one that waited", later).await.expect("no panic");
        assert_eq!(code_of(&later), codes::INTERRUPT_UNANSWERED, "{busy:?}");
        assert_eq!(puppet.calls(), 1, "{busy:?}");
        assert_eq!(server.open("t").await.len(), 1);
    }
}

#[tokio::test]
async fn the_number_and_size_of_open_items_is_limited() {
    let server = plan(asker()).on_memory().await;
    let many: Vec<_> = (0..1001).map(|number| json!({"id": format!("q{number}")})).collect();
    let long = |id: &str| json!({"id": id, "length": 9 << 20});
    for (number, (script, fits)) in [
        (json!({"ask": many}), false),
        (json!({"ask": &many[1..]}), true),
        (json!({"ask": [long("a"), long("b")]}), false),
        (json!({"ask": [long("a")]}), true),
    ]
    .into_iter()
    .enumerate()
    {
        let thread = format!("t{number}");
        let body = request(&thread, &format!("r{number}"), &json!({"messages": [user(&script)]}));
        let frames = frames(&server, &body).await;
        let end = frames.last().expect("an end").json();
        let open = server.open(&thread).await.len();
        if fits {
            assert_eq!(end["outcome"]["type"], "interrupt");
            assert_eq!(open, script["ask"].as_array().expect("a list").len());
        } else {
            assert_eq!((&end["code"], open), (&json!(codes::LIMIT_EXCEEDED), 0));
        }
    }
}
