//! Tells formats apart by the first frames of a stream.
//!
//! Recordings and commands need not say what they speak. No table of features decides, because it would be a
//! second description of every format: each reader is given the beginning and the one that makes most of it
//! wins.

use std::cmp::Reverse;

use super::{FORMATS, Format, Options, Setup};
use crate::{
    event::{Body, Event},
    framing::{Decoder, Framing, detect as detect_framing},
};

/// How much of the beginning is looked at: a few dozen events of any format.
const FRAMES: usize = 32;

/// The format, and its framing, that the stream that begins with `start` is in.
///
/// `whole` says that the stream has no more than `start`. `None` while the bytes do not hold a whole frame that
/// some reader understands; with more of them the answer may be another.
///
/// ```
/// use agentwire_core::format::detect;
/// let start = b"data: {\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"m\"}\n\n";
/// assert_eq!(detect(start, false).unwrap().0.name, "ag-ui");
/// assert!(detect(&start[..30], false).is_none());
/// assert!(detect(b"<html>\n", true).is_none());
/// ```
#[must_use]
pub fn detect(start: &[u8], whole: bool) -> Option<(&'static Format, Framing)> {
    let sense = |format: &'static Format| {
        // With a single framing there is no choice, and everything looks like it.
        let framing = detect_framing(start, format.reads)?;
        let binary = start.first() == Some(&0);
        if binary != (framing == Framing::Prefixed) {
            return None;
        }
        Some((sense(format, framing, start, whole)?, format, framing))
    };
    let (_, format, framing) = FORMATS
        .iter()
        .filter_map(|format| sense(format))
        // The first of equals.
        .min_by_key(|(sense, ..)| *sense)?;
    Some((format, framing))
}

/// How little a reader makes of the beginning; the smallest is the best.
type Sense = (bool, u64, u64, Reverse<usize>);

/// Whether a reader made nothing of it, then what it refused, then what it did not know, then how much it
/// understood. `None` if it said nothing at all.
fn sense(format: &Format, framing: Framing, start: &[u8], whole: bool) -> Option<Sense> {
    let options = Options::default();
    let mut reader = format.reader?(&Setup { thread: "".into(), run: "".into(), options: &options });
    let mut decoder = Decoder::new(framing, start.len().max(1));
    decoder.push(start);
    if whole {
        decoder.finish();
    }
    let (mut refused, mut events) = (0, Vec::new());
    for _ in 0..FRAMES {
        match decoder.next_frame() {
            Some(Ok(frame)) => refused += u64::from(reader.read(&frame, &mut events).is_err()),
            Some(Err(_)) => refused += 1,
            None => break,
        }
    }
    let unknown: u64 = reader.tally().iter().map(|(_, _, count)| count.times).sum();
    // Some readers begin a run with whatever comes, and carry along what they do not know. Failures are told in
    // words that several formats have, at once or in the end.
    let says =
        |event: &&Event| !matches!(event.body, Body::RunStarted(_) | Body::Raw { .. } | Body::RunError(_));
    let understood = events.iter().filter(says).count();
    // The beginning of a run is not enough to go by while there is more to come.
    (understood > 0 || whole && !events.is_empty()).then_some((
        understood == 0,
        refused,
        unknown,
        Reverse(understood),
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Every recording of every format is told by its own first kilobytes.
    #[test]
    fn recordings_are_told_apart() {
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
                // The first is AG-UI word for word, the others say nothing that is understood, or that something
                // failed, in words that several formats have.
                let hopeless = ["standard_tool.jsonl", "server-plain-custom.sse"].contains(&&*name)
                    || name.starts_with("malformed")
                    || folder == "openai" && kind == "json" && name.starts_with("error_");
                if path.is_dir() || kind == "md" || name.ends_with(".events.jsonl") || hopeless {
                    continue;
                }
                let bytes = fs::read(&path).unwrap();
                let start = &bytes[..bytes.len().min(64 << 10)];
                seen += 1;
                let told = detect(start, start.len() == bytes.len()).map(|(format, _)| format.name);
                if !told.is_some_and(|told| names.contains(&told)) {
                    wrong.push(format!("{folder}/{name}: {told:?}"));
                }
                // As it is told while it comes, line by line.
                let mut end = 0;
                let early = loop {
                    end = match start[end..].iter().position(|byte| *byte == b'\n') {
                        Some(at) => end + at + 1,
                        None => break None,
                    };
                    if let Some((format, _)) = detect(&start[..end], false) {
                        break Some(format.name);
                    }
                };
                if let Some(told) = early
                    && !names.contains(&told)
                {
                    wrong.push(format!("the first {end} bytes of {folder}/{name}: {told}"));
                }
            }
        }
        assert!(seen > 100, "{seen}");
        assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
