//! The principal: who sends a request, by which credential, and with which permissions.

use std::sync::{Arc, LazyLock};

use agentwire_store::Time;
use tokio_util::sync::CancellationToken;

use super::scope::{RoleTable, Scope, Scopes};

/// The sender of a request. An extension of every request that has passed authentication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Principal {
    /// The organisation or application.
    pub tenant: Box<str>,
    /// The user within it.
    pub user: Box<str>,
    /// The roles, by name; their scopes are in `scopes` already.
    pub roles: Vec<Box<str>>,
    /// The permissions.
    pub scopes: Scopes,
    /// Names the credential in the audit log: the id of a key, or a hash. Never a secret.
    pub credential: Box<str>,
    /// The kind of the credential.
    pub method: AuthMethod,
    /// When the credential ends, leeway included; its streams are cut then.
    pub expires: Option<Time>,
    /// Cancelled when the credential is revoked; its streams are cut then.
    pub(crate) revoked: CancellationToken,
    /// The principal of the key that made a ticket: in use as long as the ticket's streams are.
    pub(super) key: Option<Arc<Self>>,
}

/// The kind of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthMethod {
    /// None: the identity settings name tenant and user.
    Anonymous,
    /// A signed token in `Authorization`.
    Jwt,
    /// A signed token in a cookie. Requests of other origins can carry it too.
    Cookie,
    /// An API key.
    Key,
    /// Headers of a trusted proxy.
    Proxy,
    /// The reply of an external handler.
    Ask,
    /// A client certificate.
    Mtls,
    /// A ticket for one stream.
    Ticket,
}

impl AuthMethod {
    /// Its name in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Jwt => "jwt",
            Self::Cookie => "cookie",
            Self::Key => "key",
            Self::Proxy => "proxy",
            Self::Ask => "ask",
            Self::Mtls => "mtls",
            Self::Ticket => "ticket",
        }
    }
}

impl Principal {
    /// A principal without permissions that never expires.
    #[must_use]
    pub fn new(method: AuthMethod, tenant: &str, user: &str, credential: impl Into<Box<str>>) -> Self {
        Self {
            tenant: tenant.into(),
            user: user.into(),
            roles: Vec::new(),
            scopes: Scopes::default(),
            credential: credential.into(),
            method,
            expires: None,
            revoked: CancellationToken::new(),
            key: None,
        }
    }

    /// The same principal with roles, and with the scopes of these roles and others.
    pub(super) fn with_permissions(
        mut self,
        roles: Vec<Box<str>>,
        scopes: impl IntoIterator<Item = Scope>,
        table: &RoleTable,
    ) -> Self {
        self.scopes = roles.iter().flat_map(|role| table.scopes(role)).cloned().chain(scopes).collect();
        self.roles = roles;
        self
    }

    /// Anybody, with every permission; the identity settings name tenant and user.
    pub(crate) fn anonymous() -> Arc<Self> {
        static ANYBODY: LazyLock<Arc<Principal>> = LazyLock::new(|| {
            let nobody = Principal::new(AuthMethod::Anonymous, "", "", "");
            Arc::new(Principal { scopes: Scopes::all(), ..nobody })
        });
        ANYBODY.clone()
    }

    /// True if the identity settings name tenant and user.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.method == AuthMethod::Anonymous
    }
}
