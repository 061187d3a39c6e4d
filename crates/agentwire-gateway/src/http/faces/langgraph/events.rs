//! `POST threads/{id}/stream/events`: the events of all runs of a thread in protocol v2, those to come included.
//!
//! A stream begins with the first run that is kept: clients open several streams with different filters, and drop what
//! they have by `event_id`. It stays open between runs. The number of an event is derived from the time of its run, so that
//! it is the same on every stream and after the deletion of earlier runs.

use std::{
    collections::{HashSet, VecDeque},
    io,
    time::Duration,
};

use agentwire_core::{
    Tally,
    event::{RunId, RunInput, ThreadId},
    format::{ag_ui, langgraph},
    json::Json,
};
use agentwire_store::{Log, Run, StoreError};
use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    super::{
        super::{RouteGroup, credential_end::CredentialEnd, request::ApiRequest, response},
        request::FaceRequest,
    },
    checkpoints,
    errors::detail,
    runs::of_thread,
};
use crate::{
    auth::Action,
    error::ApiError,
    run::input::has_start_in_log,
    stream::{
        reader::{FollowRequest, RunReader, Verdict},
        starts::StartWatch,
    },
};

/// The channels that a client may ask for, besides `custom:NAME`.
const CHANNELS: [&str; 9] =
    ["values", "updates", "checkpoints", "messages", "tools", "custom", "lifecycle", "input", "tasks"];

/// The newest runs that a stream begins with.
const MAX_RUNS: usize = 64;

/// The time after which a stream looks for runs that another process has started.
const CHECK: Duration = Duration::from_secs(2);

/// Milliseconds since the Unix epoch at which the numbers of events begin, and numbers per millisecond: 34 years fit into
/// the integers of JavaScript.
const EPOCH: u64 = 1_700_000_000_000;
const PER_MILLISECOND: u64 = 8192;

/// More than the events of protocol v2 that stand for one event of a run, on average.
const PER_EVENT: u64 = 16;

/// The number before the first event of a run.
pub(super) fn first_seq(run: &Run) -> u64 {
    run.created.0.saturating_sub(EPOCH).saturating_mul(PER_MILLISECOND) & ((1 << 53) - 1)
}

/// The events that a client wants.
struct Wanted {
    /// The options of the writer.
    options: Vec<String>,
    /// True if values are among them.
    has_values: bool,
}

impl Wanted {
    /// That of `{channels, namespaces?, depth?, since?}`. The message is that of the server.
    fn parse(body: &[u8]) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body).map_err(|_| "Invalid JSON body")?;
        let empty = Map::new();
        let body = body.as_object().unwrap_or(&empty);
        let channels = body.get("channels").and_then(Value::as_array).filter(|list| !list.is_empty());
        let channels = channels.ok_or("channels is required and must be a non-empty array")?;
        let is_known = |channel: &Value| {
            let name = channel.as_str().filter(|name| !name.contains(','));
            name.is_some_and(|name| {
                CHANNELS.contains(&name) || name.strip_prefix("custom:").is_some_and(|name| !name.is_empty())
            })
        };
        if let Some(unknown) = channels.iter().find(|channel| !is_known(channel)) {
            let unknown = unknown.to_string();
            let allowed = CHANNELS.join(", ");
            return Err(format!(
                "channels contains unsupported entries: {unknown}. Allowed: {allowed}, or any `custom:<name>`."
            ));
        }
        let names: Vec<&str> = channels.iter().filter_map(Value::as_str).collect();
        let mut options = vec![format!("channels={}", names.join(","))];
        let is_path = |path: &&Value| path.as_array().is_some_and(|path| path.iter().all(Value::is_string));
        if let Some(namespaces) = body.get("namespaces").and_then(Value::as_array) {
            let namespaces: Vec<&Value> = namespaces.iter().filter(is_path).collect();
            if !namespaces.is_empty() {
                options.push(format!("namespaces={}", Value::from_iter(namespaces.into_iter().cloned())));
            }
        }
        for name in ["depth", "since"] {
            let number = body.get(name).and_then(Value::as_u64).filter(|number| *number < 1 << 53);
            options.extend(number.map(|number| format!("{name}={number}")));
        }
        Ok(Self { options, has_values: names.iter().any(|name| ["values", "checkpoints"].contains(name)) })
    }
}

/// `POST threads/{id}/stream/events`.
pub(super) async fn events(request: FaceRequest) -> Result<Response, ApiError> {
    let wanted = match Wanted::parse(&request.body) {
        Ok(wanted) => wanted,
        Err(message) => return Ok(detail(&message)),
    };
    let (request, thread) = of_thread(request, Action::Read, RouteGroup::Runs).await?;
    let seats = request.reader_seats()?;
    request.audited("read", Ok(()), |record| record.thread(&thread))?;
    let gateway = request.state.gateway.clone();
    let (principal, cut) = (request.principal.clone(), request.cut.clone());
    let watch = gateway.starts().watch(&request.owner, &thread);
    let heartbeat = gateway.settings().heartbeat;
    let follower = ThreadReader {
        request,
        thread,
        wanted,
        watch,
        seen: HashSet::new(),
        waiting: VecDeque::new(),
        reader: None,
        last: None,
        heartbeat,
        quiet_since: Instant::now(),
    };
    let chunks = stream::unfold((Box::new(follower), seats), |(mut follower, seats)| async move {
        let chunk = follower.next_chunk().await?;
        Some((chunk, (follower, seats)))
    });
    let body = match CredentialEnd::of(&principal, gateway.store().now()) {
        Some(end) => Body::from_stream(end.cut(chunks, agentwire_core::framing::Framing::Sse, cut)),
        None => Body::from_stream(chunks),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// A client that follows a thread.
struct ThreadReader {
    request: ApiRequest,
    thread: ThreadId,
    wanted: Wanted,
    watch: StartWatch,
    /// The runs so far, shown or waiting.
    seen: HashSet<RunId>,
    waiting: VecDeque<Run>,
    reader: Option<Box<RunReader>>,
    /// The run that is shown or was shown last, and the number before its first event.
    last: Option<(RunId, u64)>,
    heartbeat: Duration,
    quiet_since: Instant,
}

impl ThreadReader {
    /// The next bytes for the client; `None` at the end.
    async fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(reader) = &mut self.reader {
                match reader.next_chunk().await {
                    Some(chunk) => {
                        self.quiet_since = Instant::now();
                        return Some(chunk);
                    }
                    None => self.reader = None,
                }
            }
            match self.go_on().await {
                Ok(Step::Again) => {}
                Ok(Step::Heartbeat) => {
                    self.quiet_since = Instant::now();
                    return Some(Ok(Bytes::from_static(b": heartbeat\n\n")));
                }
                Ok(Step::End) => return None,
                Err(error) => {
                    tracing::warn!(thread = %self.thread, %error, "a reader of a thread was disconnected");
                    return Some(Err(io::Error::other(error.message)));
                }
            }
        }
    }

    /// Opens the next run, or waits for one.
    async fn go_on(&mut self) -> Result<Step, ApiError> {
        if let Some(run) = self.waiting.pop_front() {
            self.open(run).await?;
            return Ok(Step::Again);
        }
        let watch = self.watch.started.clone();
        let mut started = std::pin::pin!(watch.notified());
        // Before the list is read, so that no start is missed.
        started.as_mut().enable();
        if !self.find_runs().await? {
            return Ok(Step::End);
        }
        if !self.waiting.is_empty() {
            return Ok(Step::Again);
        }
        let gateway = &self.request.state.gateway;
        Ok(tokio::select! {
            () = started => Step::Again,
            () = tokio::time::sleep_until(self.quiet_since + self.heartbeat) => Step::Heartbeat,
            () = tokio::time::sleep(CHECK) => Step::Again,
            // The next gateway goes on with the thread.
            () = gateway.drain_begun().cancelled() => Step::End,
        })
    }

    /// Adds the runs that are new. `false` if the thread is gone.
    async fn find_runs(&mut self) -> Result<bool, ApiError> {
        let store = self.request.state.gateway.store();
        // New runs are few.
        let limit = if self.seen.is_empty() { MAX_RUNS } else { 8 };
        let mut page = match store.runs(&self.request.owner, &self.thread, None, limit).await {
            Ok(page) => page.items,
            Err(StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        page.reverse();
        for run in page {
            if self.seen.insert(run.run.clone()) {
                self.waiting.push_back(run);
            }
        }
        Ok(true)
    }

    async fn open(&mut self, run: Run) -> Result<(), ApiError> {
        let gateway = self.request.state.gateway.clone();
        let owner = self.request.owner.clone();
        let log = gateway.store().read(&owner, &run.run, None, 1).await;
        match log {
            // Its events are gone; the values of the next run have its messages.
            Ok(Log::NotRetained { .. }) if !self.waiting.is_empty() => return Ok(()),
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut first = first_seq(&run);
        if let Some((last, its_first)) = &self.last {
            // A queued run is older than the end of the run before it.
            let events = gateway.store().run(&owner, last).await.map_or(0, |last| last.next_seq.0);
            first = first.max(its_first + PER_EVENT * (events + 4));
        }
        self.last = Some((run.run.clone(), first));
        let (input, checkpoints) = self.start_of(&run).await?;
        let mut options = self.wanted.options.clone();
        options.push(format!("first_seq={first}"));
        options.push(format!("graph_name={}", run.agent));
        if let Some([start, end]) = checkpoints {
            options.extend([format!("checkpoint={start}"), format!("end_checkpoint={end}")]);
        }
        for mark in [None, Some("id_mark=c".to_owned())] {
            let options: Vec<String> = options.iter().cloned().chain(mark.clone()).collect();
            let format = response::output_format(
                &langgraph::FORMAT,
                langgraph::PROTOCOL,
                options.iter().map(String::as_str),
            )?;
            let follow = FollowRequest {
                owner: &owner,
                run: &run.run,
                after: None,
                with_history: false,
                input: Some(&input),
                sse: self.request.sse(),
                disconnect: self.request.cut.clone(),
            };
            let (reader, verdict) = RunReader::open(&gateway, follow, format).await?;
            // The events of a compacted log have other numbers.
            if verdict == Verdict::Whole || mark.is_some() {
                self.reader = Some(Box::new(reader));
                break;
            }
        }
        Ok(())
    }

    /// The input of a run, with the conversation before it, and the checkpoints of its values. Exclusive, because a writer
    /// cannot be shared between threads.
    async fn start_of(&mut self, run: &Run) -> Result<(RunInput, Option<[Value; 2]>), ApiError> {
        let gateway = &self.request.state.gateway;
        let stored = gateway.store().input(&self.request.owner, &run.run).await?;
        let input = stored.and_then(|text| ag_ui::input::from_json(&text, &mut Tally::default()).ok());
        let mut input = input.unwrap_or_else(|| RunInput::new(self.thread.clone(), run.run.clone()));
        if !self.wanted.has_values {
            return Ok((input, None));
        }
        let Some(around) = checkpoints::around(&self.request, &self.thread, run).await? else {
            return Ok((input, None));
        };
        if !has_start_in_log(&input) {
            input.messages = around.messages;
            input.state = Some(Json::from(&*around.state));
        }
        Ok((input, Some(around.checkpoints)))
    }
}

/// The next step of a reader of a thread.
enum Step {
    Again,
    Heartbeat,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_channels() {
        let wanted = Wanted::parse(
            br#"{"channels":["values","custom:a"],"namespaces":[["x"],1,[]],"depth":1,"since":7}"#,
        );
        let wanted = wanted.expect("valid");
        let expected = ["channels=values,custom:a", r#"namespaces=[["x"],[]]"#, "depth=1", "since=7"];
        assert!(wanted.has_values && wanted.options == expected, "{:?}", wanted.options);
        for body in
            [r#"{"channels":["input"],"depth":-1,"since":true}"#, r#"{"channels":["input"],"namespaces":{}}"#]
        {
            assert_eq!(Wanted::parse(body.as_bytes()).expect("valid").options, ["channels=input"], "{body}");
        }
        for body in [
            "",
            "1",
            "[]",
            "{}",
            r#"{"channels":[]}"#,
            r#"{"channels":"values"}"#,
            r#"{"channels":["debug"]}"#,
            r#"{"channels":["custom:"]}"#,
            r#"{"channels":[1]}"#,
            r#"{"channels":["custom:a,values"]}"#,
        ] {
            assert!(Wanted::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
