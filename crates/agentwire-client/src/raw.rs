//! The bytes of one response, for programs that inspect a server.

use std::time::Duration;

use agentwire_core::event::RunInput;
use reqwest::Method;

use crate::{
    agent::HttpAgent,
    error::{ClientError, ErrorKind, TimeoutPhase},
    http, timer,
    transport::Response,
};

/// A response whose bytes are not decoded.
#[derive(Debug)]
pub struct RawResponse {
    response: Response,
    idle: Duration,
}

impl HttpAgent {
    /// Starts a run and returns the response as it comes. The conversation stays as it is, and a broken connection is
    /// not replaced.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the request.
    pub async fn raw(&self, input: &RunInput) -> Result<RawResponse, ClientError> {
        let target = self.target();
        let headers = [("accept", self.protocol().accept(self.is_binary()).to_owned())];
        let body = Some(self.protocol().body(input));
        let response = target.send(Method::POST, target.url.as_str(), &headers, body).await?;
        Ok(RawResponse { response, idle: target.timeouts.idle })
    }
}

impl RawResponse {
    /// The content type.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        http::content_type(&self.response)
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks, or nothing arrives for too long.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match timer::timeout(self.idle, self.response.chunk()).await {
            Err(_) => Err(ClientError::new(ErrorKind::Timeout(TimeoutPhase::Idle))),
            Ok(Err(error)) => Err(http::body_error(error)),
            Ok(Ok(bytes)) => Ok(bytes.map(|bytes| bytes.to_vec())),
        }
    }
}
