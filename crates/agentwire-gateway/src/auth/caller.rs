//! The sender of a request as the app around the gateway knows it.

use std::{future::Future, pin::Pin};

use axum::http::request::Parts;
use bytes::Bytes;

use crate::error::ApiError;

/// Tenant and user of a request. As an extension of a request, set by a middleware of the app that mounts the routes, it
/// goes before the identity settings; a credential of the gateway's own goes before it.
///
/// ```
/// use agentwire_gateway::auth::Caller;
/// let caller = Caller::new("default", "ann");
/// assert_eq!(&*caller.user, "ann");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The organisation or application.
    pub tenant: Box<str>,
    /// The user within it.
    pub user: Box<str>,
    /// The thread, if it is not the one that the request names.
    pub thread: Option<Box<str>>,
}

impl Caller {
    /// A caller.
    #[must_use]
    pub fn new(tenant: &str, user: &str) -> Self {
        Self { tenant: tenant.into(), user: user.into(), thread: None }
    }

    /// The same caller in a thread.
    #[must_use]
    pub fn in_thread(mut self, thread: &str) -> Self {
        self.thread = Some(thread.into());
        self
    }
}

/// A request whose sender is asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IdentityRequest<'r> {
    /// Method, path, headers and extensions.
    pub parts: &'r Parts,
    /// The parameters of its path, decoded.
    pub params: &'r [(String, String)],
    /// The body; empty for routes that read none.
    pub body: &'r Bytes,
    /// The agent; empty for routes of the server.
    pub agent: &'r str,
    /// The group of its route: `main`, `runs`, `history`, `state` or `server`.
    pub part: &'static str,
}

/// The future of [`Identify`].
pub type Identified<'i> = Pin<Box<dyn Future<Output = Result<Caller, ApiError>> + Send + 'i>>;

/// Finds the sender of each request, in place of the identity settings. Asked once per request, before anything is done.
pub trait Identify: Send + Sync + 'static {
    /// The sender.
    ///
    /// # Errors
    /// The response to a request that is refused.
    fn identify<'i>(&'i self, request: IdentityRequest<'i>) -> Identified<'i>;
}
