//! Canonical events to AG-UI frames, in the three profiles and both encodings.

mod chunks;
pub(crate) mod json;
pub(crate) mod messages;
mod v0;

use bytes::BytesMut;

use self::chunks::{Joined, Joiner};
use super::{
    proto,
    wire::{Chunk, PROTOCOL_VERSION},
};
use crate::{
    event::{Body, Event},
    format::{Fidelity, Profile, Writer},
    framing::Frames,
};

/// How an event becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Proto,
}

impl Encoding {
    fn event(self, event: &Event, out: &mut BytesMut) {
        match self {
            Self::Json => json::event(out, event),
            Self::Proto => proto::encode(out, event),
        }
    }

    fn chunk(self, chunk: &Chunk, out: &mut BytesMut) {
        match self {
            Self::Json => json::chunk(out, chunk),
            Self::Proto => proto::encode_chunk(out, chunk),
        }
    }
}

/// Writes AG-UI.
#[derive(Debug)]
pub(crate) struct AgUiWriter {
    encoding: Encoding,
    variant: Variant,
}

#[derive(Debug)]
enum Variant {
    /// 1.0, explicit events.
    One,
    /// 1.0, chunk shorthands.
    Chunks(Joiner),
    /// What clients of 0.x understand.
    Old(v0::Downgrade),
}

impl AgUiWriter {
    pub(crate) fn new(profile: &Profile, encoding: Encoding) -> Self {
        let variant = match profile.name {
            "0" => Variant::Old(v0::Downgrade::default()),
            "chunks" => Variant::Chunks(Joiner::default()),
            _ => Variant::One,
        };
        Self { encoding, variant }
    }

    fn event(encoding: Encoding, event: &Event, out: &mut Frames) -> Fidelity {
        encoding.event(event, out.begin(event.kind()));
        out.commit();
        Fidelity::Exact
    }
}

impl Writer for AgUiWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let encoding = self.encoding;
        // A translator declares the version that it speaks, not the one that it heard.
        let declared;
        let event = match &event.body {
            Body::RunStarted(started)
                if started.protocol_version.as_deref() != Some(PROTOCOL_VERSION)
                    && !matches!(self.variant, Variant::Old(_)) =>
            {
                let mut own = event.clone();
                if let Body::RunStarted(started) = &mut own.body {
                    started.protocol_version = Some(PROTOCOL_VERSION.into());
                }
                declared = own;
                &declared
            }
            _ => event,
        };
        match &mut self.variant {
            Variant::One => Self::event(encoding, event, out),
            Variant::Chunks(joiner) => {
                if encoding == Encoding::Json
                    && let Some((kind, lane)) = joiner.continues(event)
                {
                    json::chunk_delta(out.begin(kind.event_type()), event, lane.as_ref());
                    out.commit();
                    return Fidelity::Exact;
                }
                if let Some(first) = joiner.before(event) {
                    Self::event(encoding, &first, out);
                }
                match joiner.event(event) {
                    Joined::Same => Self::event(encoding, event, out),
                    Joined::Nothing => Fidelity::Exact,
                    Joined::Chunk(chunk, again) => {
                        encoding.chunk(&chunk, out.begin(chunk.kind.event_type()));
                        out.commit();
                        if again {
                            Fidelity::Approximated("an interleaved message is ended and opened again")
                        } else {
                            Fidelity::Exact
                        }
                    }
                }
            }
            Variant::Old(downgrade) => downgrade.write(event, out),
        }
    }
}
