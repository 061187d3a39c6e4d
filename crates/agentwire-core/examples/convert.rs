//! Converts a stream from one format to another in one call.
//!
//! ```sh
//! cargo run -p agentwire-core --example convert -- openai ag-ui < recording.sse
//! ```
//!
//! Without arguments it converts a short OpenAI stream to AG-UI.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
};

const OPENAI: &str = r#"data: {"id":"chat-1","choices":[{"delta":{"content":"Hello"}}]}

data: {"id":"chat-1","choices":[{"delta":{"content":", world"},"finish_reason":"stop"}]}

data: [DONE]

"#;

fn main() -> Result<(), Box<dyn Error>> {
    let (from, to, bytes) = match (env::args().nth(1), env::args().nth(2)) {
        (Some(from), Some(to)) => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes)?;
            (from, to, bytes)
        }
        _ => ("openai".into(), "ag-ui".into(), OPENAI.into()),
    };
    // The framing of the input (SSE, JSON lines, ...) is detected. `to` may name a profile, as in `ag-ui@0`.
    let converted = agentwire_core::convert(&from, &to, &bytes)?;
    io::stdout().write_all(&converted)?;
    Ok(())
}
