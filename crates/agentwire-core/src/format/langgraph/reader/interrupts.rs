//! Interrupts: native ones, and the static breakpoints that LangGraph does not report as such.

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{InterruptValue, NativeInterrupt},
    },
    messages,
};
use crate::{
    event::{Interrupt, InterruptId, ToolCallId},
    json::{Json, Object},
    tally::Tally,
};

/// The reason of an interrupt that a graph raised.
const INTERRUPT: &str = "langgraph:interrupt";

/// The reason of a stop before or after a node, which the caller asked for.
pub(super) const BREAKPOINT: &str = "langgraph:breakpoint";

/// Id of a breakpoint, or the prefix of one. LangGraph has no ids for them.
pub(in crate::format::langgraph) const BREAKPOINT_ID: &str = "breakpoint";

/// Reads a list of interrupts, or a single one. Interrupts without an id are numbered after `offset`.
pub(super) fn read_interrupts(raw: &RawValue, offset: usize, tally: &mut Tally) -> Vec<Interrupt> {
    let mut interrupts = Vec::new();
    for raw in messages::one_or_many(raw) {
        let Some(native) = NativeInterrupt::of(raw) else {
            tally.note("wrong type", "interrupt");
            continue;
        };
        let ns = raw_json::strings(native.ns, tally).join("|");
        let id = raw_json::non_empty(native.id.or(native.interrupt_id), tally);
        let id: InterruptId = match id {
            Some(id) => id.as_ref().into(),
            // Old versions have no ids and identify an interrupt by the node's namespace.
            None if !ns.is_empty() => ns.as_str().into(),
            None => format!("interrupt-{}", offset + interrupts.len() + 1).into(),
        };
        interrupts.push(new_interrupt(
            id,
            native.value.or(native.payload),
            native.response_schema,
            &ns,
            tally,
        ));
    }
    interrupts
}

/// A canonical interrupt. The text for a person is extracted from `value`; the metadata carries all of it.
pub(in crate::format) fn new_interrupt(
    id: InterruptId,
    value: Option<&RawValue>,
    schema: Option<&RawValue>,
    ns: &str,
    tally: &mut Tally,
) -> Interrupt {
    let fields = value.and_then(InterruptValue::of).unwrap_or_default();
    let bare_text = value.and_then(|value| raw_json::string(value, tally));
    let mut text = |raw: Option<&RawValue>| raw_json::non_empty(raw, tally).map(Box::<str>::from);
    let mut interrupt = Interrupt::new(id, text(fields.reason).unwrap_or_else(|| INTERRUPT.into()));
    interrupt.message = bare_text.map(Into::into).or_else(|| {
        [fields.message, fields.question, fields.prompt, fields.description].into_iter().find_map(&mut text)
    });
    // LangChain's approval middleware sends a list of requests.
    if interrupt.message.is_none()
        && let Some(requests) = fields.action_requests.and_then(raw_json::elements)
        && let Some(first) = requests.first().and_then(|raw| InterruptValue::of(raw))
    {
        interrupt.message = text(first.description);
    }
    interrupt.tool_call =
        text(fields.tool_call_camel.or(fields.tool_call_id)).map(|call| ToolCallId::from(&*call));
    interrupt.expires_at = text(fields.expires_camel.or(fields.expires_at));
    let schema = schema.or(fields.schema_camel).or(fields.response_schema);
    interrupt.response_schema = schema.and_then(|raw| raw_json::json(raw, tally).into_object());
    let mut native = vec![("raw", value.map_or_else(Json::null, |value| raw_json::json(value, tally)))];
    if !ns.is_empty() {
        native.push(("ns", Json::string(ns)));
    }
    let native = Object::from_entries(native);
    interrupt.metadata = Some(Object::from_entries([("langgraph", native.into())]));
    interrupt
}

/// One breakpoint per node that would run next; one without a node if those are unknown.
pub(super) fn breakpoints(next: &[Box<str>]) -> Vec<Interrupt> {
    if next.is_empty() {
        return vec![Interrupt::new(BREAKPOINT_ID, BREAKPOINT)];
    }
    next.iter()
        .map(|node| {
            let mut interrupt = Interrupt::new(format!("{BREAKPOINT_ID}:{node}"), BREAKPOINT);
            let native = Object::from_entries([("node", Json::string(node))]);
            interrupt.metadata = Some(Object::from_entries([("langgraph", native.into())]));
            interrupt
        })
        .collect()
}

/// The unanswered tool call that an approval request names, if exactly one matches.
pub(super) fn requested_call<'c>(
    interrupt: &Interrupt,
    unanswered: impl Iterator<Item = (&'c ToolCallId, &'c str)>,
) -> Option<ToolCallId> {
    let payload = native_value(interrupt)?.to_value();
    let requests = payload.get("action_requests")?.as_array()?;
    let [request] = &requests[..] else { return None };
    let name = request.get("name").or_else(|| request.get("action"))?.as_str()?;
    let mut matching = unanswered.filter(|(_, call)| *call == name);
    let only = matching.next()?;
    matching.next().is_none().then(|| only.0.clone())
}

/// The native value of an interrupt.
pub(super) fn native_value(interrupt: &Interrupt) -> Option<Json> {
    interrupt.metadata.as_ref()?.member("langgraph")?.into_object()?.member("raw")
}
