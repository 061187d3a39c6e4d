//! Canonical events to AG-UI frames, in several profiles and two encodings.

mod chunks;
mod deltas;
pub(crate) mod json;
pub(crate) mod messages;
mod v0;
mod v0_0_5x;

use bytes::BytesMut;

pub(super) use self::v0_0_5x::is_same_in_0_0_5x;
use self::{
    chunks::{ChunkJoiner, JoinedEvent},
    deltas::DeltaWriter,
    v0_0_5x::{InterruptForm, V05Writer},
};
use super::{
    proto,
    wire::{EventChunk, PROTOCOL_VERSION},
};
use crate::{
    event::{Body, Event},
    format::{Fidelity, Profile, Writer},
    framing::Frames,
};

/// The byte encoding of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgUiEncoding {
    Json,
    Proto,
}

impl AgUiEncoding {
    fn write_event(self, event: &Event, out: &mut BytesMut) {
        match self {
            Self::Json => json::write_event(out, event),
            Self::Proto => proto::write_event(out, event),
        }
    }

    fn write_chunk(self, chunk: &EventChunk, out: &mut BytesMut) {
        match self {
            Self::Json => json::write_chunk(out, chunk),
            Self::Proto => proto::write_chunk(out, chunk),
        }
    }
}

/// Writes AG-UI.
#[derive(Debug)]
pub(crate) struct AgUiWriter {
    encoding: AgUiEncoding,
    profile: ProfileWriter,
}

#[derive(Debug)]
enum ProfileWriter {
    /// 1.0, explicit events.
    V1(DeltaWriter),
    /// 1.0, chunk shorthands.
    Chunks(ChunkJoiner),
    /// 0.0.5x.
    V05(V05Writer),
    /// 0.x.
    V0(v0::V0Writer),
}

impl AgUiWriter {
    pub(crate) fn new(profile: &Profile, encoding: AgUiEncoding) -> Self {
        let profile = match profile.name {
            "0.0.5x" => ProfileWriter::V05(V05Writer::new(InterruptForm::Outcome)),
            "copilotkit" => ProfileWriter::V05(V05Writer::new(InterruptForm::CopilotKit)),
            "draft" => ProfileWriter::V05(V05Writer::new(InterruptForm::Draft)),
            "0" => ProfileWriter::V0(v0::V0Writer::default()),
            "chunks" => ProfileWriter::Chunks(ChunkJoiner::default()),
            _ => ProfileWriter::V1(DeltaWriter::default()),
        };
        Self { encoding, profile }
    }

    fn put(encoding: AgUiEncoding, event: &Event, out: &mut Frames) -> Fidelity {
        encoding.write_event(event, out.begin(event.kind()));
        out.commit();
        Fidelity::Exact
    }
}

impl Writer for AgUiWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let encoding = self.encoding;
        // The declared version is that of this writer, not that of the source.
        let declared;
        let event = match &event.body {
            Body::RunStarted(started)
                if started.protocol_version.as_deref() != Some(PROTOCOL_VERSION)
                    && !matches!(self.profile, ProfileWriter::V0(_) | ProfileWriter::V05(_)) =>
            {
                let mut copy = event.clone();
                if let Body::RunStarted(started) = &mut copy.body {
                    started.protocol_version = Some(PROTOCOL_VERSION.into());
                }
                declared = copy;
                &declared
            }
            _ => event,
        };
        match &mut self.profile {
            ProfileWriter::V1(deltas) => {
                if encoding == AgUiEncoding::Json && deltas.write(event, out) {
                    return Fidelity::Exact;
                }
                Self::put(encoding, event, out)
            }
            ProfileWriter::Chunks(joiner) => {
                if encoding == AgUiEncoding::Json
                    && let Some((kind, owner)) = joiner.continued_stream(event)
                {
                    json::write_chunk_delta(out.begin(kind.event_type()), event, owner.as_ref());
                    out.commit();
                    return Fidelity::Exact;
                }
                if let Some(first) = joiner.event_before(event) {
                    Self::put(encoding, &first, out);
                }
                match joiner.join(event) {
                    JoinedEvent::Unchanged => Self::put(encoding, event, out),
                    JoinedEvent::Implied => Fidelity::Exact,
                    JoinedEvent::Chunk { chunk, is_reopening } => {
                        encoding.write_chunk(&chunk, out.begin(chunk.kind.event_type()));
                        out.commit();
                        if is_reopening {
                            Fidelity::Approximated("an interleaved message is ended and opened again")
                        } else {
                            Fidelity::Exact
                        }
                    }
                }
            }
            ProfileWriter::V05(writer) => writer.write(event, out),
            ProfileWriter::V0(writer) => writer.write(event, out),
        }
    }
}
