//! A line of the audit log. Arguments are stored as a hash: enough to prove the subject of a decision without a copy.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::atomic::Ordering,
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire_core::{
    event::{Message, MessageBody, ResumeEntry, ResumeStatus, RunId, ThreadId},
    json::Json,
};
use agentwire_store::Owner;
use serde_json::{Map, Value, json};

use super::{Caller, chain::hash};
use crate::{error::ApiError, timestamp::iso};

/// Decisions per line; a line must fit into the longest one that the file is searched for.
const MAX_DECISIONS: usize = 100;

/// One audited action.
#[derive(Clone, Debug)]
pub(crate) struct Record(pub(super) Map<String, Value>);

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    iso(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Record {
    pub(crate) fn new(owner: &Owner, action: &str) -> Self {
        let mut record = Map::new();
        record.insert("at".into(), now().into());
        record.insert("tenant".into(), owner.tenant.as_str().into());
        record.insert("user".into(), owner.user.as_str().into());
        record.insert("agent".into(), owner.agent.as_str().into());
        record.insert("action".into(), action.into());
        Self(record)
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// The sender of the request: peer, credential, method of authentication, and the id of the request.
    pub(super) fn by(mut self, caller: Option<&Caller>) -> Self {
        let Some(caller) = caller else { return self };
        caller.is_noted.store(true, Ordering::Relaxed);
        self = self.peer(caller.peer).with("request", caller.request.as_str());
        if let Some((_, agent)) = caller.route.get().filter(|(_, agent)| !agent.is_empty()) {
            self = self.with("agent", &**agent);
        }
        match caller.credential() {
            Some((method, credential)) if !credential.is_empty() => {
                self.with("auth", method.as_str()).with("credential", credential)
            }
            Some((method, _)) => self.with("auth", method.as_str()),
            None => self,
        }
    }

    /// The address of the client.
    pub(super) fn peer(self, peer: Option<IpAddr>) -> Self {
        match peer {
            Some(peer) => self.with("peer", peer.to_string()),
            None => self,
        }
    }

    pub(crate) fn thread(self, thread: &ThreadId) -> Self {
        self.with("thread", thread.as_str())
    }

    pub(crate) fn run(self, run: &RunId) -> Self {
        self.with("run", run.as_str())
    }

    /// A request to run; with answers it is an `answer` that lists each decision.
    pub(crate) fn start(owner: &Owner, entries: &[&ResumeEntry], messages: &[Message]) -> Self {
        let entries = entries.iter().map(|entry| {
            let payload = entry.payload.as_ref().map_or("null", |payload| payload.get());
            json!({"item": entry.interrupt.as_str(), "decision": decision(entry), "payload": hash(payload.as_bytes())})
        });
        let results = messages.iter().rev().map_while(|message| match &message.body {
            MessageBody::Tool { call, content, error } => {
                let decision = if error.is_some() { "failed" } else { "result" };
                Some(json!({"item": call.as_str(), "decision": decision, "payload": hash(content.text().as_bytes())}))
            }
            _ => None,
        });
        let mut decisions: Vec<Value> = entries.chain(results).collect();
        let count = decisions.len();
        decisions.truncate(MAX_DECISIONS);
        let record = Self::new(owner, if count == 0 { "start" } else { "answer" });
        match count {
            0 => record,
            count if count > MAX_DECISIONS => record.with("decisions", decisions).with("decided", count),
            _ => record.with("decisions", decisions),
        }
    }

    /// A request by its method and the template of its route, never its path, which may have secrets in it.
    pub(super) fn request(caller: &Caller, action: &str, outcome: &str) -> Self {
        let (tenant, user) = caller.names();
        let method: String = caller.method.as_str().chars().take(16).collect();
        let route = caller.route.get().map_or("", |(route, _)| route);
        let record = Self::new(&Owner::new(tenant, user, ""), action).with("method", method);
        record.with("route", route).with("outcome", outcome).by(Some(caller))
    }

    /// A connection that was refused before it had a request.
    pub(super) fn connection(peer: IpAddr, code: &str) -> Self {
        let record = Self::new(&Owner::new("", "", ""), "connection");
        record.with("outcome", code).peer(Some(peer))
    }

    /// Denials of one sender that got no line each.
    pub(super) fn folded(who: &str, codes: &BTreeMap<&'static str, u64>) -> Self {
        let count: u64 = codes.values().sum();
        let record = Self::new(&Owner::new("", "", ""), "denials");
        record.with("peer", who).with("count", count).with("outcomes", json!(codes))
    }

    /// The end of a time in which lines could not be written.
    pub(super) fn resumed(lost: u64) -> Self {
        Self::new(&Owner::new("", "", ""), "audit resumed").with("lost", lost)
    }

    pub(crate) fn feedback(self, feedback: &Map<String, Value>) -> Self {
        self.with("feedback", feedback.clone())
    }

    pub(crate) fn arguments(self, arguments: &[u8]) -> Self {
        self.with("arguments", hash(arguments))
    }

    /// The sender, and the outcome: `ok`, or the code of the error.
    pub(crate) fn outcome<T>(self, caller: Option<&Caller>, done: &Result<T, ApiError>) -> Self {
        if let (Some(caller), Err(_)) = (caller, done) {
            caller.note_failure();
        }
        self.with("outcome", done.as_ref().err().map_or("ok", |error| error.code)).by(caller)
    }
}

/// A decision as one word: approved and denied where the answer contains a yes or no.
fn decision(entry: &ResumeEntry) -> &'static str {
    let answer = entry.payload.as_ref().map(Json::to_value).unwrap_or_default();
    let flags = [&answer, &answer["approved"], &answer["confirmed"]].map(Value::as_bool);
    match entry.status {
        ResumeStatus::Cancelled => "cancelled",
        ResumeStatus::Resolved if flags.contains(&Some(false)) => "denied",
        ResumeStatus::Resolved if flags.contains(&Some(true)) => "approved",
        ResumeStatus::Resolved => "resolved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_recorded_as_one_word() {
        let entry = |status, payload: Value| ResumeEntry {
            interrupt: "q".into(),
            status,
            payload: Some(Json::from(payload)),
            metadata: None,
        };
        for (status, payload, told) in [
            (ResumeStatus::Resolved, json!(true), "approved"),
            (ResumeStatus::Resolved, json!({"approved": true, "editedArgs": {}}), "approved"),
            (ResumeStatus::Resolved, json!({"confirmed": false}), "denied"),
            (ResumeStatus::Resolved, json!({"approved": true, "confirmed": false}), "denied"),
            (ResumeStatus::Resolved, json!("Monday"), "resolved"),
            (ResumeStatus::Cancelled, json!(true), "cancelled"),
        ] {
            let entry = entry(status, payload.clone());
            let Record(record) = Record::start(&Owner::new("t", "u", "a"), &[&entry], &[]);
            assert_eq!(record["decisions"][0]["decision"], told, "{payload}");
        }
    }
}
