//! Tickets: short credentials for one stream, for clients that cannot send headers (`EventSource`).
//!
//! A ticket names the stream, its reader and the credential that made it, under an HMAC. Its key is derived from the pepper of
//! the API keys or from `replicas.key`, so that every gateway of a store accepts it; without both it is random and holds in this
//! process.

use std::{sync::Arc, time::Duration};

use agentwire_store::Time;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Serialize};

use super::{
    Refusal,
    principal::{AuthMethod, Principal},
    scope::{Action, Scope},
    secret::CurrentSecret,
};

/// Lifetime of a ticket.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// Longest text of a ticket: four ids of the greatest length, encoded.
const MAX_TEXT: usize = 8 << 10;

/// Keeps the derived key apart from other uses of the shared one.
const PURPOSE: &[u8] = b"agentwire ticket";

pub(super) struct Tickets {
    shared: Option<Arc<CurrentSecret>>,
    own: [u8; 32],
}

/// The content of a ticket.
#[derive(Serialize, Deserialize)]
pub(super) struct Ticket {
    tenant: Box<str>,
    user: Box<str>,
    agent: Box<str>,
    run: Box<str>,
    /// Last moment at which it opens a stream.
    until: u64,
    pub(super) credential: Box<str>,
    /// When the credential that made it ends.
    ends: Option<u64>,
}

impl Tickets {
    pub(super) fn new(shared: Option<Arc<CurrentSecret>>) -> Self {
        let mut own = [0; 32];
        // On failure no ticket can be made: see `key`.
        let _ = SystemRandom::new().fill(&mut own);
        Self { shared, own }
    }

    fn key(&self) -> Result<hmac::Key, Refusal> {
        let secret: Arc<[u8]> = match &self.shared {
            Some(shared) => shared.get().ok_or(Refusal::Unavailable)?,
            None if self.own == [0; 32] => return Err(Refusal::Unavailable),
            None => self.own.as_slice().into(),
        };
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), PURPOSE);
        Ok(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// A ticket for a run.
    pub(super) fn make(
        &self,
        principal: &Principal,
        (tenant, user): (&str, &str),
        agent: &str,
        run: &str,
        now: Time,
    ) -> Result<String, Refusal> {
        let ticket = Ticket {
            tenant: tenant.into(),
            user: user.into(),
            agent: agent.into(),
            run: run.into(),
            until: now.after(LIFETIME).0,
            credential: principal.credential.clone(),
            ends: principal.expires.map(|ends| ends.0),
        };
        let content = URL_SAFE_NO_PAD.encode(serde_json::to_string(&ticket).unwrap_or_default());
        let tag = hmac::sign(&self.key()?, content.as_bytes());
        Ok(format!("{content}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref())))
    }

    /// The content of a ticket for a run of an agent.
    pub(super) fn check(&self, text: &str, agent: &str, run: &str, now: Time) -> Result<Ticket, Refusal> {
        if text.len() > MAX_TEXT {
            return Err(Refusal::Invalid);
        }
        let (content, tag) = text.split_once('.').ok_or(Refusal::Invalid)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| Refusal::Invalid)?;
        hmac::verify(&self.key()?, content.as_bytes(), &tag).map_err(|_| Refusal::Invalid)?;
        let content = URL_SAFE_NO_PAD.decode(content).map_err(|_| Refusal::Invalid)?;
        let ticket: Ticket = serde_json::from_slice(&content).map_err(|_| Refusal::Invalid)?;
        if *ticket.agent != *agent || *ticket.run != *run {
            return Err(Refusal::Invalid);
        }
        match ticket.until <= now.0 || ticket.ends.is_some_and(|ends| ends <= now.0) {
            true => Err(Refusal::Expired),
            false => Ok(ticket),
        }
    }
}

impl Ticket {
    /// The reader: whoever made the ticket, with the permission to read this agent's runs only.
    pub(super) fn principal(self) -> Principal {
        let scope = Scope::Agent { agent: Some(self.agent), action: Some(Action::Read) };
        let principal = Principal::new(AuthMethod::Ticket, &self.tenant, &self.user, self.credential);
        Principal { scopes: [scope].into_iter().collect(), expires: self.ends.map(Time), ..principal }
    }
}
