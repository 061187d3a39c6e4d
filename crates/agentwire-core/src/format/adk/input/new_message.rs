//! The parts of the message that a run request sends.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::URL_SAFE};
use serde_json::{Value, json};

use super::{
    AdkRequestError, KnownSession, PendingCall,
    function_response::{response_to_content, response_to_resume},
};
use crate::{
    event::{Content, ContentPart, Message, MessageBody, PartSource, RunInput},
    json::Json,
};

/// The new parts of a conversation.
pub(super) struct NewParts {
    /// Answers to pending calls, and their media.
    pub(super) answers: Vec<Value>,
    /// Text and media of the user.
    pub(super) texts: Vec<Value>,
}

impl NewParts {
    pub(super) fn of(input: &RunInput, known: KnownSession<'_>) -> Result<Self, AdkRequestError> {
        let pending = known.pending;
        let (mut answers, mut media, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut unknown = None;
        // ADK accepts one answer per call; a client may send both a resume entry and a tool message.
        let mut answered = HashSet::new();
        for entry in input.resume.iter().flatten() {
            match pending.iter().find(|call| *call.id == *entry.interrupt) {
                Some(call) if !answered.insert(&call.id) => {}
                Some(call) => {
                    let payload = entry.payload.as_ref().map(Json::to_value);
                    answers.push(function_response(call, response_to_resume(call, entry.status, payload)?));
                }
                None => unknown = Some(AdkRequestError::UnknownInterrupt(entry.interrupt.as_str().into())),
            }
        }
        for message in after_last_output(&input.messages) {
            match &message.body {
                MessageBody::Tool { call, content, error } => {
                    match pending.iter().find(|pending| pending.id == *call) {
                        Some(call) if !answered.insert(&call.id) => {}
                        Some(call) => {
                            let response = response_to_content(call, content, error.as_deref())?;
                            answers.push(function_response(call, response));
                            media.extend(media_parts(content));
                        }
                        None => {
                            unknown =
                                unknown.or(Some(AdkRequestError::UnknownToolCall(call.as_str().into())));
                        }
                    }
                }
                MessageBody::User { content } => texts.push(content),
                _ => {}
            }
        }
        let mut sent = delivered_count(&texts, known.messages);
        if answers.is_empty() {
            // The request asks for a reply to its last message.
            sent = sent.min(texts.len().saturating_sub(1));
        }
        let texts: Vec<Value> = texts[sent..].iter().copied().flat_map(content_parts).collect();
        match unknown {
            // Results of tools that ADK executed itself are not pending either, but never stand alone.
            Some(unknown) if answers.is_empty() && texts.is_empty() => Err(unknown),
            _ => {
                answers.append(&mut media);
                Ok(Self { answers, texts })
            }
        }
    }
}

/// The messages after the last one of the agent.
fn after_last_output(messages: &[Message]) -> &[Message] {
    let last = messages.iter().rposition(|message| matches!(message.body, MessageBody::Assistant { .. }));
    &messages[last.map_or(0, |index| index + 1)..]
}

/// The number of leading `texts` that the session contains. A run without output (an interrupt of a workflow, a failed
/// run) leaves its message at the end of both conversations.
fn delivered_count(texts: &[&Content], session: &[Message]) -> usize {
    let stored = after_last_output(session).iter().filter_map(|message| match &message.body {
        MessageBody::User { content } => Some(content),
        _ => None,
    });
    let is_same = |(sent, stored): &(&&Content, &Content)| {
        sent.text() == stored.text() && media_parts(sent).len() == media_parts(stored).len()
    };
    texts.iter().zip(stored).take_while(is_same).count()
}

fn function_response(call: &PendingCall, response: Value) -> Value {
    let id = call.native_id.as_ref().unwrap_or(&call.id);
    json!({"functionResponse": {"id": id.as_str(), "name": call.name, "response": response}})
}

pub(super) fn content_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![json!({"text": text})],
        Content::Parts(parts) => parts.iter().filter_map(part).collect(),
    }
}

fn media_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(_) => Vec::new(),
        Content::Parts(parts) => {
            let media = parts.iter().filter(|part| matches!(part, ContentPart::Media { .. }));
            media.filter_map(part).collect()
        }
    }
}

fn part(part: &ContentPart) -> Option<Value> {
    let source = match part {
        ContentPart::Text { text, .. } if text.is_empty() => return None,
        ContentPart::Text { text, .. } => return Some(json!({"text": text})),
        ContentPart::Media { source, .. } => source,
    };
    Some(match source {
        PartSource::Data { value, mime_type } => inline_data(mime_type, value),
        PartSource::Url { value, mime_type } | PartSource::File { value, mime_type, .. } => {
            if let Some(inline) = data_url(value, mime_type.as_deref()) {
                return Some(inline);
            }
            let mut file = json!({"fileUri": value});
            if let Some(mime_type) = mime_type {
                file["mimeType"] = (**mime_type).into();
            }
            json!({"fileData": file})
        }
    })
}

/// Inline media, in the URL-safe alphabet that ADK reads and writes.
fn inline_data(mime_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": mime_type, "data": url_safe_base64(data)}})
}

/// The content of a `data:` URL. Its media type takes precedence over the declared one.
fn data_url(url: &str, declared: Option<&str>) -> Option<Value> {
    let (kind, data) = url
        .get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("data:"))
        .and_then(|_| url[5..].split_once(','))?;
    let (mime_type, is_base64) = match kind.rsplit_once(';') {
        Some((mime_type, last)) if last.trim().eq_ignore_ascii_case("base64") => (mime_type, true),
        _ => (kind, false),
    };
    let mime_type = match mime_type.trim() {
        "" => declared.unwrap_or("text/plain"),
        mime_type => mime_type,
    };
    let bytes = percent_encoding::percent_decode_str(data).collect::<Vec<u8>>();
    Some(match is_base64 {
        true => inline_data(mime_type, &String::from_utf8_lossy(&bytes)),
        false => inline_data(mime_type, &URL_SAFE.encode(&bytes)),
    })
}

/// Converts base64 to the URL-safe alphabet. ADK rejects the line breaks that MIME allows.
fn url_safe_base64(data: &str) -> String {
    let translate = |digit| match digit {
        '+' => '-',
        '/' => '_',
        other => other,
    };
    data.chars().filter(|c| !c.is_ascii_whitespace()).map(translate).collect()
}

#[cfg(test)]
mod tests {
    use super::url_safe_base64;

    #[test]
    fn base64_is_converted_to_the_url_safe_alphabet() {
        assert_eq!(url_safe_base64("+/\n8="), "-_8=");
    }
}
