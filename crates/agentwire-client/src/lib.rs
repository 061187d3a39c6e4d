//! A client for servers of AG-UI, HAI and the AI SDK: one request in, a stream of canonical events out.
//!
//! ```no_run
//! use agentwire_client::{HttpAgent, Run, Tool};
//! use futures_util::StreamExt;
//! use serde_json::json;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = HttpAgent::builder("http://127.0.0.1:7117/").build()?;
//! let clock = Tool::new("clock", "The time of day");
//! agent.tool(clock, |_arguments| async { Ok(json!("12:00")) });
//!
//! let mut stream = agent.run(Run::user("Hello"));
//! while let Some(event) = stream.next().await {
//!     println!("{}", event?.kind());
//! }
//! let outcome = stream.finish().await?;
//! println!("{} new messages, {} open questions", outcome.new_messages.len(), outcome.pending.len());
//! # Ok(())
//! # }
//! ```
//!
//! * [`HttpAgent`] keeps the conversation and the state between runs; [`RunStream`] is one run, with the rounds that the
//!   results of tools and the answers to questions add to it. Every event has passed the
//!   [`Guard`](agentwire_core::order::Guard), so that the stream is valid whatever the server sends; [`Report`] counts
//!   the repairs.
//! * [`Protocol`] selects the format of request and response, or derives it from the path.
//! * A connection that breaks is replaced, by the cursor of the last event, by the same request once more, or by the
//!   conversation of the thread; [`Recovery`] tells which. Events are neither lost nor repeated.
//! * [`Subscriber`] has one method per kind of event; [`HttpAgent::on_question`] answers interrupts and approvals.
//! * [`HttpAgent::status`] and its siblings are the routes of a gateway beside the runs.
//!
//! [`transport`] has the connections. In a browser (target `wasm32-unknown-unknown`, feature `wasm`) `fetch` has their
//! place.
//!
//! Frames, responses and the conversation have limits; every failure is a [`ClientError`] with a stable code.

#[cfg(all(target_family = "wasm", not(feature = "wasm")))]
compile_error!("in a browser, agentwire-client needs its feature `wasm`");

mod agent;
mod decode;
mod error;
mod exchange;
mod gateway;
mod http;
mod ids;
mod protocol;
mod raw;
mod rounds;
mod run;
mod stream;
mod subscriber;
mod timer;
pub mod transport;

pub use self::{
    agent::{Builder, HttpAgent, Limits, Policy, Subscription, Timeouts},
    error::{ClientError, ErrorKind, TimeoutPhase},
    gateway::Feedback,
    http::excerpt,
    protocol::{Profile, Protocol, ResponseFormat},
    raw::RawResponse,
    rounds::{Answer, BoxError},
    run::{Outcome, Pending, Recovery, Report, Run},
    stream::RunStream,
    subscriber::{RunView, Subscriber},
    transport::is_loopback,
};
pub use agentwire_core::event::{Event, Interrupt, Message};

/// A tool that the client offers to the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its description, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: serde_json::Value,
}

impl Tool {
    /// A tool that takes any object.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        let parameters = serde_json::json!({"type": "object", "properties": {}});
        Self { name: name.into(), description: description.into(), parameters }
    }

    /// The same tool with a JSON Schema of its arguments.
    #[must_use]
    pub fn parameters(mut self, schema: serde_json::Value) -> Self {
        self.parameters = schema;
        self
    }
}

impl From<Tool> for agentwire_core::event::Tool {
    fn from(tool: Tool) -> Self {
        Self {
            name: tool.name.into(),
            description: tool.description.into(),
            parameters: Some((&tool.parameters).into()),
            metadata: None,
        }
    }
}

/// Compiles the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust-client.md")]
struct Page;
