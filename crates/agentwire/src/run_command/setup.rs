//! The agent, the first request and the recorder of `agentwire run`, from the arguments.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agentwire_client::{HttpAgent, Message, Policy, Protocol, Run, Subscriber, Timeouts, Tool};
use agentwire_core::{
    event::{Content, ContentPart, Context, MediaKind, PartSource},
    framing::{DEFAULT_MAX_FRAME, Framing},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    check::Inspection,
    cli::RunArguments,
    error::{Class, Error, Result},
    formats,
};

/// The largest attachment: requests are JSON in memory.
const MAX_ATTACHMENT: u64 = 50 << 20;

fn usage(message: impl Into<String>) -> Error {
    Error::new(Class::Usage, message)
}

pub(super) fn agent(arguments: &RunArguments) -> Result<HttpAgent> {
    let connection = &arguments.connection;
    let protocol = Protocol::parse(&connection.protocol)
        .ok_or_else(|| usage(format!("`{}` is no protocol", connection.protocol)))?;
    let idle = Duration::from_secs(connection.timeout.max(1));
    let mut builder = HttpAgent::builder(&arguments.url)
        .protocol(protocol)
        .binary(connection.binary)
        .timeouts(Timeouts { idle, response: idle, ..Timeouts::default() })
        .reconnect(Policy::default());
    for header in &connection.headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| usage(format!("header `{header}` is not of the form NAME: VALUE")))?;
        builder = builder.header(name, value);
    }
    if let Some(thread) = &arguments.thread {
        builder = builder.thread(thread.as_str());
    }
    if let Some(path) = &arguments.state {
        builder = builder.state(json_file(path)?);
    }
    builder.build().map_err(|error| usage(error.to_string()))
}

/// The first request.
pub(super) fn first_run(arguments: &RunArguments, message: &str) -> Result<Run> {
    let mut run = request(arguments, message)?;
    run.run_id = arguments.run.as_deref().map(Into::into);
    if !arguments.attach.is_empty() {
        let mut parts = vec![ContentPart::text(message)];
        for path in &arguments.attach {
            parts.push(attachment(path)?);
        }
        let id = run.messages[0].id.clone();
        run.messages = vec![Message::user(id, Content::Parts(parts))];
    }
    Ok(run)
}

/// A request with a message and what all requests have.
pub(super) fn request(arguments: &RunArguments, message: &str) -> Result<Run> {
    let mut run = Run::user(message);
    run.tools = tools(arguments)?;
    for entry in &arguments.context {
        let (key, value) = entry
            .split_once('=')
            .ok_or_else(|| usage(format!("context `{entry}` is not of the form KEY=VALUE")))?;
        run.context.push(Context { description: key.into(), value: value.into() });
    }
    if let Some(text) = &arguments.forwarded {
        let value =
            serde_json::from_str(text).map_err(|error| usage(format!("--forwarded is not JSON: {error}")))?;
        run.forwarded = Some(value);
    }
    Ok(run)
}

/// The tools of `--tool`: an object or a list of `{name, description, parameters}`.
pub(super) fn tools(arguments: &RunArguments) -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    for path in &arguments.tool {
        let list = match json_file(path)? {
            Value::Array(list) => list,
            one => vec![one],
        };
        for tool in list {
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                return Err(usage(format!("a tool in `{}` has no `name`", path.display())));
            };
            let about = tool.get("description").and_then(Value::as_str).unwrap_or_default();
            let mut declared = Tool::new(name, about);
            if let Some(schema) = tool.get("parameters").or_else(|| tool.get("inputSchema")) {
                declared = declared.parameters(schema.clone());
            }
            tools.push(declared);
        }
    }
    Ok(tools)
}

fn json_file(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path)
        .map_err(|error| usage(format!("`{}` could not be read: {error}", path.display())))?;
    serde_json::from_str(&text).map_err(|error| usage(format!("`{}` is not JSON: {error}", path.display())))
}

fn attachment(path: &Path) -> Result<ContentPart> {
    let fail =
        |error: &dyn std::fmt::Display| usage(format!("`{}` could not be read: {error}", path.display()));
    let length = fs::metadata(path).map_err(|error| fail(&error))?.len();
    if length > MAX_ATTACHMENT {
        return Err(usage(format!(
            "`{}` has {length} bytes, expected at most {MAX_ATTACHMENT}",
            path.display()
        )));
    }
    let bytes = fs::read(path).map_err(|error| fail(&error))?;
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default().to_ascii_lowercase();
    let mime = match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "pdf" => "application/pdf",
        "json" => "application/json",
        "csv" => "text/csv",
        "txt" | "md" => "text/plain",
        _ => "application/octet-stream",
    };
    let source = PartSource::Data { value: STANDARD.encode(bytes).into(), mime_type: mime.into() };
    Ok(ContentPart::media(MediaKind::of_mime(mime), source))
}

/// Writes the frames of all runs to a file, and checks them.
#[derive(Clone)]
pub(super) struct Recorder(Arc<Mutex<Sinks>>);

struct Sinks {
    file: Option<File>,
    inspection: Option<Inspection>,
    failure: Option<String>,
    violations: u64,
}

pub(super) fn recorder(arguments: &RunArguments, agent: &HttpAgent) -> Result<Option<Recorder>> {
    if arguments.record.is_none() && !arguments.check {
        return Ok(None);
    }
    let file = match &arguments.record {
        Some(path) => {
            let mut options = fs::OpenOptions::new();
            // A conversation is for its owner.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let created = options.write(true).create(true).truncate(true).open(path);
            Some(
                created
                    .map_err(|error| usage(format!("`{}` could not be written: {error}", path.display())))?,
            )
        }
        None => None,
    };
    let is_binary = arguments.connection.binary;
    let name = match (agent.protocol(), is_binary) {
        (Protocol::Hai, true) => "hai-proto",
        (Protocol::Hai, false) => "hai",
        (Protocol::AiSdk(_), _) => "ai-sdk",
        (_, true) => "ag-ui-proto",
        _ => "ag-ui",
    };
    let framing = match (agent.protocol(), is_binary) {
        (Protocol::AiSdk(agentwire_client::Profile::V4), _) => Framing::Coded,
        (Protocol::AiSdk(_), _) | (_, false) => Framing::Sse,
        (_, true) => Framing::Prefixed,
    };
    let inspection = match arguments.check {
        true => Some(Inspection::new(formats::reader(name)?, framing, DEFAULT_MAX_FRAME).on_stderr()),
        false => None,
    };
    let recorder = Recorder(Arc::new(Mutex::new(Sinks { file, inspection, failure: None, violations: 0 })));
    let _ = agent.subscribe(recorder.clone());
    Ok(Some(recorder))
}

impl Recorder {
    /// Ends the inspection; returns the number of violations.
    pub(super) fn conclude(&self) -> u64 {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = sinks.failure.take() {
            eprintln!("error: the recording is incomplete: {failure}");
        }
        if let Some(mut inspection) = sinks.inspection.take() {
            inspection.end();
            sinks.violations = inspection.violations();
            inspection.conclude();
        }
        sinks.violations
    }
}

impl Subscriber for Recorder {
    fn wants_frames(&self) -> bool {
        true
    }

    fn on_frame(&self, frame: &[u8]) {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut sinks.file
            && let Err(error) = file.write_all(frame)
        {
            sinks.failure = Some(error.to_string());
            sinks.file = None;
        }
        if let Some(inspection) = &mut sinks.inspection {
            inspection.push(frame);
        }
    }
}
