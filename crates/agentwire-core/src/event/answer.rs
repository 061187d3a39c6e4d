//! Answers to pending items, as requests carry them.

use super::{Message, MessageBody, ResumeEntry, ToolCallId};

/// One answer of a request, before it is compared with the pending items of the thread.
///
/// | protocol | form |
/// |---|---|
/// | AG-UI | entries of `resume`; tool results at the end of the conversation; `forwardedProps.command.resume` of old front ends |
/// | HAI | tool results: a question is shown as a call of a front-end tool |
/// | AI SDK | approval decisions and tool outputs in the parts of the last assistant message |
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GivenAnswer {
    /// An answer with a status and a payload: an entry of `resume`, or the decision about an approval.
    Entry(ResumeEntry),
    /// The result of a tool call.
    Result(GivenResult),
}

/// The result of a tool call, as a request carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenResult {
    /// The tool call; the interrupt, where a protocol shows interrupts as tool calls.
    pub call: ToolCallId,
    /// The content as text.
    pub content: String,
    /// The error, if the tool failed.
    pub error: Option<Box<str>>,
}

impl GivenResult {
    /// The result that a message contains, if it is a tool message.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        match &message.body {
            MessageBody::Tool { call, content, error } => {
                Some(Self { call: call.clone(), content: content.text(), error: error.clone() })
            }
            _ => None,
        }
    }
}
