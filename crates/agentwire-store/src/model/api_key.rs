//! API keys: what a store keeps of them.

use super::Text;
use crate::clock::Time;

/// An API key as it is stored: everything but the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its public id.
    pub id: Text,
    /// A keyed hash of its secret; the store cannot make keys.
    pub hash: Vec<u8>,
    /// The tenant that it acts for.
    pub tenant: Text,
    /// The user that it acts as.
    pub user: Text,
    /// Its roles and scopes, as JSON.
    pub permissions: Text,
    /// Time of creation.
    pub created: Time,
    /// When it ends; never if absent.
    pub expires: Option<Time>,
    /// When it was revoked.
    pub revoked: Option<Time>,
    /// When it was last used, to the minute.
    pub last_used: Option<Time>,
}

/// The keys that have changed since a version, and the version that includes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// The changed keys.
    pub keys: Vec<ApiKey>,
    /// For the next call.
    pub version: u64,
}

/// A change of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Ends it now, for good.
    Revoke,
    /// Ends it at a time, unless it ends before.
    ExpireAt(Time),
}
