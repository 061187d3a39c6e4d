//! Reads and writes AG-UI requests. Used by `e2e/ag-ui`, which compares the results with the official client.
//!
//! Each input line is a RunAgentInput. Each output line is `{"json"}`, the request after reading and writing, or
//! `{"error"}`.

use std::io::{self, BufRead, Write};

use agentwire_core::{Tally, format::ag_ui::input};
use serde_json::json;

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let response = match input::from_json(&line?, &mut Tally::default()) {
            Ok(input) => format!(r#"{{"json":{}}}"#, input::to_json(&input)),
            Err(error) => json!({"error": error.to_string()}).to_string(),
        };
        writeln!(stdout, "{response}")?;
    }
    stdout.flush()
}
