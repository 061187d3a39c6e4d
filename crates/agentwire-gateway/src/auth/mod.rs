//! Authentication and authorisation: the principal of a request and the scopes that it holds.
//!
//! [`settings`] has the configuration, [`Principal`] the result, `scope` the grammar of permissions. `Authenticator`
//! turns the head of a request into a principal; it never reads a body.

// The kinds of credentials follow.
#![allow(dead_code)]

mod authenticator;
mod principal;
mod scope;
mod secret;
pub mod settings;

pub(crate) use self::authenticator::{Authenticator, RequestHead};
pub(crate) use self::scope::RequiredScope;
pub use self::{
    principal::{AuthMethod, Principal},
    scope::{Action, Scope, ScopeError, Scopes},
    secret::{Secret, SecretError},
};
