//! Agents in Rust with an emitter, as clients of every protocol see them.

use std::sync::Arc;

use agentwire_gateway::agent::{Agent, Question, agent_fn};
use reqwest::Method;
use serde_json::json;

use crate::support::*;

/// An agent that uses every kind of event of an emitter.
fn full_agent() -> Arc<dyn Agent> {
    agent_fn(|request, emit| async move {
        emit.reasoning("hm").await?;
        let step = emit.step("work").await?;
        let inner = emit.step("work").await?;
        let mut message = emit.message();
        message.push(request.user_text()).await?;
        let call = message.call("add", json!({"a": 1, "b": 2})).await?;
        let mut open = message.open_call("slow").await?;
        call.result("3").await?;
        open.push("{\"a\":").await?;
        open.push("1}").await?;
        open.fail("nothing", "it broke").await?;
        message.source("https://example.com", "an example").await?;
        drop(inner);
        emit.state().set("/a/b", 1).await?;
        emit.state().update(|state| state["c"] = json!([1, 2])).await?;
        let mut plan = emit.activity("plan", json!({"done": 0})).await?;
        plan.set("/done", 1).await?;
        let helper = emit.subagent("helper").start().await?;
        helper.text("on it").await?;
        helper.step("work").await?.end().await?;
        emit.custom("mine", json!(null)).await?;
        drop((step, message));
        Ok(())
    })
}

#[tokio::test]
async fn events_of_an_emitter_need_no_repair_in_any_protocol() {
    let server = plan(full_agent()).on_memory().await;
    let frames = server.run_to_end("t", "r", "hello").await;
    assert_valid(&frames);
    assert_eq!(frames.last().expect("an ending").kind(), "RUN_FINISHED");
    for format in ["ai-sdk@5", "hai", "ag-ui@0"] {
        let mut stream = server.follow(&format!("/runs/r/stream?format={format}")).await;
        assert_eq!(stream.status(), 200, "{format}");
        assert!(stream.rest().await.len() > 20, "{format}");
    }
    let (_, state) = server.json("/state_snapshot/t").await;
    assert_eq!(state["snapshot"], json!({"a": {"b": 1}, "c": [1, 2]}));
    let (_, figures) = server.json("/metrics").await;
    let repairs: Vec<_> = figures
        .as_str()
        .expect("text")
        .lines()
        .filter(|line| line.starts_with("agentwire_repairs") && !line.ends_with(" 0"))
        .collect();
    assert_eq!(repairs, [""; 0]);
}

#[tokio::test]
async fn the_next_run_receives_the_result_of_a_front_end_call() {
    let agent = agent_fn(|request, emit| async move {
        let results: Vec<_> = request.tool_results().map(|(_, content)| content.text()).collect();
        if results.is_empty() {
            emit.front_end_call("pick", json!({"from": ["red", "blue"]})).await?;
        } else {
            emit.text(format!("picked {}", results.join(" and "))).await?;
        }
        Ok(())
    });
    let server = plan(agent).on_memory().await;
    assert_valid(&server.run_to_end("t", "r1", "hello").await);
    let (_, pending) = server.json("/threads/t/pending").await;
    assert_eq!(
        (pending[0]["kind"].as_str(), pending[0]["name"].as_str()),
        (Some("frontend-tool"), Some("pick")),
        "{pending}"
    );
    let mut input = Server::input("t", "r2", "");
    let call = pending[0]["toolCallId"].as_str().expect("an id");
    input["messages"] = json!([{"id": "answer", "role": "tool", "toolCallId": call, "content": "blue"}]);
    let frames = Stream::of(server.post("/", &input)).await.rest().await;
    assert_valid(&frames);
    assert!(frames.iter().any(|frame| frame.data.contains("picked blue")), "{frames:?}");
    assert_eq!(server.json("/threads/t/pending").await.1, json!([]));
}

#[tokio::test]
async fn the_next_run_receives_the_validated_answer_to_an_interrupt() {
    let agent = agent_fn(|request, emit| async move {
        match request.input.resume.iter().flatten().next() {
            Some(answer) => drop(emit.text(format!("answer: {:?}", answer.payload)).await?),
            None => {
                let schema = json!({"type": "object", "required": ["name"]});
                emit.interrupt(Question::new("Who are you?").schema(schema));
            }
        }
        Ok(())
    });
    let server = plan(agent).on_memory().await;
    assert_valid(&server.run_to_end("t", "r1", "hello").await);
    assert_eq!(server.status("r1").await, "waiting");
    let answer_with = async |run: &str, payload| {
        let mut input = Server::input("t", run, "");
        input["messages"] = json!([]);
        input["resume"] = json!([{"interruptId": "r1:i1", "status": "resolved", "payload": payload}]);
        Stream::of(server.post("/", &input)).await.rest().await
    };
    let refused = answer_with("r2", json!({"colour": "red"})).await;
    assert_eq!(refused.last().expect("an ending").json()["code"], "SCHEMA_MISMATCH");
    let accepted = answer_with("r3", json!({"name": "Ada"})).await;
    assert!(accepted.iter().any(|frame| frame.data.contains("Ada")), "{accepted:?}");
}

#[tokio::test]
async fn stopping_a_run_ends_the_agent_and_closes_its_messages() {
    let alive = Arc::new(());
    let alive_count = Arc::downgrade(&alive);
    let agent = agent_fn(move |_, emit| {
        let alive = alive.clone();
        async move {
            let _alive = alive;
            let _step = emit.step("for ever").await?;
            let mut message = emit.message();
            loop {
                message.push("on and on ").await?;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    });
    let server = plan(agent).on_memory().await;
    let mut stream = server.run("t", "r", "hello").await;
    let mut frames = stream.take(5).await;
    assert_eq!(answer(server.ask(Method::POST, "/runs/r/stop")).await.0, 200);
    frames.extend(stream.rest().await);
    assert_valid(&frames);
    assert_eq!(frames.last().expect("an ending").json()["outcome"]["type"], "cancelled");
    wait_until("the agent is gone", async || alive_count.strong_count() == 1).await;
}
