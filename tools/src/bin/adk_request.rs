//! Builds requests to ADK's API server and reads its responses, one JSON line each. Used by `e2e/adk`.
//!
//! Each input line is `{"app", "user", "call", "input"?, "state"?, "waiting"?, "body"?}`. `call` is the name of a
//! method of [`AdkApi`], or `session` or `sessions`, which read a response of the server from `body`. Each output line
//! is a request `{"method", "path", "body"}`, the content of the response, or `{"error"}`.

use std::io::{BufRead as _, stdin};

use agentwire_core::{
    Tally,
    event::RunInput,
    format::{
        adk::input::{AdkApi, AdkRequest, KnownSession, PendingCall, read_session, read_session_list},
        ag_ui,
    },
    json::{Json, Object},
};
use serde_json::{Value, json};

fn main() {
    for line in stdin().lock().lines() {
        let line = line.expect("standard input can be read");
        let line: Value = serde_json::from_str(&line).expect("each line is JSON");
        println!("{}", respond(&line));
    }
}

fn respond(line: &Value) -> Value {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let api = AdkApi::new(text("app"), text("user"));
    let input = match &line["input"] {
        Value::Null => RunInput::new("t", "r"),
        input => {
            ag_ui::input::from_json(&input.to_string(), &mut Tally::default()).expect("the input is valid")
        }
    };
    let state = Object::from_value(&line["state"]);
    match text("call") {
        "create_session" => request(&api.create_session(&input)),
        "get_session" => request(&api.get_session(&input.thread)),
        "list_sessions" => request(&api.list_sessions()),
        "delete_session" => request(&api.delete_session(&input.thread)),
        "patch_state" => request(&api.patch_state(&input.thread, &state.unwrap_or_else(Object::empty))),
        "list_artifacts" => request(&api.list_artifacts(&input.thread)),
        "get_artifact" => request(&api.get_artifact(&input.thread, text("filename"), None)),
        "run" => {
            let pending: Vec<PendingCall> = line["waiting"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|call| PendingCall {
                    id: call["id"].as_str().expect("a pending call has an id").into(),
                    native_id: call["native"].as_str().map(Into::into),
                    name: call["name"].as_str().expect("a pending call has a name").into(),
                    arguments: Json::from(&call["arguments"]),
                })
                .collect();
            match api.run(&input, KnownSession { state: state.as_ref(), pending: &pending, messages: &[] }) {
                Ok(run) => request(&run),
                Err(error) => json!({"error": error.code(), "message": error.to_string()}),
            }
        }
        "session" => match read_session(text("body"), &mut Tally::default()) {
            Ok(stored) => {
                let pending = stored.interrupts.iter().filter_map(PendingCall::of_interrupt);
                json!({
                    "thread": stored.thread.as_str(),
                    "messages": serde_json::from_str::<Value>(&ag_ui::messages_to_json(&stored.messages)).expect("it is JSON"),
                    "state": stored.state.to_value(),
                    "rawState": stored.raw_state.to_value(),
                    "waiting": pending.map(|call| {
                        let mut value = json!({
                            "id": call.id.as_str(),
                            "name": call.name,
                            "arguments": call.arguments.to_value(),
                        });
                        if let Some(native) = &call.native_id {
                            value["native"] = native.as_str().into();
                        }
                        value
                    }).collect::<Vec<_>>(),
                })
            }
            Err(error) => json!({"error": error.to_string()}),
        },
        "sessions" => match read_session_list(text("body")) {
            Ok(list) => list.iter().map(|entry| entry.thread.as_str()).collect(),
            Err(error) => json!({"error": error.to_string()}),
        },
        other => json!({"error": format!("unknown call `{other}`")}),
    }
}

fn request(request: &AdkRequest) -> Value {
    let body = request.body.as_ref().map(Json::to_value);
    json!({"method": request.method, "path": request.path, "body": body})
}
