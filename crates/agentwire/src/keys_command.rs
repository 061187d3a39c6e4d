//! `agentwire keys`: makes, lists, revokes and rotates API keys.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{
    auth::{KeyPermissions, NewApiKey, Secret, make_api_key},
    ops::audit::OperatorLog,
    settings::Settings,
};
use agentwire_store::{ApiKey, KeyChange, Options, Store, StoreError, Time};
use serde_json::{Map, Value, json};

use crate::{
    cli::{KeyArgs, KeysCommand},
    config::{self, Config, ConfigFile},
    error::{Class, Error, ExitCode, Result},
    store_command,
};

/// Longest name of a tenant or user.
const MAX_NAME: usize = 512;

/// Roles and scopes of a key in the audit log.
const MAX_LISTED: usize = 100;

/// Runs a `keys` subcommand.
pub(crate) fn run(command: &KeysCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            KeysCommand::Create { tenant, user, scopes, roles, expires, args } => {
                let mut keys = Keys::open(args).await?;
                keys.warn_of_unknown_roles(roles);
                let permissions = KeyPermissions { roles: roles.clone(), scopes: scopes.clone() };
                if roles.is_empty() && scopes.is_empty() {
                    return Err(Error::new(Class::Usage, "a key without a scope and a role may do nothing")
                        .hint("add `--scope agents:*:run` or `--role NAME`"));
                }
                for name in [tenant, user] {
                    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
                        let message =
                            format!("`{}` cannot be the name of a tenant or user", name.escape_debug());
                        return Err(Error::new(Class::Usage, message));
                    }
                }
                let new = keys.make(tenant, user, permissions, *expires)?;
                let about = about(&new.1);
                let key = keys.audited("key create", about, async |keys| keys.add(new).await).await?;
                println!("{key}");
                Ok(())
            }
            KeysCommand::List { json, args } => Keys::open(args).await?.list(*json).await,
            KeysCommand::Revoke { id, args } => {
                let mut keys = Keys::open(args).await?;
                let key = keys.find(id).await?;
                let revoke = async |keys: &Keys| keys.change(&key.id, KeyChange::Revoke).await;
                keys.audited("key revoke", about(&key), revoke).await?;
                eprintln!("revoked; every gateway of the store refuses it within 5 seconds");
                Ok(())
            }
            KeysCommand::Rotate { id, overlap, args } => {
                let key = Keys::open(args).await?.rotate(id, *overlap).await?;
                println!("{key}");
                Ok(())
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

struct Keys {
    address: String,
    store: Arc<dyn Store>,
    pepper: Secret,
    settings: Settings,
    /// The audit log, if there is one.
    audit: Option<OperatorLog>,
}

impl Keys {
    async fn open(args: &KeyArgs) -> Result<Self> {
        let implied = std::path::Path::new(config::FILE);
        let file = args.config.as_deref().or_else(|| implied.exists().then_some(implied));
        let config = file.map(ConfigFile::load).transpose()?.map_or_else(Config::default, |file| file.config);
        let Some(keys) = &config.settings.auth.keys else {
            return Err(Error::new(Class::Usage, "the configuration has no `[auth.keys]`")
                .hint("add `[auth.keys]` with `pepper = { file = \"…\" }` to agentwire.toml, and name it by `--config`"));
        };
        let address = args.store.clone().unwrap_or(config.store);
        if address.starts_with("memory:") {
            let error = Error::new(
                Class::Usage,
                "the store `memory:` lives and dies with its gateway: it keeps no keys",
            );
            return Err(error.hint("use `store = \"sqlite:PATH\"`"));
        }
        let store = store_command::open(&address, Options::default()).await?;
        let (pepper, settings) = (keys.pepper.clone(), config.settings);
        Ok(Self { address, store, pepper, settings, audit: None })
    }

    /// Makes a change with a line in the audit log before and after it. If the log closes the gateway when it cannot be
    /// written, there is no change without the first line.
    async fn audited<T>(
        &mut self,
        action: &str,
        about: Map<String, Value>,
        change: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        if let Some(settings) = &self.settings.audit {
            let begun = OperatorLog::open(settings, self.store.identity().is_some()).and_then(|mut log| {
                log.add(action, &about, "begun")?;
                Ok(log)
            });
            match begun {
                Ok(log) => self.audit = Some(log),
                Err(error) => self.tell_unaudited(&error)?,
            }
        }
        let done = change(self).await;
        if let Some(log) = &mut self.audit {
            let outcome = if done.is_ok() { "ok" } else { "failed" };
            if let Err(error) = log.add(action, &about, outcome) {
                eprintln!("warning: the audit log has no line about the outcome: {error}");
            }
        }
        done
    }

    fn tell_unaudited(&self, error: &std::io::Error) -> Result<()> {
        let message = format!("the audit log cannot be written: {error}");
        if self.settings.is_audit_closed_on_failure() {
            return Err(Error::new(Class::Io, message).hint("nothing was changed; see `audit.failure`"));
        }
        eprintln!("warning: {message}");
        Ok(())
    }

    fn failed(&self, error: &StoreError) -> Error {
        match error {
            StoreError::NotFound(_) => Error::new(Class::Usage, "there is no key of this id")
                .hint("`agentwire keys list` shows them; an id is the part between `aw_` and the next `_`"),
            error => store_command::failed(&self.address, error),
        }
    }

    /// An approver's role needs no scopes, so an unknown one is no error.
    fn warn_of_unknown_roles(&self, roles: &[String]) {
        for role in roles.iter().filter(|role| !self.settings.auth.roles.contains_key(*role)) {
            eprintln!("note: `auth.roles` has no role `{role}`: it gives no scopes");
        }
    }

    /// The text of a new key, and its record.
    fn make(
        &self,
        tenant: &str,
        user: &str,
        permissions: KeyPermissions,
        lifetime: Option<Duration>,
    ) -> Result<(String, ApiKey)> {
        let now = self.store.now();
        let expires = lifetime.map(|lifetime| now.after(lifetime));
        let new = NewApiKey { tenant, user, permissions, expires };
        make_api_key(new, &self.pepper, now)
            .map_err(|error| Error::new(Class::Usage, format!("auth.keys.pepper: {error}")))
    }

    async fn add(&self, (text, key): (String, ApiKey)) -> Result<String> {
        self.store.add_key(key).await.map_err(|error| self.failed(&error))?;
        Ok(text)
    }

    async fn all(&self) -> Result<Vec<ApiKey>> {
        Ok(self.store.key_changes(0).await.map_err(|error| self.failed(&error))?.keys)
    }

    async fn change(&self, id: &str, change: KeyChange) -> Result<ApiKey> {
        self.store.change_key(public_id(id), change).await.map_err(|error| self.failed(&error))
    }

    async fn find(&self, id: &str) -> Result<ApiKey> {
        let found = self.all().await?.into_iter().find(|key| *key.id == *public_id(id));
        found.ok_or_else(|| self.failed(&StoreError::NotFound(agentwire_store::Missing::Key)))
    }

    async fn rotate(&mut self, id: &str, overlap: Duration) -> Result<String> {
        let now = self.store.now();
        let old = self.find(id).await?;
        if old.revoked.is_some() || old.expires.is_some_and(|expires| expires <= now) {
            return Err(Error::new(Class::Usage, "the key has ended already")
                .hint("make a new one with `keys create`"));
        }
        let permissions = serde_json::from_str(&old.permissions).unwrap_or_default();
        let lifetime =
            old.expires.map(|expires| Duration::from_millis(expires.0.saturating_sub(old.created.0)));
        let new = self.make(&old.tenant, &old.user, permissions, lifetime)?;
        let mut about = about(&new.1);
        let ends = now.after(overlap);
        about.insert("replaces".into(), (*old.id).into());
        about.insert("replacedEndsAt".into(), show_time(ends).into());
        let rotate = async |keys: &Self| {
            let text = keys.add(new).await?;
            keys.change(&old.id, KeyChange::ExpireAt(ends)).await?;
            Ok(text)
        };
        self.audited("key rotate", about, rotate).await
    }

    async fn list(&self, as_json: bool) -> Result<()> {
        let (now, mut keys) = (self.store.now(), self.all().await?);
        keys.sort_by_key(|key| key.created);
        if as_json {
            for key in &keys {
                println!("{}", to_json(key, now));
            }
            return Ok(());
        }
        println!(
            "{:12}  {:8}  {:16}  {:16}  {:20}  {:20}  PERMISSIONS",
            "ID", "STATUS", "TENANT", "USER", "EXPIRES", "LAST USED"
        );
        for key in &keys {
            let time = |time: Option<Time>, none: &str| time.map_or_else(|| none.to_owned(), show_time);
            let permissions: KeyPermissions = serde_json::from_str(&key.permissions).unwrap_or_default();
            let roles = permissions.roles.iter().map(|role| format!("role:{role}"));
            let permissions: Vec<_> = roles.chain(permissions.scopes.iter().cloned()).collect();
            println!(
                "{:12}  {:8}  {:16}  {:16}  {:20}  {:20}  {}",
                key.id,
                status(key, now),
                key.tenant,
                key.user,
                time(key.expires, "never"),
                time(key.last_used, "never"),
                permissions.join(" ")
            );
        }
        Ok(())
    }
}

/// A key in the audit log, and the account that changes it, as the environment names it.
fn about(key: &ApiKey) -> Map<String, Value> {
    let mut permissions: KeyPermissions = serde_json::from_str(&key.permissions).unwrap_or_default();
    // A line has a limit.
    permissions.roles.truncate(MAX_LISTED);
    permissions.scopes.truncate(MAX_LISTED);
    let account = ["LOGNAME", "USER"].into_iter().find_map(|name| std::env::var(name).ok());
    let about = json!({
        "tenant": &*key.tenant,
        "user": &*key.user,
        "key": &*key.id,
        "roles": permissions.roles,
        "scopes": permissions.scopes,
        "expiresAt": key.expires.map(show_time),
        "account": account,
    });
    about.as_object().cloned().unwrap_or_default()
}

/// The id in a text that may be the whole key.
fn public_id(text: &str) -> &str {
    text.strip_prefix("aw_").and_then(|rest| rest.split('_').next()).unwrap_or(text)
}

fn status(key: &ApiKey, now: Time) -> &'static str {
    match (key.revoked, key.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires <= now => "expired",
        _ => "valid",
    }
}

fn show_time(time: Time) -> String {
    agentwire_gateway::iso_time(time.0)
}

fn to_json(key: &ApiKey, now: Time) -> serde_json::Value {
    let permissions: KeyPermissions = serde_json::from_str(&key.permissions).unwrap_or_default();
    json!({
        "id": &*key.id,
        "status": status(key, now),
        "tenant": &*key.tenant,
        "user": &*key.user,
        "roles": permissions.roles,
        "scopes": permissions.scopes,
        "createdAt": show_time(key.created),
        "expiresAt": key.expires.map(show_time),
        "revokedAt": key.revoked.map(show_time),
        "lastUsedAt": key.last_used.map(show_time),
    })
}
