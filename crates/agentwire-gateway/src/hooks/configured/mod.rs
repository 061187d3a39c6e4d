//! Hooks by configuration: rules for events, and HTTP servers.
//!
//! Rules are applied first, so that the events for a server are already redacted. They act on the agent's events, at the
//! event hook; each server is called at the hook of its name. Native events are older than the rules.

mod body;
mod http;
mod lock;
mod native_json;
mod pointer;
mod record;
mod reply;
mod rewrite;
mod rule;
mod run;

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunId, ThreadId};

use self::{http::HookServer, lock::ServerLock, rewrite::Rewrite, rule::Rule, run::ConfiguredRun};
pub use self::{
    http::{Endpoint, OnFailure},
    rule::{Action, EVENTS, Place, RuleError, RuleOptions},
};
use super::{Hooks, Points, RunContext, SessionLock, failed};
use crate::error::UpstreamError;

/// The margin of a hook's timeout over that of its server, so that the error names the server.
const MARGIN: Duration = Duration::from_secs(5);

/// The options of [`ConfiguredHooks`]. Each server is called at the hook of its name.
#[derive(Clone, Debug, Default)]
pub struct HookOptions {
    /// Rules for events, in order.
    pub rules: Vec<RuleOptions>,
    /// Acquires and releases the session lock.
    pub lock: Option<Endpoint>,
    /// Records every run input.
    pub input_record: Option<Endpoint>,
    /// May change or refuse every run input.
    pub input: Option<Endpoint>,
    /// May change, drop and add native events.
    pub native: Option<Endpoint>,
    /// Replaces the rest of a stream whose next native event is later than the duration.
    pub native_fallback: Option<(Duration, Endpoint)>,
    /// Decides on the decoding of native events.
    pub translate: Option<Endpoint>,
    /// May change, drop and add events of the agent.
    pub event: Option<Endpoint>,
    /// May change the final state.
    pub state: Option<Endpoint>,
    /// Records all events of the log.
    pub output_record: Option<Endpoint>,
    /// May change all events of the log.
    pub output: Option<Endpoint>,
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
    lock: Option<(Arc<HookServer>, Duration)>,
    input_record: Option<Arc<HookServer>>,
    input: Option<HookServer>,
    native: Option<HookServer>,
    native_fallback: Option<(Duration, HookServer)>,
    translate: Option<HookServer>,
    event: Option<HookServer>,
    state: Option<HookServer>,
    output_record: Option<Arc<HookServer>>,
    output: Option<HookServer>,
}

impl ConfiguredServers {
    /// The hooks that have something to do.
    fn points(&self) -> Points {
        let has_rules = !self.rules.is_empty();
        let points = [
            (Points::INPUT_RECORD, self.input_record.is_some()),
            // Renamed tools get their original names there.
            (Points::INPUT, self.input.is_some() || has_rules),
            (Points::NATIVE, self.native.is_some()),
            (Points::NATIVE_FALLBACK, self.native_fallback.is_some()),
            (Points::TRANSLATE, self.translate.is_some()),
            (Points::EVENT, self.event.is_some() || has_rules),
            (Points::STATE, self.state.is_some()),
            (Points::OUTPUT_RECORD, self.output_record.is_some()),
            (Points::OUTPUT, self.output.is_some()),
        ];
        let used = points.into_iter().filter(|(_, is_used)| *is_used);
        used.fold(Points::NONE, |all, (point, _)| all | point)
    }
}

impl ConfiguredHooks {
    /// The hooks of an agent.
    ///
    /// # Errors
    /// When a rule can never have an effect, or the URL, a header or the secret of a server is invalid.
    pub fn new(options: HookOptions) -> Result<Self, OptionsError> {
        let rules = options.rules.iter().enumerate().map(|(index, rule)| {
            Rule::new(rule).map_err(|problem| OptionsError(format!("rule {}: {problem}", index + 1)))
        });
        let rules = rules.collect::<Result<Arc<[_]>, _>>()?;
        let server = |endpoint: Option<Endpoint>| endpoint.map(HookServer::new).transpose();
        let lock_timeout = options.lock.as_ref().map(|endpoint| endpoint.timeout);
        let native_fallback = match options.native_fallback {
            Some((after, endpoint)) => Some((after, HookServer::new(endpoint)?)),
            None => None,
        };
        Ok(Self(Arc::new(ConfiguredServers {
            rules,
            lock: server(options.lock)?.map(Arc::new).zip(lock_timeout),
            input_record: server(options.input_record)?.map(Arc::new),
            input: server(options.input)?,
            native: server(options.native)?,
            native_fallback,
            translate: server(options.translate)?,
            event: server(options.event)?,
            state: server(options.state)?,
            output_record: server(options.output_record)?.map(Arc::new),
            output: server(options.output)?,
        })))
    }

    /// The session lock, if it is configured.
    #[must_use]
    pub fn lock(&self) -> Option<Arc<dyn SessionLock>> {
        let (server, timeout) = self.0.lock.clone()?;
        Some(Arc::new(ServerLock { server, timeout }))
    }

    /// True if there is anything but the session lock.
    #[must_use]
    pub fn has_hooks(&self) -> bool {
        self.0.points() != Points::NONE
    }

    /// The rules without the servers.
    #[must_use]
    pub fn rules_of(&self, thread: ThreadId, run: RunId) -> RuleFilter {
        RuleFilter(Rewrite::with_ids(Arc::clone(&self.0.rules), thread, run))
    }

    /// The hooks of one run.
    #[must_use]
    pub fn for_run(&self, run: &RunContext) -> impl Hooks + use<> {
        ConfiguredRun::new(Arc::clone(&self.0), run)
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

/// The error of a run that must not continue without its server.
fn server_failed(hook: &str, problem: &str) -> UpstreamError {
    failed(format!("the server of the `{hook}` hook {problem}"))
}
