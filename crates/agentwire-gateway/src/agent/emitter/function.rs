//! Agents that are functions.

use std::{future::Future, sync::Arc};

use super::{
    super::{Agent, BoxFuture, EventSink, Request},
    BoxError, Emitter,
};
use crate::error::UpstreamError;

/// Creates an agent from a function of a [`Request`] and an [`Emitter`].
///
/// The run succeeds when the function returns `Ok`. An error ends it with RUN_ERROR: an [`UpstreamError`] with its own code
/// and message, any other error as `UPSTREAM_FAILED` with its text in the log only. When the run is stopped, the future is
/// dropped and emitting fails, so that `?` ends the agent in both cases.
///
/// ```
/// use agentwire_gateway::agent::agent_fn;
/// use serde_json::json;
///
/// let echo = agent_fn(|request, emit| async move {
///     let call = emit.call("count", json!({"text": request.user_text()})).await?;
///     call.result(request.user_text().len().to_string()).await?;
///     emit.text(format!("You said: {}", request.user_text())).await?;
///     Ok(())
/// });
/// # let _ = echo;
/// ```
///
/// Other data is captured, and cloned for each run:
///
/// ```
/// use agentwire_gateway::agent::agent_fn;
///
/// let greeting: std::sync::Arc<str> = "Hello".into();
/// let agent = agent_fn(move |_, emit| {
///     let greeting = greeting.clone();
///     async move {
///         emit.text(&*greeting).await?;
///         Ok(())
///     }
/// });
/// # let _ = agent;
/// ```
pub fn agent_fn<F, A>(function: F) -> Arc<dyn Agent>
where
    F: Fn(Request, Emitter) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    struct AgentFn<F>(F);
    impl<F, A> Agent for AgentFn<F>
    where
        F: Fn(Request, Emitter) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
            emitting(request, sink, &self.0)
        }
    }
    Arc::new(AgentFn(function))
}

/// Executes a run with an [`Emitter`], as [`agent_fn`] does, for types that implement [`Agent`].
///
/// ```
/// use agentwire_gateway::{UpstreamError, agent::{Agent, BoxFuture, EventSink, Request, emitting}};
///
/// struct Greeter {
///     greeting: String,
/// }
///
/// impl Agent for Greeter {
///     fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
///         let greeting = self.greeting.clone();
///         emitting(request, sink, |_, emit| async move {
///             emit.text(greeting).await?;
///             Ok(())
///         })
///     }
/// }
/// ```
pub fn emitting<A>(
    request: Request,
    sink: EventSink,
    function: impl FnOnce(Request, Emitter) -> A,
) -> BoxFuture<'static, Result<(), UpstreamError>>
where
    A: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let emit = Emitter::new(&request, sink);
    let work = function(request, emit.clone());
    Box::pin(async move {
        // The end events of dropped handles must not wait for an agent that emits nothing. Both futures are polled together:
        // a task that waits for capacity and is not polled would keep it from the other.
        let unsent = async {
            loop {
                emit.run.unsent.notified().await;
                if let Err(stopped) = emit.flush().await {
                    break stopped;
                }
            }
        };
        let done = tokio::select! {
            biased;
            done = work => done,
            stopped = unsent => return Err(stopped.into()),
        };
        match done {
            Ok(()) => emit.finish().await?,
            Err(error) => {
                emit.flush().await?;
                return Err(error.into());
            }
        }
        Ok(())
    })
}
