//! A gateway with one agent, listening on a local port, and a client for it.

use std::sync::Arc;

use agentwire_gateway::{
    AgentConfig, Gateway,
    agent::Agent,
    serve,
    settings::{AgentSettings, IdentityField, Settings},
};
use agentwire_store::ThreadIds;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// A gateway that identifies users by `x-user-id` and `x-tenant`; it stops when this is dropped.
pub(crate) struct TestGateway {
    url: String,
    client: reqwest::Client,
    task: JoinHandle<()>,
}

impl TestGateway {
    pub(crate) async fn of(agent: impl Agent) -> Self {
        Self::with(agent, AgentSettings::default()).await
    }

    /// A gateway whose agent gets the client's ids.
    pub(crate) async fn raw(agent: impl Agent) -> Self {
        Self::with(agent, AgentSettings::default().thread_ids(Some(ThreadIds::Raw))).await
    }

    pub(crate) async fn with(agent: impl Agent, agent_settings: AgentSettings) -> Self {
        Self::sharing(Arc::new(agent), agent_settings).await
    }

    pub(crate) async fn sharing(agent: Arc<dyn Agent>, agent_settings: AgentSettings) -> Self {
        Self::at("memory:", agent, agent_settings).await
    }

    /// A gateway with its data at an address.
    pub(crate) async fn at(store: &str, agent: Arc<dyn Agent>, agent_settings: AgentSettings) -> Self {
        let mut settings = Settings::default();
        settings.identity.user = IdentityField::header("x-user-id", Some("default-user"));
        settings.identity.tenant = IdentityField::header("x-tenant", Some("default"));
        Self::new(store, settings, agent, agent_settings).await
    }

    /// A gateway for which everybody is one user.
    pub(crate) async fn single_user(agent: Arc<dyn Agent>) -> Self {
        Self::single_user_with(agent, AgentSettings::default()).await
    }

    pub(crate) async fn single_user_with(agent: Arc<dyn Agent>, agent_settings: AgentSettings) -> Self {
        Self::new("memory:", Settings::default(), agent, agent_settings).await
    }

    async fn new(
        store: &str,
        settings: Settings,
        agent: Arc<dyn Agent>,
        agent_settings: AgentSettings,
    ) -> Self {
        let store = agentwire_store::open(store, agentwire_store::Options::default()).await.unwrap();
        let gateway = Gateway::builder(store, settings)
            .agent("demo", AgentConfig::shared(agent).settings(agent_settings))
            .build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            serve(gateway, listener, std::future::pending()).await.unwrap();
        });
        let client = agentwire_client::transport::builder().no_proxy().build().unwrap();
        Self { url, client, task }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// The status and the JSON body of a GET request.
    pub(crate) async fn json(&self, path: &str) -> (u16, Value) {
        let response = self.get(path).await;
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// The events of a run with one user message.
    pub(crate) async fn run(&self, user: &str, thread: &str, run: &str) -> Vec<Value> {
        let message = json!({"id": format!("m-{run}"), "role": "user", "content": "What is the weather?"});
        self.run_with(user, thread, run, json!([message])).await
    }

    pub(crate) async fn run_with(&self, user: &str, thread: &str, run: &str, messages: Value) -> Vec<Value> {
        let body = json!({"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": messages, "state": {}, "tools": [],
            "context": [], "forwardedProps": {}});
        let response =
            self.request(Method::POST, "/").header("x-user-id", user).json(&body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let text = response.text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}
