//! Encodes and decodes AG-UI events and requests as protobuf. Used by `e2e/ag-ui`, which compares the results with the
//! official encoder.
//!
//! Input lines are JSON: `{"event": …}` and `{"input": …}` give `{"hex"}`, `{"eventHex"}` and `{"inputHex"}` give
//! `{"json"}`. Invalid values give `{"error"}`.

use std::io::{self, BufRead, Write};

use agentwire_core::{Tally, format::ag_ui, json::ReadError};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One input line. Values are raw, so that no number passes through another parser before the one under test.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    event_hex: Option<&'a str>,
    input_hex: Option<&'a str>,
}

fn main() -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        let request: Request<'_> = serde_json::from_str(&line)?;
        match respond(&request) {
            Ok(response) => writeln!(stdout, "{response}")?,
            Err(error) => writeln!(stdout, "{}", serde_json::json!({"error": error.to_string()}))?,
        }
    }
    stdout.flush()
}

fn respond(request: &Request<'_>) -> Result<String, ReadError> {
    let mut tally = Tally::default();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    if let Some(event) = request.event {
        let bytes = ag_ui::proto::event_to_proto(event.get())?;
        return Ok(format!(r#"{{"hex":"{}"}}"#, hex(&bytes)));
    }
    if let Some(input) = request.input {
        let input = ag_ui::input::from_json(input.get(), &mut tally)?;
        return Ok(format!(r#"{{"hex":"{}"}}"#, hex(&ag_ui::proto::input_to_proto(&input))));
    }
    if let Some(hex) = request.event_hex {
        let json = ag_ui::proto::event_to_json(&from_hex(hex)?)?;
        return Ok(format!(r#"{{"json":{json}}}"#));
    }
    let bytes = from_hex(request.input_hex.unwrap_or_default())?;
    let input = ag_ui::proto::input_from_proto(&bytes, &mut tally)?;
    Ok(format!(r#"{{"json":{}}}"#, ag_ui::input::to_json(&input)))
}

fn from_hex(hex: &str) -> Result<Vec<u8>, ReadError> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("?"));
    digits
        .map(|pair| u8::from_str_radix(pair, 16))
        .collect::<Result<_, _>>()
        .map_err(|error| ReadError::new("", error.to_string()))
}
