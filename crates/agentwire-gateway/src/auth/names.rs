//! Names of tenants and users that a credential gives.

/// Longest name of a tenant or user, as for every id.
const MAX_NAME: usize = 512;

/// Prefixes of names that the gateway gives itself.
const RESERVED: [&str; 3] = ["key:", "anon:", "svc:"];

/// The user of a gateway without identities.
const DEFAULT_USER: &str = "default-user";

/// The tenant of a credential that names none.
pub(super) const DEFAULT_TENANT: &str = "default";

/// True if a text can name a tenant or user.
pub(crate) fn is_valid(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control)
}

/// True if a name cannot come from a claim or header.
pub(super) fn is_reserved(name: &str) -> bool {
    name == DEFAULT_USER || RESERVED.iter().any(|prefix| name.starts_with(prefix))
}

/// The names of issuers. A name without a prefix must not look like a user of one of them.
#[derive(Debug, Default)]
pub(super) struct Issuers(pub(super) Vec<String>);

impl Issuers {
    /// A user that a claim or header names without a prefix; `None` if it cannot be taken.
    pub(super) fn unprefixed<'n>(&self, user: &'n str) -> Option<&'n str> {
        let is_foreign = user.split_once('|').is_some_and(|(issuer, _)| self.0.iter().any(|it| it == issuer));
        (is_valid(user) && !is_reserved(user) && !is_foreign).then_some(user)
    }

    /// A user of an issuer.
    pub(super) fn prefixed(issuer: &str, user: &str) -> Option<String> {
        let name = format!("{issuer}|{user}");
        (is_valid(user) && !is_reserved(user) && is_valid(&name)).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_and_names_of_issuers_cannot_be_claimed() {
        let issuers = Issuers(vec!["corp".into(), "partner".into()]);
        for name in ["ada", "auth0|123", "corp", "a b", "käthe", "keyring", "default-users"] {
            assert_eq!(issuers.unprefixed(name), Some(name));
            assert_eq!(Issuers::prefixed("corp", name), Some(format!("corp|{name}")));
        }
        let long = "x".repeat(513);
        for name in ["", "key:1", "anon:x", "svc:", "default-user", "a\nb", "a\0", &long] {
            assert_eq!(issuers.unprefixed(name), None, "{name:?}");
            assert_eq!(Issuers::prefixed("corp", name), None, "{name:?}");
        }
        assert_eq!(issuers.unprefixed("partner|ada"), None);
        assert_eq!(Issuers::prefixed("corp", &"x".repeat(508)), None, "the whole name is too long");
    }
}
