//! The routes of a list of threads: search, rename, runs, export.

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{
    Conflict, Log, Owner, PageToken, PendingFilter, Run, Seq, Store, StoreError, Text, TextChange, Thread,
    ThreadChange, ThreadQuery,
};
use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::{
    json,
    request::{ApiRequest, JsonRequest},
};
use crate::{
    codes, cpu_work, error::ApiError, gateway::Gateway, human::pending, stream::reader::Verdict,
    timestamp::iso,
};

/// The default and the largest number of items of a page.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 200;

/// Threads that one request looks through at most; a search goes on with the next page.
const MAX_SCANNED: usize = 500;

/// The longest title and the longest query, in characters.
const MAX_TITLE: usize = 200;
const MAX_QUERY: usize = 200;

/// Characters of the first user message that become the title of a thread without one.
const DERIVED_TITLE: usize = 80;

/// The member of a thread's metadata with its title.
const TITLE_KEY: &str = "title";

/// The member of a thread's metadata that marks it as archived.
const ARCHIVED_KEY: &str = "archived";

/// Bytes of a log that are read at once.
const SLICE: usize = 256 << 10;

fn bad_request(message: impl Into<String>) -> ApiError {
    ApiError::new(codes::BAD_REQUEST, message)
}

/// The `limit` and the `before` of a request.
fn page_of(request: &ApiRequest) -> Result<(usize, Option<PageToken>), ApiError> {
    let number = |name: &str| match request.query(name) {
        None => Ok(None),
        Some(text) => {
            text.parse::<u64>().map(Some).map_err(|_| bad_request(format!("`{name}` must be a whole number")))
        }
    };
    let limit = number("limit")?.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(LARGEST_PAGE));
    Ok((limit.clamp(1, LARGEST_PAGE), number("before")?.map(PageToken)))
}

/// `GET /threads`: the threads of the user with title, agent, status and times, newest first. `?query=` searches ids,
/// titles and messages, `?status=` selects by the status of the last run, `?limit=` and `?before=` select a page. A page
/// of a search may have fewer items than the limit, even none, and still a `next`.
pub(super) async fn list(request: ApiRequest) -> Result<Response, ApiError> {
    let (limit, mut before) = page_of(&request)?;
    let status = request.query("status").filter(|status| !status.is_empty());
    let query = request.query("query").unwrap_or_default().trim().to_lowercase();
    if query.chars().count() > MAX_QUERY {
        return Err(bad_request(format!("`query` has more than {MAX_QUERY} characters")));
    }
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let mut found = Vec::new();
    // The thread of a run that the query names.
    let named =
        run_named(gateway.store().as_ref(), owner, &request.query("query").unwrap_or_default()).await?;
    let mut scanned = 0;
    let next = loop {
        let page = gateway.store().threads(owner, ThreadQuery { before }, limit - found.len()).await?;
        scanned += page.items.len();
        for thread in &page.items {
            let row = Row::read(gateway, owner, thread, &query).await?;
            let is_named = named.as_ref() == Some(&thread.thread);
            if (row.matches || is_named) && status.as_ref().is_none_or(|status| row.status() == status) {
                found.push(row.to_json(&request.state.agent.name));
            }
        }
        before = page.next;
        if before.is_none() || found.len() >= limit || scanned >= MAX_SCANNED {
            break before;
        }
    };
    request.audited("list", Ok(()), |record| record)?;
    let mut body = json!({ "threads": found });
    if let Some(next) = next {
        body["next"] = next.0.to_string().into();
    }
    Ok(json(body.to_string()))
}

async fn run_named(store: &dyn Store, owner: &Owner, query: &str) -> Result<Option<ThreadId>, ApiError> {
    if query.trim().is_empty() {
        return Ok(None);
    }
    match store.run(owner, &RunId::from(query.trim())).await {
        Ok(run) => Ok(Some(run.thread)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A thread as the list shows it.
pub(super) struct Row {
    thread: Thread,
    pub(super) title: Option<String>,
    /// True if the title was given, not derived from the first message.
    is_named: bool,
    pub(super) last_run: Option<Run>,
    matches: bool,
}

impl Row {
    pub(super) async fn read(
        gateway: &Gateway,
        owner: &Owner,
        thread: &Thread,
        query: &str,
    ) -> Result<Self, ApiError> {
        let store = gateway.store();
        let gone = |error: StoreError| match error {
            // Deleted since the page was read.
            StoreError::NotFound(_) => Ok(None),
            error => Err(ApiError::from(error)),
        };
        let given = title(thread);
        let is_in = |text: &str| text.to_lowercase().contains(query);
        let mut matches =
            query.is_empty() || is_in(thread.thread.as_str()) || given.as_deref().is_some_and(is_in);
        let mut derived = None;
        if given.is_none() || !matches {
            let read = || async { store.messages(owner, &thread.thread).await.or_else(gone) };
            let length = |messages: &Option<Text>| messages.as_ref().map_or(0, |text| text.len());
            let (messages, _held) = gateway.read_within_budget(owner, read, length).await?;
            if let Some(messages) = messages {
                let wanted = (!matches).then(|| query.to_owned());
                let look = move || Found::in_messages(&messages, wanted.as_deref());
                let found = cpu_work::spawn(owner, look).await?;
                derived = found.title;
                matches |= found.matches;
            }
        }
        let last = match store.runs(owner, &thread.thread, None, 1).await {
            Ok(page) => page.items.into_iter().next(),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let is_named = given.is_some();
        Ok(Self { thread: thread.clone(), title: given.or(derived), is_named, last_run: last, matches })
    }

    fn status(&self) -> &str {
        self.last_run.as_ref().map_or("new", |run| run.status.as_str())
    }

    fn to_json(&self, agent: &str) -> Value {
        let Self { thread, title, last_run, .. } = self;
        let mut row = json!({
            "threadId": thread.thread.as_str(),
            "title": title,
            "named": self.is_named,
            "archived": is_archived(thread),
            "agent": last_run.as_ref().map_or(agent, |run| &run.agent),
            "status": self.status(),
            "createdAt": iso(thread.created.0),
            "updatedAt": iso(thread.updated.0),
        });
        if let Some(run) = last_run {
            row["runId"] = run.run.as_str().into();
            if let Some(cause) = &run.cause {
                row["cause"] = (&**cause).into();
            }
        }
        row
    }
}

/// The title in the metadata of a thread.
fn title(thread: &Thread) -> Option<String> {
    let metadata: Value = serde_json::from_str(thread.metadata.as_deref()?).ok()?;
    metadata[TITLE_KEY].as_str().map(str::to_owned)
}

/// The texts of stored messages, as far as a list needs them.
struct Found {
    title: Option<String>,
    matches: bool,
}

impl Found {
    fn in_messages(messages: &str, query: Option<&str>) -> Self {
        let messages: Vec<Value> = serde_json::from_str(messages).unwrap_or_default();
        let first = messages.iter().find(|message| message["role"] == "user").map(text_of);
        let title = first.map(|text| shortened(&text)).filter(|text| !text.is_empty());
        let matches = query.is_some_and(|query| {
            messages.iter().any(|message| {
                message["id"].as_str().is_some_and(|id| id.to_lowercase() == query)
                    || text_of(message).to_lowercase().contains(query)
            })
        });
        Self { title, matches }
    }
}

/// The text of a message: its content, or the texts of its parts.
fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The first characters of a text in one line.
fn shortened(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(DERIVED_TITLE) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// True if a thread is marked as archived.
pub(super) fn is_archived(thread: &Thread) -> bool {
    let metadata = thread.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    metadata.is_some_and(|metadata| metadata[ARCHIVED_KEY] == true)
}

/// `PATCH /threads/{id}`: `{"title": "…"}` renames a thread, `null` returns to the derived title; `{"archived": true}`
/// archives it.
pub(super) async fn update(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let thread = request.thread()?;
    let changes = request.parse(MetadataChanges::parse).await?;
    let changed = changes.apply(&request, &thread).await;
    let changed =
        request.audited("rename", changed, |record| record.thread(&thread).arguments(&request.body))?;
    let row = Row::read(&request.state.gateway, &request.owner, &changed, "").await?;
    Ok(json(row.to_json(&request.state.agent.name).to_string()))
}

/// Changes of a thread's metadata by its user.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MetadataChanges {
    /// `Some(None)` returns to the derived title.
    pub(super) title: Option<Option<String>>,
    pub(super) archived: Option<bool>,
}

impl MetadataChanges {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let body: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| bad_request(format!("the body: {error}")))?;
        let is_unknown = |key: &&String| !matches!(key.as_str(), TITLE_KEY | ARCHIVED_KEY);
        if let Some(other) = body.keys().find(is_unknown) {
            return Err(bad_request(format!("unknown member `{}`", other.escape_default()))
                .hint("allowed: `title`, `archived`"));
        }
        let changes = Self::of(body.get(TITLE_KEY), body.get(ARCHIVED_KEY), TITLE_KEY)?;
        match changes == Self::default() {
            true => Err(bad_request("expected `title` or `archived`")),
            false => Ok(changes),
        }
    }

    /// The changes of a request that calls the title `name`.
    pub(super) fn of(title: Option<&Value>, archived: Option<&Value>, name: &str) -> Result<Self, ApiError> {
        let title = title.map(|title| parse_title(title, name)).transpose()?;
        let archived = match archived {
            None => None,
            Some(Value::Bool(archived)) => Some(*archived),
            Some(_) => return Err(bad_request("`archived` must be `true` or `false`")),
        };
        Ok(Self { title, archived })
    }

    pub(super) async fn apply(self, request: &ApiRequest, thread: &ThreadId) -> Result<Thread, ApiError> {
        let change = |stored: &Thread| {
            let mut metadata = metadata_of(stored);
            match &self.title {
                Some(Some(title)) => drop(metadata.insert(TITLE_KEY.into(), title.as_str().into())),
                Some(None) => drop(metadata.remove(TITLE_KEY)),
                None => {}
            }
            match self.archived {
                Some(true) => drop(metadata.insert(ARCHIVED_KEY.into(), true.into())),
                Some(false) => drop(metadata.remove(ARCHIVED_KEY)),
                None => {}
            }
            Ok(Value::Object(metadata).to_string())
        };
        change_metadata(request, thread, change).await
    }
}

/// Replaces the metadata of a thread by what `change` makes of the record; tried again if another writer was faster.
pub(super) async fn change_metadata(
    request: &ApiRequest,
    thread: &ThreadId,
    change: impl Fn(&Thread) -> Result<String, ApiError>,
) -> Result<Thread, ApiError> {
    let store = request.state.gateway.store();
    loop {
        let stored = store.thread(&request.owner, thread).await?;
        let body = change(&stored)?.into();
        if stored.metadata.as_ref() == Some(&body) {
            return Ok(stored);
        }
        let metadata = Some(TextChange { expected: stored.metadata, body });
        let change = ThreadChange { metadata, ..ThreadChange::default() };
        match store.update_thread(&request.owner, thread, change).await {
            Err(StoreError::Conflict(Conflict::Thread)) => {}
            done => return Ok(done?),
        }
    }
}

/// The members of the metadata of a thread.
pub(super) fn metadata_of(thread: &Thread) -> Map<String, Value> {
    let metadata = thread.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
    metadata.unwrap_or_default()
}

/// A title in one line; `None` for no title.
fn parse_title(title: &Value, name: &str) -> Result<Option<String>, ApiError> {
    match title {
        Value::Null => Ok(None),
        Value::String(title) => {
            let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
            match title.chars().count() {
                0 => Ok(None),
                count if count > MAX_TITLE => {
                    Err(bad_request(format!("`{name}` has more than {MAX_TITLE} characters")))
                }
                _ => Ok(Some(title)),
            }
        }
        _ => Err(bad_request(format!("`{name}` must be a text or `null`"))),
    }
}

/// `GET /threads/{id}/runs`: the runs of a thread, newest first; `?limit=`, `?before=`.
pub(super) async fn runs(request: ApiRequest) -> Result<Response, ApiError> {
    let (limit, before) = page_of(&request)?;
    let thread = ThreadId::from(request.param("id"));
    let page = request.state.gateway.store().runs(&request.owner, &thread, before, limit).await;
    let page = request.audited("read", page.map_err(ApiError::from), |record| record.thread(&thread))?;
    let runs: Vec<_> = page.items.iter().map(run_json).collect();
    let mut body = json!({ "runs": runs });
    if let Some(next) = page.next {
        body["next"] = next.0.to_string().into();
    }
    Ok(json(body.to_string()))
}

/// A run as routes show it.
pub(super) fn run_json(run: &Run) -> Value {
    let mut shown = json!({
        "threadId": run.thread.as_str(),
        "runId": run.run.as_str(),
        "agent": &*run.agent,
        "status": run.status.as_str(),
        "createdAt": iso(run.created.0),
        "updatedAt": iso(run.updated.0),
        "events": run.next_seq.0,
    });
    if let Some(started) = run.started {
        shown["startedAt"] = iso(started.0).into();
    }
    if let Some(cause) = &run.cause {
        shown["cause"] = (&**cause).into();
    }
    shown
}

/// `GET /threads/{id}/pending?all=true`: all items of a thread, with who answered them and when.
pub(super) async fn all_items(request: &ApiRequest, thread: &ThreadId) -> Result<Vec<Value>, ApiError> {
    let items = request.state.gateway.store().pending(&request.owner, thread, PendingFilter::All).await;
    let items = request.audited("read", items.map_err(ApiError::from), |record| record.thread(thread))?;
    Ok(items.iter().map(pending::to_json).collect())
}

/// `GET /threads/{id}/export`: the logged events of all runs as AG-UI JSON lines, oldest first, which `agentwire view`,
/// `check` and `convert` read. `agentwire-recovery` says whether the logs are complete.
pub(super) async fn export(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let runs = all_runs(&request, &thread).await;
    let runs = request.audited("export", runs, |record| record.thread(&thread))?;
    let verdict = if runs.iter().any(|run| !run.compacted && run.first_retained.0 > 0) {
        Verdict::Gap
    } else if runs.iter().any(|run| run.compacted) {
        Verdict::Snapshot
    } else {
        Verdict::Whole
    };
    let reading = Reading::new(&request, runs);
    let body = Body::from_stream(stream::try_unfold(reading, Reading::next));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("agentwire-recovery", HeaderValue::from_static(verdict.as_str()));
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = thread.as_str().chars().take(64).map(safe).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}.jsonl\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// The runs of a thread, the newest first.
pub(super) async fn all_runs(request: &ApiRequest, thread: &ThreadId) -> Result<Vec<Run>, ApiError> {
    let (mut runs, mut before) = (Vec::new(), None);
    loop {
        let store = request.state.gateway.store();
        let page = store.runs(&request.owner, thread, before, LARGEST_PAGE).await?;
        runs.extend(page.items);
        before = page.next;
        if before.is_none() {
            return Ok(runs);
        }
    }
}

/// The state of an export.
pub(super) struct Reading {
    gateway: Gateway,
    owner: Owner,
    /// The runs that are left; the next one last.
    runs: Vec<RunId>,
    /// The last event of the next run that was read.
    after: Option<Seq>,
}

impl Reading {
    /// Of `runs`, the newest first.
    pub(super) fn new(request: &ApiRequest, runs: Vec<Run>) -> Self {
        Self {
            gateway: request.state.gateway.clone(),
            owner: request.owner.clone(),
            runs: runs.into_iter().map(|run| run.run).collect(),
            after: None,
        }
    }

    /// The next lines. An error cuts the response, so that a client notices that it is incomplete.
    pub(super) async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        while let Some(run) = self.runs.last() {
            let log = match self.gateway.store().read(&self.owner, run, self.after, SLICE).await {
                // Deleted meanwhile.
                Err(StoreError::NotFound(_)) => return Ok(None),
                log => log?,
            };
            let events = match log {
                Log::Exact(slice) => {
                    let next = slice.first_seq.0 + slice.events.len() as u64;
                    if next >= slice.next_seq.0 || slice.events.is_empty() {
                        self.runs.pop();
                        self.after = None;
                    } else {
                        self.after = Some(Seq(next - 1));
                    }
                    slice.events
                }
                Log::Compacted { events, .. } => {
                    self.runs.pop();
                    self.after = None;
                    events
                }
                Log::NotRetained { .. } | Log::Ahead { .. } => {
                    self.runs.pop();
                    self.after = None;
                    Vec::new()
                }
            };
            if !events.is_empty() {
                let mut lines = BytesMut::with_capacity(events.iter().map(|event| event.len() + 1).sum());
                for event in events {
                    lines.put_slice(&event);
                    lines.put_u8(b'\n');
                }
                return Ok(Some((lines.freeze(), self)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_the_first_question_in_one_line() {
        let messages = r#"[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":" two\n words "}]}]"#;
        assert_eq!(Found::in_messages(messages, None).title.as_deref(), Some("two words"));
        assert!(Found::in_messages(messages, Some("words")).matches);
        assert!(!Found::in_messages(messages, Some("three")).matches);
        assert_eq!(shortened(&"é".repeat(100)).chars().count(), DERIVED_TITLE + 1);
    }

    #[test]
    fn changes_are_checked() {
        let title = |text: &str| MetadataChanges::parse(text).expect("valid").title;
        assert_eq!(title(r#"{"title":" a\n b "}"#), Some(Some("a b".into())));
        assert_eq!(title(r#"{"title":null}"#), Some(None));
        assert_eq!(title(r#"{"title":""}"#), Some(None));
        let archived = MetadataChanges { title: None, archived: Some(false) };
        assert_eq!(MetadataChanges::parse(r#"{"archived":false}"#).expect("valid"), archived);
        for bad in ["", "[]", "{}", r#"{"title":1}"#, r#"{"title":"a","x":1}"#, r#"{"archived":null}"#] {
            assert_eq!(MetadataChanges::parse(bad).expect_err("invalid").code, codes::BAD_REQUEST, "{bad}");
        }
        let long = format!(r#"{{"title":"{}"}}"#, "a".repeat(MAX_TITLE + 1));
        assert!(MetadataChanges::parse(&long).is_err());
    }
}
