//! Messages: the conversation after its events have been folded.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{Content, MessageId, SubagentId, ToolCallId};
use crate::json::Object;

/// The role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are sufficient")]
pub enum Role {
    Developer,
    System,
    Assistant,
    User,
    Tool,
    Activity,
    Reasoning,
}

/// One message of a conversation. Cheap to clone: a copy shares the data until one of them is changed.
///
/// ```
/// use agentwire_core::event::Message;
///
/// let message = Message::user("m1", "hello");
/// let mut other = message.clone();
/// other.name = Some("Ada".into());
/// assert_eq!((&*message.id, &message.name), ("m1", &None));
/// ```
#[derive(Clone)]
pub struct Message(Arc<MessageData>);

/// The data of a [`Message`].
#[derive(Clone, Debug, PartialEq)]
pub struct MessageData {
    /// Its id.
    pub id: MessageId,
    /// The content, by role.
    pub body: MessageBody,
    /// The speaker's name (not on tool, activity and reasoning messages).
    pub name: Option<Box<str>>,
    /// The subagent that produced it.
    pub subagent: Option<SubagentId>,
    /// Open key/value data.
    pub metadata: Option<Object>,
    /// An opaque artefact of the provider (not on activity messages).
    pub encrypted: Option<Box<str>>,
}

/// The content of a message, by role.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MessageBody {
    /// Instructions from the application.
    Developer {
        /// The text.
        content: Box<str>,
    },
    /// Instructions from the system.
    System {
        /// The text.
        content: Box<str>,
    },
    /// Text and tool calls of the agent.
    Assistant {
        /// The text, where the turn has one.
        content: Option<Box<str>>,
        /// The calls; `Some(vec![])` and `None` mean the same and differ only to fold exactly as the official client
        /// does.
        tool_calls: Option<Vec<ToolCall>>,
    },
    /// A message of the user.
    User {
        /// Text or parts.
        content: Content,
    },
    /// The outcome of a tool call.
    Tool {
        /// The tool call.
        call: ToolCallId,
        /// Text or parts.
        content: Content,
        /// Set when the tool failed.
        error: Option<Box<str>>,
    },
    /// Structured progress; never sent to the agent.
    Activity {
        /// The kind of activity.
        kind: Box<str>,
        /// The structured content.
        content: Object,
    },
    /// The agent's reasoning.
    Reasoning {
        /// The text.
        content: Box<str>,
    },
}

/// A tool call inside an assistant message.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The call's id.
    pub id: ToolCallId,
    /// The tool.
    pub name: Box<str>,
    /// The argument text as streamed; JSON by convention.
    pub arguments: Box<str>,
    /// An opaque artefact of the provider.
    pub encrypted: Option<Box<str>>,
    /// Open key/value data.
    pub metadata: Option<Object>,
}

impl MessageData {
    /// Only an id and a body.
    #[must_use]
    pub fn new(id: impl Into<MessageId>, body: MessageBody) -> Self {
        Self { id: id.into(), body, name: None, subagent: None, metadata: None, encrypted: None }
    }
}

impl From<MessageData> for Message {
    fn from(data: MessageData) -> Self {
        Self(Arc::new(data))
    }
}

impl Deref for Message {
    type Target = MessageData;

    fn deref(&self) -> &MessageData {
        &self.0
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut MessageData {
        Arc::make_mut(&mut self.0)
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageData { id, body, name, subagent, metadata, encrypted } = &**self;
        f.debug_struct("Message")
            .field("id", id)
            .field("body", body)
            .field("name", name)
            .field("subagent", subagent)
            .field("metadata", metadata)
            .field("encrypted", encrypted)
            .finish()
    }
}

impl Message {
    /// A message with only an id and a body.
    #[must_use]
    pub fn new(id: impl Into<MessageId>, body: MessageBody) -> Self {
        MessageData::new(id, body).into()
    }

    /// True if both are copies of one message and none of them has been changed.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Its data; a copy if it is shared.
    #[must_use]
    pub fn into_data(self) -> MessageData {
        Arc::unwrap_or_clone(self.0)
    }

    /// A user message.
    #[must_use]
    pub fn user(id: impl Into<MessageId>, content: impl Into<Content>) -> Self {
        Self::new(id, MessageBody::User { content: content.into() })
    }

    /// An assistant message with text.
    #[must_use]
    pub fn assistant(id: impl Into<MessageId>, content: impl Into<Box<str>>) -> Self {
        Self::new(id, MessageBody::Assistant { content: Some(content.into()), tool_calls: None })
    }

    /// The message's role.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.body {
            MessageBody::Developer { .. } => Role::Developer,
            MessageBody::System { .. } => Role::System,
            MessageBody::Assistant { .. } => Role::Assistant,
            MessageBody::User { .. } => Role::User,
            MessageBody::Tool { .. } => Role::Tool,
            MessageBody::Activity { .. } => Role::Activity,
            MessageBody::Reasoning { .. } => Role::Reasoning,
        }
    }

    /// The message's calls.
    #[must_use]
    pub fn tool_calls(&self) -> &[ToolCall] {
        match &self.body {
            MessageBody::Assistant { tool_calls: Some(calls), .. } => calls,
            _ => &[],
        }
    }
}

impl ToolCall {
    /// A call with only an id, a tool and arguments.
    #[must_use]
    pub fn new(id: impl Into<ToolCallId>, name: impl Into<Box<str>>, arguments: impl Into<Box<str>>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            encrypted: None,
            metadata: None,
        }
    }
}

impl Role {
    /// The role's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Developer => "developer",
            Self::System => "system",
            Self::Assistant => "assistant",
            Self::User => "user",
            Self::Tool => "tool",
            Self::Activity => "activity",
            Self::Reasoning => "reasoning",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "developer" => Self::Developer,
            "system" => Self::System,
            "assistant" => Self::Assistant,
            "user" => Self::User,
            "tool" => Self::Tool,
            "activity" => Self::Activity,
            "reasoning" => Self::Reasoning,
            _ => return None,
        })
    }

    /// Whether a text message may have this role while it streams.
    #[must_use]
    pub fn is_textual(self) -> bool {
        matches!(self, Self::Developer | Self::System | Self::Assistant | Self::User)
    }
}
