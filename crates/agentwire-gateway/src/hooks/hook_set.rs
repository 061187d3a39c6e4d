//! The hooks of one run, called with a timeout and isolated from panics, so that they affect no other run.

use std::{
    fmt,
    future::{Future, ready},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use agentwire_core::event::{Event, RunInput};
use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Hooks, Points, failed};
use crate::{
    agent::{BoxFuture, NativeEvent, NativeHooks, Translated},
    error::UpstreamError,
};

/// All hooks of one run. Cheap to clone.
#[derive(Clone)]
pub struct HookSet {
    hooks: Arc<dyn Hooks>,
    points: Points,
    batch_size: usize,
}

impl fmt::Debug for HookSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookSet")
            .field("timeout", &self.hooks.timeout())
            .field("points", &self.points)
            .finish_non_exhaustive()
    }
}

impl HookSet {
    /// The hooks of one run.
    #[must_use]
    pub fn new(hooks: impl Hooks) -> Self {
        let (points, batch_size) = (hooks.points(), hooks.batch_size().max(1));
        Self { hooks: Arc::new(hooks), points, batch_size }
    }

    /// The hooks to call.
    pub(crate) fn points(&self) -> Points {
        self.points
    }

    pub(crate) async fn input_record(&self, input: &RunInput) -> Result<(), UpstreamError> {
        if !self.points.contains(Points::INPUT_RECORD) {
            return Ok(());
        }
        self.call("input_record", async { self.hooks.input_record(input).await }).await
    }

    pub(crate) async fn input(&self, input: RunInput) -> Result<RunInput, UpstreamError> {
        if !self.points.contains(Points::INPUT) {
            return Ok(input);
        }
        self.call("input", async { self.hooks.input(input).await }).await
    }

    /// Filters at most [`NativeHooks::batch_size`] events. After an error, `out` has the events before it.
    pub(crate) async fn events(&self, batch: Vec<Event>, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        if !self.points.contains(Points::EVENT) {
            out.extend(batch);
            return Ok(());
        }
        self.call("event", async { self.hooks.events(batch, out).await }).await
    }

    pub(crate) async fn state(&self, state: Value) -> Result<Value, UpstreamError> {
        self.call("state", async { self.hooks.state(state).await }).await
    }

    /// Records events, then changes them: one event for each is added to `out`. After an error, `out` has the events
    /// before it.
    pub(crate) async fn outputs(
        &self,
        mut batch: Vec<Event>,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        if !self.points.intersects(Points::OUTPUT_RECORD | Points::OUTPUT) {
            out.append(&mut batch);
            return Ok(());
        }
        while !batch.is_empty() {
            let rest = batch.split_off(self.batch_size.min(batch.len()));
            let some = std::mem::replace(&mut batch, rest);
            if self.points.contains(Points::OUTPUT_RECORD) {
                self.call("output_record", async { self.hooks.output_records(&some).await }).await?;
            }
            if !self.points.contains(Points::OUTPUT) {
                out.extend(some);
                continue;
            }
            let expected = out.len() + some.len();
            self.call("output", async { self.hooks.outputs(some, &mut *out).await }).await?;
            if out.len() != expected {
                out.truncate(expected);
                return Err(failed("the hook `output` did not return one event for each"));
            }
        }
        Ok(())
    }

    /// Calls a hook. The method itself is called within the future, so that its panic is caught as well.
    async fn call<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let limit = self.hooks.timeout();
        match timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(failed(format!("the hook `{name}` panicked"))),
            Err(_) => Err(failed(format!("the hook `{name}` took longer than {limit:?}"))),
        }
    }
}

impl NativeHooks for HookSet {
    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn filter<'h>(
        &'h self,
        mut batch: Vec<NativeEvent>,
        deadline: Option<Instant>,
        out: &'h mut Vec<NativeEvent>,
    ) -> BoxFuture<'h, Result<Option<()>, UpstreamError>> {
        if !self.points.contains(Points::NATIVE) {
            out.append(&mut batch);
            return Box::pin(ready(Ok(Some(()))));
        }
        Box::pin(async move {
            let call = self.call("native", async { self.hooks.natives(batch, out).await });
            match deadline {
                None => call.await.map(Some),
                Some(deadline) => timeout_at(deadline, call).await.ok().transpose(),
            }
        })
    }

    fn translate<'h>(
        &'h self,
        batch: &'h [NativeEvent],
        out: &'h mut Vec<Translated>,
    ) -> BoxFuture<'h, Result<(), UpstreamError>> {
        if !self.points.contains(Points::TRANSLATE) {
            out.extend(batch.iter().map(|_| Translated::default()));
            return Box::pin(ready(Ok(())));
        }
        Box::pin(async move {
            let expected = out.len() + batch.len();
            self.call("translate", async { self.hooks.translations(batch, out).await }).await?;
            match out.len() == expected {
                true => Ok(()),
                false => Err(failed("the hook `translate` did not return one decision for each event")),
            }
        })
    }

    fn fallback<'h>(
        &'h self,
        out: &'h mut Vec<Event>,
    ) -> BoxFuture<'h, Result<Vec<NativeEvent>, UpstreamError>> {
        Box::pin(self.call("native_fallback", async { self.hooks.native_fallback(out).await }))
    }

    fn timeout(&self) -> Option<Duration> {
        match self.points.contains(Points::NATIVE_FALLBACK) {
            true => self.hooks.native_timeout(),
            false => None,
        }
    }
}
