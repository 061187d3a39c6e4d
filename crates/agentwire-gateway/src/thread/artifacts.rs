//! Artifacts: files that an agent has stored in a thread, such as reports and pictures.

use agentwire_core::event::ThreadId;
use agentwire_store::{Owner, StoreError};

use crate::{
    agent::{self, Artifact},
    codes,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
};

/// The longest name: the limit of common file systems.
const MAX_NAME: usize = 1024;

/// Media types that a browser may show, since it does not run them; audio and video beside these.
const INLINE: &[&str] = &[
    "application/json",
    "image/avif",
    "image/bmp",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/csv",
    "text/markdown",
    "text/plain",
];

/// Whether a browser may show content of a (lower-case) media type.
pub(crate) fn is_inline(media_type: &str) -> bool {
    media_type.starts_with("audio/") || media_type.starts_with("video/") || INLINE.contains(&media_type)
}

/// The names of a thread's artifacts. `known` is the check that the owner has the thread.
pub(crate) async fn names(
    agent: &AgentEntry,
    about: agent::Request,
    known: impl Future<Output = Result<(), ApiError>>,
) -> Result<Vec<String>, ApiError> {
    let names = agent.agent.artifacts(about).ok_or_else(no_artifacts)?;
    known.await?;
    Ok(names.await?)
}

/// The newest version of an artifact, or the given one.
pub(crate) async fn find(
    agent: &AgentEntry,
    about: agent::Request,
    name: &str,
    version: Option<u64>,
    known: impl Future<Output = Result<(), ApiError>>,
) -> Result<Artifact, ApiError> {
    let artifact = agent.agent.artifact(about, name, version).ok_or_else(no_artifacts)?;
    known.await?;
    let artifact = match name.len() {
        0..=MAX_NAME => artifact.await?,
        _ => None,
    };
    artifact.ok_or_else(|| ApiError::new(codes::UNKNOWN_ARTIFACT, "no such artifact"))
}

fn no_artifacts() -> ApiError {
    ApiError::new(codes::NO_ARTIFACTS, "this agent stores no artifacts")
}

impl Gateway {
    /// Checks that the owner has a thread, here or on the agent's side. The agent's server may not know the owners, so this
    /// comes before any request for an artifact.
    pub(crate) async fn check_thread(
        &self,
        agent: &AgentEntry,
        owner: &Owner,
        about: agent::Request,
    ) -> Result<(), ApiError> {
        let thread: &ThreadId = &about.input.thread;
        match self.store().state(owner, thread).await {
            Ok(_) => Ok(()),
            Err(StoreError::NotFound(_)) => {
                let unknown = || ApiError::new(codes::UNKNOWN_THREAD, "no such thread");
                match agent.agent.recall(about.clone()) {
                    Some(recalled) => recalled.await?.map(|_| ()).ok_or_else(unknown),
                    None => Err(unknown()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }
}
