//! What clients of AG-UI 0.x understand (measured with 0.0.39, the strictest of them).
//!
//! Those clients validate on the wire: an unknown event type, an empty text delta or a message of a new role
//! kills the stream. So reasoning becomes THINKING_*, which has no ids and cannot overlap; activities,
//! subagents and encrypted values travel whole inside CUSTOM events and come back through our own reader;
//! interrupts become the CUSTOM event that those user interfaces answer.

use bytes::BytesMut;

use super::{
    super::{
        carried_events,
        wire::{LEGACY_INTERRUPT, WRAPPED},
    },
    json,
};
use crate::{
    event::{Body, Content, Event, Message, MessageBody, MessageId, Outcome, RunFinished},
    format::Fidelity,
    framing::Frames,
    json::{Json, ObjectWriter},
};

/// Rewrites a stream for old clients.
#[derive(Debug, Default)]
pub(crate) struct Downgrade {
    /// Reasoning spans that are open; THINKING_START stands for the first and THINKING_END for the last.
    spans: usize,
    /// Whether THINKING_START was written because a reasoning message came without a span.
    made_span: bool,
    /// The reasoning messages that are open; they share one thinking message.
    messages: Vec<MessageId>,
    /// An old client accepts nothing after RUN_ERROR, not even another run.
    failed: bool,
}

const LOST_ID: Fidelity = Fidelity::Approximated("THINKING events have no ids and cannot overlap");
const WRAPPED_NOTE: Fidelity = Fidelity::Approximated("sent inside a CUSTOM event, which old clients ignore");

impl Downgrade {
    pub(crate) fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if self.failed {
            return Fidelity::Dropped("old clients accept nothing after RUN_ERROR");
        }
        match &event.body {
            Body::ReasoningStart { title, .. } => {
                self.spans += 1;
                if self.spans == 1 && !self.made_span {
                    plain(out, "THINKING_START", event, |w| {
                        w.opt_str("title", title.as_deref());
                    });
                }
                LOST_ID
            }
            Body::ReasoningMessageStart { message } => {
                if self.spans == 0 && !self.made_span {
                    self.made_span = true;
                    plain(out, "THINKING_START", event, |_| {});
                }
                if self.messages.is_empty() {
                    plain(out, "THINKING_TEXT_MESSAGE_START", event, |_| {});
                }
                self.messages.push(message.clone());
                LOST_ID
            }
            Body::ReasoningDelta { delta, .. } => {
                if delta.is_empty() {
                    return Fidelity::Dropped("old clients refuse empty deltas");
                }
                plain(out, "THINKING_TEXT_MESSAGE_CONTENT", event, |w| {
                    w.str("delta", delta);
                });
                LOST_ID
            }
            Body::ReasoningMessageEnd { message } => {
                self.messages.retain(|open| open != message);
                if self.messages.is_empty() {
                    plain(out, "THINKING_TEXT_MESSAGE_END", event, |_| {});
                    self.close_span(event, out);
                }
                LOST_ID
            }
            Body::ReasoningEnd { .. } => {
                self.spans = self.spans.saturating_sub(1);
                if self.spans == 0 {
                    // A message that is still open keeps the span open, and its end will close it.
                    self.made_span = true;
                    if self.messages.is_empty() {
                        self.close_span(event, out);
                    }
                }
                LOST_ID
            }
            Body::TextDelta { delta, .. } if delta.is_empty() => {
                Fidelity::Dropped("old clients refuse empty deltas")
            }
            Body::StepStarted { name } | Body::StepFinished { name } => {
                let Some(subagent) = &event.subagent else {
                    return same(event, out);
                };
                // Old clients tell steps apart by name alone.
                plain(out, event.kind(), event, |w| {
                    w.str("stepName", &format!("{subagent}/{name}"));
                });
                Fidelity::Approximated("a step is named after its subagent too")
            }
            Body::ToolResult(result) => match &result.content {
                Content::Text(_) => same(event, out),
                Content::Parts(_) => {
                    let mut flat = event.clone();
                    if let Body::ToolResult(result) = &mut flat.body {
                        result.content = Content::Text(result.content.text().into());
                    }
                    same(&flat, out);
                    Fidelity::Approximated("old clients take only text as a tool result")
                }
            },
            Body::MessagesSnapshot { messages } => {
                let (kept, changed) = old_messages(messages);
                let mut own = event.clone();
                own.body = Body::MessagesSnapshot { messages: kept };
                same(&own, out);
                if changed {
                    Fidelity::Approximated("old clients know neither media, activity nor reasoning messages")
                } else {
                    Fidelity::Exact
                }
            }
            Body::RunStarted(started) => {
                let mut own = event.clone();
                if let Body::RunStarted(own) = &mut own.body {
                    (own.protocol_version, own.input, own.parent_run) = (None, None, None);
                }
                same(&own, out);
                if started.input.is_some() || started.parent_run.is_some() {
                    Fidelity::Approximated("old clients read only the ids of RUN_STARTED")
                } else {
                    Fidelity::Exact
                }
            }
            Body::RunFinished(finished) => self.finish(event, finished, out),
            Body::RunError(_) => {
                self.failed = true;
                same(event, out)
            }
            Body::ReasoningEncrypted { .. }
            | Body::ActivitySnapshot { .. }
            | Body::ActivityDelta { .. }
            | Body::SubagentStarted(_)
            | Body::SubagentFinished { .. }
            | Body::SubagentError { .. } => wrap(event.kind(), event, out),
            body if carried_events::activity_for(body).is_some() => wrap("ACTIVITY_SNAPSHOT", event, out),
            body if carried_events::patch_for(body).is_some() => wrap("ACTIVITY_DELTA", event, out),
            _ => same(event, out),
        }
    }

    fn close_span(&mut self, event: &Event, out: &mut Frames) {
        if self.made_span && self.spans == 0 {
            self.made_span = false;
            plain(out, "THINKING_END", event, |_| {});
        }
    }

    fn finish(&mut self, event: &Event, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        (self.spans, self.made_span) = (0, false);
        self.messages.clear();
        let mut own = event.clone();
        let mut fidelity = Fidelity::Exact;
        if let Body::RunFinished(own) = &mut own.body {
            if let Some(Outcome::Interrupt { interrupts }) = &finished.outcome {
                for interrupt in interrupts {
                    let payload = interrupt
                        .metadata
                        .as_ref()
                        .and_then(|metadata| metadata.member("value").or_else(|| metadata.member("payload")));
                    let value = payload.unwrap_or_else(|| json::interrupt_json(interrupt));
                    let legacy =
                        Body::Custom { name: LEGACY_INTERRUPT.into(), value: Json::string(value.get()) };
                    same(&Event::new(legacy).at(event.timestamp), out);
                }
                fidelity = Fidelity::Approximated("old clients answer interrupts by CUSTOM `on_interrupt`");
            } else if finished.outcome.is_some() {
                fidelity = Fidelity::Approximated("old clients know no outcome");
            }
            own.outcome = None;
        }
        same(&own, out);
        fidelity
    }
}

/// Writes the event in its 1.0 shape, which old clients read too.
fn same(event: &Event, out: &mut Frames) -> Fidelity {
    json::event(out.begin(event.kind()), event);
    out.commit();
    Fidelity::Exact
}

/// Writes an event of another type with the base members of `event`.
fn plain(
    out: &mut Frames,
    event_type: &'static str,
    event: &Event,
    fill: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let mut w = ObjectWriter::new(out.begin(event_type));
    w.str("type", event_type);
    fill(&mut w);
    w.opt_int("timestamp", event.timestamp).opt_json("rawEvent", event.raw());
    w.end();
    out.commit();
}

/// Sends a 1.0 event whole inside a CUSTOM one.
fn wrap(event_type: &str, event: &Event, out: &mut Frames) -> Fidelity {
    let mut text = BytesMut::new();
    json::event(&mut text, event);
    let inner = Json::trusted(String::from_utf8(text.into()).expect("JSON text is UTF-8"));
    let name = format!("{WRAPPED}{}", event_type.to_ascii_lowercase());
    same(&Event::new(Body::Custom { name: name.into(), value: inner }).at(event.timestamp), out);
    WRAPPED_NOTE
}

/// The messages that old clients accept, and whether anything was left out or changed.
fn old_messages(messages: &[Message]) -> (Vec<Message>, bool) {
    let mut changed = false;
    let mut flat = |content: &Content| match content {
        Content::Text(_) => content.clone(),
        Content::Parts(_) => {
            changed = true;
            Content::Text(content.text().into())
        }
    };
    let mut kept = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = message.clone();
        match &mut message.body {
            MessageBody::User { content } | MessageBody::Tool { content, .. } => *content = flat(content),
            MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => continue,
            _ => {}
        }
        kept.push(message);
    }
    changed |= kept.len() != messages.len();
    (kept, changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{framing::Framing, json::Object};

    fn lines(events: &[Body]) -> Vec<String> {
        let mut downgrade = Downgrade::default();
        let mut out = Frames::new(Framing::Lines);
        for body in events {
            downgrade.write(&Event::new(body.clone()), &mut out);
        }
        String::from_utf8(out.take().to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    fn kinds(events: &[Body]) -> Vec<String> {
        let kind = |line: &String| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            value["type"].as_str().unwrap().to_owned()
        };
        lines(events).iter().map(kind).collect()
    }

    #[test]
    fn reasoning_without_a_span_gets_one() {
        let message = MessageId::from("m");
        let events = [
            Body::ReasoningMessageStart { message: message.clone() },
            Body::ReasoningDelta { message: message.clone(), delta: "x".into() },
            Body::ReasoningMessageEnd { message },
        ];
        let wanted = [
            "THINKING_START",
            "THINKING_TEXT_MESSAGE_START",
            "THINKING_TEXT_MESSAGE_CONTENT",
            "THINKING_TEXT_MESSAGE_END",
            "THINKING_END",
        ];
        assert_eq!(kinds(&events), wanted);
    }

    #[test]
    fn overlapping_reasoning_shares_one_thinking_block() {
        let (a, b) = (MessageId::from("a"), MessageId::from("b"));
        let events = [
            Body::ReasoningStart { message: a.clone(), title: Some("plan".into()) },
            Body::ReasoningMessageStart { message: a.clone() },
            Body::ReasoningStart { message: b.clone(), title: None },
            Body::ReasoningMessageStart { message: b.clone() },
            Body::ReasoningMessageEnd { message: a.clone() },
            Body::ReasoningEnd { message: a },
            Body::ReasoningMessageEnd { message: b.clone() },
            Body::ReasoningEnd { message: b },
        ];
        let wanted =
            ["THINKING_START", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_END", "THINKING_END"];
        assert_eq!(kinds(&events), wanted);
        assert!(lines(&events)[0].contains(r#""title":"plan""#));
    }

    #[test]
    fn activities_travel_inside_custom_events() {
        let events = [Body::ActivitySnapshot {
            message: "a1".into(),
            kind: "plan".into(),
            content: Object::empty(),
            replace: None,
        }];
        let wanted = r#"{"type":"CUSTOM","name":"agui.activity_snapshot","value":{"type":"ACTIVITY_SNAPSHOT","messageId":"a1","activityType":"plan","content":{}}}"#;
        assert_eq!(lines(&events), [wanted]);
    }
}
