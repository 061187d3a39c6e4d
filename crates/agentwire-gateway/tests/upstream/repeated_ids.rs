//! Agents whose ids repeat from run to run, and graphs that return only the messages of one turn, behind a gateway.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use agentwire_gateway::{
    settings::{AgentSettings, Snapshots},
    upstream::{AgUi, AgUiOptions, Events, EventsOptions, Exec, ExecOptions, Replay, ReplayOptions},
};
use serde_json::{Value, json};

use super::{
    gateway::TestGateway,
    server::{Server, events, response},
};

const USER: &str = "default-user";

fn question(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

/// The stored messages as `id text`; calls and results as `id call arguments` and `id call: text`.
async fn stored(gateway: &TestGateway) -> Vec<String> {
    let (_, snapshot) = gateway.json("/message_snapshot/t").await;
    shown(&snapshot["messages"])
}

fn shown(messages: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |message: &Value| {
        let mut line = text(&message["id"]);
        if let Some(call) = message["toolCallId"].as_str() {
            line.push_str(&format!(" {call}:"));
        }
        if let Some(content) = message["content"].as_str().filter(|content| !content.is_empty()) {
            line.push_str(&format!(" {content}"));
        }
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            line.push_str(&format!(" {} {}", text(&call["id"]), text(&call["function"]["arguments"])));
        }
        line
    };
    messages.as_array().expect("a list").iter().map(line).collect()
}

/// The messages of an AG-UI client after a stream, which starts with those that it sent: text, calls and snapshots.
fn held_by_client(sent: &Value, stream: &[Value]) -> Vec<String> {
    let mut messages: Vec<Value> = sent.as_array().expect("a list").clone();
    for event in stream {
        let id = &event["messageId"];
        match event["type"].as_str().expect("a type") {
            "TEXT_MESSAGE_START" if !messages.iter().any(|message| message["id"] == *id) => {
                messages.push(json!({"id": id, "content": ""}));
            }
            "TEXT_MESSAGE_CONTENT" => {
                let message = messages.iter_mut().find(|message| message["id"] == *id).expect("started");
                let delta = event["delta"].as_str().expect("text");
                message["content"] = format!("{}{delta}", message["content"].as_str().unwrap_or("")).into();
            }
            "MESSAGES_SNAPSHOT" => {
                let snapshot = event["messages"].as_array().expect("a list");
                let newer = |id: &Value| snapshot.iter().find(|message| message["id"] == *id).cloned();
                messages = messages.iter().filter_map(|message| newer(&message["id"])).collect();
                for message in snapshot {
                    if !messages.iter().any(|known| known["id"] == message["id"]) {
                        messages.push(message.clone());
                    }
                }
            }
            _ => {}
        }
    }
    shown(&Value::Array(messages))
}

/// The agent of `docs/guides/exec.md`.
fn shell(lines: &str) -> Exec {
    let command = ["sh", "-c", &format!("read -r request\n{lines}")].map(str::to_owned).to_vec();
    Exec::new(ExecOptions { command, ..ExecOptions::default() }).unwrap()
}

#[tokio::test]
async fn three_turns_with_the_shell_agent_of_the_guide_stay_three_answers() {
    let agent = shell(
        r#"echo '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m1","delta":"Hello "}'
        echo '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m1","delta":"from a shell."}'"#,
    );
    let gateway = TestGateway::raw(agent).await;
    let mut whole = Vec::new();
    for (run, answer) in [("r1", "m1"), ("r2", "m1#2"), ("r3", "m1#3")] {
        let asked = question(&format!("q-{run}"), "hi");
        let stream = gateway.run_with(USER, "t", run, json!([asked])).await;
        let ids: Vec<_> = stream.iter().filter_map(|event| event["messageId"].as_str()).collect();
        assert_eq!(ids, [answer; 4], "{run}");
        whole.extend([format!("q-{run} hi"), format!("{answer} Hello from a shell.")]);
        assert_eq!(stored(&gateway).await, whole);
        let replay = gateway.get(&format!("/runs/{run}/stream")).await.text().await.unwrap();
        let replayed: Vec<Value> = replay
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(replayed, stream);
    }
}

/// A shell script with `curl` that calls every question `1`, and an agent that calls every answer `1` too.
#[tokio::test]
async fn questions_with_one_id_stay_apart_and_reach_the_agent() {
    let agent = shell(
        r#"last=$(printf '%s' "$request" | sed 's/.*"content":"\([^"]*\)".*/\1/')
        echo "{\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"1\",\"delta\":\"You said $last.\"}""#,
    );
    let gateway = TestGateway::raw(agent).await;
    for (run, text) in [("r1", "one"), ("r2", "two"), ("r3", "three")] {
        gateway.run_with(USER, "t", run, json!([question("1", text)])).await;
    }
    assert_eq!(
        stored(&gateway).await,
        ["1 one", "1#2 You said one.", "1#3 two", "1#4 You said two.", "1#5 three", "1#6 You said three."]
    );
}

/// LangChain events without any id, as a hand-made stream has them.
const WITHOUT_IDS: &str = r#"{"event":"on_tool_start","name":"search","data":{"input":{"q":"a"}}}
{"event":"on_tool_end","name":"search","data":{"output":"found"}}
{"event":"on_chat_model_stream","data":{"chunk":{"content":"It is ","type":"AIMessageChunk"}}}
{"event":"on_chat_model_stream","data":{"chunk":{"content":"here.","type":"AIMessageChunk"}}}
"#;

#[tokio::test]
async fn langgraph_events_without_ids_give_each_turn_its_own_call_and_answer() {
    let server = Server::always(response("200 OK", "application/x-ndjson", WITHOUT_IDS.as_bytes())).await;
    let options = EventsOptions {
        url: server.url.clone(),
        format: Some("langgraph".into()),
        ..EventsOptions::default()
    };
    let gateway = TestGateway::raw(Events::new(options).unwrap()).await;
    for run in ["r1", "r2"] {
        gateway.run_with(USER, "t", run, json!([question(&format!("q-{run}"), "where?")])).await;
    }
    let messages = stored(&gateway).await;
    let calls: Vec<_> = messages.iter().filter(|line| line.ends_with(r#"{"q":"a"}"#)).collect();
    assert_eq!(calls.len(), 2, "{messages:?}");
    assert_eq!(messages.iter().filter(|line| line.ends_with("It is here.")).count(), 2, "{messages:?}");
    assert_eq!(messages.iter().filter(|line| line.ends_with(": found")).count(), 2, "{messages:?}");
    let question = messages.iter().position(|line| line == "q-r2 where?").expect("the second question");
    assert_eq!(question * 2, messages.len(), "the same number of messages before and after it: {messages:?}");
}

/// A stateless graph that is given one message without an id and returns the messages of that turn.
fn turn(text: &str, answer: &str, number: usize) -> String {
    let human = json!({"type": "human", "id": format!("uuid-{number}"), "content": text});
    let ai = json!({"type": "ai", "id": format!("run-{number}"), "content": answer});
    let chunk = json!({"type": "AIMessageChunk", "id": format!("run-{number}"), "content": answer});
    let event = |event: &str, (name, parents): (&str, &[&str]), data: Value| {
        let metadata = match parents {
            [] => json!({"ls_integration": "langgraph"}),
            _ => {
                json!({"langgraph_node": "agent", "langgraph_step": 1, "langgraph_checkpoint_ns": "agent:1"})
            }
        };
        json!({"event": event, "run_id": name, "name": name, "parent_ids": parents, "tags": [], "metadata": metadata, "data": data})
    };
    let graph: (&str, &[&str]) = ("LangGraph", &[]);
    let node: (&str, &[&str]) = ("agent", &["LangGraph"]);
    let model: (&str, &[&str]) = ("model", &["LangGraph", "agent"]);
    let lines = [
        event("on_chain_start", graph, json!({"input": {"messages": [human]}})),
        event("on_chain_start", node, json!({"input": {"messages": [human]}})),
        event("on_chat_model_stream", model, json!({"chunk": chunk})),
        event("on_chat_model_end", model, json!({"output": ai})),
        event("on_chain_end", node, json!({"output": {"messages": [ai]}})),
        event("on_chain_end", graph, json!({"output": {"messages": [human, ai]}})),
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

async fn stateless_graph(settings: AgentSettings) -> (TestGateway, Server) {
    let turns = Arc::new(AtomicUsize::new(0));
    let server = Server::new(move |request| {
        let text = request.json()["question"].as_str().expect("a question").to_owned();
        let number = turns.fetch_add(1, Ordering::SeqCst) + 1;
        let body = turn(&text, &format!("Answer {number}."), number);
        response("200 OK", "application/x-ndjson", body.as_bytes())
    })
    .await;
    let options = EventsOptions {
        url: server.url.clone(),
        body: Some(json!({"question": "{{message}}"})),
        format: Some("langgraph".into()),
        ..EventsOptions::default()
    };
    (TestGateway::with(Events::new(options).unwrap(), settings).await, server)
}

#[tokio::test]
async fn a_graph_that_returns_one_turn_does_not_erase_the_turns_before_it() {
    // The same question twice, and a client that sends all messages or only the last one.
    for sends_all in [true, false] {
        let (gateway, _server) = stateless_graph(AgentSettings::default()).await;
        let mut held: Vec<Value> = Vec::new();
        let mut whole = Vec::new();
        for (number, text) in [(1, "hi"), (2, "hi"), (3, "bye")] {
            let asked = question(&format!("q{number}"), text);
            let sent = match sends_all {
                true => json!([&held[..], std::slice::from_ref(&asked)].concat()),
                false => json!([asked]),
            };
            let stream = gateway.run_with(USER, "t", &format!("r{number}"), sent.clone()).await;
            whole.extend([format!("q{number} {text}"), format!("run-{number} Answer {number}.")]);
            assert_eq!(stored(&gateway).await, whole, "all: {sends_all}");
            assert_eq!(held_by_client(&sent, &stream), whole, "all: {sends_all}");
            assert!(stream.iter().any(|event| event["type"] == "MESSAGES_SNAPSHOT"));
            let (_, snapshot) = gateway.json("/message_snapshot/t").await;
            held = snapshot["messages"].as_array().expect("a list").clone();
        }
    }
}

/// The graph is given the text of a message, alone or inside a prompt, and returns it under an id of its own.
#[tokio::test]
async fn the_question_of_a_run_is_not_shown_twice_and_keeps_its_words() {
    let image = json!({"type": "image", "source": {"type": "url", "value": "https://example.org/cat.png", "mimeType": "image/png"}});
    for (case, prompt, content) in [
        ("text", "{{message}}", json!("a cat?")),
        ("inside a prompt", "Question: {{message}}", json!("a cat?")),
        ("with an image", "{{message}}", json!([{"type": "text", "text": "a cat?"}, image])),
        ("in two parts", "a cat?", json!([{"type": "text", "text": "a "}, {"type": "text", "text": "cat?"}])),
    ] {
        let server = Server::new(|request| {
            let body = request.json();
            let number = body["run"].as_str().and_then(|run| run[1..].parse().ok()).expect("a number");
            let text = body["question"].as_str().expect("a question");
            let body = turn(text, &format!("Answer {number}."), number);
            response("200 OK", "application/x-ndjson", body.as_bytes())
        })
        .await;
        let options = EventsOptions {
            url: server.url.clone(),
            body: Some(json!({"question": prompt, "run": "{{run}}"})),
            format: Some("langgraph".into()),
            ..EventsOptions::default()
        };
        let gateway = TestGateway::raw(Events::new(options).unwrap()).await;
        for number in 1..4 {
            let asked = json!({"id": format!("q{number}"), "role": "user", "content": content});
            gateway.run_with(USER, "t", &format!("r{number}"), json!([asked])).await;
        }
        let (_, snapshot) = gateway.json("/message_snapshot/t").await;
        let messages = snapshot["messages"].as_array().expect("a list");
        let ids: Vec<_> = messages.iter().map(|message| message["id"].as_str().expect("an id")).collect();
        assert_eq!(ids, ["q1", "run-1", "q2", "run-2", "q3", "run-3"], "{case}");
        assert!(
            messages.iter().step_by(2).all(|message| message["content"] == content),
            "{case}: {messages:?}"
        );
    }
}

#[tokio::test]
async fn the_setting_snapshots_decides_on_the_effect() {
    for (snapshots, expected) in [
        (Snapshots::Merge, &["q1 hi", "run-1 Answer 1.", "q2 hi", "run-2 Answer 2."][..]),
        (Snapshots::Ignore, &["q1 hi", "run-1 Answer 1.", "q2 hi", "run-2 Answer 2."]),
        (Snapshots::Replace, &["uuid-2 hi", "run-2 Answer 2."]),
    ] {
        let settings = AgentSettings::default().snapshots(Some(snapshots));
        let (gateway, _server) = stateless_graph(settings).await;
        for number in 1..3 {
            let asked = question(&format!("q{number}"), "hi");
            gateway.run_with(USER, "t", &format!("r{number}"), json!([asked])).await;
        }
        assert_eq!(stored(&gateway).await, expected, "{snapshots:?}");
    }
}

/// An AG-UI server that sends the same stream for every request.
async fn constant_server(stream: &[Value], settings: AgentSettings) -> (TestGateway, Server) {
    let body: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
    let server = Server::always(events(body.as_bytes())).await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
    (TestGateway::with(agent, settings).await, server)
}

fn run_of(messages: &[Value]) -> Vec<Value> {
    let mut stream = vec![
        json!({"type": "RUN_STARTED", "threadId": "x", "runId": "x"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Same."}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m1"}),
    ];
    if !messages.is_empty() {
        stream.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}));
    }
    stream.push(json!({"type": "RUN_FINISHED", "threadId": "x", "runId": "x"}));
    stream
}

/// Snapshots in the second run of an agent that calls all of its messages `m1`.
#[tokio::test]
async fn a_snapshot_of_the_agent_repeats_old_messages_and_names_new_ones() {
    let said = |text: &str| json!({"id": "m1", "role": "assistant", "content": text});
    let (q1, q2) = (question("q1", "hi"), question("q2", "hi"));
    for (case, snapshot, expected) in [
        (
            "both messages",
            json!([q1, said("Same."), q2, said("Same.")]),
            &["q1 hi", "m1 Same.", "q2 hi", "m1#2 Same."][..],
        ),
        (
            "a changed old message",
            json!([q1, said("Old."), q2, said("Same.")]),
            &["q1 hi", "m1 Old.", "q2 hi", "m1#2 Same."],
        ),
        ("only this turn", json!([q2, said("New.")]), &["q2 hi", "m1#2 New."]),
        ("a memory by id", json!([q1, said("Same."), q2]), &["q1 hi", "m1 Same.", "q2 hi", "m1#2 Same."]),
        ("nothing of the agent", json!([q1, q2]), &["q1 hi", "q2 hi"]),
    ] {
        let plain = run_of(&[]);
        let with_snapshot = run_of(snapshot.as_array().expect("a list"));
        let server = Server::new(move |request| {
            let is_first = request.json()["runId"] == "r1";
            let stream = if is_first { &plain } else { &with_snapshot };
            let body: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
            events(body.as_bytes())
        })
        .await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        let gateway = TestGateway::raw(agent).await;
        gateway.run_with(USER, "t", "r1", json!([q1])).await;
        let sent = json!([q1, said("Same."), q2]);
        let stream = gateway.run_with(USER, "t", "r2", sent.clone()).await;
        assert_eq!(stored(&gateway).await, expected, "{case}");
        assert_eq!(held_by_client(&sent, &stream), expected, "{case}");
    }
}

#[tokio::test]
async fn a_snapshot_of_the_agent_is_merged_or_ignored_if_so_configured() {
    let turn = [question("q", "hi"), json!({"id": "m1", "role": "assistant", "content": "New."})];
    for (snapshots, expected) in [
        (Snapshots::Merge, ["q1 hi", "m1 New.", "q2 hi", "m1#2 New."]),
        (Snapshots::Ignore, ["q1 hi", "m1 Same.", "q2 hi", "m1#2 Same."]),
    ] {
        let settings = AgentSettings::default().snapshots(Some(snapshots));
        let (gateway, _server) = constant_server(&run_of(&turn), settings).await;
        for number in 1..3 {
            let asked = question(&format!("q{number}"), "hi");
            gateway.run_with(USER, "t", &format!("r{number}"), json!([asked])).await;
        }
        assert_eq!(stored(&gateway).await, expected, "{snapshots:?}");
    }
}

/// A call that is repeated before its result is the same call (Agno); one that is not is another call with the same id.
#[tokio::test]
async fn a_call_after_its_result_is_the_same_or_a_new_one() {
    for (arguments, has_result, expected) in [
        (r#"{"n":1}"#, true, &["q1 go", "m1 c1 {\"n\":1}", "t1 c1: done", "r c1: done"][..]),
        (r#"{"n":2}"#, false, &["q1 go", "m1 c1 {\"n\":1}", "t1 c1: done", "m1#2 c1#2 {\"n\":2}"]),
        (r#"{"n":1}"#, false, &["q1 go", "m1 c1 {\"n\":1}", "t1 c1: done", "m1#2 c1#2 {\"n\":1}"]),
    ] {
        let call = |arguments: &str| {
            vec![
                json!({"type": "RUN_STARTED", "threadId": "x", "runId": "x"}),
                json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "pick", "parentMessageId": "m1"}),
                json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": arguments}),
                json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
            ]
        };
        let finished = json!({"type": "RUN_FINISHED", "threadId": "x", "runId": "x"});
        let first = [call(r#"{"n":1}"#), vec![finished.clone()]].concat();
        let mut second = call(arguments);
        if has_result {
            let result =
                json!({"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c1", "content": "done"});
            second.push(result);
        }
        second.push(finished);
        let server = Server::new(move |request| {
            let stream = if request.json()["runId"] == "r1" { &first } else { &second };
            let body: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
            events(body.as_bytes())
        })
        .await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        let gateway = TestGateway::raw(agent).await;
        gateway.run_with(USER, "t", "r1", json!([question("q1", "go")])).await;
        let result = json!({"id": "t1", "role": "tool", "toolCallId": "c1", "content": "done"});
        gateway.run_with(USER, "t", "r2", json!([result])).await;
        assert_eq!(stored(&gateway).await, expected, "{arguments} {has_result}");
    }
}

/// The recordings of a format, without expectations, requests and malformed streams.
fn recordings(format: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agentwire-core/src/format").join(format);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder of recordings")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let is_stream = name.ends_with(".sse") || name.ends_with(".jsonl");
            is_stream && !name.ends_with(".events.jsonl") && !name.starts_with("malformed")
        })
        .collect();
    files.sort();
    files
}

/// Each recording as the answer to every question of a thread: no id is used twice, and the third turn has as many messages
/// as the second.
#[tokio::test]
async fn every_recording_can_be_replayed_in_every_turn_of_a_thread() {
    let mut conversations = 0;
    for (folder, format) in [
        ("adk/fixtures", "adk"),
        ("langgraph/fixtures", "langgraph"),
        ("hai/fixtures", "hai"),
        ("openai/fixtures", "openai"),
        ("ai_sdk/fixtures/in", "ai-sdk"),
    ] {
        for file in recordings(folder) {
            let name = file.display().to_string();
            let options = ReplayOptions { file, format: Some(format.into()), ..ReplayOptions::default() };
            let gateway = TestGateway::raw(Replay::new(options).unwrap()).await;
            let mut lengths = vec![0];
            for number in 1..4 {
                let asked = question(&format!("q{number}"), &format!("question {number}"));
                let stream = gateway.run_with(USER, "t", &format!("r{number}"), json!([asked])).await;
                let (_, snapshot) = gateway.json("/message_snapshot/t").await;
                let messages = snapshot["messages"].as_array().expect("a list");
                let calls = messages.iter().flat_map(|message| message["toolCalls"].as_array()).flatten();
                let mut ids = HashSet::new();
                for item in messages {
                    assert!(ids.insert(item["id"].clone()), "{name}: two messages {}", item["id"]);
                }
                let mut ids = HashSet::new();
                for call in calls {
                    assert!(ids.insert(call["id"].clone()), "{name}: two calls {}", call["id"]);
                }
                lengths.push(messages.len());
                if stream.last().is_some_and(|last| last["outcome"].is_object()) {
                    // It waits for an answer.
                    break;
                }
            }
            if let [_, first, second, third] = lengths[..] {
                conversations += 1;
                let has_snapshot = first == second;
                assert!(
                    has_snapshot || third - second == second - first || third - second < first,
                    "{name}: {lengths:?}"
                );
            }
        }
    }
    assert!(conversations > 100, "{conversations}");
}

/// A server that repeats the result of a front-end tool, under the id of the client, before it goes on.
#[tokio::test]
async fn a_result_that_the_agent_repeats_is_in_the_conversation_once() {
    let server = Server::new(|request| {
        let body = request.json();
        let sent = body["messages"].as_array().and_then(|messages| messages.last()).cloned().expect("a message");
        let content = match body["runId"].as_str() {
            Some("changed") => json!("another one"),
            _ => sent["content"].clone(),
        };
        let stream = match sent["role"] == "tool" {
            true => vec![
                json!({"type": "RUN_STARTED", "threadId": "x", "runId": "x"}),
                json!({"type": "TOOL_CALL_RESULT", "messageId": sent["id"], "toolCallId": sent["toolCallId"], "content": content}),
                json!({"type": "RUN_FINISHED", "threadId": "x", "runId": "x"}),
            ],
            false => vec![
                json!({"type": "RUN_STARTED", "threadId": "x", "runId": "x"}),
                json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "pick"}),
                json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
                json!({"type": "RUN_FINISHED", "threadId": "x", "runId": "x"}),
            ],
        };
        let body: String = stream.iter().map(|event| format!("data: {event}\n\n")).collect();
        events(body.as_bytes())
    })
    .await;
    for (run, expected) in [
        ("same", &["q1 go", "c1 c1 ", "t1 c1: red"][..]),
        ("changed", &["q1 go", "c1 c1 ", "t1 c1: red", "t1#2 c1: another one"]),
    ] {
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), headers: Vec::new() }).unwrap();
        let gateway = TestGateway::raw(agent).await;
        gateway.run_with(USER, "t", "r1", json!([question("q1", "go")])).await;
        let result = json!({"id": "t1", "role": "tool", "toolCallId": "c1", "content": "red"});
        gateway.run_with(USER, "t", run, json!([result])).await;
        assert_eq!(stored(&gateway).await, expected, "{run}");
    }
}
