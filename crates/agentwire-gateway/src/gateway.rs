//! The gateway as a whole: its agents, its store, and the runs that go on in this process.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{Claim, Holder, Owner, RunKey, Store};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent::Agent,
    audit::Audit,
    live::Live,
    metrics::Metrics,
    presence::Presence,
    settings::{AgentSettings, Settings},
};

/// A gateway in front of agents. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// What a gateway is made of.
#[doc(hidden)]
pub struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) agents: BTreeMap<Box<str>, Arc<AgentEntry>>,
    pub(crate) default: Option<Box<str>>,
    presence: Presence,
    pub(crate) metrics: Metrics,
    pub(crate) audit: Audit,
    /// Told whenever a run has ended, so that those who wait for its thread look again.
    pub(crate) freed: Notify,
    /// Whether the gateway is being shut down.
    draining: AtomicBool,
    /// Ends what has not ended within the grace time.
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
    lives: Mutex<HashMap<RunKey, Arc<Live>>>,
    made: AtomicU64,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("agents", &self.agents.keys()).field("holder", self.holder()).finish()
    }
}

impl Deref for Gateway {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// An agent under its name.
pub(crate) struct AgentEntry {
    pub(crate) name: Box<str>,
    pub(crate) settings: AgentSettings,
    pub(crate) agent: Arc<dyn Agent>,
}

/// Puts a gateway together.
pub struct Builder {
    store: Arc<dyn Store>,
    settings: Settings,
    agents: BTreeMap<Box<str>, Arc<AgentEntry>>,
    default: Option<Box<str>>,
    presence: Option<Presence>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("agents", &self.agents.keys()).finish()
    }
}

impl Builder {
    /// Adds an agent. The first one is the default one unless another is named.
    #[must_use]
    pub fn agent(mut self, name: &str, settings: AgentSettings, agent: Arc<dyn Agent>) -> Self {
        self.default.get_or_insert_with(|| name.into());
        let entry = AgentEntry { name: name.into(), settings, agent };
        self.agents.insert(name.into(), Arc::new(entry));
        self
    }

    /// The agent at `/`.
    #[must_use]
    pub fn default_agent(mut self, name: &str) -> Self {
        self.default = Some(name.into());
        self
    }

    /// The name under which this process claims runs; without it, one that nobody else has.
    #[must_use]
    pub fn presence(mut self, presence: Presence) -> Self {
        self.presence = Some(presence);
        self
    }

    /// The gateway.
    #[must_use]
    pub fn build(self) -> Gateway {
        let Self { store, settings, agents, default, presence } = self;
        let presence = presence.unwrap_or_else(|| Presence::at("memory:"));
        let audit = settings.audit.as_deref().map_or_else(Audit::off, Audit::to);
        Gateway(Arc::new(Inner {
            store,
            settings,
            agents,
            default,
            presence,
            metrics: Metrics::default(),
            audit,
            freed: Notify::new(),
            draining: AtomicBool::new(false),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            lives: Mutex::default(),
            made: AtomicU64::new(0),
        }))
    }
}

impl Gateway {
    /// Begins to put a gateway together.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, settings: Settings) -> Builder {
        Builder { store, settings, agents: BTreeMap::new(), default: None, presence: None }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// The names of the agents.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.0.agents.keys().map(|name| &**name)
    }
}

impl Inner {
    pub(crate) fn holder(&self) -> &Holder {
        &self.presence.holder
    }

    /// A process whose runs can be ended at once.
    pub(crate) fn dead(&self) -> Option<&Holder> {
        self.presence.dead.as_ref()
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<RunKey, Arc<Live>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn live(&self, owner: &Owner, run: &RunId) -> Option<Arc<Live>> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        self.lives().get(&key).cloned()
    }

    pub(crate) fn enlist(&self, live: &Arc<Live>) {
        self.lives().insert(live.key.clone(), live.clone());
        self.metrics.runs_live.inc();
    }

    pub(crate) fn strike(&self, live: &Live) {
        if self.lives().remove(&live.key).is_some() {
            self.metrics.runs_live.dec();
        }
        self.freed.notify_waiters();
    }

    pub(crate) fn live_runs(&self) -> usize {
        self.lives().len()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Takes no new runs from now on, and lets readers tell their clients.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.lives().values().for_each(|live| live.nudge());
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim { holder: self.holder().clone(), address: None, ttl: self.settings.lease }
    }

    /// An id for a run that its client did not name. Unique, since this process has its name for itself.
    pub(crate) fn new_id(&self, what: &str) -> String {
        use std::hash::{BuildHasher, RandomState};
        let count = self.made.fetch_add(1, Ordering::Relaxed);
        let salt = RandomState::new().hash_one((self.holder().as_str(), count));
        format!("{what}-{:x}-{count:x}-{salt:016x}", self.store.now().0)
    }

    /// The run that has a thread now, if it goes on in this process.
    pub(crate) async fn live_of_thread(&self, owner: &Owner, thread: &ThreadId) -> Option<Arc<Live>> {
        let lease = self.store.lease(owner, thread).await.ok().flatten()?;
        self.live(owner, &lease.run)
    }
}
