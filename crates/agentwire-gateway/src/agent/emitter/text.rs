//! Streamed messages: text and reasoning.

use agentwire_core::event::{Body, EncryptedEntity, MessageId, PartSource};
use serde_json::Value;

use super::{EmitError, Emitter, ToolCallEmitter};

/// A message whose text is streamed. It starts with its first piece and ends on drop.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// agent_fn(|_, emit| async move {
///     let mut message = emit.message();
///     for word in ["One ", "after ", "the ", "other."] {
///         message.push(word).await?;
///     }
///     Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct TextMessage {
    emit: Emitter,
    id: MessageId,
    is_open: bool,
}

impl TextMessage {
    pub(super) fn new(emit: &Emitter) -> Self {
        Self { emit: emit.clone(), id: emit.id("m").into(), is_open: false }
    }

    /// The message's id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// Emits a piece of text. An empty one only starts the message.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn push(&mut self, text: impl Into<Box<str>>) -> Result<(), EmitError> {
        let delta = text.into();
        if !self.is_open {
            self.is_open = true;
            self.emit.queue(Body::TextStart { message: self.id.clone(), role: None, name: None });
        }
        if !delta.is_empty() {
            self.emit.queue(Body::TextDelta { message: self.id.clone(), delta });
        }
        Ok(self.emit.flush().await?)
    }

    /// Like [`Emitter::call`]; the call is part of this message.
    ///
    /// # Errors
    /// When the run was stopped or the arguments are nested too deeply.
    pub async fn call(&self, tool: &str, arguments: impl Into<Value>) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::whole(&self.emit, tool, Some(&self.id), &arguments.into()).await
    }

    /// Like [`Emitter::open_call`]; the call is part of this message.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn open_call(&self, tool: &str) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::open(&self.emit, tool, Some(&self.id)).await
    }

    /// Emits a source of this message.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn source(&self, url: &str, title: &str) -> Result<MessageId, EmitError> {
        self.emit.source_of(Some(self.id.clone()), url, title).await
    }

    /// Adds a file to this message.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn file(&self, source: PartSource, name: Option<&str>) -> Result<MessageId, EmitError> {
        self.emit.file_of(Some(self.id.clone()), source, name).await
    }

    /// Ends the message. Pieces that are pushed later continue it.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn close(&mut self) -> Result<(), EmitError> {
        if std::mem::take(&mut self.is_open) {
            self.emit.queue(Body::TextEnd { message: self.id.clone() });
        }
        Ok(self.emit.flush().await?)
    }

    /// Ends the message and waits until its end event is sent.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn end(mut self) -> Result<MessageId, EmitError> {
        self.close().await?;
        Ok(self.id.clone())
    }
}

impl Drop for TextMessage {
    fn drop(&mut self) {
        if self.is_open {
            self.emit.send_later([Body::TextEnd { message: self.id.clone() }]);
        }
    }
}

/// A reasoning message whose text is streamed. It starts with its first piece and ends on drop.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// agent_fn(|_, emit| async move {
///     let mut thought = emit.thought().titled("Planning");
///     thought.push("First the question, ").await?;
///     thought.push("then the answer.").await?;
///     Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct Reasoning {
    emit: Emitter,
    id: MessageId,
    title: Option<Box<str>>,
    encrypted: Option<Box<str>>,
    is_open: bool,
}

impl Reasoning {
    pub(super) fn new(emit: &Emitter) -> Self {
        Self { emit: emit.clone(), id: emit.id("z").into(), title: None, encrypted: None, is_open: false }
    }

    /// The same message with a heading.
    #[must_use]
    pub fn titled(mut self, title: impl Into<Box<str>>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The same message with data that its provider needs back unchanged, such as a signature.
    #[must_use]
    pub fn encrypted(mut self, value: impl Into<Box<str>>) -> Self {
        self.encrypt(value);
        self
    }

    /// Like [`Reasoning::encrypted`], for providers that send it last.
    pub fn encrypt(&mut self, value: impl Into<Box<str>>) {
        self.encrypted = Some(value.into());
    }

    /// Emits a piece of text. An empty one only starts the message.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn push(&mut self, text: impl Into<Box<str>>) -> Result<(), EmitError> {
        let (message, delta) = (self.id.clone(), text.into());
        if !self.is_open {
            self.is_open = true;
            self.emit.queue(Body::ReasoningStart { message: message.clone(), title: self.title.take() });
            self.emit.queue(Body::ReasoningMessageStart { message: message.clone() });
        }
        if !delta.is_empty() {
            self.emit.queue(Body::ReasoningDelta { message, delta });
        }
        Ok(self.emit.flush().await?)
    }

    /// Ends the message and waits until its end event is sent.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn end(mut self) -> Result<MessageId, EmitError> {
        for body in self.ending() {
            self.emit.queue(body);
        }
        self.emit.flush().await?;
        Ok(self.id.clone())
    }

    fn ending(&mut self) -> Vec<Body> {
        if !std::mem::take(&mut self.is_open) {
            return Vec::new();
        }
        let message = &self.id;
        let mut bodies = vec![Body::ReasoningMessageEnd { message: message.clone() }];
        bodies.extend(self.encrypted.take().map(|value| Body::ReasoningEncrypted {
            entity: EncryptedEntity::Message(message.clone()),
            value,
        }));
        bodies.push(Body::ReasoningEnd { message: message.clone() });
        bodies
    }
}

impl Drop for Reasoning {
    fn drop(&mut self) {
        let ending = self.ending();
        if !ending.is_empty() {
            self.emit.send_later(ending);
        }
    }
}
