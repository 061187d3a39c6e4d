//! Services that authenticate by a client certificate.

use std::sync::Arc;

use super::{
    names::{self, DEFAULT_TENANT},
    principal::{AuthMethod, Principal},
    scope::RoleTable,
    settings::MtlsEntry,
};
use crate::agent::pattern;

/// The names in a client certificate that was verified: SAN URIs and DNS names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames(pub(crate) Vec<String>);

/// The principal of the first entry that a name of the certificate matches; its user is `svc:NAME`.
pub(super) fn principal(
    names: &CertificateNames,
    entries: &[MtlsEntry],
    roles: &RoleTable,
) -> Option<Arc<Principal>> {
    entries.iter().find_map(|entry| {
        let name = names.0.iter().find(|name| pattern::matches(&entry.san, name))?;
        let user = format!("svc:{name}");
        if !names::is_valid(&user) {
            return None;
        }
        let tenant = entry.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        let given = entry.roles.iter().map(|role| role.as_str().into()).collect();
        let principal = Principal::new(AuthMethod::Mtls, tenant, &user, format!("mtls:{name}"));
        Some(Arc::new(principal.with_permissions(given, entry.scopes.iter().cloned(), roles)))
    })
}
