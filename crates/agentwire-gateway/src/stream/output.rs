//! The encoding of a run for one client: its output format and the encoder from log entries to frames.

use std::time::Duration;

use agentwire_core::{
    Tally,
    event::{Body, Event, RunId, RunInput, ThreadId},
    format::{Format, Options, Profile, Setup, Writer, ag_ui, ai_sdk, langgraph},
    framing::{Frames, Framing},
};
use agentwire_store::Owner;
use bytes::Bytes;

use super::log_codec::{Decoder, event_type};
use crate::{codes, error::ApiError, gateway::Gateway};

/// The format, profile and options in which a client gets a run.
#[derive(Debug)]
pub(crate) struct OutputFormat {
    pub(crate) format: &'static Format,
    pub(crate) profile: &'static Profile,
    pub(crate) options: Options,
    /// Time for which the stream stays open after its last event.
    pub(crate) close_delay: Duration,
    /// The profile is that of the client that started the run; `profile` if that is unknown.
    is_of_starter: bool,
}

impl OutputFormat {
    pub(crate) fn new(format: &'static Format, profile: &'static Profile) -> Self {
        let options = Options::default();
        Self { format, profile, options, close_delay: Duration::ZERO, is_of_starter: false }
    }

    /// AG-UI, in the profile of the client that started the run: a reconnect without a request body does not say which
    /// version the client has.
    pub(crate) fn of_starter(fallback: &'static Profile) -> Self {
        Self { is_of_starter: true, ..Self::new(&ag_ui::FORMAT, fallback) }
    }

    /// Its name, as `--to` takes it.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.format.name, self.profile.name)
    }

    /// With the profile of the client that started `run`, if it depends on that.
    pub(crate) async fn for_run(
        mut self,
        gateway: &Gateway,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Self, ApiError> {
        if !self.is_of_starter {
            return Ok(self);
        }
        let stored = gateway.store().input(owner, run).await?;
        let input = stored.and_then(|text| ag_ui::input::from_json(&text, &mut Tally::default()).ok());
        let name = input.as_ref().and_then(ag_ui::input::stored_output_format);
        let profile = name.as_deref().and_then(|name| name.strip_prefix(self.format.name)?.strip_prefix('@'));
        self.profile = profile.and_then(|name| self.format.profile(name)).unwrap_or(self.profile);
        Ok(self)
    }

    /// True if a stream can carry the messages before the run. An AI SDK stream is one message, and the values of a
    /// LangGraph stream are those of one run; their clients read the others from the history route.
    pub(crate) fn can_carry_history(&self) -> bool {
        [&ai_sdk::FORMAT, &langgraph::FORMAT].into_iter().all(|format| !std::ptr::eq(self.format, format))
    }

    /// Whether it is the encoding of the log.
    fn is_log_encoding(&self) -> bool {
        std::ptr::eq(self.format, &ag_ui::FORMAT) && std::ptr::eq(self.profile, &ag_ui::FORMAT.profiles[0])
    }
}

/// Encodes log entries for one client.
pub(crate) enum EventEncoder {
    /// The client wants the encoding of the log: bytes are copied.
    Passthrough,
    /// The writer must see the run from its first event, because its output depends on earlier events. Output for events
    /// that the client already has is discarded, so that the rest is byte for byte the same as without the reconnect.
    Convert {
        decoder: Decoder,
        writer: Box<dyn Writer>,
        events: Vec<Event>,
        discarded: Frames,
        /// True if the trailer of the format is written.
        is_ended: bool,
        /// A profile of AG-UI. Entries of which it changes nothing are copied.
        dialect: Option<&'static Profile>,
    },
}

impl EventEncoder {
    /// `input` is the request that started the run; read from the store if it is not at hand.
    pub(crate) async fn new(
        gateway: &Gateway,
        owner: &Owner,
        thread: &ThreadId,
        run: &RunId,
        input: Option<&RunInput>,
        output_format: &OutputFormat,
    ) -> Result<Self, ApiError> {
        if output_format.is_log_encoding() {
            return Ok(Self::Passthrough);
        }
        let input = match input {
            Some(input) => Some(input.clone()),
            None => gateway.store().input(owner, run).await?.and_then(|text| {
                let mut tally = Tally::default();
                ag_ui::input::from_json(&text, &mut tally).ok()
            }),
        };
        let options = match input {
            Some(input) => output_format.options.clone().for_request(input),
            None => output_format.options.clone(),
        };
        let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
        let format = output_format.format;
        let make = format.writer.ok_or_else(|| {
            ApiError::new(codes::UNKNOWN_FORMAT, format!("`{}` cannot be written", format.name))
        })?;
        Ok(Self::Convert {
            decoder: Decoder::new(thread, run),
            writer: make(output_format.profile, &setup),
            events: Vec::new(),
            discarded: Frames::new(Framing::Lines),
            is_ended: false,
            dialect: std::ptr::eq(format, &raw const ag_ui::FORMAT).then_some(output_format.profile),
        })
    }

    /// Whether the reader can start at any event of the log.
    pub(crate) fn is_passthrough(&self) -> bool {
        matches!(self, Self::Passthrough)
    }

    /// Encodes one log entry. The output is discarded unless `is_shown`.
    pub(crate) fn encode(&mut self, logged: &Bytes, is_shown: bool, out: &mut Frames) {
        let kind = event_type(logged);
        match self {
            Self::Passthrough => {
                out.begin(kind).extend_from_slice(logged);
                out.commit();
            }
            Self::Convert { dialect: Some(dialect), .. } if ag_ui::is_same_as_version_1(dialect, kind) => {
                if is_shown {
                    out.begin(kind).extend_from_slice(logged);
                    out.commit();
                }
            }
            Self::Convert { decoder, writer, events, discarded, is_ended, .. } => {
                decoder.decode(logged, events);
                let out = if is_shown { out } else { &mut *discarded };
                for event in events.drain(..) {
                    writer.write(&event, out);
                    // The trailer belongs to the terminal event, so that a cursor can point before it.
                    if matches!(event.body, Body::RunFinished(_) | Body::RunError(_)) && !*is_ended {
                        writer.end(out);
                        *is_ended = true;
                    }
                }
                discarded.drain(|_| ());
            }
        }
    }

    /// Gives back the memory of the last event, for a reader that waits.
    pub(crate) fn shrink(&mut self) {
        if let Self::Convert { events, .. } = self {
            *events = Vec::new();
        }
    }

    /// Writes the trailer of the format, if the log had no terminal event.
    pub(crate) fn finish(&mut self, out: &mut Frames) {
        if let Self::Convert { writer, is_ended: false, .. } = self {
            writer.end(out);
            out.finish_event(None);
        }
    }
}
