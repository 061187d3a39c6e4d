//! The export of spans: batches, sent by one task.

use std::time::Duration;

use agentwire_client::transport;
use prometheus_client::metrics::counter::Counter;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};

use super::{Span, otlp};
use crate::{auth::secret::SecretError, settings::Traces};

/// Spans that wait for the export; further ones are dropped.
pub(super) const QUEUE: usize = 4096;

/// Spans of one request.
const BATCH: usize = 512;

/// The longest time that a span waits for others.
const DELAY: Duration = Duration::from_secs(1);

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests for one batch, with a growing time between them.
const ATTEMPTS: u32 = 4;
const BACKOFF: Duration = Duration::from_millis(500);

/// The longest time that a collector can ask for by `Retry-After`.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Bytes of a response that are read.
const MAX_RESPONSE: usize = 64 << 10;

/// An entry of the queue.
pub(super) enum Item {
    Span(Box<Span>),
    /// Export what is there and report.
    Flush(oneshot::Sender<()>),
}

/// The counts of spans for the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) exported: Counter,
    pub(crate) dropped: Counter,
}

/// The reason why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("`traces.endpoint` is no URL: {0}")]
    Endpoint(String),
    #[error("`traces.headers.{0}`: {1}")]
    Secret(String, SecretError),
    #[error("`traces.headers.{0}` is no header")]
    Header(String),
    #[error("the HTTP client could not be made: {0}")]
    Client(#[from] reqwest::Error),
}

pub(super) struct Exporter {
    client: Client,
    url: Url,
    headers: HeaderMap,
    service: String,
    instance: String,
    items: mpsc::Receiver<Item>,
    counters: Counters,
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(
        settings: &Traces,
        items: mpsc::Receiver<Item>,
        counters: Counters,
    ) -> Result<Self, ExportError> {
        let url = endpoint(&settings.endpoint)?;
        let mut headers = HeaderMap::new();
        for (name, secret) in &settings.headers {
            let value = secret.read().map_err(|error| ExportError::Secret(name.clone(), error))?;
            let wrong = || ExportError::Header(name.clone());
            let mut value = HeaderValue::from_bytes(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let client = transport::client_builder(&url).timeout(TIMEOUT).build()?;
        let service = settings.service.clone();
        let instance = format!("{:x}-{:x}", std::process::id(), super::now());
        Ok(Self { client, url, headers, service, instance, items, counters, is_failing: false })
    }

    /// Exports until the tracer is gone.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        while let Some(first) = self.items.recv().await {
            let deadline = Instant::now() + DELAY;
            let mut waiting = None;
            let mut next = Some(first);
            while let Some(item) = next.take() {
                match item {
                    Item::Span(span) => batch.push(*span),
                    Item::Flush(done) => waiting = Some(done),
                }
                if waiting.is_none() && batch.len() < BATCH {
                    next = timeout_at(deadline, self.items.recv()).await.ok().flatten();
                }
            }
            if !batch.is_empty() {
                self.send(&batch).await;
                batch.clear();
            }
            if let Some(done) = waiting {
                let _ = done.send(());
            }
        }
    }

    async fn send(&mut self, spans: &[Span]) {
        let body = bytes::Bytes::from(otlp::encode(&self.service, &self.instance, spans));
        let mut backoff = BACKOFF;
        for attempt in 1..=ATTEMPTS {
            let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body.clone());
            let mut asked = None;
            let problem = match request.send().await {
                Ok(response) if response.status().is_success() => {
                    let rejected = otlp::rejected(&start_of(response).await).min(spans.len() as u64);
                    self.counters.exported.inc_by(spans.len() as u64 - rejected);
                    self.counters.dropped.inc_by(rejected);
                    if rejected > 0 {
                        tracing::warn!(rejected, "the collector refused some spans");
                    }
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("traces are exported again");
                    }
                    return;
                }
                Ok(response) => {
                    asked = retry_after(response.headers());
                    Problem::Status(response.status())
                }
                Err(error) => Problem::Connection(error.without_url()),
            };
            if attempt < ATTEMPTS && problem.is_passing() {
                sleep(asked.unwrap_or(backoff).min(MAX_BACKOFF)).await;
                backoff *= 2;
                continue;
            }
            // One line per outage, not per batch.
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::warn!(%problem, "traces could not be exported; their spans are dropped");
            }
            break;
        }
        self.counters.dropped.inc_by(spans.len() as u64);
    }
}

/// The reason why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the collector responded {0}")]
    Status(StatusCode),
    #[error("the collector does not respond: {0}")]
    Connection(reqwest::Error),
}

impl Problem {
    /// True if the same request may succeed later, by the rules of OTLP.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status.as_u16(), 429 | 502..=504),
            Self::Connection(_) => true,
        }
    }
}

/// The first bytes of a body, as far as they arrive.
async fn start_of(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_RESPONSE
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

/// The seconds of `Retry-After`; a date is not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The address of the collector with the path of traces, unless it has that already.
fn endpoint(text: &str) -> Result<Url, ExportError> {
    let mut url = Url::parse(text).map_err(|error| ExportError::Endpoint(error.to_string()))?;
    if !url.path().ends_with("/v1/traces") {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_once() {
        let of = |text| endpoint(text).unwrap().to_string();
        assert_eq!(of("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(of("https://a.example/otlp/"), "https://a.example/otlp/v1/traces");
        assert_eq!(of("https://a.example/v1/traces"), "https://a.example/v1/traces");
        assert!(endpoint("a.example").is_err());
    }
}
