//! The state of HAI agents, whose patches presume containers that only the agent's own page has.
//!
//! The reference server sends `add /workflowItems/0/status`, and its page makes the items itself when tasks are handed
//! over. Everywhere else the items are missing, so the patch is completed by operations that create them. A HAI client
//! gets the patch as the agent sent it: `add /workflowItems []` would remove the items that its page has made.

use serde_json::Value;

use super::wire::HAI;
use crate::{
    event::{Body, Event},
    json::{Json, Object},
    patch::{Patch, PatchOp, create_containers},
};

/// The entry of metadata `hai` with the positions of the added operations.
pub(crate) const CREATED: &str = "created";

/// The event with a patch that also creates the containers that are missing in `state`; `None` if the event is no patch,
/// or its patch does not apply even then.
#[must_use]
pub fn with_containers(event: &Event, state: &Value) -> Option<Event> {
    let Body::StateDelta { patch } = &event.body else { return None };
    let (patch, created) = create_containers(state, patch)?;
    let mut event = Event { body: Body::StateDelta { patch }, ..event.clone() };
    if !created.is_empty() {
        let created = Json::from(created.into_iter().map(Value::from).collect::<Value>());
        let metadata = event.metadata().cloned().unwrap_or_else(Object::empty);
        let hai = metadata.member(HAI).and_then(Json::into_object).unwrap_or_else(Object::empty);
        event = event.with_metadata(Some(metadata.with(HAI, hai.with(CREATED, created).into())));
    }
    Some(event)
}

/// The operations of a patch without those at the positions in `created`.
pub(crate) fn without_created<'p>(patch: &'p Patch, created: Option<&Json>) -> Vec<&'p PatchOp> {
    let created = created.map(Json::to_value);
    let created = created.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_created = |at: usize| created.iter().any(|position| *position == at);
    patch.0.iter().enumerate().filter(|(at, _)| !is_created(*at)).map(|(_, operation)| operation).collect()
}
