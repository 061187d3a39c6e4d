//! Detects the format of a stream by its first frames.
//!
//! Recordings and commands need not name their format. A table of features would be a second description of every
//! format, so instead each reader reads the start of the stream, and the one that understands most of it wins.

use std::cmp::Reverse;

use super::{Source, SourceOptions};
use crate::{
    event::{Body, Event},
    format::{FORMATS, Format},
    framing::{Framing, detect as detect_framing},
};

/// The number of frames that are read: a few dozen events of any format.
const MAX_FRAMES: u64 = 32;

/// The format and framing of the stream that starts with `start`.
///
/// `is_whole` means that the stream ends after `start`. Returns `None` while the bytes hold no whole frame that a
/// reader understands; more bytes may change the result.
///
/// ```
/// use agentwire_core::source::detect_format;
/// let start = b"data: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"m\"}\n\n";
/// assert_eq!(detect_format(start, false).unwrap().0.name, "ag-ui");
/// assert!(detect_format(&start[..30], false).is_none());
/// assert!(detect_format(b"<html>\n", true).is_none());
/// ```
#[must_use]
pub fn detect_format(start: &[u8], is_whole: bool) -> Option<(&'static Format, Framing)> {
    best(start, is_whole).map(|(_, format, framing)| (format, framing))
}

/// The format that the stream fits better than `given`: its reader understands some events, or more frames.
///
/// ```
/// use agentwire_core::{format::Format, source::likelier_format};
/// let stream = b"data: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"m\"}\n\n";
/// let likelier = |given| likelier_format(stream, true, Format::find(given).unwrap()).map(|format| format.name);
/// assert_eq!(likelier("ai-sdk"), Some("ag-ui"));
/// assert_eq!(likelier("ag-ui"), None);
/// ```
#[must_use]
pub fn likelier_format(start: &[u8], is_whole: bool, given: &Format) -> Option<&'static Format> {
    let ((is_blank, lost_frames, ..), format, _) = best(start, is_whole)?;
    let is_better =
        rate_start(given, start, is_whole).is_none_or(|((given_is_blank, given_lost_frames, ..), _)| {
            (is_blank, lost_frames) < (given_is_blank, given_lost_frames)
        });
    (is_better && format.name != given.name).then_some(format)
}

/// The format with the best rating; the first of equals.
fn best(start: &[u8], is_whole: bool) -> Option<(Rating, &'static Format, Framing)> {
    let rated = FORMATS.iter().filter_map(|format| {
        let (rating, framing) = rate_start(format, start, is_whole)?;
        Some((rating, *format, framing))
    });
    rated.min_by_key(|(rating, ..)| *rating)
}

/// The rating of a format and the framing of the stream; `None` if the framing does not fit or there are no events.
fn rate_start(format: &Format, start: &[u8], is_whole: bool) -> Option<(Rating, Framing)> {
    // With a single framing there is no choice, and every stream matches it.
    let framing = detect_framing(start, format.reads)?;
    let is_binary = start.first() == Some(&0);
    if is_binary != (framing == Framing::Prefixed) {
        return None;
    }
    Some((rate(format, framing, start, is_whole)?, framing))
}

/// The rating of a reader for the start of a stream; the smallest rating is the best: whether it understood nothing, the
/// number of rejected and unknown frames, the number of unknown items within frames, and the number of understood
/// events. A damaged stream of a format must not be detected as another one whose reader passes on unknown frames.
type Rating = (bool, u64, u64, Reverse<usize>);

/// Rates a reader; `None` if it made no events, or lost every frame.
fn rate(format: &Format, framing: Framing, start: &[u8], is_whole: bool) -> Option<Rating> {
    let options = SourceOptions {
        thread: "".into(),
        run: "".into(),
        max_frame: start.len().max(1),
        ..SourceOptions::default()
    };
    let mut source = Source::new(format, framing, &options)?;
    source.push(start);
    if is_whole {
        source.finish();
    }
    let (mut frames, mut rejected, mut events) = (0, 0, Vec::new());
    while frames < MAX_FRAMES
        && let Some(step) = source.step(&mut events)
    {
        frames += 1;
        rejected += u64::from(step.is_err());
    }
    let (mut unknown_frames, mut unknown_items) = (0, 0);
    for (category, _, count) in source.tally().iter() {
        match category {
            "unknown event"
            | "unknown frame"
            | "unknown chunk"
            | "unknown code"
            | "unknown stream mode"
            | "unknown method" => unknown_frames += count.times,
            _ if category.starts_with("unknown ") || category == "wrong type" => unknown_items += count.times,
            _ => {}
        }
    }
    // Some readers start a run with any frame and pass on unknown ones. Several formats express failures alike.
    let is_specific =
        |event: &&Event| !matches!(event.body, Body::RunStarted(_) | Body::Raw { .. } | Body::RunError(_));
    let understood = events.iter().filter(is_specific).count();
    let lost = rejected + unknown_frames;
    // The start of a run alone decides nothing while there may be more.
    let is_candidate = understood > 0 || is_whole && !events.is_empty() && lost < frames;
    is_candidate.then_some((understood == 0, lost, unknown_items, Reverse(understood)))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Readers that start a run with any frame have not understood it.
    #[test]
    fn a_format_that_loses_every_frame_is_not_detected() {
        for lines in ["{\"type\":\"BUSINESS_DATA_START\",\"messageId\":\"m\"}\n", "{\"a\":1}\n{\"b\":2}\n"] {
            assert_eq!(detect_format(lines.as_bytes(), true).map(|(format, _)| format.name), None, "{lines}");
            let hai = Format::find("hai").unwrap();
            assert_eq!(likelier_format(lines.as_bytes(), true, hai).map(|format| format.name), None);
        }
    }

    #[test]
    fn every_recording_is_detected_by_its_start() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format");
        let mut wrong = Vec::new();
        let mut seen = 0;
        for (folder, names) in [
            ("adk", &["adk"][..]),
            ("ag_ui", &["ag-ui", "ag-ui-proto"]),
            ("ai_sdk", &["ai-sdk"]),
            ("hai", &["hai", "hai-proto"]),
            ("langgraph", &["langgraph"]),
            ("openai", &["openai"]),
        ] {
            for entry in fs::read_dir(root.join(folder).join("fixtures")).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let kind = path.extension().unwrap_or_default().to_string_lossy().into_owned();
                // The first is valid AG-UI, the others hold no event of their format, or only a failure that several
                // formats express alike.
                let is_ambiguous = ["standard_tool.jsonl", "server-plain-custom.sse"].contains(&&*name)
                    || name.starts_with("malformed")
                    || folder == "openai" && kind == "json" && name.starts_with("error_");
                if path.is_dir() || kind == "md" || name.ends_with(".events.jsonl") || is_ambiguous {
                    continue;
                }
                let bytes = fs::read(&path).unwrap();
                let start = &bytes[..bytes.len().min(64 << 10)];
                seen += 1;
                let found = detect_format(start, start.len() == bytes.len()).map(|(format, _)| format.name);
                if !found.is_some_and(|found| names.contains(&found)) {
                    wrong.push(format!("{folder}/{name}: {found:?}"));
                }
                // As the bytes arrive, line by line.
                let mut end = 0;
                let early = loop {
                    end = match start[end..].iter().position(|byte| *byte == b'\n') {
                        Some(at) => end + at + 1,
                        None => break None,
                    };
                    if let Some((format, _)) = detect_format(&start[..end], false) {
                        break Some(format.name);
                    }
                };
                if let Some(found) = early
                    && !names.contains(&found)
                {
                    wrong.push(format!("the first {end} bytes of {folder}/{name}: {found}"));
                }
            }
        }
        assert!(seen > 100, "{seen}");
        assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
