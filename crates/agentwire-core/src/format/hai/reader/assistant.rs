//! Splits the content of an assistant message into text, reasoning and blocks.

use super::super::{
    delta::{DeltaOutput, OutputDelta},
    derived_ids::{BlockTarget, DerivedIds},
};
use crate::{
    event::{Block, Message, MessageBody, MessageId},
    fold::carrier,
    json::Object,
    patch::{self, Limits},
};

/// A part of an assistant message.
pub(crate) enum AssistantPart {
    Text(String),
    Thought(MessageId, String),
    /// A block, as an activity message.
    Block(Box<Message>),
    /// Tool calls without text.
    Calls,
}

/// Splits joined outputs into parts, with the ids that a stream would give them.
pub(crate) fn split_outputs(message_id: &MessageId, outputs: &[OutputDelta<'_>]) -> Vec<AssistantPart> {
    let mut derived_ids = DerivedIds::default();
    let mut parts: Vec<AssistantPart> = Vec::new();
    let mut thinking = false;
    for OutputDelta { output, placement } in outputs {
        match output {
            DeltaOutput::Text { content, .. } => {
                thinking = false;
                let text = parts.iter_mut().find_map(|part| match part {
                    AssistantPart::Text(text) => Some(text),
                    _ => None,
                });
                match text {
                    Some(text) => text.push_str(content),
                    None => parts.push(AssistantPart::Text(content.clone().into_owned())),
                }
            }
            DeltaOutput::Thinking { content, thinking: flag, .. } => {
                match parts.last_mut() {
                    Some(AssistantPart::Thought(_, text)) if thinking => text.push_str(content),
                    _ => {
                        parts.push(AssistantPart::Thought(
                            derived_ids.next_thought(message_id),
                            content.clone().into_owned(),
                        ));
                        derived_ids.count_thought(message_id);
                    }
                }
                thinking = *flag != Some(false);
            }
            DeltaOutput::Block(output) => {
                thinking = false;
                let position = placement.by_ref();
                let target = derived_ids.next_block(message_id, output, position);
                derived_ids.count_block(message_id, output, position, &target);
                match target {
                    BlockTarget::New(id) => {
                        let block = Block {
                            id: id.clone(),
                            message: message_id.clone(),
                            output: output.clone(),
                            layout: placement.layout.clone(),
                            block_id: placement.block_id.clone(),
                            style: placement.style.clone(),
                        };
                        let (kind, content, metadata) = carrier::block_content(&block);
                        let body = MessageBody::Activity { kind: kind.into(), content };
                        let mut message = Message::new(id, body);
                        message.metadata = Some(metadata);
                        parts.push(AssistantPart::Block(Box::new(message)));
                    }
                    BlockTarget::Update(id, patch) => {
                        let block = parts.iter_mut().find_map(|part| match part {
                            AssistantPart::Block(message) if message.id == id => Some(message),
                            _ => None,
                        });
                        if let Some(message) = block
                            && let MessageBody::Activity { content, .. } = &mut message.body
                        {
                            let mut value = content.to_value();
                            if patch::apply(&mut value, &patch, &Limits::default()).is_ok()
                                && let Some(next) = Object::from_value(&value)
                            {
                                *content = next;
                            }
                        }
                    }
                }
            }
        }
    }
    parts
}
