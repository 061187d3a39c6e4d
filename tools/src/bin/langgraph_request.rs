//! Builds the body of a run request to LangGraph Server from an AG-UI request. Used by `e2e/langgraph`, which sends it
//! to a real server.
//!
//! Reads `{"input": RunAgentInput, "assistant": NAME, "keys"?: "tools,ag-ui", "modes"?: [MODE], "state"?: STATE}` from
//! standard input, where `state` is the server's response at `/threads/{id}/state`, and writes the body.

use std::{error::Error, io};

use agentwire_core::{
    Tally,
    format::{
        ag_ui,
        langgraph::{
            input::{RequestSettings, STREAM_MODES, StateKeys, run_request_body},
            thread_state,
        },
    },
};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let parameters: Value = serde_json::from_reader(io::stdin())?;
    let tally = &mut Tally::default();
    let input = ag_ui::input::from_json(&parameters["input"].to_string(), tally)?;
    let assistant = parameters["assistant"].as_str().ok_or("`assistant` is missing")?;
    let keys = parameters["keys"].as_str().unwrap_or_default();
    let keys = StateKeys::parse(keys).map_err(|key| format!("unknown key `{key}`"))?;
    let modes: Option<Vec<&str>> =
        parameters["modes"].as_array().map(|modes| modes.iter().filter_map(Value::as_str).collect());
    let known = match &parameters["state"] {
        Value::Null => None,
        state => Some(thread_state::read_state(&state.to_string(), tally)?),
    };
    let request = RequestSettings {
        keys,
        stream_modes: modes.as_deref().unwrap_or(STREAM_MODES),
        thread_state: known.as_ref(),
        ..RequestSettings::new(assistant)
    };
    println!("{}", run_request_body(&input, &request));
    Ok(())
}
