//! Functions that are agents.

use std::{future::Future, sync::Arc};

use super::{
    super::{Agent, BoxFuture, EventSink, Request},
    BoxError, Emitter,
};
use crate::error::UpstreamError;

/// Makes an agent of a function: a run comes in, and an [`Emitter`] takes what the agent says.
///
/// The run succeeds when the function returns `Ok`. An error ends it with RUN_ERROR: a [`UpstreamError`] with its own code and
/// message, anything else as `UPSTREAM_FAILED` with what it says in the log only. When the run is stopped, the future is
/// dropped, and emitting fails, so that `?` ends the agent either way.
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
/// What the function needs beside the run is captured, and cloned for each run:
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
pub fn agent_fn<F, A>(answer: F) -> Arc<dyn Agent>
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
    Arc::new(AgentFn(answer))
}

/// Answers a run with an [`Emitter`]: what [`agent_fn`] does, for types that are agents themselves.
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
    answer: impl FnOnce(Request, Emitter) -> A,
) -> BoxFuture<'static, Result<(), UpstreamError>>
where
    A: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let emit = Emitter::new(&request, sink);
    let answer = answer(request, emit.clone());
    Box::pin(async move {
        // What a dropped handle owes must not wait for an agent that works in silence. Both are polled together: a task that
        // waits for room and is not polled would keep it from the other.
        let debts = async {
            loop {
                emit.run.owing.notified().await;
                if let Err(stopped) = emit.settle().await {
                    break stopped;
                }
            }
        };
        let answered = tokio::select! {
            biased;
            answered = answer => answered,
            stopped = debts => return Err(stopped.into()),
        };
        match answered {
            Ok(()) => emit.finish().await?,
            Err(error) => {
                emit.settle().await?;
                return Err(error.into());
            }
        }
        Ok(())
    })
}
