//! HAI as protobuf. The standard mentions "HTTP binary, for high performance" without a definition.
//!
//! The schema is `docs/formats/hai.proto`: one message whose fields are the members of the JSON form, and a
//! `Struct` for members without a field, so that JSON → protobuf → JSON yields the same object except for the
//! order of keys. Both directions go through JSON, so one reader and one writer implement the rules. A `Struct`
//! cannot represent integers beyond 2^53; a member that contains one is left out and reported.

pub(crate) mod reader;
pub(crate) mod writer;

#[cfg(test)]
mod tests;

use super::{
    CHECKED_NAMES, STRICT_OPTIONS,
    options::OPTIONS,
    reader::HaiReader,
    wire::MESSAGES_SNAPSHOT,
    writer::{HaiEncoding, HaiWriter},
};
use crate::{
    format::{Format, Profile},
    framing::Framing,
};

/// The media type of the binary form; a response must carry it exactly.
pub const CONTENT_TYPE: &str = "application/vnd.hai.event+proto";

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "hai-proto",
    about: "HAI as length-prefixed protobuf",
    reads: &[Framing::Prefixed],
    profiles: &[Profile {
        name: "json-string",
        about: "deltas are JSON documents as strings",
        framing: Framing::Prefixed,
        content_type: CONTENT_TYPE,
        headers: &[],
        asks: &[],
    }],
    ordered: true,
    options: OPTIONS,
    options_are_for_writing: true,
    reader: Some(|setup| Box::new(HaiReader::new(setup))),
    writer: Some(|profile, setup| Box::new(HaiWriter::new(profile, setup, HaiEncoding::Proto))),
    strict_options: STRICT_OPTIONS,
    checked_names: CHECKED_NAMES,
    time_option: Some("stamp"),
    ..Format::EMPTY
};

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberKind {
    Str,
    Int,
    Value,
    Struct,
    /// A JSON Patch, operation by operation.
    Patch,
    /// A list of objects.
    Structs,
}

/// The fields: number, JSON member, kind. In the order of their numbers, which is the order on the wire.
const FIELDS: &[(u32, &str, MemberKind)] = &[
    (2, "timestamp", MemberKind::Int),
    (3, "threadId", MemberKind::Str),
    (4, "runId", MemberKind::Str),
    (5, "messageId", MemberKind::Str),
    (6, "role", MemberKind::Str),
    (7, "delta", MemberKind::Str),
    (8, "stepName", MemberKind::Str),
    (9, "from", MemberKind::Str),
    (10, "to", MemberKind::Str),
    (11, "toolCallId", MemberKind::Str),
    (12, "toolCallName", MemberKind::Str),
    (13, "parentMessageId", MemberKind::Str),
    (14, "content", MemberKind::Str),
    (15, "message", MemberKind::Str),
    (16, "code", MemberKind::Str),
    (17, "name", MemberKind::Str),
    (18, "value", MemberKind::Value),
    (19, "source", MemberKind::Str),
    (20, "snapshot", MemberKind::Value),
    (21, "delta", MemberKind::Patch),
    (22, "messages", MemberKind::Structs),
    (23, "blockId", MemberKind::Str),
    (24, "style", MemberKind::Struct),
];

const UNKNOWN_TYPE: u32 = 30;
const EXTRA: u32 = 31;

/// Whether events of this type have a list in this field; an absent one then counts as empty.
fn is_list_of(kind: MemberKind, event_type: &str) -> bool {
    match kind {
        MemberKind::Patch => event_type == "STATE_DELTA",
        MemberKind::Structs => matches!(event_type, "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT),
        _ => false,
    }
}

/// The JSON member of a field in events of this type: the `event` of RAW is in the field `value`.
fn member<'k>(key: &'k str, event_type: &str) -> &'k str {
    if key == "value" && event_type == "RAW" { "event" } else { key }
}
