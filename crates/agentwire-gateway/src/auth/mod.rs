//! Authentication and authorisation: the principal of a request and the scopes that it holds.
//!
//! [`settings`] has the configuration, [`Principal`] the result, `scope` the grammar of permissions. `Authenticator`
//! turns the head of a request into a principal; it never reads a body.

mod api_keys;
mod ask;
mod authenticator;
mod caller;
mod jwks;
mod jws;
mod jwt;
mod mtls;
mod names;
mod principal;
mod proxy;
mod refusal;
mod scope;
pub(crate) mod secret;
pub mod settings;
mod strict_json;
mod ticket;
pub(crate) mod upstream_identity;

use self::refusal::Refusal;
pub use self::{
    api_keys::{KeyPermissions, NewApiKey, make_api_key},
    caller::{Caller, Identified, Identify, IdentityRequest},
    principal::{AuthMethod, Principal},
    scope::{Action, Scope, ScopeError, Scopes},
    secret::{Secret, SecretError},
    upstream_identity::{IDENTITY_HEADER, IdentityKeyError, UpstreamIdentity},
};
pub(crate) use self::{
    authenticator::{Authenticator, RequestHead},
    mtls::ClientCertificate,
    refusal::{credential_ended, missing_scope},
    scope::RequiredScope,
    ticket::LIFETIME as TICKET_LIFETIME,
    upstream_identity::IdentityClaims,
};
