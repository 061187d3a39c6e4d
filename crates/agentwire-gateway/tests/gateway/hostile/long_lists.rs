//! Lists with tens of thousands of short members. They are read in one pass: with a pass for each member, such a
//! request takes minutes.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// A third of what a body of the default size can have.
const MANY: usize = 50_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_messages_from_outside_a_run_are_added_in_one_pass() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    server.run("t", "r", "hello").await.rest().await;
    let message = |n: usize, text: &str| json!({"type": "human", "id": format!("h{n}"), "content": text});
    let add = async |messages: Vec<Value>| {
        let body = json!({"values": {"messages": messages}});
        let (status, body) = answer(server.post("/langgraph/threads/t/state", &body)).await;
        assert_eq!(status, 200, "{body}");
    };
    add((0..MANY).map(|n| message(n, "")).collect()).await;
    add(vec![message(7, "changed"), message(MANY, "new")]).await;
    let (_, shown) = answer(server.ask(Method::GET, "/message_snapshot/t")).await;
    let shown = shown["messages"].as_array().expect("messages");
    // The question and the answer of the run come first.
    assert_eq!(shown.len(), 2 + MANY + 1);
    assert_eq!(shown[2 + 7]["content"], "changed");
    assert_eq!(shown[2 + MANY]["content"], "new");
}
