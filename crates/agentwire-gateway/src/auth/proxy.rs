//! Users that a trusted proxy has authenticated and names in headers.

use std::net::IpAddr;

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;

use super::{
    Refusal,
    names::{self, DEFAULT_TENANT, Issuers},
    principal::{AuthMethod, Principal},
    scope::RoleTable,
    secret::CurrentSecret,
    settings::{ProxySettings, is_in},
};

pub(super) struct Proxy {
    settings: ProxySettings,
    secret: CurrentSecret,
}

impl ProxySettings {
    /// True if a request carries one of the headers.
    pub(crate) fn is_claimed(&self, headers: &HeaderMap) -> bool {
        let Self { secret_header, user, tenant, roles, .. } = self;
        let names = [Some(secret_header), Some(user), tenant.as_ref(), roles.as_ref()];
        names.into_iter().flatten().any(|name| headers.contains_key(name))
    }
}

impl Proxy {
    pub(super) fn settings(&self) -> &ProxySettings {
        &self.settings
    }

    pub(super) fn new(settings: ProxySettings) -> Self {
        let secret = CurrentSecret::new(settings.secret.clone());
        Self { settings, secret }
    }

    /// The principal that the headers name, if the proxy has sent them.
    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        connection: Option<IpAddr>,
        issuers: &Issuers,
        roles: &RoleTable,
    ) -> Result<Principal, Refusal> {
        let settings = &self.settings;
        let secret = self.secret.get().ok_or(Refusal::Unavailable)?;
        let is_listed = connection.is_some_and(|address| is_in(address, &settings.peers));
        let given = one(headers, &settings.secret_header)?;
        let fits = given.is_some_and(|given| given.ct_eq(&secret).into());
        if !is_listed || !fits {
            return Err(Refusal::Invalid);
        }
        let text = |name: &str| -> Result<Option<&str>, Refusal> {
            one(headers, name)?
                .map(|value| std::str::from_utf8(value).map_err(|_| Refusal::Invalid))
                .transpose()
        };
        let user = text(&settings.user)?.and_then(|user| issuers.unprefixed(user)).ok_or(Refusal::Invalid)?;
        let tenant = match &settings.tenant {
            Some(name) => text(name)?.filter(|tenant| names::is_valid(tenant)).ok_or(Refusal::Invalid)?,
            None => DEFAULT_TENANT,
        };
        let given = settings.roles.as_deref().map(text).transpose()?.flatten().unwrap_or_default();
        let given = given.split(',').map(str::trim).filter(|role| !role.is_empty()).map(Into::into).collect();
        let credential =
            format!("proxy:{}", connection.map_or_else(String::new, |address| address.to_string()));
        Ok(Principal::new(AuthMethod::Proxy, tenant, user, credential).with_permissions(given, [], roles))
    }
}

/// The value of a header that may be there once.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h [u8]>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.as_bytes());
    if values.next().is_some() { Err(Refusal::Invalid) } else { Ok(first) }
}
