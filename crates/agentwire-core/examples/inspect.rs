//! Prints the events of a stream as they arrive, then the messages and the state that a client holds at its end.
//!
//! ```sh
//! cargo run -p agentwire-core --example inspect
//! ```

use std::error::Error;

use agentwire_core::{
    fold::Fold,
    format::{Format, ag_ui},
    framing::Framing,
    source::{GuardedSource, SourceOptions},
};

/// Chunks as a connection delivers them: cut anywhere. The producer forgot to start and to end its message.
const CHUNKS: [&str; 3] = [
    "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t1\",\"runId\":\"r1\"}\n\ndata: {\"type\":\"TEXT_MESS",
    "AGE_CONTENT\",\"messageId\":\"m1\",\"delta\":\"Hello\"}\n\ndata: {\"type\":\"STATE_SNAPSHOT\",\"snapshot\":{\"step\":1}}",
    "\n\ndata: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t1\",\"runId\":\"r1\"}\n\n",
];

fn main() -> Result<(), Box<dyn Error>> {
    let format = Format::find("ag-ui").ok_or("unknown format")?;
    let mut source = GuardedSource::new(format, Framing::Sse, &SourceOptions::default())
        .ok_or("the format has no reader")?;
    let mut fold = Fold::new();
    // `push` and `end` do the same for streams whose chunks are not available as an iterator.
    for event in source.events(CHUNKS) {
        let event = event?;
        println!("{}", event.kind());
        fold.apply(&event);
    }
    println!("messages: {}", ag_ui::messages_to_json(fold.messages()));
    println!("state: {}", fold.state());
    for (rule, count) in source.repairs() {
        println!("repaired: {} ({count})", rule.name());
    }
    Ok(())
}
