//! Agents in the process of the gateway: streams of frames, and servers that are reached without a network.

use std::{fmt, pin::Pin, sync::Arc};

use agentwire_core::framing::Framing;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt};
use reqwest::{
    Response,
    header::{HeaderName, HeaderValue},
};

use super::{
    decode::{self, Close, ExpectedFormat, UpstreamDecoder},
    timeouts::StreamTimeouts,
};
use crate::{
    agent::{Agent, BoxFuture, BuildError, EventSink, Request},
    error::{UpstreamError, UpstreamErrorKind as Kind},
};

/// Bytes of an agent in this process.
pub type LocalStream = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>;

/// A server in this process, which answers the requests that an upstream makes: the place of a URL in
/// [`LangGraphOptions`](super::LangGraphOptions) and [`AdkOptions`](super::AdkOptions).
pub trait Local: fmt::Debug + Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    /// When the server cannot answer; the run ends with this error.
    fn send(&self, call: LocalCall) -> BoxFuture<'static, Result<LocalResponse, UpstreamError>>;
}

/// A request to a [`Local`] server.
#[derive(Clone, Debug)]
pub struct LocalCall {
    /// The method, in upper case.
    pub method: String,
    /// The path, and the query if there is one.
    pub path: String,
    /// The body.
    pub json: Option<String>,
    /// The run or thread that it is about.
    pub request: Request,
}

/// The response of a [`Local`] server.
pub struct LocalResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: LocalStream,
}

impl fmt::Debug for LocalResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

impl LocalResponse {
    /// The same as a response of a server elsewhere.
    pub(super) fn into_http(self) -> Result<Response, UpstreamError> {
        let Self { status, headers, body } = self;
        let invalid = || UpstreamError::from(Kind::Internal("the agent's response is invalid".into()));
        let mut builder = axum::http::Response::builder().status(status);
        for (name, value) in headers {
            let header = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            let (name, value) = header.ok_or_else(invalid)?;
            builder = builder.header(name, value);
        }
        let body = reqwest::Body::wrap_stream(body);
        builder.body(body).map(Response::from).map_err(|error| invalid().with_detail(error.to_string()))
    }
}

/// An agent that is a function: from the request of a run to a stream of frames.
pub struct StreamAgent(Arc<StreamFunction>);

struct StreamFunction {
    format: ExpectedFormat,
    call: Box<dyn Fn(Request) -> LocalStream + Send + Sync>,
}

impl fmt::Debug for StreamAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamAgent").field("format", &self.0.format).finish_non_exhaustive()
    }
}

/// An agent from a function that gives a stream of frames in `format`, each item one frame or several lines. A stream
/// that ends without an error is whole, whether or not it has a terminal event.
///
/// ```
/// use agentwire_gateway::upstream::stream_fn;
/// use futures_util::stream;
///
/// let agent = stream_fn("ag-ui", &[], |_request| {
///     let frame = r#"{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"hello"}"#;
///     Box::pin(stream::iter([Ok(frame.into())]))
/// })?;
/// # let _ = agent;
/// # Ok::<(), agentwire_gateway::agent::BuildError>(())
/// ```
///
/// # Errors
/// When the format is unknown or not made of text, or an option is invalid.
pub fn stream_fn(
    format: &str,
    options: &[String],
    call: impl Fn(Request) -> LocalStream + Send + Sync + 'static,
) -> Result<StreamAgent, BuildError> {
    let expected = ExpectedFormat::named(Some(format), options)?;
    if !expected.reads(Framing::Lines) {
        return Err(BuildError(format!("the frames of format `{format}` are not lines of text")));
    }
    Ok(StreamAgent(Arc::new(StreamFunction { format: expected, call: Box::new(call) })))
}

impl Agent for StreamAgent {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn speaks_hai(&self) -> bool {
        self.0.format.is_hai()
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let timeouts = StreamTimeouts::start(&request);
            let mut decoder = UpstreamDecoder::of_lines(&shared.format, &request);
            let bytes = (shared.call)(request).map_ok(whole_lines);
            let close = match decode::pump(bytes, &mut decoder, timeouts, &sink).await? {
                Close::Eof if decoder.frames() == 0 => return Ok(()),
                Close::Eof => Close::Complete,
                close => close,
            };
            decode::finish(&mut decoder, close, &sink).await
        })
    }
}

/// Ends the last line, if it has no end.
fn whole_lines(frame: Bytes) -> Bytes {
    if frame.is_empty() || frame.ends_with(b"\n") {
        return frame;
    }
    let mut line = BytesMut::with_capacity(frame.len() + 1);
    line.extend_from_slice(&frame);
    line.extend_from_slice(b"\n");
    line.freeze()
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::{Event, RunInput};
    use futures_util::stream;

    use super::*;

    async fn events(
        format: &str,
        items: Vec<Result<Bytes, UpstreamError>>,
    ) -> (Vec<Event>, Result<(), UpstreamError>) {
        let items = std::sync::Mutex::new(Some(items));
        let agent = stream_fn(format, &[], move |_| {
            Box::pin(stream::iter(items.lock().expect("no panic").take().unwrap_or_default()))
        });
        let (sink, mut receiver) = EventSink::new(64);
        let result = agent.expect("a format").run(Request::new(RunInput::new("t", "r")), sink).await;
        let mut events = Vec::new();
        while let Some(event) = receiver.recv().await {
            events.push(event);
        }
        (events, result)
    }

    fn chunk(text: &str) -> Result<Bytes, UpstreamError> {
        let frame = serde_json::json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": text});
        Ok(frame.to_string().into())
    }

    #[tokio::test]
    async fn a_stream_that_ends_without_an_error_is_whole() {
        let (said, result) = events("ag-ui", vec![chunk("a"), chunk("b")]).await;
        assert_eq!(result, Ok(()));
        assert!(said.len() >= 2, "{said:?}");
        assert_eq!(events("ag-ui", Vec::new()).await, (Vec::new(), Ok(())));
    }

    #[tokio::test]
    async fn an_error_of_the_stream_is_that_of_the_run() {
        let error = UpstreamError::new("NO_CREDIT", "the account is empty");
        let (said, result) = events("ag-ui", vec![chunk("a"), Err(error.clone())]).await;
        assert!(!said.is_empty());
        assert_eq!(result, Err(error));
    }

    #[test]
    fn formats_are_checked() {
        let none = |_: Request| -> LocalStream { Box::pin(stream::empty()) };
        assert!(stream_fn("nonsense", &[], none).is_err());
        assert!(stream_fn("ag-ui-proto", &[], none).is_err());
    }
}
