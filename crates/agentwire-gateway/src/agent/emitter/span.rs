//! Spans: steps and subagents.

use std::ops::Deref;

use agentwire_core::event::{Body, SubagentId, SubagentStarted};
use serde_json::Value;

use super::{EmitError, Emitter, checked_json};

/// A step of a run. It ends on drop.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// agent_fn(|_, emit| async move {
///     for name in ["look", "decide"] {
///         let _step = emit.step(name).await?;
///         emit.text(format!("This is the step {name}.")).await?;
///     }
///     Ok(())
/// });
/// ```
#[derive(Debug)]
#[must_use = "a step ends when this is dropped"]
pub struct Step {
    emit: Emitter,
    name: Box<str>,
    is_open: bool,
}

impl Step {
    pub(super) async fn begin(emit: &Emitter, name: &str) -> Result<Self, EmitError> {
        let step = Self { emit: emit.clone(), name: name.into(), is_open: true };
        {
            let mut state = emit.state_mut();
            let open = state.steps.entry((emit.subagent.clone(), name.into())).or_default();
            *open += 1;
            if *open == 1 {
                state.queue.push_back(emit.event(Body::StepStarted { name: name.into() }));
            }
        }
        emit.flush().await?;
        Ok(step)
    }

    /// Ends the step and waits until its end event is sent.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn end(mut self) -> Result<(), EmitError> {
        if let Some(body) = self.ending() {
            self.emit.queue(body);
        }
        Ok(self.emit.flush().await?)
    }

    fn ending(&mut self) -> Option<Body> {
        if !std::mem::take(&mut self.is_open) {
            return None;
        }
        let key = (self.emit.subagent.clone(), self.name.clone());
        let mut state = self.emit.state_mut();
        let open = state.steps.get_mut(&key)?;
        *open -= 1;
        if *open > 0 {
            return None;
        }
        state.steps.remove(&key);
        Some(Body::StepFinished { name: self.name.clone() })
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(body) = self.ending() {
            self.emit.send_later([body]);
        }
    }
}

/// A subagent that has not started yet: [`Emitter::subagent`].
#[derive(Debug)]
#[must_use = "a subagent begins with `start`"]
pub struct NewSubagent {
    emit: Emitter,
    id: SubagentId,
    started: SubagentStarted,
}

impl NewSubagent {
    pub(super) fn new(emit: &Emitter, name: &str) -> Self {
        let started = SubagentStarted {
            name: name.into(),
            description: None,
            parent_subagent: emit.subagent.clone(),
            parent_call: None,
            parent_message: None,
        };
        Self { emit: emit.clone(), id: emit.id("s").into(), started }
    }

    /// Sets its description.
    pub fn described(mut self, description: impl Into<Box<str>>) -> Self {
        self.started.description = Some(description.into());
        self
    }

    /// Sets the tool call that started it.
    pub fn called_by(mut self, call: &super::ToolCallEmitter) -> Self {
        self.started.parent_call = Some(call.id().clone());
        self
    }

    /// Sets its parent. [`Emitter::subagent`] of a subagent sets it by itself.
    pub fn within(mut self, parent: &Subagent) -> Self {
        self.started.parent_subagent = parent.emit.subagent.clone();
        self
    }

    /// Starts the subagent.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn start(self) -> Result<Subagent, EmitError> {
        let emit = Emitter { run: self.emit.run, subagent: Some(self.id) };
        let subagent = Subagent { is_open: true, emit };
        subagent.emit.emit(Body::SubagentStarted(Box::new(self.started))).await?;
        Ok(subagent)
    }
}

/// A subagent: an [`Emitter`] whose events belong to it. It ends on drop.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// agent_fn(|_, emit| async move {
///     let researcher = emit.subagent("researcher").described("reads the papers").start().await?;
///     researcher.text("Three papers say so.").await?;
///     let summariser = researcher.subagent("summariser").start().await?;
///     summariser.text("It is so.").await?;
///     Ok(())
/// });
/// ```
#[derive(Debug)]
#[must_use = "a subagent ends when this is dropped"]
pub struct Subagent {
    emit: Emitter,
    is_open: bool,
}

impl Deref for Subagent {
    type Target = Emitter;
    fn deref(&self) -> &Emitter {
        &self.emit
    }
}

impl Subagent {
    /// Ends it with a result; `null` means none.
    ///
    /// # Errors
    /// When the run was stopped or the value is nested too deeply.
    pub async fn finish(self, result: impl Into<Value>) -> Result<(), EmitError> {
        let result = Some(checked_json(&result.into())?).filter(|result| !result.is_null());
        self.end(Body::SubagentFinished { result, outcome: None }).await
    }

    /// Ends it with an error. The run continues.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn fail(self, message: impl Into<Box<str>>) -> Result<(), EmitError> {
        self.end(Body::SubagentError { message: message.into(), code: None }).await
    }

    async fn end(mut self, body: Body) -> Result<(), EmitError> {
        self.is_open = false;
        self.emit.emit(body).await
    }
}

impl Drop for Subagent {
    fn drop(&mut self) {
        if self.is_open {
            self.emit.send_later([Body::SubagentFinished { result: None, outcome: None }]);
        }
    }
}
