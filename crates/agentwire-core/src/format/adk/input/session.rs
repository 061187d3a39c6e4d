//! Responses to session requests.

use crate::{
    event::{Interrupt, Message, ThreadId},
    format::adk::{
        options::AdkReaderOptions,
        reader::{
            AdkReader,
            decode::{milliseconds, parse, parse_raw},
        },
        wire::SessionBody,
    },
    json::{Object, Path, ReadResult, elements},
    tally::Tally,
};

/// A stored session.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSession {
    /// Its id.
    pub thread: ThreadId,
    /// The conversation, including answers to interrupts.
    pub messages: Vec<Message>,
    /// The state as clients see it.
    pub state: Object,
    /// The complete state, with the keys of agentwire: the value for [`KnownSession::state`](super::KnownSession::state).
    pub raw_state: Object,
    /// The pending interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The time of the last change, in milliseconds since the Unix epoch.
    pub updated: Option<i64>,
}

/// One entry of a list of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEntry {
    /// Its id.
    pub thread: ThreadId,
    /// The time of the last change, in milliseconds since the Unix epoch.
    pub updated: Option<i64>,
}

/// Reads the response to [`AdkApi::get_session`](super::AdkApi::get_session) and
/// [`AdkApi::patch_state`](super::AdkApi::patch_state).
///
/// # Errors
/// When the body is not a session; the error names the member.
pub fn read_session(body: &str, tally: &mut Tally) -> ReadResult<StoredSession> {
    AdkReader::new(AdkReaderOptions::of_stored_session()).into_stored_session(body, tally)
}

/// Reads the response to [`AdkApi::list_sessions`](super::AdkApi::list_sessions).
///
/// # Errors
/// When the body is not a list of sessions; the error names the member.
pub fn read_session_list(body: &str) -> ReadResult<Vec<SessionEntry>> {
    let mut entries = Vec::new();
    for (index, raw) in elements(parse_raw(body)?, Path::Root)?.into_iter().enumerate() {
        let path = Path::Index(&Path::Root, index);
        let session: SessionBody<'_> = parse(raw, path)?;
        let Some(id) = &session.id else {
            return Err(path.error("`id` is missing, expected a string"));
        };
        entries.push(SessionEntry {
            thread: id.as_str().into(),
            updated: session.updated.and_then(milliseconds),
        });
    }
    Ok(entries)
}
