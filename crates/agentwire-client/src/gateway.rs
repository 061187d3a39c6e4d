//! The routes of a gateway beside the runs: control, pending items, feedback, history, state, threads.

use agentwire_core::{Tally, event::Message, format::ag_ui, percent};
use reqwest::Method;
use serde_json::{Map, Value};

use crate::{
    agent::HttpAgent,
    error::{ClientError, ErrorKind},
};

/// Feedback on a run, a message or a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// The message.
    pub message_id: Option<String>,
    /// The tool call.
    pub tool_call_id: Option<String>,
    /// `"up"`, `"down"` or a number.
    pub rating: Option<Value>,
    /// A score.
    pub score: Option<f64>,
    /// Tags.
    pub tags: Vec<String>,
    /// A comment.
    pub comment: Option<String>,
}

impl HttpAgent {
    /// The status of the last run: `status`, `step`, `pending`, and more.
    ///
    /// # Errors
    /// When there is no run, or the server refuses the request.
    pub async fn status(&self) -> Result<Value, ClientError> {
        self.run_route(Method::GET, "").await
    }

    /// Pauses the last run.
    ///
    /// # Errors
    /// When there is no run, or the server refuses the request.
    pub async fn pause(&self) -> Result<Value, ClientError> {
        self.run_route(Method::POST, "/pause").await
    }

    /// Resumes the last run.
    ///
    /// # Errors
    /// When there is no run, or the server refuses the request.
    pub async fn resume(&self) -> Result<Value, ClientError> {
        self.run_route(Method::POST, "/resume").await
    }

    /// Stops the last run.
    ///
    /// # Errors
    /// When there is no run, or the server refuses the request.
    pub async fn stop(&self) -> Result<Value, ClientError> {
        self.run_route(Method::POST, "/stop").await
    }

    async fn run_route(&self, method: Method, action: &str) -> Result<Value, ClientError> {
        let Some(run) = self.last_run() else {
            return Err(ClientError::usage("the agent has no run yet"));
        };
        self.target().json(method, &format!("/runs/{}{action}", percent::encode(&run)), None).await
    }

    /// The open questions and calls of the thread.
    ///
    /// # Errors
    /// When the server refuses the request.
    pub async fn pending(&self) -> Result<Value, ClientError> {
        self.thread_route(Method::GET, "/threads/", "/pending", None).await
    }

    /// Sends feedback on the last run, or on a message or call of it.
    ///
    /// # Errors
    /// When the server refuses the request.
    pub async fn feedback(&self, feedback: Feedback) -> Result<Value, ClientError> {
        let mut body = Map::new();
        body.insert("threadId".into(), self.thread().as_str().into());
        if let Some(run) = self.last_run() {
            body.insert("runId".into(), run.as_str().into());
        }
        let texts = [
            ("messageId", feedback.message_id),
            ("toolCallId", feedback.tool_call_id),
            ("comment", feedback.comment),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                body.insert(name.into(), text.into());
            }
        }
        if let Some(rating) = feedback.rating {
            body.insert("rating".into(), rating);
        }
        if let Some(score) = feedback.score {
            body.insert("score".into(), score.into());
        }
        if !feedback.tags.is_empty() {
            body.insert("tags".into(), feedback.tags.into());
        }
        self.target().json(Method::POST, "/feedback", Some(&body.into())).await
    }

    /// The conversation as the server has it.
    ///
    /// # Errors
    /// When the server refuses the request, or the response is malformed.
    pub async fn history(&self) -> Result<Vec<Message>, ClientError> {
        let snapshot = self.thread_route(Method::GET, "/message_snapshot/", "?format=ag-ui", None).await?;
        let list = snapshot.get("messages").unwrap_or(&snapshot).to_string();
        ag_ui::messages_from_json(&list, &mut Tally::default()).map_err(|error| {
            let kind = ErrorKind::ContentType {
                found: "application/json".into(),
                excerpt: error.to_string().into(),
            };
            ClientError::new(kind)
        })
    }

    /// The shared state as the server has it.
    ///
    /// # Errors
    /// When the server refuses the request.
    pub async fn server_state(&self) -> Result<Value, ClientError> {
        let mut event = self.thread_route(Method::GET, "/state_snapshot/", "", None).await?;
        Ok(event.get_mut("snapshot").map_or_else(|| Value::Null, Value::take))
    }

    /// Applies a JSON Patch to the shared state: completely or not at all.
    ///
    /// # Errors
    /// When the server refuses the request; the patch may not apply.
    pub async fn patch_state(&self, patch: &Value) -> Result<Value, ClientError> {
        self.thread_route(Method::PATCH, "/state/", "", Some(patch)).await
    }

    /// The threads of the user, newest first.
    ///
    /// # Errors
    /// When the server refuses the request.
    pub async fn threads(&self) -> Result<Value, ClientError> {
        self.target().json(Method::GET, "/thread/list", None).await
    }

    /// Deletes the thread with all its data.
    ///
    /// # Errors
    /// When the server refuses the request.
    pub async fn delete(&self) -> Result<Value, ClientError> {
        self.thread_route(Method::DELETE, "/thread/", "", None).await
    }

    async fn thread_route(
        &self,
        method: Method,
        before: &str,
        after: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let path = format!("{before}{}{after}", percent::encode(&self.thread()));
        self.target().json(method, &path, body).await
    }
}
