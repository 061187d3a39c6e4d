//! The requests of one round: the first one, and those that replace a broken connection.

use agentwire_core::{event::RunInput, percent};
use reqwest::{Method, StatusCode};

use crate::{
    error::{ClientError, ErrorKind},
    http::{self, Target},
    protocol::{Protocol, ResponseFormat},
    timer,
    transport::Response,
};

/// The requests of one round.
pub(crate) struct Exchange {
    pub(crate) protocol: Protocol,
    pub(crate) is_binary: bool,
    pub(crate) input: RunInput,
    /// True if the round only follows the thread.
    pub(crate) is_sync: bool,
}

/// An open response.
pub(crate) struct Opened {
    pub(crate) response: Response,
    pub(crate) format: ResponseFormat,
}

impl Exchange {
    /// Starts the run, or joins it if it was started before; `None` if there is nothing to follow.
    pub(crate) async fn start(&self, target: &Target) -> Result<Option<Opened>, ClientError> {
        if self.is_sync {
            return self.sync(target).await;
        }
        let mut headers = vec![("accept", self.protocol.accept(self.is_binary).to_owned())];
        let mut url = target.url.clone();
        if let Protocol::AiSdk(profile) = self.protocol {
            // The body has no run id. A gateway derives it from this header, so that a repeated request joins the run.
            if self.input.run.is_ascii() {
                headers.push(("idempotency-key", self.input.run.to_string()));
            }
            if !url.query_pairs().any(|(name, _)| name == "profile") {
                url.query_pairs_mut().append_pair("profile", &profile.number().to_string());
            }
        }
        let body = self.protocol.body(&self.input);
        let response = target.send(Method::POST, url.as_str(), &headers, Some(body)).await?;
        self.open(response).await
    }

    /// The events of a run, after a cursor or from the first; `None` if the server has none or does not know the route.
    pub(crate) async fn events_of(
        &self,
        target: &Target,
        run: &str,
        cursor: Option<&str>,
    ) -> Result<Option<Opened>, ClientError> {
        let format = match (self.is_binary, self.protocol) {
            (true, Protocol::Hai) => "hai-proto",
            (true, Protocol::AgUi) => "ag-ui-proto",
            _ => self.protocol.format_name(),
        };
        let path = format!("/runs/{}/stream?format={format}", percent::encode(run));
        let mut headers = vec![("accept", self.protocol.accept(self.is_binary).to_owned())];
        if let Some(cursor) = cursor {
            headers.push(("last-event-id", cursor.to_owned()));
        }
        match target.send(Method::GET, &target.below(&path), &headers, None).await {
            Ok(response) => self.open(response).await,
            Err(error) if matches!(error.status(), Some(400 | 404 | 405 | 410 | 501)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The conversation of the thread and its active run.
    pub(crate) async fn sync(&self, target: &Target) -> Result<Option<Opened>, ClientError> {
        let headers = [("accept", self.protocol.accept(self.is_binary).to_owned())];
        let response = if let Protocol::AiSdk(profile) = self.protocol {
            let (thread, profile) = (percent::encode(&self.input.thread), profile.number());
            let url = target.below(&format!("/api/chat/{thread}/stream?profile={profile}"));
            target.send(Method::GET, &url, &headers, None).await?
        } else {
            let empty = RunInput { messages: Vec::new(), state: None, resume: None, ..self.input.clone() };
            let body = self.protocol.body(&empty);
            target.send(Method::POST, target.url.as_str(), &headers, Some(body)).await?
        };
        self.open(response).await
    }

    async fn open(&self, response: Response) -> Result<Option<Opened>, ClientError> {
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let Some(format) = self.protocol.response_format(http::content_type(&response)) else {
            return Err(content_type_error(response).await);
        };
        Ok(Some(Opened { response, format }))
    }
}

async fn content_type_error(mut response: Response) -> ClientError {
    let found = http::content_type(&response).unwrap_or("none").into();
    let request_id = http::request_id(&response);
    let wait = std::time::Duration::from_secs(5);
    let start = timer::timeout(wait, response.chunk()).await.ok().and_then(Result::ok).flatten();
    let excerpt = http::excerpt(start.as_deref().unwrap_or_default()).into();
    ClientError::new(ErrorKind::ContentType { found, excerpt }).with_request_id(request_id)
}
