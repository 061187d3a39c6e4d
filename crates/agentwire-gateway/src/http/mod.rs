//! The routes: every agent under `/agents/NAME`, the default one also at the root.

mod artifacts;
mod cursor;
mod feedback;
mod ops;
mod request;
mod response;
mod router;
mod runs;
mod server;
mod start;
mod threads;
mod traffic;
mod unread;

use std::sync::Arc;

use agentwire_core::event::ThreadId;
use axum::{
    Router,
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use tower_http::cors::CorsLayer;

pub use self::server::serve;
use crate::{
    agent, codes,
    error::ApiError,
    gateway::{AgentEntry, AgentRegistry, Gateway},
    settings::{Identity, Settings},
};

/// An agent at a place.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<AgentEntry>,
    /// Whose threads requests at this place are about.
    pub(crate) identity: Arc<Identity>,
}

/// The parts of an agent's routes that can stand in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Main,
    History,
    State,
}

impl Part {
    const ALL: [Self; 3] = [Self::Main, Self::History, Self::State];

    /// Whose threads its requests are about, unless the settings say so for this part.
    fn identity(self, settings: &Settings) -> Identity {
        let own = match self {
            Self::Main => return settings.identity.clone(),
            Self::History => &settings.history_identity,
            Self::State => &settings.state_identity,
        };
        // These have the thread in their path.
        own.clone().unwrap_or_else(|| Identity { thread: None, ..settings.identity.clone() })
    }
}

impl Mount {
    /// A question to the agent's side about a thread of whoever calls.
    fn thread_request(&self, call: &request::Call, thread: &ThreadId) -> agent::Request {
        self.agent.thread_request(call.owner.clone(), thread, call.forwarded(self))
    }
}

impl Gateway {
    /// All routes, to be served or mounted elsewhere: those of each agent at `/agents/NAME`, those of the default agent
    /// also at the root, and those for operations. Can be nested under any prefix.
    ///
    /// In an app of your own, call [`Gateway::recover`] before it serves and [`Gateway::drain`] when it ends.
    ///
    /// ```
    /// use agentwire_gateway::{Gateway, agent::agent_fn, settings::{AgentSettings, Settings}, store};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = agent_fn(|request, emit| async move {
    ///     emit.text(format!("You said: {}", request.user_text())).await?;
    ///     Ok(())
    /// });
    /// let store = store::open("memory:", store::Options::default()).await?;
    /// let gateway = Gateway::builder(store, Settings::default())
    ///     .agent("echo", agent)
    ///     .build();
    /// gateway.recover().await;
    /// let app: axum::Router = axum::Router::new()
    ///     .route("/", axum::routing::get(|| async { "my app" }))
    ///     .nest("/ai", gateway.router());
    /// # let _ = app;
    /// # Ok(())
    /// # }
    /// ```
    pub fn router(&self) -> Router {
        self.router_of(&self.registry())
    }

    fn router_of(&self, registry: &AgentRegistry) -> Router {
        let mut router = ops::router(self);
        for part in Part::ALL {
            router = router.merge(self.part(registry, part));
        }
        let router = router
            .route("/agents/{agent}", axum::routing::any(unknown_agent))
            .route("/agents/{agent}/", axum::routing::any(unknown_agent))
            .route("/agents/{agent}/{*rest}", axum::routing::any(unknown_agent))
            .fallback(unknown_route)
            .method_not_allowed_fallback(wrong_method);
        self.finished(router)
    }

    /// The routes that are about runs: AG-UI, HAI, AI SDK, following and control, pending items, feedback, capabilities.
    ///
    /// This and its siblings have the same paths as [`Gateway::router`] and can be nested and merged one by one:
    ///
    /// ```
    /// # use agentwire_gateway::{Gateway, settings::Settings, store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = store::open("memory:", store::Options::default()).await?;
    /// # let gateway = Gateway::builder(store, Settings::default()).build();
    /// let app: axum::Router = axum::Router::new()
    ///     .nest("/chat", gateway.main_routes())
    ///     .nest("/archive", gateway.history_routes().merge(gateway.state_routes()));
    /// # let _ = app;
    /// # Ok(())
    /// # }
    /// ```
    pub fn main_routes(&self) -> Router {
        self.finished(self.part(&self.registry(), Part::Main))
    }

    /// The routes of the history: `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`. Whose threads they are about
    /// can be said apart: [`Settings::history_identity`].
    pub fn history_routes(&self) -> Router {
        self.finished(self.part(&self.registry(), Part::History))
    }

    /// The routes of the shared state: `/state_snapshot/{id}`, `/state/{id}`. Whose threads they are about can be said
    /// apart: [`Settings::state_identity`].
    pub fn state_routes(&self) -> Router {
        self.finished(self.part(&self.registry(), Part::State))
    }

    fn part(&self, registry: &AgentRegistry, part: Part) -> Router {
        let identity = Arc::new(part.identity(self.settings()));
        let mut router = Router::new();
        for agent in registry.agents.values() {
            let mount = Mount { gateway: self.clone(), agent: agent.clone(), identity: identity.clone() };
            router = router.merge(router::of_agent(&format!("/agents/{}", agent.name), &mount, part));
            if registry.default.as_deref() == Some(&agent.name) {
                router = router.merge(router::of_agent("", &mount, part));
            }
        }
        router
    }

    /// What holds for all routes.
    fn finished(&self, router: Router) -> Router {
        let router = router.layer(axum::middleware::map_response_with_state(self.clone(), count_refusals));
        match cors(&self.settings().cors) {
            Some(cors) => router.layer(cors),
            None => router,
        }
    }
}

async fn unknown_agent() -> ApiError {
    ApiError::new(codes::UNKNOWN_AGENT, "no such agent, or it has no such route")
}

async fn unknown_route() -> ApiError {
    ApiError::new(codes::UNKNOWN_ROUTE, "no such route").hint("`GET /openapi.json` lists them")
}

async fn wrong_method() -> ApiError {
    ApiError::new(codes::METHOD_NOT_ALLOWED, "this route has other methods")
}

/// Counts what was refused, by status class and code.
async fn count_refusals(
    axum::extract::State(gateway): axum::extract::State<Gateway>,
    response: Response,
) -> Response {
    if let Some(code) = response.extensions().get::<crate::error::ResponseCode>() {
        let code = crate::metrics::Code { code: code.0.to_owned() };
        gateway.metrics().refusals.get_or_create(&code).inc();
    }
    response
}

/// Pages of the listed origins may read our answers. Exact names only, and no cookies.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers(tower_http::cors::AllowHeaders::mirror_request())
        .expose_headers([
            HeaderName::from_static("agentwire-recovery"),
            HeaderName::from_static("agentwire-next"),
            header::RETRY_AFTER,
            HeaderName::from_static("x-thread-id"),
            HeaderName::from_static("x-run-id"),
            HeaderName::from_static("x-vercel-ai-ui-message-stream"),
        ]);
    Some(match origins.iter().any(|origin| origin == "*") {
        true => layer.allow_origin(tower_http::cors::Any),
        false => layer.allow_origin(origins),
    })
}

/// A JSON answer.
pub(crate) fn json(body: impl Into<String>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, body.into()).into_response()
}
