//! Folds, compacts and joins AG-UI streams. Used by `e2e/ag-ui` and `e2e/hai`, which compare the results with the
//! official client.
//!
//! Each input line is `{"name", "stream"}`, where `stream` is the text of an SSE body. Each output line is `{"name",
//! "messages", "state", "interrupts", "pending", "compacted", "joins"}`: the messages and state at the end, the
//! compacted stream, and the stream of a reader that joins after the first, a middle and the last event.

use std::io::{self, BufRead, Write};

use agentwire_core::{
    event::{Event, StreamEnd},
    fold::{Fold, Join, compact},
    format::{Format, Options, Setup, ag_ui},
    framing::{DEFAULT_MAX_FRAME, Decoder, Frames, Framing},
};
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let events = read(line["stream"].as_str().unwrap_or_default().as_bytes());
        let mut fold = Fold::new();
        events.iter().for_each(|event| fold.apply(event));
        let interrupts: Vec<_> = fold.interrupts().iter().map(|interrupt| interrupt.id.as_str()).collect();
        let pending: Vec<_> = fold.pending_tool_calls().iter().map(|call| call.to_string()).collect();
        let positions = [1, events.len() / 2, events.len().saturating_sub(1)];
        let joins: Vec<_> = positions.iter().map(|position| write(&joined(&events, *position))).collect();
        let mut response = json!({
            "name": line["name"], "interrupts": interrupts, "pending": pending,
            "compacted": write(&compact(&events)), "joins": joins,
        });
        response["messages"] = serde_json::from_str(&ag_ui::messages_to_json(fold.messages()))?;
        response["state"] = fold.state().clone();
        writeln!(stdout, "{response}")?;
    }
    stdout.flush()
}

/// The events of a stream up to the first frame that the official client refuses.
fn read(stream: &[u8]) -> Vec<Event> {
    let format = Format::find("ag-ui").expect("the format is built in");
    let options = Options::parse(["old_shapes=refuse"], format.options).expect("the option is known");
    let mut reader = format.reader.expect("the format has a reader")(&setup(&options));
    let mut decoder = Decoder::new(Framing::Sse, DEFAULT_MAX_FRAME);
    let mut events = Vec::new();
    decoder.push(stream);
    decoder.finish();
    while let Some(frame) = decoder.next_frame() {
        let read = frame.map(|frame| reader.read(&frame, &mut events));
        if !matches!(read, Ok(Ok(()))) {
            break;
        }
    }
    reader.end(&StreamEnd::Closed, &mut events);
    events
}

/// The events for a reader that joins after `position` events.
fn joined(events: &[Event], position: usize) -> Vec<Event> {
    let (seen, rest) = events.split_at(position.min(events.len()));
    let mut join = Join::new(Fold::new());
    seen.iter().for_each(|event| join.apply(event));
    let mut out = join.prelude();
    out.extend_from_slice(rest);
    out
}

fn write(events: &[Event]) -> String {
    let options = Options::default();
    let format = Format::find("ag-ui").expect("the format is built in");
    let profile = format.profile("1").expect("the profile is built in");
    let mut writer = format.writer.expect("the format has a writer")(profile, &setup(&options));
    let mut frames = Frames::new(profile.framing);
    for event in events {
        writer.write(event, &mut frames);
        frames.finish_event(None);
    }
    writer.end(&mut frames);
    String::from_utf8_lossy(&frames.take()).into_owned()
}

fn setup(options: &Options) -> Setup<'_> {
    Setup { thread: "t1".into(), run: "r1".into(), options }
}
