//! Tool calls.

use agentwire_core::event::{Body, Content, MessageId, ToolCallId, ToolResult};
use serde_json::Value;

use super::{EmitError, Emitter, checked_json};

/// The emitter of one tool call. The result ends the call; without one, its arguments end on drop.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// # use serde_json::json;
/// # async fn weather(city: &str) -> Result<String, std::io::Error> { Ok("rain".into()) }
/// agent_fn(|_, emit| async move {
///     let call = emit.call("weather", json!({"city": "Bern"})).await?;
///     match weather("Bern").await {
///         Ok(text) => call.result(text).await?,
///         Err(error) => call.fail("no answer", error.to_string()).await?,
///     };
///     Ok(())
/// });
/// ```
///
/// Arguments can be streamed:
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// agent_fn(|_, emit| async move {
///     let mut call = emit.open_call("weather").await?;
///     call.push(r#"{"city":"#).await?;
///     call.push(r#""Bern"}"#).await?;
///     call.result("rain").await?;
///     Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct ToolCallEmitter {
    emit: Emitter,
    id: ToolCallId,
    is_open: bool,
    /// True if arguments were emitted.
    has_arguments: bool,
}

impl ToolCallEmitter {
    pub(super) async fn open(
        emit: &Emitter,
        tool: &str,
        parent: Option<&MessageId>,
    ) -> Result<Self, EmitError> {
        let call = Self::begin(emit, tool, parent);
        emit.flush().await?;
        Ok(call)
    }

    pub(super) async fn whole(
        emit: &Emitter,
        tool: &str,
        parent: Option<&MessageId>,
        arguments: &Value,
    ) -> Result<Self, EmitError> {
        let arguments = checked_json(arguments)?;
        let mut call = Self::begin(emit, tool, parent);
        call.push(arguments.get()).await?;
        call.close().await?;
        Ok(call)
    }

    fn begin(emit: &Emitter, tool: &str, parent: Option<&MessageId>) -> Self {
        let id = ToolCallId::from(emit.id("c"));
        emit.queue(Body::ToolStart { call: id.clone(), name: tool.into(), parent: parent.cloned() });
        Self { emit: emit.clone(), id, is_open: true, has_arguments: false }
    }

    /// The call's id.
    #[must_use]
    pub fn id(&self) -> &ToolCallId {
        &self.id
    }

    /// Emits a piece of the arguments, which together must be JSON. Ignored once they are complete.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn push(&mut self, piece: impl Into<Box<str>>) -> Result<(), EmitError> {
        let delta = piece.into();
        if self.is_open && !delta.is_empty() {
            self.has_arguments = true;
            self.emit.queue(Body::ToolArgs { call: self.id.clone(), delta });
        }
        Ok(self.emit.flush().await?)
    }

    /// Ends the arguments before there is a result. A call without arguments gets `{}`.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn close(&mut self) -> Result<(), EmitError> {
        for body in self.ending() {
            self.emit.queue(body);
        }
        Ok(self.emit.flush().await?)
    }

    /// Emits the tool result.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn result(self, content: impl Into<Content>) -> Result<MessageId, EmitError> {
        self.answer(content.into(), None).await
    }

    /// Emits a failed tool result: the content for the model, and the error.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn fail(
        self,
        content: impl Into<Content>,
        error: impl Into<Box<str>>,
    ) -> Result<MessageId, EmitError> {
        self.answer(content.into(), Some(error.into())).await
    }

    /// Leaves the call to the client: the run ends with it pending.
    pub fn leave_open(self) -> ToolCallId {
        self.emit.state_mut().pending.push(self.id.clone());
        self.id.clone()
    }

    async fn answer(mut self, content: Content, error: Option<Box<str>>) -> Result<MessageId, EmitError> {
        for body in self.ending() {
            self.emit.queue(body);
        }
        let message = MessageId::from(self.emit.id("t"));
        let result = ToolResult {
            message: message.clone(),
            call: self.id.clone(),
            content,
            error,
            explicit_role: false,
        };
        self.emit.emit(Body::ToolResult(Box::new(result))).await?;
        Ok(message)
    }

    fn ending(&mut self) -> Vec<Body> {
        if !std::mem::take(&mut self.is_open) {
            return Vec::new();
        }
        let call = || self.id.clone();
        let nothing = (!self.has_arguments).then(|| Body::ToolArgs { call: call(), delta: "{}".into() });
        nothing.into_iter().chain([Body::ToolEnd { call: call() }]).collect()
    }
}

impl Drop for ToolCallEmitter {
    fn drop(&mut self) {
        let ending = self.ending();
        if !ending.is_empty() {
            self.emit.send_later(ending);
        }
    }
}
