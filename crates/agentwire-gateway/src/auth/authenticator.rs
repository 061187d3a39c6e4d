//! The authenticator: finds the credential in the head of a request and makes a principal of it.

use std::{net::IpAddr, sync::Arc};

use agentwire_store::Time;
use axum::http::HeaderMap;

use super::{principal::Principal, settings::Auth};
use crate::{codes, error::ApiError};

/// The parts of a request that authentication looks at.
pub(crate) struct RequestHead<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// The address of the connection.
    pub(crate) connection: Option<IpAddr>,
    pub(crate) now: Time,
}

/// Authenticates requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    settings: Auth,
}

impl Authenticator {
    pub(crate) fn new(settings: Auth) -> Self {
        Self { settings }
    }

    /// The principal of a request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, `TOKEN_EXPIRED`, `AUTH_UNAVAILABLE`.
    pub(crate) async fn authenticate(&self, _head: RequestHead<'_>) -> Result<Arc<Principal>, ApiError> {
        if !self.settings.is_required() {
            return Ok(Principal::anonymous());
        }
        Err(no_credential())
    }
}

/// The error of a request without a credential.
fn no_credential() -> ApiError {
    ApiError::new(codes::UNAUTHENTICATED, UNAUTHENTICATED).challenge("Bearer")
}

/// The message for every cause.
const UNAUTHENTICATED: &str = "the request has no valid credential";
