//! What a snapshot of all messages does to the messages that a client already holds.
//!
//! It never reorders: messages that both sides know are replaced in place, new ones go to the end, and what
//! the snapshot leaves out is dropped. Reasoning and activities are the exception, since most agents do not
//! keep them: they stay unless the snapshot shows that its author does.

use std::collections::HashMap;

use super::list::List;
use crate::{
    event::{Message, MessageBody, Role},
    json::Object,
};

/// The metadata key of the official client's own conventions.
pub(super) const CLIENT: &str = "@ag-ui/client";
/// The member of it that says which activity types a snapshot is complete for.
pub(super) const AUTHORITY: &str = "authoritativeActivityTypes";

/// Which activities a snapshot drops by leaving them out.
enum Authority {
    /// Nothing was declared: all of them if it holds any, otherwise none.
    Inferred,
    /// All of them.
    All,
    /// Those of these types.
    Types(Vec<String>),
}

/// Brings the list up to a snapshot.
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

/// What the metadata of a snapshot declares. What is malformed grants nothing.
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
