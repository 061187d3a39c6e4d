//! A HAI back end, modelled on the standard's sample: `POST /chat` (and `/awp`) responds with a stream of events.
//!
//! Where the sample calls a language model, this agent repeats the question, word by word.

use std::{
    convert::Infallible,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use agentwire_core::{
    Tally,
    event::{MessageBody, RunId, RunInput, ThreadId},
    format::hai::{Builder, input},
};
use axum::{
    Router,
    body::{Body, Bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;

/// The standard closes a stream this long after its last event, so that the client has read it.
const CLOSE_DELAY: Duration = Duration::from_millis(200);

/// The routes.
pub fn router() -> Router {
    Router::new().route("/chat", post(chat)).route("/awp", post(chat))
}

async fn chat(body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body);
    // Clients that send no thread id or run id get generated ones.
    let now = now();
    let (thread, run) = (ThreadId::from(format!("thread-{now}")), RunId::from(format!("run-{now}")));
    let request = match input::from_json(&text, &thread, &run, &mut Tally::default()) {
        Ok(request) => request,
        Err(error) => {
            let body = json!({ "error": { "code": "BAD_REQUEST", "message": error.to_string() } });
            return (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], body.to_string())
                .into_response();
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(translate_sse(ChatAgent::default(), request))).into_response()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The frames of a run, and a short delay after the last.
fn translate_sse(agent: ChatAgent, request: RunInput) -> impl Stream<Item = Result<String, Infallible>> {
    let close = stream::once(async {
        tokio::time::sleep(CLOSE_DELAY).await;
        Ok(String::new())
    });
    agent.run(request).map(Ok).chain(close)
}

/// The sample's agent.
#[derive(Debug)]
pub struct ChatAgent {
    agent_name: String,
    outputer: Builder,
}

impl Default for ChatAgent {
    fn default() -> Self {
        Self { agent_name: "Agent".into(), outputer: Builder::new(now) }
    }
}

impl ChatAgent {
    /// Runs the agent: the sequence of the standard's sample.
    pub fn run(self, body: RunInput) -> Pin<Box<dyn Stream<Item = String> + Send>> {
        let outputer = &self.outputer;
        let id = "msgId-001";
        let mut frames = vec![
            // Start of the run. The sample omits the ids; clients need them.
            outputer.build_sse_data(
                outputer.build_run_started(id).field("threadId", &*body.thread).field("runId", &*body.run),
            ),
            // The agents and their tasks.
            outputer.build_sse_data(outputer.build_agent_collaborative_message_start(
                "USER",
                &self.agent_name,
                id,
            )),
            outputer.build_sse_data(outputer.build_agent_collaborative_message_content(
                json!({ "id": "task-1", "name": "回答问题" }),
                id,
            )),
            outputer.build_sse_data(outputer.build_agent_collaborative_message_end(id)),
            // The progress.
            outputer.build_sse_data(outputer.build_state_delta("add", "/workflowItems/0/status", "running")),
            outputer.build_sse_data(outputer.build_state_delta("replace", "/workflowItems/0/status", "done")),
            outputer.build_sse_data(outputer.build_step_started("智能处理")),
            outputer.build_sse_data(outputer.build_business_data_start(id)),
        ];
        let said = body.messages.iter().rev().find_map(|message| match &message.body {
            MessageBody::User { content } => Some(content.text()),
            _ => None,
        });
        // Here the sample calls its language model.
        for chunk in answer(&said.unwrap_or_default()) {
            let chat_info = outputer.build_text(&chunk);
            frames.push(outputer.build_sse_data(outputer.build_business_data_content(chat_info, id)));
        }
        frames.push(outputer.build_sse_data(outputer.build_business_data_end(id)));
        frames.push(outputer.build_sse_data(outputer.build_step_finished("智能处理")));
        frames.push(outputer.build_sse_data(outputer.build_run_finished(id)));
        stream::iter(frames).boxed()
    }
}

/// The simulated response of a language model, in pieces.
fn answer(question: &str) -> Vec<String> {
    let mut pieces = vec!["你说：".to_owned()];
    pieces.extend(question.split_inclusive(' ').map(str::to_owned));
    pieces
}
