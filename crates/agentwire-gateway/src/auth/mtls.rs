//! Services that authenticate by a client certificate.

use std::sync::Arc;

use agentwire_store::Time;

use super::{
    names::{self, DEFAULT_TENANT},
    principal::{AuthMethod, Principal},
    scope::RoleTable,
    settings::MtlsEntry,
};
use crate::agent::pattern;

/// A client certificate that was verified when its connection began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// SAN URIs and DNS names.
    pub(crate) names: Vec<String>,
    /// The first moment at which it is not valid any more. Its connection may last longer.
    pub(crate) expires: Time,
}

/// The principal of the first entry that a name of the certificate matches; its user is `svc:NAME`.
pub(super) fn principal(
    certificate: &ClientCertificate,
    entries: &[MtlsEntry],
    roles: &RoleTable,
) -> Option<Arc<Principal>> {
    entries.iter().find_map(|entry| {
        let name = certificate.names.iter().find(|name| pattern::matches(&entry.san, name))?;
        let user = format!("svc:{name}");
        if !names::is_valid(&user) {
            return None;
        }
        let tenant = entry.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        let given = entry.roles.iter().map(|role| role.as_str().into()).collect();
        let mut principal = Principal::new(AuthMethod::Mtls, tenant, &user, format!("mtls:{name}"));
        principal.expires = Some(certificate.expires);
        Some(Arc::new(principal.with_permissions(given, entry.scopes.iter().cloned(), roles)))
    })
}
