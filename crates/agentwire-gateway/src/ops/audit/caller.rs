//! The sender of a request, as far as the checks know it, for the audit log.

use std::{
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::http::Method;

use crate::auth::{AuthMethod, Principal};

/// The sender of a request. An extension of every request of a gateway with an audit log; each check adds what it finds.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(super) peer: Option<IpAddr>,
    /// The id of the request.
    pub(super) request: String,
    pub(super) method: Method,
    /// The template of the route and its agent, which may be empty.
    pub(super) route: OnceLock<(String, Arc<str>)>,
    principal: OnceLock<Arc<Principal>>,
    /// The credential of a request that was not accepted.
    shown: OnceLock<(AuthMethod, String)>,
    /// Tenant and user of a request without a credential.
    names: OnceLock<(String, String)>,
    /// True if the request has reached its handler.
    is_admitted: AtomicBool,
    /// True if a line about it was written.
    pub(super) is_noted: AtomicBool,
    /// True if that line says how it failed.
    is_failure_noted: AtomicBool,
}

impl Caller {
    pub(crate) fn new(peer: Option<IpAddr>, request: String, method: Method) -> Self {
        Self {
            peer,
            request,
            method,
            route: OnceLock::new(),
            principal: OnceLock::new(),
            shown: OnceLock::new(),
            names: OnceLock::new(),
            is_admitted: AtomicBool::new(false),
            is_noted: AtomicBool::new(false),
            is_failure_noted: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_route(&self, template: &str, agent: &Arc<str>) {
        let _ = self.route.set((template.to_owned(), agent.clone()));
    }

    pub(crate) fn set_principal(&self, principal: &Arc<Principal>) {
        let _ = self.principal.set(principal.clone());
    }

    /// The credential that was refused: its kind, and its id or hash.
    pub(crate) fn set_shown(&self, shown: Option<(AuthMethod, String)>) {
        if let Some(shown) = shown {
            let _ = self.shown.set(shown);
        }
    }

    pub(crate) fn set_names(&self, tenant: &str, user: &str) {
        let _ = self.names.set((tenant.to_owned(), user.to_owned()));
    }

    /// The request has passed all checks before its handler.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// The request needs no line: a probe.
    pub(crate) fn leave_out(&self) {
        self.is_noted.store(true, Ordering::Relaxed);
        self.is_failure_noted.store(true, Ordering::Relaxed);
    }

    /// The line about the request says how it failed.
    pub(super) fn note_failure(&self) {
        self.is_failure_noted.store(true, Ordering::Relaxed);
    }

    /// True if a request with that outcome needs no further line.
    pub(super) fn is_complete(&self, is_failed: bool) -> bool {
        let noted = if is_failed { &self.is_failure_noted } else { &self.is_noted };
        noted.load(Ordering::Relaxed)
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// True if a credential was accepted.
    pub(super) fn is_authenticated(&self) -> bool {
        self.principal.get().is_some_and(|principal| !principal.is_anonymous())
    }

    /// Tenant and user; empty if they are not known.
    pub(super) fn names(&self) -> (&str, &str) {
        match (self.names.get(), self.principal.get()) {
            (Some((tenant, user)), _) => (tenant, user),
            (None, Some(principal)) => (&principal.tenant, &principal.user),
            (None, None) => ("", ""),
        }
    }

    /// The kind of the credential, and its id or hash.
    pub(super) fn credential(&self) -> Option<(AuthMethod, &str)> {
        match (self.principal.get(), self.shown.get()) {
            (Some(principal), _) => Some((principal.method, &principal.credential)),
            (None, Some((method, credential))) => Some((*method, credential)),
            (None, None) => None,
        }
    }
}
