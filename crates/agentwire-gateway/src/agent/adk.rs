//! ADK's API server (`adk api_server`), as it is.
//!
//! Its sessions hold conversation and state. One is created with the first run of a thread; later runs send what
//! is new, which needs a look at the session first: at its state, and at what waits for an answer there.

use std::sync::Arc;

use agentwire_core::{
    Tally,
    event::{Body, Event, Message, Role, RunInput},
    format::adk::{
        self,
        input::{self, Api, Known, RequestError, StoredSession, Waiting},
    },
    json::Json,
};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{
    Agent, BoxFuture, BuildError, Failure, Outlet, Request,
    http::{ACCEPT_EVENTS, Answer, Call, Http},
    names,
    stream::Language,
};
use crate::code;

/// Where an API server is, and what to run there.
#[derive(Clone, Debug, Default)]
pub struct AdkOptions {
    /// The server's URL.
    pub url: String,
    /// The app.
    pub app: String,
    /// The user on whose behalf; the gateway's own user if absent.
    pub user: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An app as an agent.
#[derive(Clone, Debug)]
pub struct Adk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    http: Http,
    app: String,
    user: Option<String>,
    language: Language,
}

impl Adk {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, the app, a header or an option is none.
    pub fn new(options: AdkOptions) -> Result<Self, BuildError> {
        let AdkOptions { url, app, user, headers, options } = options;
        if app.is_empty() {
            return Err(BuildError("`app` does not say what to run".into()));
        }
        let http = Http::new(&url, &headers)?;
        let language = Language::of(&adk::FORMAT, &options)?;
        Ok(Self(Arc::new(Shared { http, app, user, language })))
    }
}

impl Agent for Adk {
    fn run(&self, request: Request, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.run(&request, &outlet).await })
    }
}

/// Whether the gateway knows nothing of the conversation but what is asked now.
fn is_first(input: &RunInput) -> bool {
    let mut said = input.messages.iter().map(Message::role);
    let said = said.by_ref().filter(|role| !matches!(role, Role::System | Role::Developer));
    input.resume.is_none() && said.eq([Role::User])
}

/// What a session holds that was begun without this gateway: its state, and all of it for the user interface.
fn recalled(session: &StoredSession, input: &RunInput) -> (Json, Vec<Event>) {
    let mut state = session.state.to_value();
    if let (Value::Object(state), Some(Value::Object(sent))) =
        (&mut state, input.state.as_ref().map(Json::to_value))
    {
        // What the client writes with this run is newer.
        state.extend(sent);
    }
    let state = Json::from(&state);
    let mut events = Vec::new();
    if !session.messages.is_empty() {
        let messages = session.messages.iter().chain(&input.messages).cloned().collect();
        events.push(Event::new(Body::MessagesSnapshot { messages }));
    }
    if !session.state.is_empty() {
        events.push(Event::new(Body::StateSnapshot { snapshot: state.clone() }));
    }
    (state, events)
}

impl Shared {
    async fn run(&self, request: &Request, outlet: &Outlet) -> Result<(), Failure> {
        let (api, input) = self.place(request);
        let session = self.session(request, &api, &input).await?;
        let mut request = request.clone();
        if let Some(session) = session.as_ref().filter(|_| is_first(&input)) {
            let (state, mut events) = recalled(session, &input);
            // Changes are told on top of it.
            Arc::make_mut(&mut request.input).state = Some(state);
            outlet.send_all(&mut events).await?;
        }
        let waiting: Vec<_> = match &session {
            Some(session) => session.interrupts.iter().filter_map(Waiting::of_interrupt).collect(),
            None => Vec::new(),
        };
        let known = Known { state: session.as_ref().map(|session| &session.raw_state), waiting: &waiting };
        let run = api
            .run(&input, known)
            .map_err(|error: RequestError| Failure::new(error.code(), error.to_string()))?;
        let call = Call { accept: ACCEPT_EVENTS, ..self.call(&run)? };
        let result = self.http.run(&request, call, &self.language, outlet).await;
        result.map_err(|failure| match &*failure.code {
            // The session is there, so it can only be the app.
            code::UPSTREAM_STATUS if failure.message.contains(" 404 ") => {
                let message = format!("the agent's server knows no app `{}` (404)", self.app);
                Failure { message, ..failure }
            }
            _ => failure,
        })
    }

    /// Whose session it is, and what it is called there.
    fn place(&self, request: &Request) -> (Api, RunInput) {
        let mut input = (*request.input).clone();
        let owner = &request.owner;
        let user = match &self.user {
            Some(user) => {
                // All our users are one there.
                input.thread = names::shared_thread(owner, &input.thread);
                user.clone()
            }
            None if owner.tenant == "default".into() => owner.user.to_string(),
            None => format!("{}/{}", owner.tenant, owner.user),
        };
        (Api::new(&*self.app, user), input)
    }

    /// The session of a thread; `None` if it was created from this very request.
    async fn session(
        &self,
        request: &Request,
        api: &Api,
        input: &RunInput,
    ) -> Result<Option<StoredSession>, Failure> {
        let mut answer = self.ask(request, &api.get_session(&input.thread)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            let made = self.ask(request, &api.create_session(input)).await?;
            match made.status {
                status if status.is_success() => return Ok(None),
                // Another gateway was faster.
                StatusCode::CONFLICT => answer = self.ask(request, &api.get_session(&input.thread)).await?,
                _ => return Err(made.refusal()),
            }
        }
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        match input::session(&answer.body, &mut Tally::default()) {
            Ok(session) => Ok(Some(session)),
            Err(error) => {
                let what = "the session of the thread on the agent's server is malformed";
                Err(Failure::new(code::UPSTREAM_MALFORMED, what).with_detail(error.to_string()))
            }
        }
    }

    fn call(&self, request: &input::Request) -> Result<Call, Failure> {
        let method = Method::from_bytes(request.method.as_bytes());
        Ok(Call {
            method: method.map_err(|error| Failure::new(code::INTERNAL, error.to_string()))?,
            url: self.http.below(&request.path)?,
            accept: "application/json",
            json: request.body.as_ref().map(|body| body.get().to_owned()),
            last_event_id: None,
        })
    }

    async fn ask(&self, request: &Request, what: &input::Request) -> Result<Answer, Failure> {
        self.http.ask(request, self.call(what)?).await
    }
}
