//! CUSTOM `on_interrupt`: the form in which LangGraph adapters report an interrupt to clients that know no outcome.
//!
//! `ag-ui-langgraph` sends one event per interrupt and then RUN_FINISHED without an outcome. `value` is the value of
//! the interrupt, as JSON text if it is not a string, and `rawEvent` the native interrupt with its id. Such a server
//! is answered with `forwardedProps.command.resume`; see [`command_for_answers`].

use serde_json::{Map, Value, json, value::RawValue};

use super::{reader::json::read_interrupt, wire::LEGACY_INTERRUPT, writer::json::interrupt_json};
use crate::{
    event::{Body, Event, Extra, Interrupt, InterruptId, ResumeEntry, ResumeStatus, RunInput},
    format::langgraph::new_interrupt,
    json::{Json, Object, Path},
    tally::Tally,
};

/// The metadata member of an interrupt, and of its answer, that holds the adapter's data.
const LANGGRAPH: &str = "langgraph";

/// True if the event reports interrupts in this form.
pub(crate) fn is_legacy_interrupt(event: &Event) -> bool {
    matches!(&event.body, Body::Custom { name, .. } if &**name == LEGACY_INTERRUPT)
}

/// The value that the agent gave to the interrupt, in the metadata of whichever format it came from.
pub(crate) fn native_value(interrupt: &Interrupt) -> Option<Json> {
    let metadata = interrupt.metadata.as_ref()?;
    let raw = || metadata.member(LANGGRAPH)?.into_object()?.member("raw");
    let value = raw().or_else(|| metadata.member("value")).or_else(|| metadata.member("payload"));
    value.filter(|value| !value.is_null())
}

/// The event that reports `interrupt`. Its `rawEvent` has all members of the interrupt, so that a reader can restore it.
pub(crate) fn legacy_event(interrupt: &Interrupt, is_text: bool, timestamp: Option<i64>) -> Event {
    let complete = interrupt_json(interrupt);
    let value = native_value(interrupt);
    let raw = match (complete.clone().into_object(), &value) {
        (Some(members), Some(value)) => members.with("value", value.clone()).into(),
        _ => complete.clone(),
    };
    let value = value.unwrap_or(complete);
    let value = if is_text && value.as_str().is_none() { Json::string(value.get()) } else { value };
    let mut event = Event::new(Body::Custom { name: LEGACY_INTERRUPT.into(), value })
        .at(timestamp)
        .by(interrupt.subagent.clone());
    event.extra = Some(Box::new(Extra { metadata: None, raw: Some(raw), unknown: None }));
    event
}

/// The interrupts that an event reports. Those without an id are numbered after `count`, the number of earlier ones.
pub(crate) fn interrupts_of(event: &Event, run: &str, count: usize, tally: &mut Tally) -> Vec<Interrupt> {
    let Body::Custom { value, .. } = &event.body else { return Vec::new() };
    let value = parsed_text(value);
    let natives: Vec<(Option<Object>, Option<Json>)> = match event.raw().map(|raw| (raw, raw.elements())) {
        Some((_, Some(natives))) if !natives.is_empty() => {
            let values = value.elements().filter(|values| values.len() == natives.len());
            let value_at = |index: usize| match &values {
                Some(values) => values.get(index).cloned(),
                None => Some(value.clone()),
            };
            let native = |(index, native): (usize, Json)| (native.into_object(), value_at(index));
            natives.into_iter().enumerate().map(native).collect()
        }
        Some((raw, None)) if has_value(raw) => vec![(raw.clone().into_object(), Some(value))],
        _ => match value.elements() {
            Some(values) if !values.is_empty() && values.iter().all(is_native) => {
                values.into_iter().map(|native| (native.into_object(), None)).collect()
            }
            _ if is_native(&value) => vec![(value.into_object(), None)],
            _ => vec![(None, Some(value))],
        },
    };
    let read = |(index, (native, value)): (usize, (Option<Object>, Option<Json>))| {
        let generated = || format!("{run}:interrupt:{}", count + index + 1).into();
        let mut interrupt = interrupt_of(native, value, generated, tally);
        interrupt.subagent = interrupt.subagent.or_else(|| event.subagent.clone());
        interrupt
    };
    natives.into_iter().enumerate().map(read).collect()
}

/// One interrupt, from the native interrupt and the value of the event.
fn interrupt_of(
    native: Option<Object>,
    value: Option<Json>,
    generated: impl FnOnce() -> InterruptId,
    tally: &mut Tally,
) -> Interrupt {
    // A native interrupt of LangGraph has no reason: this is one of `legacy_event`, and complete.
    if let Some(complete) = native.as_ref().filter(|native| native.get_str("reason").is_some())
        && let Ok(raw) = serde_json::from_str::<&RawValue>(complete.without("value").get())
        && let Ok(interrupt) = read_interrupt(raw, Path::Root, tally)
    {
        return interrupt;
    }
    let text = |key: &str| native.as_ref().and_then(|native| native.get_str(key)).filter(|id| !id.is_empty());
    let ns = native.as_ref().and_then(|native| native.member("ns")).and_then(|ns| ns.elements());
    let ns: Vec<_> = ns.into_iter().flatten().filter_map(|name| name.as_str()).collect();
    let ns = ns.join("|");
    let id = text("id").or_else(|| text("interrupt_id")).or_else(|| (!ns.is_empty()).then(|| ns.clone()));
    // The native value still has its type; the value of the event may be its text.
    let value = native.as_ref().and_then(|native| native.member("value")).or(value);
    let schema = native.as_ref().and_then(|native| native.member("response_schema"));
    let schema = schema.filter(|schema| !schema.is_null());
    let raw = |json: &Option<Json>| json.as_ref().map(|json| RawValue::from_string(json.get().to_owned()));
    let (value, schema) = (raw(&value).and_then(Result::ok), raw(&schema).and_then(Result::ok));
    let id = id.map_or_else(generated, InterruptId::from);
    let mut interrupt = new_interrupt(id, value.as_deref(), schema.as_deref(), &ns, tally);
    let metadata = interrupt.metadata.take().unwrap_or_else(Object::empty);
    let langgraph = metadata.member(LANGGRAPH).and_then(Json::into_object).unwrap_or_else(Object::empty);
    let langgraph = langgraph.with("event", Json::string(LEGACY_INTERRUPT));
    interrupt.metadata = Some(metadata.with(LANGGRAPH, langgraph.into()));
    interrupt
}

/// The value, or the JSON document in its text.
fn parsed_text(value: &Json) -> Json {
    let document = value.as_str().and_then(|text| Json::parse(&text).ok());
    document.unwrap_or_else(|| value.clone())
}

/// True if it is an object with the value of an interrupt, or a whole interrupt of AG-UI.
fn has_value(json: &Json) -> bool {
    let Some(object) = json.clone().into_object() else { return false };
    object.member("value").is_some() || (object.get_str("id").is_some() && object.get_str("reason").is_some())
}

/// True if it is an interrupt object rather than the value of one, which may have any members.
fn is_native(json: &Json) -> bool {
    const KEYS: &[&str] = &["value", "id", "interrupt_id", "ns", "when", "resumable", "response_schema"];
    let Some(object) = json.clone().into_object() else { return false };
    if object.get_str("id").is_some() && object.get_str("reason").is_some() {
        return true;
    }
    has_value(json) && object.entries().iter().all(|(key, _)| KEYS.contains(&key.as_str()))
}

/// True if the metadata of an interrupt, or of an answer to it, says that it was reported by CUSTOM `on_interrupt`.
#[must_use]
pub fn is_reported_by_custom_event(metadata: Option<&Object>) -> bool {
    let event = || metadata?.member(LANGGRAPH)?.into_object()?.get_str("event");
    event().as_deref() == Some(LEGACY_INTERRUPT)
}

/// The entry with the mark by which [`command_for_answers`] recognises it.
#[must_use]
pub fn marked_for_command(mut entry: ResumeEntry) -> ResumeEntry {
    let metadata = entry.metadata.take().unwrap_or_else(Object::empty);
    let mark = Object::from_entries([("event", Json::string(LEGACY_INTERRUPT))]);
    entry.metadata = Some(metadata.with(LANGGRAPH, mark.into()));
    entry
}

/// Moves the answers to interrupts that were reported by CUSTOM `on_interrupt` from `resume` to
/// `forwardedProps.command.resume`: the value of a single one, or an object with a value for each interrupt id. `None`
/// if there are none.
#[must_use]
pub fn command_for_answers(input: &RunInput) -> Option<RunInput> {
    let is_marked = |entry: &&ResumeEntry| is_reported_by_custom_event(entry.metadata.as_ref());
    let entries = input.resume.as_deref().unwrap_or_default();
    let answers: Vec<_> = entries.iter().filter(is_marked).collect();
    let value = |entry: &ResumeEntry| match entry.status {
        // The server takes `null` for no answer at all.
        ResumeStatus::Resolved => entry.payload.as_ref().map_or(Value::Bool(true), Json::to_value),
        ResumeStatus::Cancelled => json!({"cancelled": true}),
    };
    let resume = match &answers[..] {
        [] => return None,
        [only] => value(only),
        several => Value::Object(
            several.iter().map(|entry| (entry.interrupt.to_string(), value(entry))).collect::<Map<_, _>>(),
        ),
    };
    let mut forwarded = match input.forwarded.as_ref().map(Json::to_value) {
        Some(Value::Object(forwarded)) => forwarded,
        _ => Map::new(),
    };
    match forwarded.get_mut("command") {
        Some(Value::Object(command)) => {
            command.insert("resume".into(), resume);
        }
        _ => {
            forwarded.insert("command".into(), json!({"resume": resume}));
        }
    }
    let others: Vec<_> = entries.iter().filter(|entry| !is_marked(entry)).cloned().collect();
    Some(RunInput {
        forwarded: Some(Json::from(Value::Object(forwarded))),
        resume: (!others.is_empty()).then_some(others),
        ..input.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(value: Value, raw: Option<Value>) -> Event {
        let mut event = Event::new(Body::Custom { name: LEGACY_INTERRUPT.into(), value: value.into() });
        let raw = raw.map(Json::from);
        event.extra = Some(Box::new(Extra { metadata: None, raw, unknown: None }));
        event
    }

    fn read(value: Value, raw: Option<Value>) -> Vec<(String, Option<String>, Value)> {
        let of = |it: Interrupt| {
            let value = native_value(&it).map_or(Value::Null, |value| value.to_value());
            (it.id.to_string(), it.message.map(String::from), value)
        };
        interrupts_of(&custom(value, raw), "r", 0, &mut Tally::default()).into_iter().map(of).collect()
    }

    #[test]
    fn every_form_of_the_value_is_read() {
        let pay = json!({"question": "Pay?", "options": [1, 2]});
        let (text, id) = (pay.to_string(), json!({"value": pay.clone(), "id": "i1"}));
        let asked = |id: &str, value: &Value| (id.to_owned(), Some("Pay?".to_owned()), value.clone());
        // As ag-ui-langgraph sends it, as an object, without the native interrupt.
        assert_eq!(read(json!(text), Some(id.clone())), [asked("i1", &pay)]);
        assert_eq!(read(pay.clone(), Some(id.clone())), [asked("i1", &pay)]);
        assert_eq!(read(pay.clone(), None), [asked("r:interrupt:1", &pay)]);
        assert_eq!(read(json!(text), None), [asked("r:interrupt:1", &pay)]);
        assert_eq!(read(json!("Pay?"), None), [asked("r:interrupt:1", &json!("Pay?"))]);
        // LangGraph 1.2 has a schema too.
        let complete = json!({"value": pay, "id": "i1", "response_schema": null});
        assert_eq!(read(json!(text), Some(complete)), [asked("i1", &pay)]);
        // A native event of another kind is no interrupt.
        assert_eq!(read(pay.clone(), Some(json!({"event": "x"}))), [asked("r:interrupt:1", &pay)]);
        // A text that looks like another type keeps its type.
        let number = json!({"value": "42", "id": "i1"});
        assert_eq!(read(json!("42"), Some(number)), [("i1".into(), Some("42".into()), json!("42"))]);
        // Lists: of native interrupts, or of values beside native interrupts.
        let other = json!({"value": "Sure?", "id": "i2"});
        let both = [asked("i1", &pay), ("i2".to_owned(), Some("Sure?".to_owned()), json!("Sure?"))];
        assert_eq!(read(json!([id, other]), None), both);
        assert_eq!(read(json!(json!([id, other]).to_string()), None), both);
        assert_eq!(read(json!([pay, "Sure?"]), Some(json!([id, other]))), both);
        // A list that is the value of one interrupt.
        let list = json!([{"action_request": {"action": "pay"}}]);
        assert_eq!(read(list.clone(), None), [("r:interrupt:1".into(), None, list)]);
    }

    #[test]
    fn a_written_interrupt_is_read_back() {
        let mut interrupt = Interrupt::new("i1", "confirmation");
        interrupt.message = Some("Pay?".into());
        interrupt.tool_call = Some("c1".into());
        interrupt.metadata = Object::from_value(&json!({"langgraph": {"raw": {"options": [1]}}}));
        for is_text in [false, true] {
            let event = legacy_event(&interrupt, is_text, None);
            assert_eq!(interrupts_of(&event, "r", 0, &mut Tally::default()), [interrupt.clone()]);
        }
    }

    #[test]
    fn answers_become_the_command_of_the_adapter() {
        let entry = |id: &str, payload: Value| {
            marked_for_command(ResumeEntry {
                interrupt: id.into(),
                status: ResumeStatus::Resolved,
                payload: Some(payload.into()),
                metadata: None,
            })
        };
        let mut input = RunInput::new("t", "r");
        assert!(command_for_answers(&input).is_none());
        input.forwarded = Some(json!({"a": 1, "command": {"goto": "x"}}).into());
        input.resume = Some(vec![entry("i1", json!("yes"))]);
        let sent = command_for_answers(&input).unwrap();
        assert_eq!(sent.resume, None);
        let forwarded = json!({"a": 1, "command": {"goto": "x", "resume": "yes"}});
        assert_eq!(sent.forwarded.unwrap().to_value(), forwarded);
        input.resume = Some(vec![entry("i1", json!("yes")), entry("i2", json!({"ok": false}))]);
        let sent = command_for_answers(&input).unwrap().forwarded.unwrap().to_value();
        assert_eq!(sent["command"]["resume"], json!({"i1": "yes", "i2": {"ok": false}}));
    }
}
