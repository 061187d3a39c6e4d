//! `agentwire view`: opens recordings in the console's page, without a gateway.

mod recording;

use std::{future::IntoFuture, io::Write, net::SocketAddr, path::Path, process::Stdio, sync::Arc};

use axum::{
    Router,
    extract::{Path as Param, Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{
    cli::View,
    error::{Class, Error, ExitCode, Result},
};

/// Serves the recordings until SIGINT or SIGTERM.
pub(crate) fn run(arguments: &View) -> Result<ExitCode> {
    let read = |path: &std::path::PathBuf| {
        recording::read(Path::new(path), arguments.from.as_deref(), arguments.max_frame)
    };
    let recordings: Vec<Arc<str>> =
        arguments.files.iter().map(|path| read(path).map(Into::into)).collect::<Result<_>>()?;
    let failed = |error: std::io::Error| Error::new(Class::Io, format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(serve(arguments, recordings))
}

async fn serve(arguments: &View, recordings: Vec<Arc<str>>) -> Result<ExitCode> {
    let requested: SocketAddr = arguments.listen;
    let failed = |error: std::io::Error| {
        Error::new(Class::Io, format!("cannot listen on `{requested}`: {error}"))
            .hint("`--listen 127.0.0.1:0` takes any free port")
    };
    let listener = TcpListener::bind(requested).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // Before the address is printed, so that a signal after it is never lost.
    let ended = crate::serve::first_signal();
    let url = format!("http://{address}/console#/view");
    print_address(&url)?;
    if arguments.open {
        open_browser(&url);
    }
    let mut app = Router::new()
        .route("/", get(|| async { Redirect::to("/console#/view") }))
        .route("/view", get(list))
        .route("/view/{index}", get(one))
        .with_state(Arc::new(recordings))
        .merge(agentwire_gateway::console_routes());
    if address.ip().is_loopback() {
        app = app.layer(from_fn(check_host));
    }
    tokio::select! {
        served = axum::serve(listener, app).into_future() => served.map_err(failed)?,
        // Open connections of a page do not hold the command.
        () = ended => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The address alone is the first line of stdout, for scripts.
fn print_address(url: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{url}")
        .and_then(|()| out.flush())
        .map_err(|error| Error::new(Class::Io, format!("stdout could not be written: {error}")))
}

/// Refuses a page of another site whose name was made to point here: a recording may be private.
async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    match name {
        "localhost" | "127.0.0.1" | "[::1]" => next.run(request).await,
        _ => StatusCode::MISDIRECTED_REQUEST.into_response(),
    }
}

type Recordings = State<Arc<Vec<Arc<str>>>>;

async fn list(State(recordings): Recordings) -> Response {
    let body = format!("{{\"recordings\":{}}}", recordings.len());
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

async fn one(State(recordings): Recordings, Param(index): Param<usize>) -> Response {
    match recordings.get(index) {
        Some(lines) => {
            let lines = lines.to_string();
            ([(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"))], lines).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Opens the page with the system's own command; a failure is a note, the address is printed anyway.
fn open_browser(url: &str) {
    let (program, first): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let started = std::process::Command::new(program)
        .args(first)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        eprintln!("note: `{program}` could not be started: {error}");
    }
}
