//! Reconciles a snapshot of all messages with the messages that a client holds.
//!
//! Messages are never reordered: those in both are replaced in place, new ones are appended, and those that the snapshot
//! lacks are dropped. Reasoning and activities are the exception, since most agents do not keep them: they stay unless
//! the snapshot shows that its author keeps them.

use std::collections::HashMap;

use super::list::List;
use crate::{
    event::{Message, MessageBody, Role},
    json::Object,
};

/// The metadata key of the official client's own conventions.
pub(super) const CLIENT: &str = "@ag-ui/client";
/// Its member that lists the activity types for which a snapshot is complete.
pub(super) const AUTHORITY: &str = "authoritativeActivityTypes";

/// The activities that a snapshot drops by omission.
enum Authority {
    /// Nothing was declared: all of them if it contains any, otherwise none.
    Inferred,
    /// All of them.
    All,
    /// Those of these types.
    Types(Vec<String>),
}

/// Applies a snapshot to the list.
pub(super) fn reconcile(list: &mut List, snapshot: &[Message], metadata: Option<&Object>) {
    // Of several with one id the last counts, but all of them are appended where the id is new.
    let by_id: HashMap<&str, &Message> = snapshot.iter().map(|message| (&*message.id, message)).collect();
    let has = |role| snapshot.iter().any(|message| message.role() == role);
    let (has_activity, has_reasoning) = (has(Role::Activity), has(Role::Reasoning));
    let authority = authority(metadata);
    let stays = |message: &Message| match &message.body {
        MessageBody::Activity { kind, .. } => match &authority {
            Authority::Inferred => !has_activity,
            Authority::All => false,
            Authority::Types(types) => types.iter().all(|name| **name != **kind),
        },
        MessageBody::Reasoning { .. } => !has_reasoning,
        _ => false,
    };
    list.rebuild(
        |message| match by_id.get(&*message.id) {
            Some(newer) => Some((*newer).clone()),
            None => stays(&message).then_some(message),
        },
        |known| snapshot.iter().filter(|message| !known.contains(&message.id)).cloned().collect(),
    );
}

/// The declaration in the metadata of a snapshot. A malformed one grants nothing.
fn authority(metadata: Option<&Object>) -> Authority {
    let Some(client) = metadata.and_then(|metadata| metadata.member(CLIENT)) else {
        return Authority::Inferred;
    };
    let Some(client) = client.into_object() else {
        return Authority::Types(Vec::new());
    };
    match client.member(AUTHORITY) {
        None => Authority::Inferred,
        Some(types) if types.is_null() => Authority::All,
        Some(types) => Authority::Types(serde_json::from_str(types.get()).unwrap_or_default()),
    }
}
