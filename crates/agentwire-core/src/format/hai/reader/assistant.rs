//! What an assistant's string is made of, under the ids that a stream of it would get.

use super::super::{
    delta::{Delta, Output},
    derived_ids::{Drawn, Ledger, Placed},
};
use crate::{
    event::{Block, Message, MessageBody, MessageId},
    fold::carrier,
    json::Object,
    patch::{self, Limits},
};

/// A piece of what an assistant said.
pub(crate) enum Part {
    Text(String),
    Thought(MessageId, String),
    /// An activity.
    Drawn(Box<Message>),
    /// No text, but calls that need a message to hold them.
    Calls,
}

/// Takes joined outputs apart, under the ids that a stream of them gets.
pub(crate) fn take_apart(own: &MessageId, outputs: &[Delta<'_>]) -> Vec<Part> {
    let mut ledger = Ledger::default();
    let mut parts: Vec<Part> = Vec::new();
    let mut thinking = false;
    for Delta { output, place } in outputs {
        match output {
            Output::Text { content, .. } => {
                thinking = false;
                let text = parts.iter_mut().find_map(|part| match part {
                    Part::Text(text) => Some(text),
                    _ => None,
                });
                match text {
                    Some(text) => text.push_str(content),
                    None => parts.push(Part::Text(content.clone().into_owned())),
                }
            }
            Output::Thinking { content, thinking: flag, .. } => {
                match parts.last_mut() {
                    Some(Part::Thought(_, text)) if thinking => text.push_str(content),
                    _ => {
                        parts.push(Part::Thought(ledger.thought(own), content.clone().into_owned()));
                        ledger.took_thought(own);
                    }
                }
                thinking = *flag != Some(false);
            }
            Output::Block(output) => {
                thinking = false;
                let names = Placed {
                    layout: place.layout.as_ref(),
                    block_id: place.block_id.as_deref(),
                    style: place.style.as_ref(),
                };
                let drawn = ledger.drawn(own, output, names);
                ledger.took_drawn(own, output, names, &drawn);
                match drawn {
                    Drawn::Block(id) => {
                        let block = Block {
                            id: id.clone(),
                            message: own.clone(),
                            output: output.clone(),
                            layout: place.layout.clone(),
                            block_id: place.block_id.clone(),
                            style: place.style.clone(),
                        };
                        let (kind, content, metadata) = carrier::block_content(&block);
                        let body = MessageBody::Activity { kind: kind.into(), content };
                        let mut message = Message::new(id, body);
                        message.metadata = Some(metadata);
                        parts.push(Part::Drawn(Box::new(message)));
                    }
                    Drawn::More(id, patch) => {
                        let known = parts.iter_mut().find_map(|part| match part {
                            Part::Drawn(message) if message.id == id => Some(message),
                            _ => None,
                        });
                        if let Some(message) = known
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
