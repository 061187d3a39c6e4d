//! The origin of a snapshot of the messages: sent by the agent as such, or derived by a format reader.
//!
//! The recorder treats the two differently. Between the reader and the recorder the origin is a member of the event's
//! metadata; [`take_origin`] removes it, so that neither hooks nor the log nor clients see it.

use agentwire_core::event::{Event, Extra};
#[cfg(feature = "upstreams")]
use agentwire_core::{
    event::Body,
    json::{Json, Object},
};

/// The member of the metadata.
const ORIGIN: &str = "agentwire.snapshot";
const WHOLE: &str = "derived";
const PREFIX: &str = "derived-prefix";

/// The origin of a snapshot of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotOrigin {
    /// The agent sent it.
    Sent,
    /// A format reader derived it.
    Derived,
    /// The same; another one follows at once. It serves only the order of messages at clients.
    DerivedPrefix,
}

/// Marks the snapshots among the events of one frame as derived.
#[cfg(feature = "upstreams")]
pub(crate) fn mark_derived(events: &mut [Event]) {
    let is_snapshot = |event: &Event| matches!(event.body, Body::MessagesSnapshot { .. });
    for index in 0..events.len() {
        if is_snapshot(&events[index]) {
            let origin = if events.get(index + 1).is_some_and(is_snapshot) { PREFIX } else { WHOLE };
            let extra = events[index].extra.get_or_insert_default();
            let metadata = extra.metadata.take().unwrap_or_else(Object::empty);
            extra.metadata = Some(metadata.with(ORIGIN, Json::string(origin)));
        }
    }
}

/// Takes the mark off a snapshot.
pub(crate) fn take_origin(event: &mut Event) -> SnapshotOrigin {
    let Some(extra) = &mut event.extra else { return SnapshotOrigin::Sent };
    let origin = match extra.metadata.as_ref().and_then(|metadata| metadata.get_str(ORIGIN)).as_deref() {
        Some(WHOLE) => SnapshotOrigin::Derived,
        Some(PREFIX) => SnapshotOrigin::DerivedPrefix,
        _ => return SnapshotOrigin::Sent,
    };
    let rest = extra.metadata.take().map(|metadata| metadata.without(ORIGIN));
    extra.metadata = rest.filter(|metadata| !metadata.is_empty());
    if **extra == Extra::default() {
        event.extra = None;
    }
    origin
}

#[cfg(all(test, feature = "upstreams"))]
mod tests {
    use super::*;

    fn snapshot() -> Event {
        Event::new(Body::MessagesSnapshot { messages: Vec::new() })
    }

    #[test]
    fn a_mark_is_taken_off_without_a_trace() {
        let other = Event::new(Body::StepStarted { name: "s".into() });
        let mut events = vec![snapshot(), snapshot(), other.clone(), snapshot()];
        let unmarked = events.clone();
        mark_derived(&mut events);
        let origins: Vec<_> = events.iter_mut().map(take_origin).collect();
        let derived = SnapshotOrigin::Derived;
        assert_eq!(origins, [SnapshotOrigin::DerivedPrefix, derived, SnapshotOrigin::Sent, derived]);
        assert_eq!(events, unmarked);
        let metadata = Object::from_entries([("mine", Json::null())]);
        let mut event = snapshot().with_metadata(Some(metadata.clone()));
        mark_derived(std::slice::from_mut(&mut event));
        assert_eq!(take_origin(&mut event), derived);
        assert_eq!(event.metadata(), Some(&metadata));
    }
}
