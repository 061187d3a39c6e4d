//! The reason why a request has no principal, and its response.

use crate::{codes, error::ApiError};

/// The reason why a request has no principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no credential.
    Missing,
    /// The credential is not valid, or there are several.
    Invalid,
    /// The signature of a token is not that of the key that it names. To its sender the same as `Invalid`.
    Forged,
    /// The credential was valid and has ended.
    Expired,
    /// The external handler refuses a credential that it knows.
    Forbidden,
    /// The credential cannot be checked now.
    Unavailable,
}

/// The message for every cause: nobody learns which check failed.
const UNAUTHENTICATED: &str = "the request has no valid credential";

/// The challenge of a credential that was not accepted.
const INVALID: &str = r#"Bearer error="invalid_token""#;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // RFC 6750: without a credential there is nothing to call invalid.
            Refusal::Missing => Self::new(codes::UNAUTHENTICATED, UNAUTHENTICATED).challenge("Bearer"),
            Refusal::Invalid | Refusal::Forged => {
                Self::new(codes::UNAUTHENTICATED, UNAUTHENTICATED).challenge(INVALID)
            }
            Refusal::Expired => {
                Self::new(codes::TOKEN_EXPIRED, "the credential has expired").challenge(INVALID)
            }
            Refusal::Forbidden => {
                Self::new(codes::FORBIDDEN, "the authentication handler refuses the request")
            }
            Refusal::Unavailable => {
                Self::new(codes::AUTH_UNAVAILABLE, "credentials cannot be checked now").retry_after(5)
            }
        }
    }
}

/// The error of a request that waited until its credential ended.
pub(crate) fn credential_ended(is_revoked: bool) -> ApiError {
    if is_revoked { Refusal::Invalid.into() } else { Refusal::Expired.into() }
}

/// The error of a principal without a scope.
pub(crate) fn missing_scope(scope: &str) -> ApiError {
    ApiError::new(codes::FORBIDDEN, format!("the scope `{scope}` is missing"))
        .challenge(format!(r#"Bearer error="insufficient_scope", scope="{scope}""#))
}
