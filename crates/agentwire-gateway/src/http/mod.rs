//! HTTP: every agent's routes under `/agents/NAME`, those of the default agent also at the root.
//!
//! [`request`] extracts the owner of a request, [`router`] holds the table of routes, `ag_ui`, `hai` and `ai_sdk` start runs in
//! their protocols by way of [`start`], and [`response`] streams them.

mod ag_ui;
mod ai_sdk;
mod approvals;
mod artifacts;
mod checks;
mod connection;
mod console;
mod credential_end;
mod cursor;
mod event_stream;
mod faces;
mod feedback;
mod guard;
mod hai;
mod neighbours;
mod ops;
mod origin;
mod outgoing;
mod peer;
mod request;
mod reserved;
mod response;
mod router;
mod runs;
mod server;
mod start;
mod thread_list;
mod threads;
mod trace;
mod ui_history;
mod unread_body;

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::any,
};
use tower_http::cors::{AllowHeaders, CorsLayer};

#[cfg(fuzzing)]
pub use self::cursor::check_any as check_any_cursor;
use self::guard::Guard;
pub use self::{
    console::console_routes,
    request::Connection,
    router::routes_without_identity,
    server::{serve, serve_with_admin},
};
use crate::{
    auth::RequiredScope,
    codes,
    error::ApiError,
    gateway::{AgentEntry, AgentRegistry, Gateway},
    settings::{AgentSettings, CorsOptions, Identity, RouteIdentities, Settings},
};

/// The state of one agent's routes.
#[derive(Clone)]
pub(crate) struct RouteState {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<AgentEntry>,
    /// Where requests name their owner and thread.
    pub(crate) identity: Arc<Identity>,
    pub(crate) group: RouteGroup,
}

/// The groups of an agent's routes that can be mounted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteGroup {
    Main,
    Runs,
    History,
    State,
}

impl RouteGroup {
    const ALL: [Self; 4] = [Self::Main, Self::Runs, Self::History, Self::State];

    /// Its name for apps that identify senders.
    fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Runs => "runs",
            Self::History => "history",
            Self::State => "state",
        }
    }

    /// The identity settings of the group.
    fn identity(self, settings: &Settings, agent: &AgentSettings) -> Identity {
        let RouteIdentities { main, history, state, runs } =
            agent.identity.clone().unwrap_or_else(|| settings.identities());
        let own = match self {
            Self::Main => return main,
            Self::Runs => runs,
            Self::History => history,
            Self::State => state,
        };
        // These routes have the thread in their path.
        own.unwrap_or(Identity { thread: None, ..main })
    }
}

impl Gateway {
    /// All routes: those of each agent at `/agents/NAME`, those of the default agent also at the root, and those for
    /// operations. Can be nested under any prefix.
    ///
    /// In an app of your own, call [`Gateway::recover`] before it serves and [`Gateway::drain`] when it ends.
    ///
    /// ```
    /// use agentwire_gateway::{Gateway, agent::agent_fn, settings::Settings, store};
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
        for group in RouteGroup::ALL {
            router = router.merge(self.group_routes(registry, group));
        }
        router = router.merge(faces::copilotkit::router(self, registry));
        router = router.merge(faces::langgraph::router(self));
        let guarded = || {
            from_fn_with_state(Guard::of_server(self, RequiredScope::AnyCredential, "unknown"), guard::guard)
        };
        let gateway = self.clone();
        let refuse =
            move |method: Method, uri: Uri| async move { wrong_method(&gateway, &method, uri.path()) };
        let router = router
            .route("/agents/{agent}", any(unknown_agent.layer(guarded())))
            .route("/agents/{agent}/", any(unknown_agent.layer(guarded())))
            .route("/agents/{agent}/{*rest}", any(unknown_agent.layer(guarded())))
            .fallback(unknown_route.layer(guarded()))
            .method_not_allowed_fallback(refuse.layer(guarded()))
            .layer(from_fn_with_state(self.clone(), console::redirect));
        self.with_layers(router)
    }

    /// The routes of `admin_listen`: probes, metrics and the OpenAPI document.
    fn admin_router(&self) -> Router {
        let router = ops::admin_router(self).fallback(unknown_route);
        self.with_layers(router).layer(axum::Extension(origin::Listener::Admin))
    }

    /// The routes of runs: AG-UI, HAI, AI SDK, following and control, pending items, feedback, capabilities. The owner of
    /// those that do not start a run can be configured apart: [`Settings::runs_identity`].
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
        let registry = self.registry();
        let main = self.group_routes(&registry, RouteGroup::Main);
        self.with_layers(main.merge(self.group_routes(&registry, RouteGroup::Runs)))
    }

    /// The routes of the history: `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`. Their owner can be
    /// configured apart: [`Settings::history_identity`].
    pub fn history_routes(&self) -> Router {
        self.with_layers(self.group_routes(&self.registry(), RouteGroup::History))
    }

    /// The routes of the shared state: `/state_snapshot/{id}`, `/state/{id}`. Their owner can be configured
    /// apart: [`Settings::state_identity`].
    pub fn state_routes(&self) -> Router {
        self.with_layers(self.group_routes(&self.registry(), RouteGroup::State))
    }

    fn group_routes(&self, registry: &AgentRegistry, group: RouteGroup) -> Router {
        let mut router = Router::new();
        for agent in registry.agents.values() {
            let identity = Arc::new(group.identity(self.settings(), &agent.settings));
            let state = RouteState { gateway: self.clone(), agent: agent.clone(), identity, group };
            router = router.merge(router::of_agent(&format!("/agents/{}", agent.name), &state, group));
            if registry.default.as_deref() == Some(&agent.name) {
                router = router.merge(router::of_agent("", &state, group));
            }
        }
        router
    }

    /// Adds the layers that all routes have.
    fn with_layers(&self, router: Router) -> Router {
        let router = router.layer(axum::middleware::map_response_with_state(self.clone(), count_errors));
        let router = match cors(&self.settings().cors, &self.settings().cors_options) {
            Some(cors) => router.layer(cors),
            None => router,
        };
        router.layer(axum::middleware::from_fn_with_state(self.clone(), checks::check))
    }
}

async fn unknown_agent() -> ApiError {
    ApiError::new(codes::UNKNOWN_AGENT, "no such agent, or it has no such route")
}

async fn unknown_route() -> ApiError {
    no_route()
}

fn no_route() -> ApiError {
    ApiError::new(codes::UNKNOWN_ROUTE, "no such route").hint("`GET /openapi.json` lists them")
}

fn wrong_method(gateway: &Gateway, method: &Method, path: &str) -> ApiError {
    let error = ApiError::new(codes::METHOD_NOT_ALLOWED, "this route has other methods");
    let is_root = *method == Method::GET && matches!(path, "/" | "");
    match is_root && gateway.is_console_on() {
        true => error.hint("`POST` starts a run; in a browser, this address leads to `/console`"),
        false => error,
    }
}

/// Counts error responses by code, and has the store checked if one is about it.
async fn count_errors(
    axum::extract::State(gateway): axum::extract::State<Gateway>,
    response: Response,
) -> Response {
    if let Some(code) = response.extensions().get::<crate::error::ResponseCode>() {
        if code.0 == codes::STORE_UNAVAILABLE {
            gateway.doubt_store();
        }
        let code = crate::metrics::CodeLabel { code: code.0 };
        gateway.metrics().refusals.get_or_create(&code).inc();
    }
    response
}

/// Lets pages of the listed origins read responses. Exact origins only; cookies only if the settings allow them.
fn cors(origins: &[String], options: &CorsOptions) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let names = options.headers.iter().filter_map(|name| name.parse::<HeaderName>().ok());
    let allowed_headers = match options.headers.is_empty() {
        true => AllowHeaders::mirror_request(),
        false => AllowHeaders::list(names),
    };
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers(allowed_headers)
        .expose_headers([
            HeaderName::from_static("agentwire-recovery"),
            HeaderName::from_static("agentwire-next"),
            HeaderName::from_static(crate::error::ERROR_CODE),
            header::RETRY_AFTER,
            header::WWW_AUTHENTICATE,
            trace::TRACERESPONSE,
            HeaderName::from_static("ratelimit-policy"),
            HeaderName::from_static("ratelimit"),
            HeaderName::from_static("x-thread-id"),
            HeaderName::from_static("x-run-id"),
            HeaderName::from_static("x-vercel-ai-ui-message-stream"),
            header::LOCATION,
            header::CONTENT_LOCATION,
        ]);
    Some(match origins.iter().any(|origin| origin == "*") {
        true => layer.allow_origin(tower_http::cors::Any),
        // The configuration refuses cookies from any origin; so does the layer, by ending the process.
        false => layer.allow_origin(origins).allow_credentials(options.credentials),
    })
}

/// A JSON response.
fn json(body: impl Into<String>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, body.into()).into_response()
}
