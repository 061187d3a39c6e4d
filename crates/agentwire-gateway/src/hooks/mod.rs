//! Hooks: user code around a run, beside its agent.
//!
//! [`Hooks`] is a trait whose methods do nothing by default; each is called at one point of a run, in this order:
//!
//! ```text
//! lock ─▶ input_record ─▶ input ─▶ AGENT ─▶ native ─▶ translate ─▶ event ─▶ (state) ─▶ output_record ─▶ output ─▶ log ─▶ unlock
//!                                           └── each event of the agent's own stream ──┘└── each event of the log ──┘
//! ```
//!
//! A factory creates the hooks of each run, so they may hold the data of one run. The exception is the session lock:
//! [`SessionLock`] is created once, with the gateway. The guard follows the hooks, so the stream stays valid with any
//! hooks; and a hook that fails, hangs or panics ends its run with `HOOK_FAILED`, with all messages and calls closed and
//! the lock released.
//!
//! [`ConfiguredHooks`] are the hooks of `agentwire.toml`, without Rust code.

mod configured;
mod forward;
mod hook_set;
mod lock;
mod points;

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunId, RunInput, ThreadId};
use agentwire_store::Owner;
use serde_json::Value;
use tokio_util::task::TaskTracker;

pub(crate) use self::lock::HeldLock;
pub use self::{
    configured::{
        Action, ConfiguredHooks, EVENTS, Endpoint, HookOptions, OnFailure, OptionsError, Place, RuleError,
        RuleFilter, RuleOptions,
    },
    hook_set::HookSet,
    lock::SessionLock,
    points::Points,
};
use crate::{
    agent::{BoxFuture, NativeEvent, RequestContext, Translated, Translation},
    error::{UpstreamError, UpstreamErrorKind},
};

/// The default timeout of one call of a hook: longer than any work that a person waits for, shorter than the lease after
/// which a gateway counts as dead.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The future that a hook returns.
pub type Hooked<'h, T = ()> = BoxFuture<'h, Result<T, UpstreamError>>;

/// Creates the hooks of a run.
pub(crate) type Factory = Arc<dyn Fn(&RunContext) -> HookSet + Send + Sync>;

/// The identity of a run, for the factory and the session lock. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The agent's name.
    pub agent: Arc<str>,
    /// The owner of the thread.
    pub owner: Owner,
    /// The thread id.
    pub thread: ThreadId,
    /// The run id.
    pub run: RunId,
    /// Headers that are passed on to the agent, with names in lower case.
    pub headers: Arc<[(String, String)]>,
    /// The run input of the client.
    pub input: Arc<RunInput>,
    /// Data of the app that the request came through.
    pub context: Option<RequestContext>,
    /// Tasks that must end before the gateway exits.
    pub(crate) tasks: TaskTracker,
}

/// The hooks of a run. Every method has a default that changes nothing.
///
/// An error ends the run with RUN_ERROR: [`refused`] for a run that is not allowed, [`failed`] for a failure of the hook,
/// or any [`UpstreamError`] with its own code. So does a call that panics or takes longer than [`Hooks::timeout`]. Open
/// messages and calls are closed, and the output hooks see that terminal event, unless they are the hooks that failed.
///
/// Events are handed over one by one. Hooks for which a call is expensive get those that gathered since the last call at
/// once: see [`Hooks::batch_size`].
///
/// After a crash, a gateway that reattaches to a run (see [`Agent::attach`](crate::agent::Agent::attach)) replays it from
/// its start through new hooks. They must produce the same events as before, or the run is lost.
///
/// ```
/// use agentwire_core::event::{Body, Event};
/// use agentwire_gateway::hooks::{Hooked, Hooks};
///
/// /// Removes reasoning.
/// struct WithoutReasoning;
///
/// impl Hooks for WithoutReasoning {
///     fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
///         Box::pin(async move {
///             if !event.kind().starts_with("REASONING_") {
///                 out.push(event);
///             }
///             Ok(())
///         })
///     }
/// }
/// ```
///
/// # Cancel safety
/// A future is dropped when it exceeds its timeout or the gateway shuts down.
pub trait Hooks: Send + Sync + 'static {
    /// Records the run input as it was built: the conversation and the state that the agent would get.
    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        let _ = input;
        nothing()
    }

    /// Changes or refuses the run input for the agent. The stored conversation contains the client's original messages; the
    /// ids of thread and run cannot be changed.
    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        Box::pin(std::future::ready(Ok(input)))
    }

    /// Filters a native event before decoding: the events in `out` are decoded instead, so a hook can keep, drop, change or
    /// duplicate it.
    ///
    /// Only upstreams have native events, not the demo agent nor agents in Rust.
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        out.push(native);
        nothing()
    }

    /// The timeout of the next native event, from the previous one (or the head of the response), and then of
    /// [`Hooks::native`]. Without it the agent's timeouts apply.
    fn native_timeout(&self) -> Option<Duration> {
        None
    }

    /// Replaces the rest of the agent's stream after [`Hooks::native_timeout`]: the returned events are decoded, those in
    /// `out` precede them. The run then ends normally; with `UPSTREAM_TIMEOUT` if there are no events.
    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        let _ = out;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Decides on the decoding of a native event; events put into `out` precede the decoded ones.
    fn translate<'h>(&'h self, native: &'h NativeEvent, out: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        let _ = (native, out);
        Box::pin(std::future::ready(Ok(Translation::Default)))
    }

    /// Filters an event of the agent after decoding: the events in `out` replace it, so a hook can keep, drop, change or
    /// duplicate it. Without its terminal event the run continues.
    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        out.push(event);
        nothing()
    }

    /// Changes the state at the end of a run that did not fail, once, before RUN_FINISHED. A changed state is sent as
    /// STATE_SNAPSHOT and stored in the thread.
    fn state(&self, state: Value) -> Hooked<'_, Value> {
        Box::pin(std::future::ready(Ok(state)))
    }

    /// Records an event before it is appended to the log, with its timestamp; also the gateway's own events.
    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        let _ = event;
        nothing()
    }

    /// Changes an event before it is appended to the log. A terminal event must stay one.
    fn output(&self, event: Event) -> Hooked<'_, Event> {
        Box::pin(std::future::ready(Ok(event)))
    }

    /// The timeout of one call. Read before each.
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// The hooks to call. Read once per run.
    fn points(&self) -> Points {
        Points::ALL
    }

    /// The largest number of events in one call of [`Hooks::natives`], [`Hooks::translations`], [`Hooks::events`],
    /// [`Hooks::output_records`] and [`Hooks::outputs`]. Read once per run. A call has the events that gathered while the
    /// previous one was running; no event waits for others.
    fn batch_size(&self) -> usize {
        1
    }

    /// [`Hooks::native`] for several events: those in `out` replace all of `batch`.
    fn natives<'h>(&'h self, batch: Vec<NativeEvent>, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        Box::pin(async move {
            let mut filtered = Vec::new();
            for native in batch {
                self.native(native, &mut filtered).await?;
                out.append(&mut filtered);
            }
            Ok(())
        })
    }

    /// [`Hooks::translate`] for several events: one decision for each is added to `out`, in order.
    fn translations<'h>(&'h self, batch: &'h [NativeEvent], out: &'h mut Vec<Translated>) -> Hooked<'h> {
        Box::pin(async move {
            for native in batch {
                let mut before = Vec::new();
                let (translation, result) = match self.translate(native, &mut before).await {
                    Ok(translation) => (translation, Ok(())),
                    Err(error) => (Translation::Skip, Err(error)),
                };
                out.push(Translated { before, translation });
                result?;
            }
            Ok(())
        })
    }

    /// [`Hooks::event`] for several events: those in `out` replace all of `batch`.
    fn events<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        Box::pin(async move {
            let mut filtered = Vec::new();
            for event in batch {
                self.event(event, &mut filtered).await?;
                out.append(&mut filtered);
            }
            Ok(())
        })
    }

    /// [`Hooks::output_record`] for several events.
    fn output_records<'h>(&'h self, batch: &'h [Event]) -> Hooked<'h> {
        Box::pin(async move {
            for event in batch {
                self.output_record(event).await?;
            }
            Ok(())
        })
    }

    /// [`Hooks::output`] for several events: one event for each is added to `out`, in order.
    fn outputs<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        Box::pin(async move {
            for event in batch {
                let changed = self.output(event).await?;
                out.push(changed);
            }
            Ok(())
        })
    }
}

/// The error of a hook that refuses a run: it ends with `HOOK_REFUSED`, and the client gets the message.
#[must_use]
pub fn refused(message: impl Into<Box<str>>) -> UpstreamError {
    UpstreamErrorKind::Refused(message.into()).into()
}

/// The error of a hook that failed: the run ends with `HOOK_FAILED`, and the detail goes to the log only.
#[must_use]
pub fn failed(detail: impl Into<String>) -> UpstreamError {
    UpstreamError::from(UpstreamErrorKind::Hook).with_detail(detail)
}

fn nothing<'h>() -> Hooked<'h> {
    Box::pin(std::future::ready(Ok(())))
}
