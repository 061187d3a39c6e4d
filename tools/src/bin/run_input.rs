//! Reads and writes AG-UI requests, for the comparison with the official client in `e2e/ag-ui`.
//!
//! Reads one RunAgentInput per line and answers each with `{"json"}`, the request as this implementation
//! writes it, or `{"error"}`.

use std::io::{self, BufRead, Write};

use agentwire_core::{Tally, format::ag_ui::input};
use serde_json::json;

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let answer = match input::from_json(&line?, &mut Tally::default()) {
            Ok(input) => format!(r#"{{"json":{}}}"#, input::to_json(&input)),
            Err(error) => json!({"error": error.to_string()}).to_string(),
        };
        writeln!(stdout, "{answer}")?;
    }
    stdout.flush()
}
