//! Scopes: the grammar of permissions, and the scope that each route requires.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

/// An action on an agent: the last part of a scope `agents:NAME:ACTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Start a run.
    Run,
    /// Read everything of one's own: threads, runs, streams, artifacts, feedback.
    Read,
    /// Answer a question of the agent or of the approval gate.
    Answer,
    /// Stop, pause and resume runs.
    Control,
    /// Change the state of a thread.
    State,
    /// Delete threads.
    Delete,
    /// Give feedback.
    Feedback,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 7] =
        [Self::Run, Self::Read, Self::Answer, Self::Control, Self::State, Self::Delete, Self::Feedback];

    /// Its name in a scope.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Read => "read",
            Self::Answer => "answer",
            Self::Control => "control",
            Self::State => "state",
            Self::Delete => "delete",
            Self::Feedback => "feedback",
        }
    }
}

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// `*`: everything.
    All,
    /// `admin`: implies all others.
    Admin,
    /// `audit`.
    Audit,
    /// `metrics`.
    Metrics,
    /// `agents:NAME:ACTION`. `None` stands for `*`.
    Agent {
        /// The name of an agent.
        agent: Option<Box<str>>,
        /// The action.
        action: Option<Action>,
    },
}

/// A text that is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope")]
pub struct ScopeError(String);

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let unknown = || ScopeError(text.escape_default().to_string());
        match text {
            "*" => return Ok(Self::All),
            "admin" => return Ok(Self::Admin),
            "audit" => return Ok(Self::Audit),
            "metrics" => return Ok(Self::Metrics),
            "feedback" => return Ok(Self::Agent { agent: None, action: Some(Action::Feedback) }),
            _ => {}
        }
        let mut parts = text.split(':');
        let (Some("agents"), Some(agent), Some(action), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unknown());
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let agent = match agent {
            "*" => None,
            name if !name.is_empty() && name.chars().all(is_name) => Some(name.into()),
            _ => return Err(unknown()),
        };
        let action = match action {
            "*" => None,
            name => Some(Action::ALL.into_iter().find(|it| it.as_str() == name).ok_or_else(unknown)?),
        };
        Ok(Self::Agent { agent, action })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Admin => f.write_str("admin"),
            Self::Audit => f.write_str("audit"),
            Self::Metrics => f.write_str("metrics"),
            Self::Agent { agent, action } => {
                let (agent, action) = (agent.as_deref().unwrap_or("*"), action.map_or("*", Action::as_str));
                write!(f, "agents:{agent}:{action}")
            }
        }
    }
}

/// The scopes of a principal. Empty means that nothing is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![Scope::All])
    }

    /// True if it allows an action on an agent.
    #[must_use]
    pub fn allow(&self, agent: &str, action: Action) -> bool {
        self.0.iter().any(|scope| match scope {
            Scope::All | Scope::Admin => true,
            Scope::Agent { agent: name, action: of } => {
                name.as_deref().is_none_or(|name| name == agent) && of.is_none_or(|of| of == action)
            }
            Scope::Audit | Scope::Metrics => false,
        })
    }

    /// True if it holds a scope of the server: `audit`, `metrics` or `admin`.
    #[must_use]
    pub fn allow_server(&self, wanted: &Scope) -> bool {
        self.0.iter().any(|scope| scope == wanted || matches!(scope, Scope::All | Scope::Admin))
    }

    /// Each scope.
    pub fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.0.iter()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        let mut scopes: Vec<_> = scopes.into_iter().collect();
        scopes.sort();
        scopes.dedup();
        Self(scopes)
    }
}

/// The scopes of each role.
#[derive(Clone, Debug, Default)]
pub(super) struct RoleTable(Arc<BTreeMap<String, Vec<Scope>>>);

impl RoleTable {
    pub(super) fn new(roles: BTreeMap<String, Vec<Scope>>) -> Self {
        Self(Arc::new(roles))
    }

    /// The scopes of a role; none if it is unknown.
    pub(super) fn scopes(&self, role: &str) -> &[Scope] {
        self.0.get(role).map_or(&[], Vec::as_slice)
    }
}

/// The scope that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredScope {
    /// An action on the agent of the route.
    Agent(Action),
    /// `run`; `read` is enough for a request without messages and answers, a sync.
    RunOrSync,
    /// An action on at least one agent: a route of the server that judges each agent by itself.
    AnyAgent(Action),
    /// Any action on at least one agent: a route that passes requests on to others.
    AnyAction,
    /// `metrics`.
    Metrics,
    /// Any valid credential.
    AnyCredential,
    /// None, not even a credential: probes.
    Public,
}

impl RequiredScope {
    /// True if the scopes suffice for a route of `agent`. A sync is allowed as soon as its body is known to be one.
    pub(crate) fn is_met(self, scopes: &Scopes, agent: &str) -> bool {
        match self {
            Self::Agent(action) => scopes.allow(agent, action),
            // The guard knows the agents.
            Self::AnyAgent(_) | Self::AnyAction => false,
            Self::RunOrSync => scopes.allow(agent, Action::Run) || scopes.allow(agent, Action::Read),
            Self::Metrics => scopes.allow_server(&Scope::Metrics),
            Self::AnyCredential | Self::Public => true,
        }
    }

    /// True if the routes with it change nothing, whatever their method.
    pub(crate) fn is_read(self) -> bool {
        match self {
            Self::Agent(action) | Self::AnyAgent(action) => action == Action::Read,
            // A request that is passed on meets the scope of the route that it is passed to.
            Self::AnyAction | Self::AnyCredential | Self::Public => true,
            Self::RunOrSync | Self::Metrics => false,
        }
    }

    /// The scope as text, for messages.
    pub(crate) fn name(self, agent: &str) -> String {
        match self {
            Self::Agent(action) => format!("agents:{agent}:{}", action.as_str()),
            Self::AnyAgent(action) => format!("agents:*:{}", action.as_str()),
            Self::AnyAction => "agents:*:run".to_owned(),
            Self::RunOrSync => format!("agents:{agent}:run"),
            Self::Metrics => "metrics".to_owned(),
            Self::AnyCredential | Self::Public => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(texts: &[&str]) -> Scopes {
        texts.iter().map(|text| text.parse::<Scope>().expect(text)).collect()
    }

    #[test]
    fn scopes_are_written_as_they_are_read() {
        for text in [
            "*",
            "admin",
            "audit",
            "metrics",
            "agents:a:run",
            "agents:*:read",
            "agents:*:*",
            "agents:a.b-c_1:*",
        ] {
            assert_eq!(text.parse::<Scope>().expect(text).to_string(), text);
        }
        assert_eq!("feedback".parse::<Scope>().unwrap().to_string(), "agents:*:feedback");
    }

    #[test]
    fn other_texts_are_no_scopes() {
        for text in [
            "",
            "openid",
            "agents",
            "agents:a",
            "agents:a:",
            "agents::run",
            "agents:a:fly",
            "agents:a:run:x",
            "Agents:a:run",
            "agents:a*:run",
            "agents:a b:run",
            "run",
            " admin",
        ] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }

    #[test]
    fn nothing_is_allowed_without_a_scope() {
        for action in Action::ALL {
            assert!(!scopes(&[]).allow("a", action));
            assert!(!scopes(&["audit", "metrics", "agents:b:*"]).allow("a", action));
            assert!(scopes(&["*"]).allow("a", action));
            assert!(scopes(&["admin"]).allow("a", action));
            assert!(scopes(&["agents:a:*"]).allow("a", action));
            assert!(scopes(&["agents:*:*"]).allow("a", action));
        }
        assert!(scopes(&["agents:a:run"]).allow("a", Action::Run));
        assert!(!scopes(&["agents:a:run"]).allow("a", Action::Answer));
        assert!(!scopes(&["agents:*:*"]).allow_server(&Scope::Metrics));
        assert!(scopes(&["admin"]).allow_server(&Scope::Metrics));
    }
}
