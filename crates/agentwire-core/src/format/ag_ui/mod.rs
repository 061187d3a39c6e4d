//! AG-UI, the agent–user interaction protocol: version 1.0 and the shapes of 0.x.
//!
//! Written and checked against the published packages `@ag-ui/core`, `client`, `encoder` and `proto` 1.0.0.
//! The canonical events follow this format, so little is lost: events without an AG-UI type are carried as
//! activities (`carried_events.rs`), values without an AG-UI member under the metadata key `agentwire`.
//!
//! Lost in translation: the binary form drops extra members of JSON Patch operations and stores numbers as
//! doubles; profile `@0` loses the ids of reasoning and the details listed in `writer/v0.rs`; `@0.0.5x`,
//! `@copilotkit` and `@draft` express subagents and media in tool results in other ways, see `writer/v0_0_5x.rs`;
//! `@chunks` ends and reopens messages that interleave.

mod carried_events;
pub mod input;
mod legacy_interrupt;
mod options;
pub mod proto;
mod reader;
pub(crate) mod shapes;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use self::legacy_interrupt::native_value;
pub use self::{
    legacy_interrupt::{command_for_answers, is_reported_by_custom_event, marked_for_command},
    reader::messages::{messages_from_json, messages_with_ranges, patch_from_json},
    writer::messages::messages_to_json,
};
use self::{
    options::OPTIONS,
    reader::AgUiReader,
    writer::{AgUiEncoding, AgUiWriter},
};
use super::{Format, Profile};
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "ag-ui",
    about: "AG-UI 1.0 and 0.x, as JSON",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[
        Profile {
            name: "1",
            about: "AG-UI 1.0",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "0.0.5x",
            about: "AG-UI 0.0.50 to 0.0.59: reasoning, activities, interrupts; no SUBAGENT_*",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "0",
            about: "AG-UI up to 0.0.39: THINKING_*, no subagents, no activities",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "chunks",
            about: "AG-UI 1.0 with *_CHUNK shorthands",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "copilotkit",
            about: "`0.0.5x` with an interrupt's own value in CUSTOM `on_interrupt`, where CopilotKit's hooks look",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "draft",
            about: "`0.0.5x` with the interrupts of AG-UI's draft: `outcome: \"interrupt\"` beside `interrupt`",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
    ],
    ordered: true,
    options: OPTIONS,
    reader: Some(|setup| Box::new(AgUiReader::new(setup))),
    writer: Some(|profile, _| Box::new(AgUiWriter::new(profile, AgUiEncoding::Json))),
    strict_options: &["old_shapes=refuse"],
    ..Format::EMPTY
};

/// The profile for a client that declares this protocol version in its request. Clients before 1.0 declare none; an
/// unknown or malformed version is newer.
#[must_use]
pub fn profile_of_version(version: Option<&str>) -> &'static Profile {
    let major = |version: &str| version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    let is_old = version.is_none_or(|version| major(version) == Some(0));
    FORMAT.profile(if is_old { "0.0.5x" } else { "1" }).unwrap_or(&FORMAT.profiles[0])
}

/// True if events of this type are written in a profile exactly as in profile `1`, whatever they contain and whatever
/// was written before.
#[must_use]
pub fn is_same_as_version_1(profile: &Profile, event_type: &str) -> bool {
    match profile.name {
        "1" => true,
        "0.0.5x" | "copilotkit" | "draft" => writer::is_same_in_0_0_5x(event_type),
        _ => false,
    }
}
