//! The hooks of one run, called with a timeout and isolated from panics, so that they affect no other run.

use std::{fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use agentwire_core::event::{Event, RunInput};
use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Hooks, failed};
use crate::{
    agent::{BoxFuture, NativeEvent, NativeHooks, Translation},
    error::UpstreamError,
};

/// All hooks of one run. Cheap to clone.
#[derive(Clone)]
pub struct HookSet {
    hooks: Arc<dyn Hooks>,
    timeout: Duration,
    native_timeout: Option<Duration>,
}

impl fmt::Debug for HookSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookSet").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl HookSet {
    /// The hooks of one run.
    #[must_use]
    pub fn new(hooks: impl Hooks) -> Self {
        let (timeout, native_timeout) = (hooks.timeout(), hooks.native_timeout());
        Self { hooks: Arc::new(hooks), timeout, native_timeout }
    }

    pub(crate) async fn input_record(&self, input: &RunInput) -> Result<(), UpstreamError> {
        self.call("input_record", async { self.hooks.input_record(input).await }).await
    }

    pub(crate) async fn input(&self, input: RunInput) -> Result<RunInput, UpstreamError> {
        self.call("input", async { self.hooks.input(input).await }).await
    }

    pub(crate) async fn event(&self, event: Event, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        self.call("event", async { self.hooks.event(event, out).await }).await
    }

    pub(crate) async fn state(&self, state: Value) -> Result<Value, UpstreamError> {
        self.call("state", async { self.hooks.state(state).await }).await
    }

    /// Records an event, then changes it.
    pub(crate) async fn output(&self, event: Event) -> Result<Event, UpstreamError> {
        self.call("output_record", async { self.hooks.output_record(&event).await }).await?;
        self.call("output", async { self.hooks.output(event).await }).await
    }

    /// Calls a hook. The method itself is called within the future, so that its panic is caught as well.
    async fn call<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        match timeout(self.timeout, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(failed(format!("the hook `{name}` panicked"))),
            Err(_) => Err(failed(format!("the hook `{name}` took longer than {:?}", self.timeout))),
        }
    }
}

impl NativeHooks for HookSet {
    fn filter<'h>(
        &'h self,
        native: NativeEvent,
        deadline: Option<Instant>,
        out: &'h mut Vec<NativeEvent>,
    ) -> BoxFuture<'h, Result<Option<()>, UpstreamError>> {
        Box::pin(async move {
            let call = self.call("native", async { self.hooks.native(native, out).await });
            match deadline {
                None => call.await.map(Some),
                Some(deadline) => timeout_at(deadline, call).await.ok().transpose(),
            }
        })
    }

    fn translate<'h>(
        &'h self,
        native: &'h NativeEvent,
        out: &'h mut Vec<Event>,
    ) -> BoxFuture<'h, Result<Translation, UpstreamError>> {
        Box::pin(self.call("translate", async { self.hooks.translate(native, out).await }))
    }

    fn fallback<'h>(
        &'h self,
        out: &'h mut Vec<Event>,
    ) -> BoxFuture<'h, Result<Vec<NativeEvent>, UpstreamError>> {
        Box::pin(self.call("native_fallback", async { self.hooks.native_fallback(out).await }))
    }

    fn timeout(&self) -> Option<Duration> {
        self.native_timeout
    }
}
