//! AG-UI as protobuf: the optional binary binding, byte for byte as the official encoder writes it.
//!
//! Written by hand on a small wire layer rather than generated. Generated structs would hold every string
//! once more, sort the members of every `Struct` by key where the official encoder keeps their order, and
//! still need the same mapping code to and from the canonical model. Reading goes through the JSON shape of
//! an event, as in the official decoder, so that one set of rules judges both encodings; only the content
//! events, nine tenths of a stream, have a lane of their own.
//!
//! Lossy against JSON: extra members of JSON Patch operations, numbers beyond a double, absent required
//! strings (they read as empty).

mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    reader::decode,
    writer::{encode, encode_chunk},
};
pub use self::{reader::input_from_proto, writer::input_to_proto};
use bytes::BytesMut;

use super::{
    reader::{
        AgUiReader,
        json::{self as json_reader, Context, Native},
    },
    writer::{AgUiWriter, Encoding, json as json_writer},
};
use crate::{
    format::{Format, Profile},
    framing::Framing,
    json::ReadError,
};

/// The media type of the binary binding; a response must carry it exactly.
pub const CONTENT_TYPE: &str = "application/vnd.ag-ui.event+proto";

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "ag-ui-proto",
    about: "AG-UI 1.0, as length-prefixed protobuf",
    reads: &[Framing::Prefixed],
    profiles: &[
        Profile {
            name: "1",
            about: "AG-UI 1.0",
            framing: Framing::Prefixed,
            content_type: CONTENT_TYPE,
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "chunks",
            about: "AG-UI 1.0 with *_CHUNK shorthands",
            framing: Framing::Prefixed,
            content_type: CONTENT_TYPE,
            headers: &[],
            asks: &[],
        },
    ],
    ordered: true,
    options: &[],
    reader: Some(|setup| Box::new(AgUiReader::new(setup))),
    writer: Some(|profile, _| Box::new(AgUiWriter::new(profile, Encoding::Proto))),
};

/// Encodes one event as it is: chunks stay chunks, and no version is declared.
///
/// For tools that look at single events; streams go through the format's reader and writer.
///
/// # Errors
/// When the text is not an event that has a binary form.
pub fn event_to_proto(event: &str) -> Result<Vec<u8>, ReadError> {
    let mut out = BytesMut::new();
    match json_reader::event(event, None, &mut Context::default())? {
        Native::Event(event) => encode(&mut out, &event),
        Native::Chunk(chunk) => encode_chunk(&mut out, &chunk),
        Native::Thinking(..) | Native::Several(_) | Native::Unknown => return Err(no_single_event()),
    }
    Ok(out.to_vec())
}

/// Decodes one event, without the length in front of it, into its JSON form.
///
/// # Errors
/// When the bytes are not an event of AG-UI 1.0.
pub fn event_to_json(event: &[u8]) -> Result<String, ReadError> {
    let mut out = BytesMut::new();
    match decode(event, &mut Context::default())? {
        Native::Event(event) => json_writer::event(&mut out, &event),
        Native::Chunk(chunk) => json_writer::chunk(&mut out, &chunk),
        Native::Thinking(..) | Native::Several(_) | Native::Unknown => return Err(no_single_event()),
    }
    Ok(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

fn no_single_event() -> ReadError {
    ReadError::new("/type", "expected an event of AG-UI 1.0")
}
