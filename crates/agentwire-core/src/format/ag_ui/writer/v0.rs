//! Profile `@0`: AG-UI 0.x, tested with client 0.0.39, the strictest of them.
//!
//! These clients validate each event: an unknown event type, an empty text delta or a message of a newer role
//! ends the stream with an error. So reasoning becomes THINKING_*, which has no ids and cannot overlap;
//! activities, subagents and encrypted values are wrapped in CUSTOM events, which our reader unwraps;
//! interrupts become the CUSTOM event that 0.x user interfaces answer.

use super::{
    super::{
        carried_events,
        legacy_interrupt::{is_legacy_interrupt, legacy_event},
    },
    v0_0_5x::{text_of, write_unchanged, write_wrapped},
};
use crate::{
    event::{Body, Content, Event, Message, MessageBody, MessageId, Outcome, RunFinished},
    format::Fidelity,
    framing::Frames,
    json::ObjectWriter,
};

/// Writes events for 0.x clients.
#[derive(Debug, Default)]
pub(crate) struct V0Writer {
    /// The number of open reasoning spans; THINKING_START marks the first and THINKING_END the last.
    spans: usize,
    /// Whether THINKING_START was written for a reasoning message without a span.
    has_implicit_span: bool,
    /// Open reasoning messages; they share one thinking message.
    messages: Vec<MessageId>,
    /// After RUN_ERROR a 0.x client rejects every event, even those of another run.
    failed: bool,
    /// True if the run has reported its interrupts by CUSTOM `on_interrupt` itself.
    has_legacy_event: bool,
}

const NO_THINKING_IDS: Fidelity = Fidelity::Approximated("THINKING events have no ids and cannot overlap");

impl V0Writer {
    pub(crate) fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if self.failed {
            return Fidelity::Dropped("old clients accept nothing after RUN_ERROR");
        }
        match &event.body {
            Body::ReasoningStart { title, .. } => {
                self.spans += 1;
                if self.spans == 1 && !self.has_implicit_span {
                    write_as(out, "THINKING_START", event, |w| {
                        w.opt_str("title", title.as_deref());
                    });
                }
                NO_THINKING_IDS
            }
            Body::ReasoningMessageStart { message } => {
                if self.spans == 0 && !self.has_implicit_span {
                    self.has_implicit_span = true;
                    write_as(out, "THINKING_START", event, |_| {});
                }
                if self.messages.is_empty() {
                    write_as(out, "THINKING_TEXT_MESSAGE_START", event, |_| {});
                }
                self.messages.push(message.clone());
                NO_THINKING_IDS
            }
            Body::ReasoningDelta { delta, .. } => {
                if delta.is_empty() {
                    return Fidelity::Dropped("old clients refuse empty deltas");
                }
                write_as(out, "THINKING_TEXT_MESSAGE_CONTENT", event, |w| {
                    w.str("delta", delta);
                });
                NO_THINKING_IDS
            }
            Body::ReasoningMessageEnd { message } => {
                self.messages.retain(|open| open != message);
                if self.messages.is_empty() {
                    write_as(out, "THINKING_TEXT_MESSAGE_END", event, |_| {});
                    self.close_span(event, out);
                }
                NO_THINKING_IDS
            }
            Body::ReasoningEnd { .. } => {
                self.spans = self.spans.saturating_sub(1);
                if self.spans == 0 {
                    // The end of the last open message closes the span.
                    self.has_implicit_span = true;
                    if self.messages.is_empty() {
                        self.close_span(event, out);
                    }
                }
                NO_THINKING_IDS
            }
            Body::TextDelta { delta, .. } if delta.is_empty() => {
                Fidelity::Dropped("old clients refuse empty deltas")
            }
            Body::StepStarted { name } | Body::StepFinished { name } => {
                let Some(subagent) = &event.subagent else {
                    return write_unchanged(event, out);
                };
                // 0.x clients identify steps by name alone.
                write_as(out, event.kind(), event, |w| {
                    w.str("stepName", &format!("{subagent}/{name}"));
                });
                Fidelity::Approximated("a step is named after its subagent too")
            }
            Body::ToolResult(result) => match &result.content {
                Content::Text(_) => write_unchanged(event, out),
                Content::Parts(_) => {
                    let mut flat = event.clone();
                    if let Body::ToolResult(result) = &mut flat.body {
                        result.content = Content::Text(text_of(&result.content).into());
                    }
                    write_unchanged(&flat, out);
                    Fidelity::Approximated("old clients take only text as a tool result")
                }
            },
            Body::MessagesSnapshot { messages } => {
                let (kept, changed) = v0_messages(messages);
                let mut copy = event.clone();
                copy.body = Body::MessagesSnapshot { messages: kept };
                write_unchanged(&copy, out);
                if changed {
                    Fidelity::Approximated("old clients know neither media, activity nor reasoning messages")
                } else {
                    Fidelity::Exact
                }
            }
            Body::RunStarted(started) => {
                let mut copy = event.clone();
                if let Body::RunStarted(started) = &mut copy.body {
                    (started.protocol_version, started.input, started.parent_run) = (None, None, None);
                }
                write_unchanged(&copy, out);
                if started.input.is_some() || started.parent_run.is_some() {
                    Fidelity::Approximated("old clients read only the ids of RUN_STARTED")
                } else {
                    Fidelity::Exact
                }
            }
            Body::RunFinished(finished) => self.finish(event, finished, out),
            Body::RunError(_) => {
                self.failed = true;
                write_unchanged(event, out)
            }
            Body::ReasoningEncrypted { .. }
            | Body::ActivitySnapshot { .. }
            | Body::ActivityDelta { .. }
            | Body::SubagentStarted(_)
            | Body::SubagentFinished { .. }
            | Body::SubagentError { .. } => write_wrapped(event, out),
            body if carried_events::activity_for(body).is_some()
                || carried_events::patch_for(body).is_some() =>
            {
                write_wrapped(event, out)
            }
            _ => {
                self.has_legacy_event |= is_legacy_interrupt(event);
                write_unchanged(event, out)
            }
        }
    }

    fn close_span(&mut self, event: &Event, out: &mut Frames) {
        if self.has_implicit_span && self.spans == 0 {
            self.has_implicit_span = false;
            write_as(out, "THINKING_END", event, |_| {});
        }
    }

    fn finish(&mut self, event: &Event, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        (self.spans, self.has_implicit_span) = (0, false);
        self.messages.clear();
        let has_legacy_event = std::mem::take(&mut self.has_legacy_event);
        let mut copy = event.clone();
        let mut fidelity = Fidelity::Exact;
        if let Body::RunFinished(copied) = &mut copy.body {
            if let Some(Outcome::Interrupt { interrupts }) = &finished.outcome {
                for interrupt in interrupts.iter().filter(|_| !has_legacy_event) {
                    let mut reported = legacy_event(interrupt, true, event.timestamp);
                    reported.subagent = None;
                    write_unchanged(&reported, out);
                }
                fidelity = Fidelity::Approximated("old clients answer interrupts by CUSTOM `on_interrupt`");
            } else if finished.outcome.is_some() {
                fidelity = Fidelity::Approximated("old clients know no outcome");
            }
            copied.outcome = None;
        }
        write_unchanged(&copy, out);
        fidelity
    }
}

/// Writes an event of another type with the base members of `event`.
fn write_as(
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

/// The messages that 0.x clients accept, and whether any was dropped or changed.
fn v0_messages(messages: &[Message]) -> (Vec<Message>, bool) {
    let mut changed = false;
    let mut kept = Vec::with_capacity(messages.len());
    for message in messages {
        let mut message = message.clone();
        match &mut message.body {
            MessageBody::User { content: content @ Content::Parts(_) } => {
                changed = true;
                *content = Content::Text(content.text().into());
            }
            MessageBody::Tool { content: content @ Content::Parts(_), .. } => {
                changed = true;
                *content = Content::Text(text_of(content).into());
            }
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
        let mut writer = V0Writer::default();
        let mut out = Frames::new(Framing::Lines);
        for body in events {
            writer.write(&Event::new(body.clone()), &mut out);
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
    fn reasoning_without_a_span_gets_an_implicit_one() {
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
    fn overlapping_reasoning_shares_one_thinking_span() {
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
    fn activities_are_wrapped_in_custom_events() {
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
