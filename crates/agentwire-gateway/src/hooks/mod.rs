//! Where a program takes part in a run without being its agent.
//!
//! [`Hooks`] is a trait of methods that do nothing unless they are written; each is called at one point of a run, in
//! this order:
//!
//! ```text
//! lock ─▶ input_record ─▶ input ─▶ AGENT ─▶ native ─▶ translate ─▶ event ─▶ (state) ─▶ output_record ─▶ output ─▶ log ─▶ unlock
//!                                           └── each event of the agent's own stream ──┘└── each event of the log ──┘
//! ```
//!
//! Hooks are made for each run by a factory, so they may hold what one run needs. The session lock is the exception:
//! [`SessionLock`] is made once, with the gateway. Whatever hooks do, what follows them is the guard, so the stream
//! stays valid; and a hook that fails, hangs or panics ends its run with `HOOK_FAILED`, with everything closed
//! and the lock freed.
//!
//! [`Configured`] is what `agentwire.toml` can say without any Rust.

mod configured;
mod forward;
mod hook_set;
mod lock;

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunId, RunInput, ThreadId};
use agentwire_store::Owner;
use serde_json::Value;
use tokio_util::task::TaskTracker;

pub(crate) use self::lock::HeldLock;
pub use self::{
    configured::{
        Action, Configured, EVENTS, Endpoint, HookOptions, OnFailure, OptionsError, Place, RuleError,
        RuleOptions,
    },
    hook_set::HookSet,
    lock::SessionLock,
};
use crate::{
    agent::{BoxFuture, NativeEvent, Translation},
    error::{UpstreamError, UpstreamErrorKind},
};

/// How long one call of a hook may take unless the hook says otherwise: longer than anything that is done while
/// people wait, shorter than the time after which a gateway is thought dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a hook gives back.
pub type Hooked<'h, T = ()> = BoxFuture<'h, Result<T, UpstreamError>>;

/// Makes the hooks of a run.
pub(crate) type Factory = Arc<dyn Fn(&RunContext) -> HookSet + Send + Sync>;

/// What a run is about: given to the factory and to the session lock. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The agent's name.
    pub agent: Arc<str>,
    /// For whom.
    pub owner: Owner,
    /// In which conversation.
    pub thread: ThreadId,
    /// Which run.
    pub run: RunId,
    /// Headers that are passed on to the agent, names in lower case.
    pub headers: Arc<[(String, String)]>,
    /// What must be done before the gateway ends.
    pub(crate) tasks: TaskTracker,
}

/// What takes part in a run. Every method has a default that changes nothing.
///
/// An error ends the run with RUN_ERROR: [`refused`] for what must not be, [`failed`] for what did not work, or any
/// [`UpstreamError`] with a code of its own. So does a call that takes longer than [`Hooks::timeout`], or panics. What was
/// open is closed, and the output hooks still see that ending, unless they are what failed.
///
/// A gateway that comes back after a crash and takes a run up again (see `Agent::attach`) plays it from its beginning, through new
/// hooks. They must make the same of it as the first time, or the run is lost.
///
/// ```
/// use agentwire_core::event::{Body, Event};
/// use agentwire_gateway::hooks::{Hooked, Hooks};
///
/// /// Nobody sees what the agent thinks.
/// struct Discreet;
///
/// impl Hooks for Discreet {
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
/// A future is dropped when its time is over or the gateway is shut down.
pub trait Hooks: Send + Sync + 'static {
    /// The run input, right after it was built: the conversation and the state as the agent would get them.
    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        let _ = input;
        nothing()
    }

    /// Changes or refuses what the agent is asked. The conversation that is kept is what the client said; the ids of
    /// thread and run stay what they are.
    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        Box::pin(std::future::ready(Ok(input)))
    }

    /// One event of the agent's own stream, before it is translated: whatever is put into `out` is translated instead,
    /// so this keeps, drops, changes or multiplies it.
    ///
    /// Only agents whose stream is read here have such events: all upstreams, not the demo agent nor agents in Rust.
    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        out.push(native);
        nothing()
    }

    /// How long the agent's next own event may take to come, from the one before it (or the head of the answer), and
    /// then to pass [`Hooks::native`]. As long as the agent's time-outs allow if absent.
    fn native_timeout(&self) -> Option<Duration> {
        None
    }

    /// That time is over: what is said instead. What is returned is translated, what is put into `out` comes before it. Nothing
    /// more is read of the agent's stream, and the run ends in good order; with `UPSTREAM_TIMEOUT` if there is nothing to say.
    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        let _ = out;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Takes part in the translation of an event of the agent's own stream: what is put into `out` is said first, and
    /// the answer says what the reader shall do.
    fn translate<'h>(&'h self, native: &'h NativeEvent, out: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        let _ = (native, out);
        Box::pin(std::future::ready(Ok(Translation::Default)))
    }

    /// One event of the agent's, translated: whatever is put into `out` is said instead, so this keeps, drops, changes
    /// or multiplies it. An ending that is dropped is no ending.
    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        out.push(event);
        nothing()
    }

    /// The state at the end of a run that did not fail, once, before RUN_FINISHED. If another one is returned, it is
    /// told as STATE_SNAPSHOT, and it is what the thread keeps.
    fn state(&self, state: Value) -> Hooked<'_, Value> {
        Box::pin(std::future::ready(Ok(state)))
    }

    /// One event that is about to go into the log and out, the gateway's own among them, with its time.
    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        let _ = event;
        nothing()
    }

    /// Changes an event that is about to go into the log and out. An ending stays an ending.
    fn output(&self, event: Event) -> Hooked<'_, Event> {
        Box::pin(std::future::ready(Ok(event)))
    }

    /// How long one call may take. Asked once for each run.
    fn timeout(&self) -> Duration {
        PATIENCE
    }
}

/// What must not be: the run ends with `HOOK_REFUSED`, and the client reads the message.
#[must_use]
pub fn refused(message: impl Into<Box<str>>) -> UpstreamError {
    UpstreamErrorKind::Refused(message.into()).into()
}

/// What did not work: the run ends with `HOOK_FAILED`, and the detail is for the gateway's log only.
#[must_use]
pub fn failed(detail: impl Into<String>) -> UpstreamError {
    UpstreamError::from(UpstreamErrorKind::Hook).with_detail(detail)
}

fn nothing<'h>() -> Hooked<'h> {
    Box::pin(std::future::ready(Ok(())))
}
