//! Checks a running AG-UI or HAI server: starts a run and inspects the response.

use std::time::{Duration, SystemTime};

use agentwire_client::{ClientError, ErrorKind, HttpAgent, Protocol, Timeouts};
use agentwire_core::{
    event::{Message, RunInput},
    format::{Format, ag_ui, hai},
    framing::Framing,
    json::Json,
};
use reqwest::StatusCode;

use crate::{
    check::{Inspection, server_error},
    cli::Check,
    error::{Class, Error, Result},
    terminal::style::one_line,
};

pub(crate) fn check(arguments: &Check, format: &Format) -> Result<Inspection> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("the runtime could not be started: {error}")))?;
    runtime.block_on(inspect(arguments, format))
}

async fn inspect(arguments: &Check, format: &Format) -> Result<Inspection> {
    let url = &arguments.input;
    let (protocol, accept, framing) = match format.name {
        "ag-ui-proto" => (Protocol::AgUi, ag_ui::proto::CONTENT_TYPE, Framing::Prefixed),
        "hai-proto" => (Protocol::Hai, hai::proto::CONTENT_TYPE, Framing::Prefixed),
        "ag-ui" => (Protocol::AgUi, "text/event-stream", Framing::Sse),
        "hai" => (Protocol::Hai, "text/event-stream", Framing::Sse),
        other => {
            let error = Error::new(Class::Usage, format!("a server cannot be checked as `{other}`"));
            return Err(error.hint("formats for servers: ag-ui, ag-ui-proto, hai, hai-proto"));
        }
    };
    let wait = Duration::from_secs(arguments.timeout.max(1));
    let timeouts = Timeouts { connect: wait, response: wait, idle: wait };
    let mut builder =
        HttpAgent::builder(url).protocol(protocol).binary(framing == Framing::Prefixed).timeouts(timeouts);
    for header in &arguments.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Error::new(Class::Usage, format!("header `{header}` is not of the form NAME: VALUE"))
        })?;
        builder = builder.header(name, value);
    }
    let agent = builder.build().map_err(|error| Error::new(Class::Usage, error.to_string()))?;
    let input = run_input(&arguments.message);
    let mut response = agent.raw(&input).await.map_err(|error| refused(url, &error))?;
    let mut inspection = Inspection::new(format, framing, arguments.max_frame);
    inspection.expect_run(input.thread, input.run);
    let content_type = response.content_type().unwrap_or("none").to_owned();
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
                let message = format!("expected the end of the run, found {}", reason(&error));
                inspection.report("response", "connection", message);
                break;
            }
        }
    }
    inspection.end();
    inspection.compare_formats(url, format)?;
    Ok(inspection)
}

/// The error of a server that was not reached, or that refused the request.
fn refused(url: &str, error: &ClientError) -> Error {
    match error.kind() {
        ErrorKind::Status { status, code, message, .. } => {
            let status =
                StatusCode::from_u16(*status).map_or_else(|_| status.to_string(), |it| it.to_string());
            let code = code.as_deref().map(|code| format!(" ({})", one_line(code))).unwrap_or_default();
            server_error(format!("`{url}` answered {status}: {}{code}", one_line(message)))
        }
        _ => server_error(format!("`{url}` could not be reached: {}", reason(error)))
            .hint("is the server running, and is the path right?"),
    }
}

/// The reason of a failure, without the sentence around it.
fn reason(error: &ClientError) -> String {
    match error.kind() {
        ErrorKind::Network(reason) => reason.to_string(),
        _ => error.to_string(),
    }
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
