//! Requests, and SSE streams parsed by hand so that every byte is checked.

use std::time::Duration;

use agentwire_core::{
    event::Event,
    format::{Options, Setup, ag_ui},
    framing,
    order::Checker,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::{Server, with_timeout};

impl Server {
    pub(crate) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.ask(Method::POST, path).json(body)
    }

    /// The run input of an AG-UI client with one user message.
    pub(crate) fn input(thread: &str, run: &str, text: &str) -> Value {
        json!({
            "threadId": thread, "runId": run, "protocolVersion": "1.0", "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [{"id": format!("{run}-user"), "role": "user", "content": text}],
        })
    }

    /// Starts a run and returns its stream.
    pub(crate) async fn run(&self, thread: &str, run: &str, text: &str) -> Stream {
        Stream::of(self.post("/", &Self::input(thread, run, text))).await
    }

    /// Starts a run and reads its stream to the end.
    pub(crate) async fn run_to_end(&self, thread: &str, run: &str, text: &str) -> Vec<Frame> {
        self.run(thread, run, text).await.rest().await
    }

    pub(crate) async fn follow(&self, path: &str) -> Stream {
        Stream::of(self.ask(Method::GET, path)).await
    }

    pub(crate) async fn json(&self, path: &str) -> (StatusCode, Value) {
        answer(self.ask(Method::GET, path)).await
    }

    /// A value of `/metrics`, found by the prefix of its line.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, metrics) = self.json("/metrics").await;
        let metrics = metrics.as_str().expect("text");
        let line = metrics.lines().find(|line| line.starts_with(name)).expect("a metric of that name");
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    }

    /// The status of a run as its route reports it.
    pub(crate) async fn status(&self, run: &str) -> String {
        let (_, body) = self.json(&format!("/runs/{run}")).await;
        body["status"].as_str().unwrap_or("unknown").to_owned()
    }
}

/// Status and JSON body of a response; a body that is not JSON becomes a string. An error as a sentence, as the AI SDK
/// routes have it, becomes the JSON form.
pub(crate) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = with_timeout("a response", request.send()).await.expect("a response");
    let status = response.status();
    let is_text = response.headers().get("content-type").is_some_and(|it| it == "text/plain; charset=utf-8");
    let code = response.headers().get("agentwire-error-code").filter(|_| is_text);
    let code = code.map(|code| code.to_str().expect("ASCII").to_owned());
    let text = with_timeout("a body", response.text()).await.expect("a body");
    if let Some(code) = code {
        return (status, json!({"error": {"code": code, "message": text}}));
    }
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// One frame of an SSE stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
    /// The bytes on the wire, including the empty line that ends the frame.
    pub(crate) raw: String,
}

impl Frame {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {}", self.raw))
    }

    pub(crate) fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap_or_default().to_owned()
    }
}

/// The SSE stream of a response.
pub(crate) struct Stream {
    pub(crate) response: Response,
    buffer: Vec<u8>,
    /// Length of the prefix of the buffer that contains no end of a frame.
    searched: usize,
    /// Comments and `retry:` lines so far.
    pub(crate) asides: Vec<String>,
    /// True if the connection failed instead of ending cleanly.
    pub(crate) broken: bool,
}

impl Stream {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = with_timeout("a response", request.send()).await.expect("a response");
        Self { response, buffer: Vec::new(), searched: 0, asides: Vec::new(), broken: false }
    }

    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }

    pub(crate) fn verdict(&self) -> String {
        self.header("agentwire-recovery").to_owned()
    }

    /// The next bytes; `false` at the end.
    async fn more(&mut self) -> bool {
        match with_timeout("the next bytes of a stream", self.response.chunk()).await {
            Ok(Some(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.broken = true;
                false
            }
        }
    }

    /// The next frame with data.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let found = memchr::memmem::find(&self.buffer[self.searched..], b"\n\n");
            if let Some(at) = found.map(|at| at + self.searched) {
                self.searched = 0;
                let raw: Vec<u8> = self.buffer.drain(..at + 2).collect();
                let raw = String::from_utf8(raw).expect("UTF-8");
                match frame(raw) {
                    Ok(frame) => return Some(frame),
                    Err(aside) => self.asides.push(aside),
                }
                continue;
            }
            self.searched = self.buffer.len().saturating_sub(1);
            if !self.more().await {
                let rest = String::from_utf8_lossy(&self.buffer);
                assert!(self.broken || rest.is_empty(), "a truncated frame: {rest}");
                return None;
            }
        }
    }

    /// Waits for a frame without data and skips frames with data.
    pub(crate) async fn aside(&mut self) {
        let before = self.asides.len();
        with_timeout("a comment", async {
            while self.asides.len() == before {
                let _ = tokio::time::timeout(Duration::from_millis(20), self.next()).await;
            }
        })
        .await;
    }

    /// The next `count` frames.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            frames.push(self.next().await.expect("one more frame"));
        }
        frames
    }

    /// All frames up to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// All bytes up to the end of the stream.
    pub(crate) async fn bytes(mut self) -> Vec<u8> {
        while self.more().await {}
        self.buffer
    }
}

/// Parses a frame; `Err` contains a frame without data.
fn frame(raw: String) -> Result<Frame, String> {
    assert!(!raw.contains('\r'), "line breaks are LF: {raw:?}");
    let mut found = Frame { id: None, name: None, data: String::new(), raw: String::new() };
    let mut lines = 0;
    for line in raw.lines() {
        match line.split_once(": ") {
            Some(("data", data)) => {
                assert_eq!(lines, 0, "one line of data: {raw:?}");
                lines += 1;
                found.data = data.to_owned();
            }
            Some(("id", id)) => found.id = Some(id.to_owned()),
            Some(("event", name)) => found.name = Some(name.to_owned()),
            _ => {}
        }
    }
    if lines == 0 {
        return Err(raw);
    }
    found.raw = raw;
    Ok(found)
}

pub(crate) fn types(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::kind).collect()
}

pub(crate) fn ids(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter_map(|frame| frame.id.clone()).collect()
}

/// The events of AG-UI frames, decoded by the format reader.
pub(crate) fn events_of(frames: &[Frame]) -> Vec<Event> {
    let options = Options::default();
    let setup = Setup { thread: "".into(), run: "".into(), options: &options };
    let mut reader = ag_ui::FORMAT.reader.expect("AG-UI has a reader")(&setup);
    let mut events = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let data = framing::Payload::Text(&frame.data);
        let frame = framing::Frame { index: index as u64, offset: 0, event: None, id: None, data };
        reader.read(&frame, &mut events).expect("frames of the gateway are readable");
    }
    events
}

/// Asserts that a stream follows the order rules and has one terminal event.
pub(crate) fn assert_valid(frames: &[Frame]) {
    let mut checker = Checker::new();
    for event in events_of(frames) {
        if let Some(violation) = checker.check(&event) {
            panic!("{violation}\n{:#?}", types(frames));
        }
    }
    if let Some(violation) = checker.end() {
        panic!("{violation}\n{:#?}", types(frames));
    }
    let terminal_events =
        types(frames).iter().filter(|kind| *kind == "RUN_FINISHED" || *kind == "RUN_ERROR").count();
    assert_eq!(terminal_events, 1, "one terminal event: {:#?}", types(frames));
}
