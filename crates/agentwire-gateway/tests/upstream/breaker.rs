//! The circuit breaker of an agent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentwire_gateway::{
    codes,
    settings::{AgentSettings, BreakerSettings},
    upstream::{AgUi, AgUiOptions},
};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{
    gateway::TestGateway,
    server::{Server, Step, response},
};

const GOOD: &str = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n\
    data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";

/// A gateway in front of a server that resets its connections until it is well.
struct Rig {
    gateway: TestGateway,
    is_well: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    _server: Server,
}

impl Rig {
    async fn new(bad: Vec<Step>, breaker: BreakerSettings) -> Self {
        let (is_well, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (well, counted) = (is_well.clone(), calls.clone());
        let server = Server::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            match well.load(Ordering::Relaxed) {
                true => response("200 OK", "text/event-stream", GOOD.as_bytes()),
                false => bad.clone(),
            }
        })
        .await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..AgUiOptions::default() }).unwrap();
        let settings = AgentSettings::default().breaker(breaker);
        Self { gateway: TestGateway::with(agent, settings).await, is_well, calls, _server: server }
    }

    async fn post(&self, run: usize) -> Response {
        let message = json!({"id": "m", "role": "user", "content": "hello"});
        let body = json!({"threadId": format!("t{run}"), "runId": format!("r{run}"), "messages": [message]});
        self.gateway.request(Method::POST, "/").json(&body).send().await.unwrap()
    }

    /// The last event of a run.
    async fn run(&self, run: usize) -> Value {
        let response = self.post(run).await;
        assert_eq!(response.status(), 200, "run {run}");
        let text = response.text().await.unwrap();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
        serde_json::from_str(last).unwrap()
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn reset() -> Vec<Step> {
    vec![Step::Reset]
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_not_called_for_a_while() {
    let rig = Rig::new(reset(), BreakerSettings { failures: Some(3), open: Duration::from_secs(3600) }).await;
    for run in 0..3 {
        assert_eq!(rig.run(run).await["code"], codes::UPSTREAM_TRUNCATED);
    }
    let calls = rig.calls();
    let refused = rig.post(3).await;
    assert_eq!(refused.status(), 503);
    let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3601).contains(&seconds), "{seconds}");
    assert_eq!(refused.headers()["agentwire-error-code"], codes::UPSTREAM_UNAVAILABLE);
    assert_eq!(rig.gateway.get("/runs/r3").await.status(), 404, "a refused run does not exist");
    assert_eq!(rig.run(2).await["code"], codes::UPSTREAM_TRUNCATED, "a run that exists can be read");
    assert_eq!(rig.calls(), calls, "the agent is left alone");
    let (_, agents) = rig.gateway.json("/agents").await;
    assert_eq!(agents["agents"][0]["health"]["breaker"], "open");
    let metrics = rig.gateway.get("/metrics").await.text().await.unwrap();
    for line in
        ["agentwire_breaker_opened_total{agent=\"demo\"} 1", "agentwire_breaker_state{agent=\"demo\"} 2"]
    {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn one_run_tries_an_agent_again_and_opens_it_for_all() {
    let rig = Rig::new(reset(), BreakerSettings { failures: Some(1), open: Duration::from_millis(1) }).await;
    assert_eq!(rig.run(0).await["type"], "RUN_ERROR");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(rig.run(1).await["code"], codes::UPSTREAM_TRUNCATED, "the probe fails");
    tokio::time::sleep(Duration::from_millis(5)).await;
    rig.is_well.store(true, Ordering::Relaxed);
    for run in 2..5 {
        assert_eq!(rig.run(run).await["type"], "RUN_FINISHED");
    }
    let (_, agents) = rig.gateway.json("/agents").await;
    assert_eq!(agents["agents"][0]["health"]["breaker"], "closed");
}

#[tokio::test]
async fn errors_that_one_request_can_cause_close_no_agent() {
    for status in
        ["400 Bad Request", "422 Unprocessable Entity", "429 Too Many Requests", "500 Internal Server Error"]
    {
        let breaker = BreakerSettings { failures: Some(2), open: Duration::from_secs(3600) };
        let rig = Rig::new(response(status, "text/plain", b"no"), breaker).await;
        for run in 0..4 {
            assert_eq!(rig.run(run).await["code"], codes::UPSTREAM_STATUS, "{status}");
        }
        assert_eq!(rig.calls(), 4, "{status}");
    }
}
