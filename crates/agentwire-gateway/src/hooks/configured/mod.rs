//! Hooks by configuration: rules for events, and HTTP servers.
//!
//! Rules are applied first, so that data for a server is already redacted. They act on the agent's events, at the event
//! hook; the servers for input and state are called at the hooks of those names, and the output server gets the events as
//! they are appended to the log.

mod http;
mod pointer;
mod record;
mod rewrite;
mod rule;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agentwire_core::{
    Tally,
    event::{Event, RunId, RunInput, ThreadId},
    format::ag_ui,
    json::Json,
};
use serde_json::{Value, json};

use self::{http::HookServer, record::Recorder, rewrite::Rewrite, rule::Rule};
pub use self::{
    http::{Endpoint, OnFailure},
    rule::{Action, EVENTS, Place, RuleError, RuleOptions},
};
use super::{Hooked, Hooks, RunContext, failed, refused};
use crate::error::UpstreamError;

/// The margin of a hook's timeout over that of its server, so that the error names the server.
const MARGIN: Duration = Duration::from_secs(5);

/// The options of [`ConfiguredHooks`].
#[derive(Clone, Debug, Default)]
pub struct HookOptions {
    /// Rules for events, in order.
    pub rules: Vec<RuleOptions>,
    /// Called with every run input; may change or refuse it.
    pub input: Option<Endpoint>,
    /// Called with all events of the log.
    pub output: Option<Endpoint>,
    /// Called with the final state; may change it.
    pub state: Option<Endpoint>,
}

/// The reason why hook options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(pub(super) String);

/// The configured hooks of an agent; [`ConfiguredHooks::for_run`] creates those of a run. Cheap to clone.
///
/// ```
/// use agentwire_gateway::hooks::{Action, ConfiguredHooks, HookOptions, RuleOptions};
///
/// let rule = RuleOptions { event: Some("REASONING_*".into()), ..RuleOptions::new(Action::Drop) };
/// let hooks = ConfiguredHooks::new(HookOptions { rules: vec![rule], ..HookOptions::default() })?;
/// // `builder.hooks(move |run| hooks.for_run(run))`
/// # Ok::<_, agentwire_gateway::hooks::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConfiguredHooks(Arc<ConfiguredServers>);

#[derive(Debug)]
struct ConfiguredServers {
    rules: Arc<[Rule]>,
    input: Option<HookServer>,
    output: Option<Arc<HookServer>>,
    state: Option<HookServer>,
    timeout: Duration,
}

impl ConfiguredHooks {
    /// The hooks of an agent.
    ///
    /// # Errors
    /// When a rule can never have an effect, or the URL or a header of a server is invalid.
    pub fn new(options: HookOptions) -> Result<Self, OptionsError> {
        let HookOptions { rules, input, output, state } = options;
        let rules = rules.iter().enumerate().map(|(index, rule)| {
            Rule::new(rule).map_err(|problem| OptionsError(format!("rule {}: {problem}", index + 1)))
        });
        let rules = rules.collect::<Result<Arc<[_]>, _>>()?;
        // A record waits for the batch in flight and for its own.
        let times = [&input, &state, &output, &output].into_iter().flatten().map(|endpoint| endpoint.timeout);
        let timeout = times.sum::<Duration>() + MARGIN;
        let server = |endpoint: Option<Endpoint>| endpoint.map(HookServer::new).transpose();
        let (input, output, state) = (server(input)?, server(output)?.map(Arc::new), server(state)?);
        Ok(Self(Arc::new(ConfiguredServers { rules, input, output, state, timeout })))
    }

    /// The rules without the servers.
    #[must_use]
    pub fn rules_of(&self, thread: ThreadId, run: RunId) -> RuleFilter {
        RuleFilter(Rewrite::with_ids(Arc::clone(&self.0.rules), thread, run))
    }

    /// The hooks of one run.
    #[must_use]
    pub fn for_run(&self, run: &RunContext) -> impl Hooks + use<> {
        let shared = Arc::clone(&self.0);
        let rewrite = Rewrite::new(Arc::clone(&shared.rules), run);
        let recorder = shared.output.as_ref().map(|server| Recorder::new(Arc::clone(server), run));
        ConfiguredRun { about: about(run), rewrite: Mutex::new(rewrite), recorder, shared }
    }
}

/// The rules of an agent alone, for events that are not of a run of this gateway, such as those of a recording.
pub struct RuleFilter(Rewrite);

impl RuleFilter {
    /// Applies the rules to an event; the events in `out` replace it.
    ///
    /// # Errors
    /// When the buffered arguments exceed their limit.
    pub fn apply(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        self.0.event(event, out)
    }
}

impl std::fmt::Debug for RuleFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleFilter").finish_non_exhaustive()
    }
}

/// The description of a run in every request to a server.
fn about(run: &RunContext) -> serde_json::Map<String, Value> {
    let about = json!({
        "agent": &*run.agent, "tenant": run.owner.tenant.as_str(), "user": run.owner.user.as_str(),
        "threadId": run.thread.as_str(), "runId": run.run.as_str(),
    });
    match about {
        Value::Object(about) => about,
        _ => serde_json::Map::new(),
    }
}

/// The hooks of one run.
struct ConfiguredRun {
    shared: Arc<ConfiguredServers>,
    about: serde_json::Map<String, Value>,
    rewrite: Mutex<Rewrite>,
    recorder: Option<Recorder>,
}

impl ConfiguredRun {
    fn body(&self, hook: &str, key: &str, value: Value) -> String {
        let mut body = serde_json::Map::from_iter([("hook".to_owned(), hook.into())]);
        body.extend(self.about.clone());
        body.insert(key.to_owned(), value);
        Value::Object(body).to_string()
    }

    async fn offer_input(
        &self,
        server: &HookServer,
        input: &RunInput,
    ) -> Result<Option<RunInput>, UpstreamError> {
        let sent: Value = serde_json::from_str(&ag_ui::input::to_json(input)).unwrap_or_default();
        let answer = server.call("input", self.body("input", "input", sent), &["input", "refuse"]).await;
        let read = |answer: Option<serde_json::Map<String, Value>>| {
            let Some(mut answer) = answer else { return Ok(None) };
            if let Some(why) = answer.get("refuse").filter(|why| !why.is_null()) {
                let Some(why) = why.as_str() else { return Err("`refuse` is no text".to_owned()) };
                return Ok(Some(Err(refused(why))));
            }
            let Some(changed) = answer.remove("input") else { return Ok(None) };
            let changed = ag_ui::input::from_json(&changed.to_string(), &mut Tally::default());
            changed.map(|input| Some(Ok(input))).map_err(|error| format!("`input` is no run input: {error}"))
        };
        match server.resolve("input", answer.and_then(read))? {
            None | Some(None) => Ok(None),
            Some(Some(decision)) => decision.map(Some),
        }
    }
}

impl Hooks for ConfiguredRun {
    fn input(&self, mut input: RunInput) -> Hooked<'_, RunInput> {
        Box::pin(async move {
            if let Some(server) = &self.shared.input
                && let Some(changed) = self.offer_input(server, &input).await?
            {
                input = changed;
            }
            self.rewrite.lock().unwrap_or_else(PoisonError::into_inner).begin(&mut input);
            Ok(input)
        })
    }

    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        let done = self.rewrite.lock().unwrap_or_else(PoisonError::into_inner).event(event, out);
        Box::pin(std::future::ready(done))
    }

    fn state(&self, state: Value) -> Hooked<'_, Value> {
        Box::pin(async move {
            let Some(server) = &self.shared.state else { return Ok(state) };
            let answer = server.call("state", self.body("state", "state", state.clone()), &["state"]).await;
            let read = |answer: Option<serde_json::Map<String, Value>>| {
                let Some(state) = answer.and_then(|mut answer| answer.remove("state")) else {
                    return Ok(None);
                };
                let fits = Json::parse(&state.to_string()).map(|_| Some(state));
                fits.map_err(|error| format!("answered with a state that cannot be told: {error}"))
            };
            let changed = answer.and_then(read);
            Ok(server.resolve("state", changed)?.flatten().unwrap_or(state))
        })
    }

    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        match &self.recorder {
            None => super::nothing(),
            Some(recorder) => Box::pin(recorder.record(event, &self.about)),
        }
    }

    fn timeout(&self) -> Duration {
        self.shared.timeout
    }
}

/// The error of a run that must not continue without its server.
fn server_failed(hook: &str, problem: &str) -> UpstreamError {
    failed(format!("the server of the `{hook}` hook {problem}"))
}
