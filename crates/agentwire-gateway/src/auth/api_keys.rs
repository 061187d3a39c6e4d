//! API keys: their text, and the table of those that the store has.
//!
//! All keys of the store are in memory, refreshed once a second by their version, so that a request costs no read of the
//! store, an unknown id costs the same as a known one, and a revoked key ends on every gateway of the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use agentwire_store::{ApiKey, Store, StoreError, Text, Time};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    Refusal,
    principal::{AuthMethod, Principal},
    scope::{RoleTable, Scope},
    secret::{CurrentSecret, Secret, SecretError},
};

/// Interval at which the table follows the store.
const REFRESH: Duration = Duration::from_secs(1);

/// Time after the last use of a key for which the table follows the store.
const LINGER: Duration = Duration::from_secs(10);

/// Age of the table at which it must be refreshed before it is used.
const MAX_AGE: Duration = Duration::from_secs(4);

const PREFIX: &str = "aw_";
const ID_LENGTH: usize = 12;
/// 43 characters of 62 are more than 256 bits.
const SECRET_LENGTH: usize = 43;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const MINUTE: u64 = 60_000;

/// The id and the secret in the text of a key; `None` if it has another form.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_base62 = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let has_form =
        id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH && is_base62(id) && is_base62(secret);
    has_form.then_some((id, secret))
}

/// A text of random base62 characters.
fn random_text(length: usize) -> Result<String, SecretError> {
    let random = SystemRandom::new();
    let mut text = String::with_capacity(length);
    let mut bytes = [0; 64];
    while text.len() < length {
        random.fill(&mut bytes).map_err(|_| SecretError::Empty("the random generator".into()))?;
        // Bytes beyond the last multiple of 62 would make some characters more likely.
        let letters =
            bytes.iter().filter(|byte| **byte < 248).map(|byte| char::from(BASE62[usize::from(byte % 62)]));
        text.extend(letters.take(length - text.len()));
    }
    Ok(text)
}

fn hash(pepper: &[u8], secret: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, pepper), secret.as_bytes())
}

/// Roles and scopes of a key, as the store has them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeyPermissions {
    /// Roles, by name.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Scopes, as text.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// The owner and the permissions of a new API key.
#[derive(Clone, Debug)]
pub struct NewApiKey<'k> {
    /// The tenant that it acts for.
    pub tenant: &'k str,
    /// The user that it acts as.
    pub user: &'k str,
    /// Its roles and scopes.
    pub permissions: KeyPermissions,
    /// When it ends.
    pub expires: Option<Time>,
}

/// Makes a key: the text, which is shown once, and the record for [`Store::add_key`].
///
/// # Errors
/// If the pepper cannot be read.
pub fn make_api_key(new: NewApiKey<'_>, pepper: &Secret, now: Time) -> Result<(String, ApiKey), SecretError> {
    let pepper = pepper.read()?;
    let (id, secret) = (random_text(ID_LENGTH)?, random_text(SECRET_LENGTH)?);
    let text = format!("{PREFIX}{id}_{secret}");
    let permissions = serde_json::to_string(&new.permissions).unwrap_or_default();
    let key = ApiKey {
        id: id.into(),
        hash: hash(&pepper, &secret).as_ref().to_vec(),
        tenant: new.tenant.into(),
        user: new.user.into(),
        permissions: permissions.into(),
        created: now,
        expires: new.expires,
        revoked: None,
        last_used: None,
    };
    Ok((text, key))
}

/// The keys of the store.
pub(super) struct ApiKeys {
    store: Arc<dyn Store>,
    pepper: Arc<CurrentSecret>,
    roles: RoleTable,
    table: RwLock<Table>,
    /// Held during a refresh; the number of those that are over.
    refreshing: tokio::sync::Mutex<()>,
    refreshes: AtomicU64,
    is_followed: AtomicBool,
    used: Mutex<HashMap<Text, Time>>,
    /// The time of the last request with a key.
    asked: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Table {
    keys: HashMap<Text, Arc<Entry>>,
    version: u64,
    refreshed: Option<Instant>,
}

struct Entry {
    hash: Vec<u8>,
    revoked: bool,
    principal: Arc<Principal>,
    /// The minute of the last use that is recorded.
    used: AtomicU64,
}

impl ApiKeys {
    pub(super) fn new(store: Arc<dyn Store>, pepper: Arc<CurrentSecret>, roles: RoleTable) -> Arc<Self> {
        Arc::new(Self {
            store,
            pepper,
            roles,
            table: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
            refreshes: AtomicU64::new(0),
            is_followed: AtomicBool::new(false),
            used: Mutex::default(),
            asked: Mutex::default(),
        })
    }

    /// The principal of a key.
    pub(super) async fn check(
        self: &Arc<Self>,
        id: &str,
        secret: &str,
        now: Time,
    ) -> Result<Arc<Principal>, Refusal> {
        let pepper = self.pepper.get().ok_or(Refusal::Unavailable)?;
        self.require_fresh().await?;
        let entry = self.entry(id);
        // The same work for an unknown id.
        let none = [0; 32];
        let expected = entry.as_ref().map_or(&none[..], |entry| &entry.hash);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &pepper);
        let fits = hmac::verify(&key, secret.as_bytes(), expected).is_ok();
        let entry = entry.filter(|entry| fits && !entry.revoked).ok_or(Refusal::Invalid)?;
        if entry.principal.expires.is_some_and(|expires| expires <= now) {
            return Err(Refusal::Expired);
        }
        let minute = now.0 / MINUTE;
        if entry.used.fetch_max(minute, Ordering::Relaxed) < minute {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.insert(id.into(), Time(minute * MINUTE));
        }
        Ok(entry.principal.clone())
    }

    /// The principal of a key that is valid now, for a ticket that it made.
    pub(super) async fn valid(self: &Arc<Self>, id: &str, now: Time) -> Result<Arc<Principal>, Refusal> {
        self.require_fresh().await?;
        let entry = self.entry(id).filter(|entry| !entry.revoked).ok_or(Refusal::Invalid)?;
        match entry.principal.expires {
            Some(expires) if expires <= now => Err(Refusal::Expired),
            _ => Ok(entry.principal.clone()),
        }
    }

    fn entry(&self, id: &str) -> Option<Arc<Entry>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).keys.get(id).cloned()
    }

    /// True if a key was used lately, or a stream that it opened may have to be cut. Otherwise the store is not asked, so that
    /// a database may sleep.
    fn is_in_use(&self) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|asked| asked.elapsed() < LINGER) || {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.keys.values().any(|entry| Arc::strong_count(&entry.principal) > 1)
        }
    }

    fn is_fresh(&self) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.refreshed.is_some_and(|refreshed| refreshed.elapsed() < MAX_AGE)
    }

    /// Starts to follow the store, and waits for the table if it is old: nobody may use a revoked key because the store
    /// could not be asked.
    async fn require_fresh(self: &Arc<Self>) -> Result<(), Refusal> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if !self.is_followed.swap(true, Ordering::Relaxed) {
            tokio::spawn(follow(Arc::downgrade(self)));
        }
        if self.is_fresh() {
            return Ok(());
        }
        let before = self.refreshes.load(Ordering::Relaxed);
        let _one = self.refreshing.lock().await;
        if self.is_fresh() {
            return Ok(());
        }
        // A refresh that others waited for has failed: those who waited do not try one after the other.
        if self.refreshes.load(Ordering::Relaxed) > before {
            return Err(Refusal::Unavailable);
        }
        self.refresh().await.map_err(|error| {
            tracing::error!(%error, "the API keys could not be read");
            Refusal::Unavailable
        })
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        let asked = Instant::now();
        let version = self.table.read().unwrap_or_else(PoisonError::into_inner).version;
        let changes = self.store.key_changes(version).await;
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        let changes = changes?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for key in changes.keys {
            let id = key.id.clone();
            let entry = Arc::new(self.entry_of(key));
            if let Some(old) = table.keys.insert(id, entry.clone()) {
                // Streams follow the old principal: they end with the key, and a new end opens them anew.
                if entry.revoked || old.principal.expires != entry.principal.expires {
                    old.principal.revoked.cancel();
                }
            }
        }
        table.version = table.version.max(changes.version);
        table.refreshed = Some(asked);
        Ok(())
    }

    fn entry_of(&self, key: ApiKey) -> Entry {
        let permissions: KeyPermissions = serde_json::from_str(&key.permissions).unwrap_or_default();
        let scopes = permissions.scopes.iter().filter_map(|scope| scope.parse::<Scope>().ok());
        let roles = permissions.roles.iter().map(|role| role.as_str().into()).collect();
        let principal = Principal::new(AuthMethod::Key, &key.tenant, &key.user, format!("key:{}", key.id));
        let mut principal = principal.with_permissions(roles, scopes, &self.roles);
        principal.expires = key.expires;
        let used = AtomicU64::new(key.last_used.map_or(0, |used| used.0 / MINUTE));
        Entry { hash: key.hash, revoked: key.revoked.is_some(), principal: Arc::new(principal), used }
    }

    async fn record_uses(&self) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        if !used.is_empty()
            && let Err(error) = self.store.touch_keys(used.into_iter().collect()).await
        {
            tracing::warn!(%error, "the last use of API keys could not be recorded");
        }
    }
}

/// Follows the store as long as the gateway exists.
async fn follow(keys: Weak<ApiKeys>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let Some(keys) = keys.upgrade() else { return };
        if !keys.is_in_use() {
            continue;
        }
        let one = keys.refreshing.lock().await;
        if let Err(error) = keys.refresh().await {
            tracing::warn!(%error, "the API keys could not be read");
        }
        drop(one);
        keys.record_uses().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_form() {
        let pepper = Secret::Value(b"pepper".to_vec());
        let new =
            || NewApiKey { tenant: "t", user: "u", permissions: KeyPermissions::default(), expires: None };
        let (text, key) = make_api_key(new(), &pepper, Time(5)).expect("a key");
        let (id, secret) = split(&text).expect("its form");
        assert_eq!((id, text.len()), (&*key.id, 3 + 12 + 1 + 43));
        assert!(!String::from_utf8_lossy(&key.hash).contains(secret));
        assert_ne!(make_api_key(new(), &pepper, Time(5)).expect("a key").0, text);
        for other in [
            "",
            "aw_",
            "aw_x_y",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}x"),
            &text.replace("aw_", "AW_"),
        ] {
            assert_eq!(split(other), None, "{other}");
        }
        let letters: std::collections::HashSet<char> = random_text(5000).expect("random").chars().collect();
        assert_eq!(letters.len(), 62);
    }
}
