//! Profiles `@0.0.5x`, `@copilotkit` and `@draft`: AG-UI 0.0.50 to 0.0.59, tested with 0.0.52, 0.0.55, 0.0.58 and 0.0.59.
//!
//! These clients know reasoning, activities and, since 0.0.54, the outcome `interrupt`. They validate each event: an
//! unknown event type (SUBAGENT_* before 0.0.59), an outcome with an unknown type or member, a tool result that is a
//! list, or a media source that is a provider's file ends the stream with an error. So SUBAGENT_* events are wrapped in
//! CUSTOM events, which our reader unwraps; lists become text; a part of the outcome that they do not know moves to the
//! metadata of RUN_FINISHED.
//!
//! An interrupt is reported twice: by CUSTOM `on_interrupt`, which clients before 0.0.54 and LangGraph front ends
//! answer, and in the outcome. CopilotKit's hooks look for the interrupt's own value in `on_interrupt`, but only if there
//! is no outcome; its schema removes foreign members of an interrupt in the outcome. So `@copilotkit` reports a single
//! interrupt that has a value of its own by `on_interrupt` alone.

use super::{
    super::{
        legacy_interrupt::{is_legacy_interrupt, legacy_event, native_value},
        wire::{CARRIER, WRAPPED_PREFIX},
    },
    json, messages,
};
use crate::{
    event::{
        Body, Content, ContentPart, Event, Interrupt, Message, MessageBody, Outcome, PartSource, RunFinished,
    },
    format::Fidelity,
    framing::Frames,
    json::{Json, Object, ObjectWriter},
};

/// The form of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptForm {
    /// CUSTOM `on_interrupt` and the outcome.
    Outcome,
    /// CUSTOM `on_interrupt` alone, where CopilotKit's hooks need it.
    CopilotKit,
    /// `outcome: "interrupt"` and the object `interrupt`, as AG-UI's draft had it.
    Draft,
}

/// Writes events for clients of 0.0.5x.
#[derive(Debug)]
pub(crate) struct V05Writer {
    form: InterruptForm,
    /// True if the run has reported its interrupts by CUSTOM `on_interrupt` itself.
    has_legacy_event: bool,
    /// After RUN_ERROR clients before 0.0.59 reject every event, even those of another run.
    failed: bool,
}

const IS_WRAPPED: Fidelity = Fidelity::Approximated("sent inside a CUSTOM event, which old clients ignore");
const IS_TEXT: Fidelity =
    Fidelity::Approximated("media is sent as JSON text, where old clients take only text");

/// True if events of this type need no change, whatever they contain and whatever was written before.
pub(crate) fn is_same_in_0_0_5x(event_type: &str) -> bool {
    matches!(
        event_type,
        "TEXT_MESSAGE_START"
            | "TEXT_MESSAGE_CONTENT"
            | "TEXT_MESSAGE_END"
            | "TOOL_CALL_START"
            | "TOOL_CALL_ARGS"
            | "TOOL_CALL_END"
            | "STATE_SNAPSHOT"
            | "STATE_DELTA"
            | "ACTIVITY_SNAPSHOT"
            | "ACTIVITY_DELTA"
            | "REASONING_START"
            | "REASONING_MESSAGE_START"
            | "REASONING_MESSAGE_CONTENT"
            | "REASONING_MESSAGE_END"
            | "REASONING_END"
            | "REASONING_ENCRYPTED_VALUE"
            | "RAW"
    )
}

impl V05Writer {
    pub(crate) fn new(form: InterruptForm) -> Self {
        Self { form, has_legacy_event: false, failed: false }
    }

    pub(crate) fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if self.failed {
            return Fidelity::Dropped("old clients accept nothing after RUN_ERROR");
        }
        match &event.body {
            Body::StepStarted { name } | Body::StepFinished { name } => {
                let Some(subagent) = &event.subagent else { return write_unchanged(event, out) };
                // Clients before 0.0.59 identify steps by name alone.
                let name = format!("{subagent}/{name}").into();
                let mut named = event.clone();
                named.body = match &event.body {
                    Body::StepStarted { .. } => Body::StepStarted { name },
                    _ => Body::StepFinished { name },
                };
                write_unchanged(&named, out);
                Fidelity::Approximated("a step is named after its subagent too")
            }
            Body::ToolResult(result) => match &result.content {
                Content::Text(_) => write_unchanged(event, out),
                parts @ Content::Parts(_) => {
                    let mut flat = event.clone();
                    if let Body::ToolResult(result) = &mut flat.body {
                        result.content = Content::Text(text_of(parts).into());
                    }
                    write_unchanged(&flat, out);
                    IS_TEXT
                }
            },
            Body::MessagesSnapshot { messages } => match old_messages(messages) {
                None => write_unchanged(event, out),
                Some(messages) => {
                    let mut copy = event.clone();
                    copy.body = Body::MessagesSnapshot { messages };
                    write_unchanged(&copy, out);
                    IS_TEXT
                }
            },
            Body::RunStarted(started) => {
                self.has_legacy_event = false;
                let changed = started.input.as_ref().and_then(|input| old_messages(&input.messages));
                let is_changed = changed.is_some();
                let mut copy = event.clone();
                if let Body::RunStarted(started) = &mut copy.body {
                    // These clients do not know the field; a version would claim the shapes of 1.0.
                    started.protocol_version = None;
                    if let (Some(messages), Some(input)) = (changed, &mut started.input) {
                        input.messages = messages;
                    }
                }
                write_unchanged(&copy, out);
                if is_changed { IS_TEXT } else { Fidelity::Exact }
            }
            Body::RunFinished(finished) => self.finish(event, finished, out),
            Body::RunError(_) => {
                self.failed = true;
                write_unchanged(event, out)
            }
            Body::SubagentStarted(_) | Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                write_wrapped(event, out)
            }
            _ => {
                self.has_legacy_event |= is_legacy_interrupt(event);
                write_unchanged(event, out)
            }
        }
    }

    fn finish(&mut self, event: &Event, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        let has_legacy_event = std::mem::take(&mut self.has_legacy_event);
        let interrupts = match &finished.outcome {
            Some(Outcome::Interrupt { interrupts }) => &interrupts[..],
            _ => &[],
        };
        let by_custom_event_alone = self.form == InterruptForm::CopilotKit
            && matches!(interrupts, [only] if native_value(only).is_some());
        let with_custom_events = by_custom_event_alone || self.form == InterruptForm::Outcome;
        if with_custom_events && !has_legacy_event {
            for interrupt in interrupts {
                write_unchanged(&legacy_event(interrupt, false, event.timestamp), out);
            }
        }
        let mut w = ObjectWriter::new(out.begin("RUN_FINISHED"));
        w.str("type", "RUN_FINISHED")
            .str("threadId", &finished.thread)
            .str("runId", &finished.run)
            .opt_json("result", finished.result.as_ref());
        let mut carried = json::CarriedMetadata::of(event);
        let fidelity = match &finished.outcome {
            outcome if self.form == InterruptForm::Draft => write_draft(&mut w, outcome.as_ref()),
            None => Fidelity::Exact,
            Some(Outcome::Interrupt { .. }) if by_custom_event_alone => Fidelity::Approximated(
                "CopilotKit finds an interrupt's own value only in CUSTOM `on_interrupt`",
            ),
            Some(Outcome::Interrupt { interrupts }) => {
                w.nested("outcome", |w| {
                    w.str("type", "interrupt").array("interrupts", |list| {
                        for interrupt in interrupts {
                            list.object(|w| write_interrupt(w, interrupt));
                        }
                    });
                });
                Fidelity::Exact
            }
            Some(Outcome::Success { pending }) => {
                w.nested("outcome", |w| {
                    w.str("type", "success");
                });
                if pending.is_empty() {
                    Fidelity::Exact
                } else {
                    carried
                        .merge(Some(carried_outcome(finished.outcome.as_ref(), carried.metadata.as_ref())));
                    Fidelity::Approximated("old clients derive the calls that wait for the front end")
                }
            }
            Some(Outcome::Cancelled) => {
                carried.merge(Some(carried_outcome(finished.outcome.as_ref(), carried.metadata.as_ref())));
                Fidelity::Approximated("old clients have no outcome `cancelled`")
            }
        };
        json::write_usage(&mut w, &finished.usage);
        json::write_base(&mut w, event, carried);
        w.end();
        out.commit();
        fidelity
    }
}

/// The metadata that carries an outcome which these clients refuse.
fn carried_outcome(outcome: Option<&Outcome>, metadata: Option<&Object>) -> Object {
    let carrier = metadata.and_then(|metadata| metadata.member(CARRIER)).and_then(Json::into_object);
    let carrier = carrier.unwrap_or_else(Object::empty);
    let outcome = outcome.map_or_else(Json::null, json::outcome_json);
    Object::from_entries([(CARRIER, carrier.with("outcome", outcome).into())])
}

/// Writes an interrupt, and the members of its own value beside it: a client that does not validate finds them where
/// `on_interrupt` has them.
fn write_interrupt(w: &mut ObjectWriter<'_>, interrupt: &Interrupt) {
    const MEMBERS: &[&str] = &[
        "id",
        "reason",
        "message",
        "toolCallId",
        "responseSchema",
        "expiresAt",
        "metadata",
        "subagentRunId",
    ];
    json::write_interrupt(w, interrupt, "subagentRunId");
    let value = native_value(interrupt).and_then(Json::into_object);
    for (key, value) in value.iter().flat_map(Object::entries) {
        if !MEMBERS.contains(&key.as_str()) {
            w.entry(&key, &value);
        }
    }
}

/// Writes the outcome of the draft: a string, and one interrupt with an id, a reason and a payload.
fn write_draft(w: &mut ObjectWriter<'_>, outcome: Option<&Outcome>) -> Fidelity {
    let Some(outcome) = outcome else { return Fidelity::Exact };
    let interrupts = match outcome {
        Outcome::Interrupt { interrupts } => &interrupts[..],
        Outcome::Success { .. } => {
            w.str("outcome", "success");
            return Fidelity::Approximated("the draft's outcome is a string");
        }
        Outcome::Cancelled => {
            w.str("outcome", "cancelled");
            return Fidelity::Approximated("the draft's outcome is a string");
        }
    };
    let write = |w: &mut ObjectWriter<'_>, interrupt: &Interrupt| {
        let payload = native_value(interrupt).unwrap_or_else(|| {
            let members = json::interrupt_json(interrupt).into_object().unwrap_or_else(Object::empty);
            members.without("id").without("reason").into()
        });
        w.str("id", &interrupt.id).str("reason", &interrupt.reason).json("payload", &payload);
    };
    w.str("outcome", "interrupt");
    if let Some(first) = interrupts.first() {
        w.nested("interrupt", |w| write(w, first));
    }
    // The draft has room for one.
    if interrupts.len() > 1 {
        w.array("interrupts", |list| {
            for interrupt in interrupts {
                list.object(|w| write(w, interrupt));
            }
        });
    }
    Fidelity::Approximated("the draft's interrupt has an id, a reason and a payload")
}

/// Writes the event in its 1.0 shape.
pub(super) fn write_unchanged(event: &Event, out: &mut Frames) -> Fidelity {
    json::write_event(out.begin(event.kind()), event);
    out.commit();
    Fidelity::Exact
}

/// Writes a 1.0 event as the value of a CUSTOM event.
pub(super) fn write_wrapped(event: &Event, out: &mut Frames) -> Fidelity {
    let Some(inner) = json::event_json(event) else {
        return Fidelity::Dropped("nested too deep to travel inside another event");
    };
    let event_type = inner.clone().into_object().and_then(|members| members.get_str("type"));
    let name = format!("{WRAPPED_PREFIX}{}", event_type.unwrap_or_default().to_ascii_lowercase());
    write_unchanged(&Event::new(Body::Custom { name: name.into(), value: inner }).at(event.timestamp), out);
    IS_WRAPPED
}

/// Content as text: its text parts, and other parts as JSON text on lines of their own.
pub(super) fn text_of(content: &Content) -> String {
    let Content::Parts(parts) = content else { return content.text() };
    let mut text = String::new();
    let mut was_media = false;
    for part in parts {
        let is_media = matches!(part, ContentPart::Media { .. });
        if (is_media || was_media) && !text.is_empty() {
            text.push('\n');
        }
        was_media = is_media;
        match part {
            ContentPart::Text { text: more, .. } => text.push_str(more),
            ContentPart::Media { .. } => text.push_str(messages::part_json(part).get()),
        }
    }
    text
}

/// The messages that 0.0.5x clients accept; `None` if these are.
fn old_messages(messages: &[Message]) -> Option<Vec<Message>> {
    let is_file =
        |part: &ContentPart| matches!(part, ContentPart::Media { source: PartSource::File { .. }, .. });
    let is_new = |message: &Message| match &message.body {
        MessageBody::Tool { content: Content::Parts(_), .. } => true,
        MessageBody::User { content: Content::Parts(parts) } => parts.iter().any(is_file),
        _ => false,
    };
    if !messages.iter().any(is_new) {
        return None;
    }
    let mut messages = messages.to_vec();
    for message in &mut messages {
        match &mut message.body {
            MessageBody::Tool { content, .. } => *content = Content::Text(text_of(content).into()),
            MessageBody::User { content: Content::Parts(parts) } => {
                for part in parts.iter_mut().filter(|part| is_file(part)) {
                    *part = ContentPart::text(messages::part_json(part).get());
                }
            }
            _ => {}
        }
    }
    Some(messages)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{event::ToolResult, framing::Framing};

    fn written(form: InterruptForm, events: &[Event]) -> Vec<Value> {
        let mut writer = V05Writer::new(form);
        let mut out = Frames::new(Framing::Lines);
        for event in events {
            writer.write(event, &mut out);
        }
        let text = String::from_utf8(out.take().to_vec()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn finished(outcome: Outcome) -> Event {
        let mut finished = RunFinished::new("t", "r");
        finished.outcome = Some(outcome);
        Event::new(Body::RunFinished(Box::new(finished)))
    }

    fn asked(id: &str, value: Value) -> Interrupt {
        let mut interrupt = Interrupt::new(id, "langgraph:interrupt");
        interrupt.metadata = Object::from_value(&json!({"langgraph": {"raw": value}}));
        interrupt
    }

    #[test]
    fn an_outcome_has_only_members_that_strict_schemas_know() {
        let pending = finished(Outcome::Success { pending: vec!["c1".into()] });
        let lines = written(InterruptForm::Outcome, &[pending]);
        assert_eq!(lines[0]["outcome"], json!({"type": "success"}));
        assert_eq!(lines[0]["metadata"]["agentwire"]["outcome"]["pendingToolCallIds"], json!(["c1"]));
        let lines = written(InterruptForm::Outcome, &[finished(Outcome::Cancelled)]);
        assert_eq!(lines[0].get("outcome"), None);
    }

    #[test]
    fn a_tool_result_is_text_everywhere() {
        let image = ContentPart::media(
            crate::event::MediaKind::Image,
            PartSource::Url { value: "https://h/a.png".into(), mime_type: None },
        );
        let content = Content::Parts(vec![ContentPart::text("Done."), image]);
        let text = "Done.\n{\"type\":\"image\",\"source\":{\"type\":\"url\",\"value\":\"https://h/a.png\"}}";
        let result = ToolResult {
            message: "m".into(),
            call: "c".into(),
            content: content.clone(),
            error: None,
            explicit_role: false,
        };
        let message = Message::new("m", MessageBody::Tool { call: "c".into(), content, error: None });
        let events = [
            Event::new(Body::ToolResult(Box::new(result))),
            Event::new(Body::MessagesSnapshot { messages: vec![message] }),
        ];
        let lines = written(InterruptForm::Outcome, &events);
        assert_eq!(lines[0]["content"], text);
        assert_eq!(lines[1]["messages"][0]["content"], text);
    }

    #[test]
    fn an_interrupt_is_reported_by_event_and_outcome() {
        let interrupts = vec![asked("i1", json!({"question": "Pay?", "options": [1, 2]}))];
        let lines = written(InterruptForm::Outcome, &[finished(Outcome::Interrupt { interrupts })]);
        assert_eq!(lines[0]["name"], "on_interrupt");
        assert_eq!(lines[0]["value"]["options"], json!([1, 2]));
        assert_eq!(lines[0]["rawEvent"]["id"], "i1");
        assert_eq!(lines[1]["outcome"]["interrupts"][0]["id"], "i1");
        assert_eq!(lines[1]["outcome"]["interrupts"][0]["options"], json!([1, 2]));
    }

    #[test]
    fn an_interrupt_that_the_agent_reported_itself_is_not_repeated() {
        let interrupt = asked("i1", json!("Pay?"));
        let own = legacy_event(&interrupt, true, None);
        let events = [own, finished(Outcome::Interrupt { interrupts: vec![interrupt] })];
        assert_eq!(written(InterruptForm::Outcome, &events).len(), 2);
    }

    #[test]
    fn copilotkit_gets_a_single_value_by_event_alone() {
        let one = vec![asked("i1", json!({"options": [1]}))];
        let lines = written(InterruptForm::CopilotKit, &[finished(Outcome::Interrupt { interrupts: one })]);
        assert_eq!((lines.len(), &lines[0]["value"]), (2, &json!({"options": [1]})));
        assert_eq!(lines[1].get("outcome"), None);
        // The hooks keep only the last event, and an interrupt without a value has nothing to look for.
        let two = vec![asked("i1", json!(1)), asked("i2", json!(2))];
        for interrupts in [two, vec![Interrupt::new("i1", "confirmation")]] {
            let lines = written(InterruptForm::CopilotKit, &[finished(Outcome::Interrupt { interrupts })]);
            assert_eq!((lines.len(), &lines[0]["outcome"]["type"]), (1, &json!("interrupt")));
        }
    }

    #[test]
    fn the_draft_has_one_interrupt_beside_the_outcome() {
        let interrupts = vec![asked("i1", json!({"a": 1})), Interrupt::new("i2", "confirmation")];
        let lines = written(InterruptForm::Draft, &[finished(Outcome::Interrupt { interrupts })]);
        let first = json!({"id": "i1", "reason": "langgraph:interrupt", "payload": {"a": 1}});
        assert_eq!(
            (lines.len(), &lines[0]["outcome"], &lines[0]["interrupt"]),
            (1, &json!("interrupt"), &first)
        );
        assert_eq!(lines[0]["interrupts"][1], json!({"id": "i2", "reason": "confirmation", "payload": {}}));
    }
}
