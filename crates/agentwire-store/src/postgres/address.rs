//! The address of a PostgreSQL store: a connection URI with a few parameters of our own.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, SslMode, TargetSessionAttrs};

use crate::{error::StoreError, open::redact};

/// Connections of one store, unless the address has `pool`.
const POOL: usize = 8;

/// Connections below which appends, renewals and reads would wait for each other.
const MIN_POOL: usize = 4;

/// Time to establish one connection, unless the address has `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The verification of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// Encryption if the server offers it, without verification: the default of every PostgreSQL client.
    Nothing,
    /// The certificates that the system trusts.
    System,
    /// The certificates in this PEM file.
    File(String),
}

/// A parsed address.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    /// The address without its password, for messages.
    pub(super) shown: String,
    pub(super) schema: String,
    /// True if statements are prepared by name. PgBouncer in transaction mode before 1.21 cannot do that.
    pub(super) prepared: bool,
    pub(super) pool: usize,
    pub(super) verify: Verify,
    /// A direct address for LISTEN, if `config` leads to a pooler.
    pub(super) listen: Option<Config>,
    /// True if wake-ups by NOTIFY are used.
    pub(super) notify: bool,
}

impl Address {
    /// Parses `postgres://…` or `postgresql://…`.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let shown = redact(text);
        let invalid = |reason: &str| StoreError::Address(format!("{shown}: {reason}").into());
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Vec::new();
        let mut address = Self {
            config: Config::new(),
            shown: shown.clone(),
            schema: "agentwire".into(),
            prepared: true,
            pool: POOL,
            verify: Verify::Nothing,
            listen: None,
            notify: true,
        };
        let mut listen_url = None;
        let mut ssl_root = None;
        let mut ssl_mode = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8().map_err(|_| invalid("it is not UTF-8"))?;
            match name {
                "schema" if is_identifier(&value) => address.schema = value.into_owned(),
                "schema" => {
                    return Err(invalid("`schema` has lower-case letters, digits and `_`, at most 40"));
                }
                "prepared" => {
                    address.prepared =
                        flag(&value).ok_or_else(|| invalid("`prepared` is `true` or `false`"))?
                }
                "notify" => {
                    address.notify = flag(&value).ok_or_else(|| invalid("`notify` is `true` or `false`"))?
                }
                "pool" => {
                    let number = value.parse().ok().filter(|number| (MIN_POOL..=1000).contains(number));
                    address.pool = number.ok_or_else(|| invalid("`pool` is a number from 4 to 1000"))?;
                }
                "listen_url" => listen_url = Some(value.into_owned()),
                "sslrootcert" => ssl_root = Some(value.into_owned()),
                "sslmode" => ssl_mode = Some(value.into_owned()),
                _ => rest.push(pair),
            }
        }
        let config = |base: &str, query: &str| -> Result<Config, StoreError> {
            let url = if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") };
            // The error may quote the address with its password, so it is not shown.
            let mut config: Config =
                url.parse().map_err(|_| invalid("it is no PostgreSQL connection URI"))?;
            if config.get_password().is_none()
                && let Some(password) = std::env::var_os("PGPASSWORD")
            {
                config.password(password.to_string_lossy().as_bytes());
            }
            if config.get_application_name().is_none() {
                config.application_name("agentwire");
            }
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(CONNECT_TIMEOUT);
            }
            // A dead peer is noticed within ten seconds.
            config
                .target_session_attrs(TargetSessionAttrs::ReadWrite)
                .keepalives(true)
                .keepalives_idle(Duration::from_secs(5))
                .keepalives_interval(Duration::from_secs(2))
                .keepalives_retries(3)
                .tcp_user_timeout(Duration::from_secs(5));
            Ok(config)
        };
        address.config = config(base, &rest.join("&"))?;
        if address.config.get_hosts().is_empty() {
            return Err(invalid("it names no host"));
        }
        if let Some(url) = listen_url {
            address.listen = Some(config(&url, "")?);
        }
        let verified = match ssl_mode.as_deref() {
            None | Some("prefer" | "allow") => false,
            Some("disable") => {
                address.config.ssl_mode(SslMode::Disable);
                false
            }
            Some("require" | "verify-ca" | "verify-full") => {
                address.config.ssl_mode(SslMode::Require);
                true
            }
            Some(_) => return Err(invalid("`sslmode` is `disable`, `prefer`, `require` or `verify-full`")),
        };
        address.verify = match ssl_root {
            Some(file) if file != "system" => {
                if !verified {
                    address.config.ssl_mode(SslMode::Require);
                }
                Verify::File(file)
            }
            Some(_) => Verify::System,
            None if verified => Verify::System,
            None => Verify::Nothing,
        };
        if let Some(listen) = &mut address.listen {
            listen.ssl_mode(address.config.get_ssl_mode());
        }
        // A pooler in transaction mode accepts no session settings.
        if address.prepared {
            let given = address.config.get_options().map_or(String::new(), |given| format!(" {given}"));
            address.config.options(format!(
                "-c statement_timeout=5000 -c lock_timeout=2000 -c idle_in_transaction_session_timeout=5000{given}"
            ));
        }
        Ok(address)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "on" => Some(true),
        "false" | "0" | "off" => Some(false),
        _ => None,
    }
}

fn is_identifier(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_lowercase() || c == '_';
    text.len() <= 40
        && text.starts_with(is_start)
        && text.chars().all(|c| is_start(c) || c.is_ascii_digit())
        && !text.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (address, shown) in [
            ("postgres://a:s3cret@h/db", "postgres://a:***@h/db"),
            ("postgres://a:s3c@ret@h/db", "postgres://a:***@h/db"),
            ("postgres://a:s3/c@h,i:6000/db?pool=9", "postgres://a:***@h,i:6000/db?pool=9"),
            ("postgres://h/db?user=a&password=s3cret", "postgres://h/db?user=a&password=***"),
            ("postgres://h/db?listen_url=postgres%3A%2F%2Fa%3As3cret%40h", "postgres://h/db?listen_url=***"),
            ("postgres://a@h/db", "postgres://a@h/db"),
            ("a:s3cret@h/db", "a:***@h/db"),
            ("postgres:a:s3cret@h/db", "postgres:***@h/db"),
        ] {
            assert_eq!(redact(address), shown);
            if let Ok(parsed) = Address::parse(address) {
                assert_eq!(parsed.shown, shown);
            }
        }
        for wrong in [
            "postgres://a:s3cret@h:notaport/db",
            "postgres://a:s3cret@h/db?pool=0",
            "postgres://a:s3cret@/db?x%=1",
        ] {
            if let Err(error) = Address::parse(wrong) {
                assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
            }
        }
    }

    #[test]
    fn reads_its_own_parameters() {
        let address = Address::parse("postgresql://u@a,b:6000/db?schema=gateway_1&prepared=false&pool=20&sslmode=verify-full&notify=off").unwrap();
        assert_eq!((address.schema.as_str(), address.prepared, address.pool), ("gateway_1", false, 20));
        assert_eq!((address.verify, address.notify), (Verify::System, false));
        assert_eq!(address.config.get_hosts().len(), 2);
        assert_eq!(address.config.get_ports(), [5432, 6000]);
        assert_eq!(address.config.get_options(), None);
        for wrong in ["schema=A", "schema=a%22b", "schema=pg_x", "prepared=maybe", "pool=1", "sslmode=no"] {
            assert!(Address::parse(&format!("postgres://u@a/db?{wrong}")).is_err(), "{wrong}");
        }
    }
}
