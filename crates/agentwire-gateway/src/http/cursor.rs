//! Cursors: the position from which a client resumes, `runId:seq`, or `runId:seq/k` if it lacks the last k frames of that
//! event. `runId:seq.e` names the epoch e of the store, if that is not 0: after a failover that lost events, numbers are used
//! anew, and a cursor of an earlier epoch gets the verdict `gap` instead of other events.

use agentwire_core::event::RunId;

use super::request::{ApiRequest, percent_decode};
use crate::{codes, error::ApiError, stream::reader::ResumePoint};

/// The longest cursor in bytes: the longest run id and the longest seq.
const MAX_CURSOR: usize = 600;

/// The last frame that a client has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) run: RunId,
    pub(crate) point: ResumePoint,
}

impl Cursor {
    /// Parses a cursor. The run id may contain colons; the seq follows the last one.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let bad = |why: &str| {
            let shown: String = text.chars().take(40).flat_map(char::escape_default).collect();
            ApiError::new(
                codes::BAD_CURSOR,
                format!("the cursor `{shown}` {why}, expected `runId:seq` or `runId:seq/k`"),
            )
            .hint("send back the last `id:` of the stream as it was")
        };
        if text.len() > MAX_CURSOR {
            return Err(bad("is too long"));
        }
        let (run, seq) = text.rsplit_once(':').ok_or_else(|| bad("has no colon"))?;
        if run.is_empty() {
            return Err(bad("names no run"));
        }
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).ok_or_else(|| bad("does not end with a number"))
        };
        let (seq, missing) = match seq.split_once('/') {
            None => (seq, 0),
            Some((seq, missing)) => (seq, number(missing)?),
        };
        let (seq, epoch) = match seq.split_once('.') {
            None => (number(seq)?, 0),
            Some((seq, epoch)) => (number(seq)?, number(epoch)?),
        };
        let epoch = u32::try_from(epoch).map_err(|_| bad("has too large an epoch"))?;
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        Ok(Self { run: run.into(), point: ResumePoint { seq, missing, epoch } })
    }

    /// The cursor of a request: `?after=`, or else `Last-Event-ID`.
    pub(crate) fn of(request: &ApiRequest) -> Result<Option<Self>, ApiError> {
        if let Some(after) = request.query("after") {
            return Self::parse(&after).map(Some);
        }
        match request.parts.headers.get("last-event-id") {
            None => Ok(None),
            Some(value) => {
                // Browsers send characters beyond ASCII as raw UTF-8.
                let text = std::str::from_utf8(value.as_bytes())
                    .map_err(|_| ApiError::new(codes::BAD_CURSOR, "the cursor is not UTF-8"))?;
                if text.is_empty() {
                    return Ok(None);
                }
                Self::parse(text)
                    .or_else(|error| Self::parse(&percent_decode(text)).map_err(|_| error))
                    .map(Some)
            }
        }
    }
}

/// Panics unless a text is refused as a bad cursor, or is a cursor that stays the same when it is written and parsed.
#[cfg(fuzzing)]
pub fn check_any(text: &str) {
    match Cursor::parse(text) {
        Err(error) => assert_eq!(error.code, codes::BAD_CURSOR),
        Ok(cursor) => {
            let ResumePoint { seq, missing, epoch } = cursor.point;
            let written = format!("{}:{seq}.{epoch}/{missing}", cursor.run);
            if written.len() <= MAX_CURSOR {
                assert_eq!(Cursor::parse(&written).expect("a cursor that was written"), cursor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_cursor_or_refused(text in "[a-z:./0-9%\u{e9}]{0,40}|.{0,700}", run in ".{1,40}", seq: u64, missing in 0..9_usize, epoch: u32) {
            if let Err(error) = Cursor::parse(&text) {
                prop_assert_eq!(error.code, codes::BAD_CURSOR);
            }
            let written = format!("{run}:{seq}.{epoch}/{missing}");
            let cursor = Cursor::parse(&written).expect("it is one");
            prop_assert_eq!((&*cursor.run, cursor.point), (&*run, ResumePoint { seq, missing, epoch }));
        }
    }

    #[test]
    fn run_ids_may_contain_colons() {
        for (text, seq, missing, epoch) in [
            ("a:b/c:12", 12, 0, 0),
            ("a:b/c:12/3", 12, 3, 0),
            ("a:b/c:12.1", 12, 0, 1),
            ("a:b/c:12.7/3", 12, 3, 7),
        ] {
            let cursor = Cursor::parse(text).expect("it is one");
            assert_eq!((&*cursor.run, cursor.point), ("a:b/c", ResumePoint { seq, missing, epoch }));
        }
    }

    #[test]
    fn malformed_cursors_are_rejected() {
        for text in [
            "",
            ":1",
            "r:",
            "r",
            "r:-1",
            "r:+1",
            "r:1x",
            "r:1/",
            "r:/1",
            "r:1/x",
            "r:1/-1",
            "r:1/2/3",
            "r:1.",
            "r:.1",
            "r:1.x",
            "r:1/2.3",
            "r:1.2.3",
            "r:1.99999999999",
            "r:99999999999999999999",
            &"x".repeat(700),
        ] {
            assert_eq!(Cursor::parse(text).expect_err(text).code, codes::BAD_CURSOR);
        }
    }
}
