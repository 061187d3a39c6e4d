//! Checks a running AG-UI or HAI server: starts a run and inspects the response.

use std::time::{Duration, SystemTime};

use agentwire_core::{
    event::{Message, RunInput},
    format::{Format, ag_ui, hai},
    framing::Framing,
    json::Json,
};
use agentwire_gateway::is_loopback;

use crate::{
    check::{Inspection, server_error},
    cli::Check,
    error::{Class, Error, Result},
};

/// Maximum number of characters shown of an error response: a few lines of a terminal.
const EXCERPT: usize = 400;

pub(crate) fn check(arguments: &Check, format: &Format) -> Result<Inspection> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("the runtime could not be started: {error}")))?;
    runtime.block_on(inspect(arguments, format))
}

async fn inspect(arguments: &Check, format: &Format) -> Result<Inspection> {
    let url = &arguments.input;
    let timeout = Duration::from_secs(arguments.timeout.max(1));
    let mut client = reqwest::Client::builder().connect_timeout(timeout).read_timeout(timeout);
    if reqwest::Url::parse(url).is_ok_and(|url| is_loopback(&url)) {
        client = client.no_proxy();
    }
    let client = client
        .build()
        .map_err(|error| server_error(format!("the HTTP client could not be made: {error}")))?;
    let (accept, framing) = match format.name {
        "ag-ui-proto" => (ag_ui::proto::CONTENT_TYPE, Framing::Prefixed),
        "hai-proto" => (hai::proto::CONTENT_TYPE, Framing::Prefixed),
        "ag-ui" | "hai" => ("text/event-stream", Framing::Sse),
        other => {
            let error = Error::new(Class::Usage, format!("a server cannot be checked as `{other}`"));
            return Err(error.hint("formats for servers: ag-ui, ag-ui-proto, hai, hai-proto"));
        }
    };
    let input = run_input(&arguments.message);
    let is_hai = format.name.starts_with(hai::FORMAT.name);
    let body = if is_hai { hai::input::to_json(&input) } else { ag_ui::input::to_json(&input) };
    let mut request =
        client.post(url).header("accept", accept).header("content-type", "application/json").body(body);
    for header in &arguments.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Error::new(Class::Usage, format!("header `{header}` is not of the form NAME: VALUE"))
        })?;
        request = request.header(name.trim(), value.trim());
    }
    let mut response = request.send().await.map_err(|error| {
        server_error(format!("`{url}` could not be reached: {}", innermost(&error)))
            .hint("is the server running, and is the path right?")
    })?;
    let status = response.status();
    if !status.is_success() {
        return Err(server_error(format!("`{url}` answered {status}: {}", excerpt(&mut response).await)));
    }
    let mut inspection = Inspection::new(format, framing, arguments.max_frame);
    inspection.expect_run(input.thread, input.run);
    let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or("none").to_owned();
    let plain = content_type.split(';').next().unwrap_or_default().trim();
    if (framing == Framing::Prefixed && content_type != accept) || plain != accept {
        let message = format!("expected `{accept}`, found `{content_type}`");
        inspection.report("response", "content-type", message);
    }
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) => inspection.push(&bytes),
            Ok(None) => break,
            Err(error) => {
                let message = format!("expected the end of the run, found {}", innermost(&error));
                inspection.report("response", "connection", message);
                break;
            }
        }
    }
    inspection.end();
    inspection.compare_formats(url, format)?;
    Ok(inspection)
}

/// The start of the body of an error response, on one line. The rest, which may be endless, is not read.
async fn excerpt(response: &mut reqwest::Response) -> String {
    let mut body = Vec::new();
    while body.len() < EXCERPT * char::MAX.len_utf8()
        && let Ok(Some(bytes)) = response.chunk().await
    {
        body.extend_from_slice(&bytes);
    }
    let text = String::from_utf8_lossy(&body);
    // A server must not control the terminal.
    let plain = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(EXCERPT).collect()
}

/// Input with new ids: a server may respond to a known run id with the existing run.
fn run_input(message: &str) -> RunInput {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut input = RunInput::new(format!("agentwire-check-{now}"), format!("agentwire-check-run-{now}"));
    input.messages.push(Message::user("agentwire-check-message", message));
    input.state = Some(Json::parse("{}").expect("the text is constant"));
    input.forwarded = Some(Json::parse("{}").expect("the text is constant"));
    input
}

/// The innermost cause of an error.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
