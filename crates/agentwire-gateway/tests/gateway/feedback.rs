//! Feedback: validated, stored, audited and forwarded.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::StatusCode, routing::post};
use serde_json::{Value, json};

use crate::support::*;

async fn talked(server: &Server) {
    let tools = json!({"own": [{"id": "c", "name": "look", "args": {}}]});
    let mut body = Server::input("t", "r", "");
    body["messages"][0]["content"] = tools.to_string().into();
    Stream::of(server.post("/", &body)).await.rest().await;
}

#[tokio::test]
async fn feedback_must_be_valid_and_its_target_must_exist() {
    let record = AuditFile::new();
    let server = plan(asker()).set(record.keep()).on_memory().await;
    talked(&server).await;
    let long = "x".repeat(20 << 10);
    let bad = "BAD_REQUEST";
    for (feedback, status, code) in [
        (json!({"threadId": "t", "rating": "up"}), 200, ""),
        (
            json!({"threadId": "t", "runId": "r", "score": 0.5, "tags": ["quick", "right"], "comment": "thanks"}),
            200,
            "",
        ),
        (json!({"threadId": "t", "messageId": "r-user", "rating": -1}), 200, ""),
        (json!({"threadId": "t", "messageId": "c-result", "rating": "down"}), 200, ""),
        (json!({"threadId": "t", "messageId": "r", "rating": "down"}), 200, ""),
        (json!({"threadId": "t", "toolCallId": "c", "comment": "well looked"}), 200, ""),
        (json!({"threadId": "none", "rating": "up"}), 404, "UNKNOWN_THREAD"),
        (json!({"threadId": "t", "runId": "none", "rating": "up"}), 404, "UNKNOWN_RUN"),
        (json!({"threadId": "t", "messageId": "none", "rating": "up"}), 404, "UNKNOWN_MESSAGE"),
        (json!({"threadId": "t", "toolCallId": "none", "rating": "up"}), 404, "UNKNOWN_MESSAGE"),
        (json!({"threadId": "t", "toolCallId": "r-user", "rating": "up"}), 404, "UNKNOWN_MESSAGE"),
        (json!({"threadId": "t"}), 400, bad),
        (json!({"rating": "up"}), 400, bad),
        (json!({"threadId": "t", "rating": "sideways"}), 400, bad),
        (json!({"threadId": "t", "score": "high"}), 400, bad),
        (json!({"threadId": "t", "tags": [1]}), 400, bad),
        (json!({"threadId": "t", "tags": vec!["x"; 51]}), 400, bad),
        (json!({"threadId": "t", "tags": [long]}), 400, bad),
        (json!({"threadId": "t", "comment": long}), 400, bad),
        (json!([1]), 400, bad),
    ] {
        let (found, body) = answer(server.post("/feedback", &feedback)).await;
        assert_eq!(
            (found.as_u16(), body["error"]["code"].as_str().unwrap_or_default()),
            (status, code),
            "{feedback}"
        );
    }
    let (_, kept) = server.json("/threads/t/feedback").await;
    let kept = kept.as_array().expect("a list");
    assert_eq!(kept.len(), 6);
    assert_eq!((&kept[1]["comment"], &kept[1]["tags"]), (&json!("thanks"), &json!(["quick", "right"])));

    let line = record.line("the comment", |line| line["feedback"]["comment"] == "thanks").await;
    assert_eq!((&line["action"], &line["outcome"]), (&json!("feedback"), &json!("ok")));
    assert_eq!((&line["feedback"]["score"], &line["feedback"]["runId"]), (&json!(0.5), &json!("r")));
    record
        .line("the refusal", |line| line["action"] == "feedback" && line["outcome"] == "UNKNOWN_MESSAGE")
        .await;
    record.line("the nonsense", |line| line["action"] == "request" && line["outcome"] == "BAD_REQUEST").await;
    record.lines();

    server.ask(reqwest::Method::DELETE, "/thread/t").send().await.expect("an answer");
    assert_eq!(server.json("/threads/t/feedback").await.0, 404, "it goes with the thread");
}

/// The statuses with which a collector refuses, the last one first, and the bodies that it received.
type Seen = Arc<Mutex<(Vec<u16>, Vec<Value>)>>;

/// A collector that refuses with each status once and keeps the bodies.
async fn collector(refusals: Vec<u16>) -> (String, Seen) {
    let seen = Arc::new(Mutex::new((refusals, Vec::new())));
    let take = async |State(seen): State<Seen>, body: String| {
        let mut seen = seen.lock().expect("no panic");
        seen.1.push(serde_json::from_str(&body).expect("JSON"));
        match seen.0.pop() {
            Some(status) => StatusCode::from_u16(status).expect("a status"),
            None => StatusCode::NO_CONTENT,
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/collect", listener.local_addr().expect("it is bound"));
    let router = Router::new().route("/collect", post(take)).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

#[tokio::test]
async fn feedback_is_forwarded_with_retries_in_the_background() {
    for (refusals, tries) in [(vec![], 1), (vec![503, 429], 3), (vec![400; 9], 1), (vec![500; 9], 4)] {
        let (url, seen) = collector(refusals.clone()).await;
        let server = plan(asker()).agent(|agent| agent.feedback_url = Some(url)).on_memory().await;
        talked(&server).await;
        let (status, _) = answer(server.post("/feedback", &json!({"threadId": "t", "rating": "up"}))).await;
        assert_eq!(status, 200, "{refusals:?}");
        wait_until("it was sent on", async || seen.lock().expect("no panic").1.len() >= tries).await;
        let received = seen.lock().expect("no panic").1.clone();
        assert_eq!(received.len(), tries, "{refusals:?}");
        assert_eq!((&received[0]["user"], &received[0]["agent"]), (&json!("default-user"), &json!("demo")));
        assert!(received.iter().all(|one| *one == received[0]));
        assert_eq!(
            server.json("/threads/t/feedback").await.1.as_array().map(Vec::len),
            Some(1),
            "{refusals:?}"
        );
    }
}
