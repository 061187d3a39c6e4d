//! AG-UI as protobuf: the optional binary binding, byte-identical to the output of the official encoder.
//!
//! Written by hand on a small wire layer instead of generated. Generated structs would copy every string once
//! more, sort the members of every `Struct` by key where the official encoder keeps their order, and still
//! need the same mapping to and from the canonical model. Reading goes through the JSON shape of an event, as
//! in the official decoder, so one set of rules validates both encodings; only content events, nine tenths of
//! a stream, have a fast path.
//!
//! Lossy compared to JSON: extra members of JSON Patch operations, numbers beyond a double, absent required
//! strings (read as empty).

mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    reader::decode_event,
    writer::{write_chunk, write_event},
};
pub use self::{reader::input_from_proto, writer::input_to_proto};
use bytes::BytesMut;

use super::{
    reader::{
        AgUiReader,
        json::{self as json_reader, Decoded, ReadContext},
    },
    writer::{AgUiEncoding, AgUiWriter, json as json_writer},
};
use crate::{
    format::{Format, Profile},
    framing::Framing,
    json::{ReadError, ReadResult},
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
    writer: Some(|profile, _| Box::new(AgUiWriter::new(profile, AgUiEncoding::Proto))),
    ..Format::EMPTY
};

/// Encodes one event unchanged: chunks are not expanded, and no version is declared.
///
/// For tools that inspect single events. Streams use the reader and writer of the format.
///
/// # Errors
/// When the text is not an event that has a binary form.
pub fn event_to_proto(event: &str) -> ReadResult<Vec<u8>> {
    let mut out = BytesMut::new();
    match json_reader::decode_event(event, None, &mut ReadContext::default())? {
        Decoded::Event(event) => write_event(&mut out, &event),
        Decoded::Chunk(chunk) => write_chunk(&mut out, &chunk),
        Decoded::Thinking(..) | Decoded::Several(_) | Decoded::Unknown => return Err(not_a_single_event()),
    }
    Ok(out.to_vec())
}

/// Decodes one event, without its length prefix, to its JSON form.
///
/// # Errors
/// When the bytes are not an event of AG-UI 1.0.
pub fn event_to_json(event: &[u8]) -> ReadResult<String> {
    let mut out = BytesMut::new();
    match decode_event(event, &mut ReadContext::default())? {
        Decoded::Event(event) => json_writer::write_event(&mut out, &event),
        Decoded::Chunk(chunk) => json_writer::write_chunk(&mut out, &chunk),
        Decoded::Thinking(..) | Decoded::Several(_) | Decoded::Unknown => return Err(not_a_single_event()),
    }
    Ok(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

fn not_a_single_event() -> ReadError {
    ReadError::new("/type", "expected an event of AG-UI 1.0")
}
