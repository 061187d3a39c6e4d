//! HAI as protobuf: "HTTP binary, for high performance", of which the standard says no more.
//!
//! The schema is `docs/formats/hai.proto`: one message whose fields are the members of the JSON form, and a
//! `Struct` for every member that has no field, so that JSON → protobuf → JSON gives the same object up to the
//! order of keys. Both directions therefore go through JSON, and one reader and one writer know the rules.
//! Integers beyond 2^53 cannot be told in a `Struct`; a member that holds one is left out and reported.

pub(crate) mod reader;
pub(crate) mod writer;

#[cfg(test)]
mod tests;

use super::{
    options::OPTIONS,
    reader::HaiReader,
    wire::MESSAGES_SNAPSHOT,
    writer::{Encoding, HaiWriter},
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
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(HaiReader::new(setup))),
    writer: Some(|profile, setup| Box::new(HaiWriter::new(profile, setup, Encoding::Proto))),
    time_option: Some("stamp"),
    ..Format::EMPTY
};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
const FIELDS: &[(u32, &str, Kind)] = &[
    (2, "timestamp", Kind::Int),
    (3, "threadId", Kind::Str),
    (4, "runId", Kind::Str),
    (5, "messageId", Kind::Str),
    (6, "role", Kind::Str),
    (7, "delta", Kind::Str),
    (8, "stepName", Kind::Str),
    (9, "from", Kind::Str),
    (10, "to", Kind::Str),
    (11, "toolCallId", Kind::Str),
    (12, "toolCallName", Kind::Str),
    (13, "parentMessageId", Kind::Str),
    (14, "content", Kind::Str),
    (15, "message", Kind::Str),
    (16, "code", Kind::Str),
    (17, "name", Kind::Str),
    (18, "value", Kind::Value),
    (19, "source", Kind::Str),
    (20, "snapshot", Kind::Value),
    (21, "delta", Kind::Patch),
    (22, "messages", Kind::Structs),
    (23, "blockId", Kind::Str),
    (24, "style", Kind::Struct),
];

const UNKNOWN_TYPE: u32 = 30;
const EXTRA: u32 = 31;

/// Whether a list in this field is part of events of that type; an empty one is then the same as none.
fn lists(kind: Kind, event_type: &str) -> bool {
    match kind {
        Kind::Patch => event_type == "STATE_DELTA",
        Kind::Structs => matches!(event_type, "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT),
        _ => false,
    }
}

/// The member of JSON that a field is in events of that type: RAW's event is a `value`.
fn member<'k>(key: &'k str, event_type: &str) -> &'k str {
    if key == "value" && event_type == "RAW" { "event" } else { key }
}
