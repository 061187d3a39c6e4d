//! Votes: who may decide about a call, and what was decided so far.
//!
//! The rule and the votes are a member of the pending item, which neither the agent nor a client can write. A vote replaces
//! the item by compare-and-set, so that of two votes at once none is lost.

use agentwire_core::{
    event::{InterruptId, ResumeEntry, ResumeStatus},
    json::Json,
};
use agentwire_store::{Owner, Pending};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::canonical;
use crate::{
    auth::Principal,
    codes,
    error::ApiError,
    settings::{ApprovalRule, Approver},
};

/// The member of a pending item.
pub(crate) const VOTES: &str = "votes";

/// The rule of a question and its votes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Votes {
    approvers: Vec<String>,
    #[serde(rename = "fourEyes")]
    four_eyes: bool,
    needed: usize,
    /// The users who have said yes to the current arguments.
    #[serde(default)]
    cast: Vec<String>,
    /// The arguments as the last editor wants them.
    #[serde(default)]
    edited: Option<Value>,
    #[serde(default)]
    decision: Option<Decision>,
}

/// A decision that waits for its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Decision {
    approved: bool,
    reason: Option<String>,
    by: Vec<String>,
}

/// A vote of a person.
pub(crate) struct Vote {
    pub(crate) is_yes: bool,
    pub(crate) arguments_hash: String,
    pub(crate) edited: Option<Value>,
    pub(crate) reason: Option<String>,
}

impl Votes {
    /// The rule of a new question; `None` if its requester decides.
    pub(crate) fn of_rule(rule: &ApprovalRule) -> Option<Self> {
        let is_held = !rule.approvers.is_empty() || rule.four_eyes || rule.votes > 1;
        is_held.then(|| Self {
            approvers: rule.approvers.iter().map(ToString::to_string).collect(),
            four_eyes: rule.four_eyes,
            needed: rule.votes.max(1),
            ..Self::default()
        })
    }

    /// The votes of a pending item; a rule for its requester alone if it has none.
    pub(crate) fn of(item: &Pending) -> Self {
        Self::stored(item).unwrap_or_else(|| Self { needed: 1, ..Self::default() })
    }

    fn stored(item: &Pending) -> Option<Self> {
        let body: Value = serde_json::from_str(&item.body).ok()?;
        serde_json::from_value(body.get(VOTES)?.clone()).ok()
    }

    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// True if others than the requester decide: the thread's own route takes no answer then.
    pub(crate) fn is_held(item: &Pending) -> bool {
        Self::stored(item).is_some()
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.decision.is_some()
    }

    pub(crate) fn count(&self) -> usize {
        self.cast.len()
    }

    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    /// `approved`, `denied` or `pending`.
    pub(crate) fn status(&self) -> &'static str {
        match &self.decision {
            Some(Decision { approved: true, .. }) => "approved",
            Some(_) => "denied",
            None => "pending",
        }
    }

    /// The arguments that are voted on.
    pub(crate) fn arguments(&self, body: &Value) -> Value {
        self.edited.clone().unwrap_or_else(|| body["arguments"].clone())
    }

    /// Checks that a person may decide about the question of `owner`: `UNKNOWN_APPROVAL`, `NOT_AN_APPROVER`,
    /// `SAME_PERSON`.
    pub(crate) fn check_person(
        &self,
        item: &Pending,
        owner: &Owner,
        person: &Person<'_>,
    ) -> Result<(), ApiError> {
        let is_requester = owner.user.as_str() == person.user && owner.tenant.as_str() == person.tenant;
        if !Self::is_held(item) {
            return if is_requester { Ok(()) } else { Err(unknown()) };
        }
        let is_approver = |approver: &String| match approver.parse::<Approver>() {
            Ok(Approver::Role(role)) => person.roles.iter().any(|has| **has == *role),
            Ok(Approver::User(user)) => person.user == user,
            Err(_) => false,
        };
        if !self.approvers.is_empty() && !self.approvers.iter().any(is_approver) {
            return Err(not_an_approver());
        }
        match self.four_eyes && is_requester {
            true => {
                Err(ApiError::new(codes::SAME_PERSON, "whoever started the run cannot approve its calls"))
            }
            false => Ok(()),
        }
    }

    /// Adds a vote. The person may decide; the vote is about the current arguments.
    pub(crate) fn add(&mut self, body: &Value, person: &str, vote: Vote) -> Result<(), ApiError> {
        if vote.arguments_hash != canonical::hash(&self.arguments(body)) {
            let message = "the hash is not that of the current arguments";
            let hint = "read `GET /approvals` again: somebody may have edited them";
            return Err(ApiError::new(codes::ARGUMENTS_CHANGED, message).hint(hint));
        }
        if !vote.is_yes {
            let by = vec![person.to_owned()];
            self.decision = Some(Decision { approved: false, reason: vote.reason, by });
            return Ok(());
        }
        if let Some(edited) = vote.edited.filter(|edited| *edited != self.arguments(body)) {
            // Others have said yes to other arguments.
            self.cast.clear();
            self.edited = Some(edited);
        }
        if self.cast.iter().all(|cast| cast != person) {
            self.cast.push(person.to_owned());
        }
        if self.cast.len() >= self.needed {
            let by = self.cast.clone();
            self.decision = Some(Decision { approved: true, reason: vote.reason, by });
        }
        Ok(())
    }

    /// The answer that the decision gives to the question, and who gave it.
    pub(crate) fn answer(&self, id: &InterruptId) -> Option<(ResumeEntry, String)> {
        let Decision { approved, reason, by } = self.decision.as_ref()?;
        let mut payload = json!({"approved": approved});
        if let Some(reason) = reason {
            payload["reason"] = reason.as_str().into();
        }
        if let Some(edited) = self.edited.as_ref().filter(|_| *approved) {
            payload["editedArgs"] = edited.clone();
        }
        let (status, payload) = (ResumeStatus::Resolved, Some(Json::from(payload)));
        Some((ResumeEntry { interrupt: id.clone(), status, payload, metadata: None }, by.join(", ")))
    }
}

/// A person who decides.
pub(crate) struct Person<'p> {
    pub(crate) tenant: &'p str,
    pub(crate) user: &'p str,
    pub(crate) roles: &'p [Box<str>],
}

impl<'p> Person<'p> {
    pub(crate) fn new(principal: &'p Principal, tenant: &'p str, user: &'p str) -> Self {
        Self { tenant, user, roles: &principal.roles }
    }
}

/// The error of an approval that is not there, or that somebody else decides.
pub(crate) fn unknown() -> ApiError {
    ApiError::new(codes::UNKNOWN_APPROVAL, "no such approval")
}

/// The error of a person who may not decide.
pub(crate) fn not_an_approver() -> ApiError {
    ApiError::new(codes::NOT_AN_APPROVER, "others decide about this call")
        .hint("approvers find it at `GET /approvals`")
}
