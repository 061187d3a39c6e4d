//! The gateway as a whole: its agents, its store, and the runs that go on in this process.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use agentwire_core::event::{RunId, RunInput, ThreadId};
use agentwire_store::{Claim, Holder, Owner, RunKey, Store, StoreError};
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent::{Agent, Request},
    codes,
    hooks::{Factory, HookSet, Hooks, RunContext, SessionLock},
    metrics::Metrics,
    ops::{audit::Audit, instance_lock::InstanceLock},
    settings::{AgentSettings, Settings},
    stream::live::{Broken, Live},
};

/// A gateway in front of agents. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// What a gateway is made of.
#[doc(hidden)]
pub struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    /// Who answers new requests. Runs keep the agent that they began with.
    registry: RwLock<Arc<AgentRegistry>>,
    presence: InstanceLock,
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
    /// Runs of this process whose log could not be written any more, and why, until it has their ending.
    broken: Mutex<HashMap<RunKey, Broken>>,
    /// When a write to the store last failed, unless one has succeeded since.
    trouble: Mutex<Option<Instant>>,
    is_in_trouble: AtomicBool,
    made: AtomicU64,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("registry", &self.registry()).field("holder", self.holder()).finish()
    }
}

impl Deref for Gateway {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// An agent under its name.
#[derive(Clone)]
pub(crate) struct AgentEntry {
    pub(crate) name: Box<str>,
    pub(crate) settings: AgentSettings,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) hooks: Option<Factory>,
    pub(crate) lock: Option<Arc<dyn SessionLock>>,
}

impl AgentEntry {
    /// A question to the agent's side about a thread.
    pub(crate) fn about(&self, owner: Owner, thread: &ThreadId, headers: Arc<[(String, String)]>) -> Request {
        Request {
            owner,
            headers,
            timeouts: self.settings.timeouts,
            limits: self.settings.limits,
            ..Request::new(RunInput::new(thread.clone(), ""))
        }
    }
}

/// Which agents there are, and which of them is at `/`.
#[derive(Clone, Default)]
pub struct AgentRegistry {
    pub(crate) agents: BTreeMap<Box<str>, Arc<AgentEntry>>,
    pub(crate) default: Option<Box<str>>,
    /// The agent that was added last.
    last: Option<Box<str>>,
    /// For agents without their own.
    hooks: Option<Factory>,
    lock: Option<Arc<dyn SessionLock>>,
}

impl std::fmt::Debug for AgentRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let agents = self.agents.keys();
        f.debug_struct("AgentRegistry").field("agents", &agents).field("default", &self.default).finish()
    }
}

impl AgentRegistry {
    /// Adds an agent. The first one is the default one unless another is named.
    #[must_use]
    pub fn agent(mut self, name: &str, settings: AgentSettings, agent: Arc<dyn Agent>) -> Self {
        self.default.get_or_insert_with(|| name.into());
        let (hooks, lock) = (self.hooks.clone(), self.lock.clone());
        let entry = AgentEntry { name: name.into(), settings, agent, hooks, lock };
        self.agents.insert(name.into(), Arc::new(entry));
        self.last = Some(name.into());
        self
    }

    /// Hooks for the agent that was added last, made anew for each of its runs. Before the first agent: for every
    /// agent that gets none of its own.
    #[must_use]
    pub fn hooks<H: Hooks>(mut self, make: impl Fn(&RunContext) -> H + Send + Sync + 'static) -> Self {
        let factory: Factory = Arc::new(move |run| HookSet::new(make(run)));
        match self.last() {
            Some(entry) => entry.hooks = Some(factory),
            None => self.hooks = Some(factory),
        }
        self
    }

    /// A lock around every run of the agent that was added last. Before the first agent: of every agent that gets
    /// none of its own.
    #[must_use]
    pub fn lock(mut self, lock: Arc<dyn SessionLock>) -> Self {
        match self.last() {
            Some(entry) => entry.lock = Some(lock),
            None => self.lock = Some(lock),
        }
        self
    }

    fn last(&mut self) -> Option<&mut AgentEntry> {
        self.agents.get_mut(self.last.as_deref()?).map(Arc::make_mut)
    }

    /// The agent at `/`.
    #[must_use]
    pub fn default_agent(mut self, name: &str) -> Self {
        self.default = Some(name.into());
        self
    }
}

/// Puts a gateway together.
pub struct Builder {
    store: Arc<dyn Store>,
    settings: Settings,
    registry: AgentRegistry,
    presence: Option<InstanceLock>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("registry", &self.registry).finish()
    }
}

impl Builder {
    /// Adds an agent. The first one is the default one unless another is named.
    #[must_use]
    pub fn agent(mut self, name: &str, settings: AgentSettings, agent: Arc<dyn Agent>) -> Self {
        self.registry = self.registry.agent(name, settings, agent);
        self
    }

    /// The agent at `/`.
    #[must_use]
    pub fn default_agent(mut self, name: &str) -> Self {
        self.registry = self.registry.default_agent(name);
        self
    }

    /// As [`AgentRegistry::hooks`].
    #[must_use]
    pub fn hooks<H: Hooks>(mut self, make: impl Fn(&RunContext) -> H + Send + Sync + 'static) -> Self {
        self.registry = self.registry.hooks(make);
        self
    }

    /// As [`AgentRegistry::lock`].
    #[must_use]
    pub fn lock(mut self, lock: Arc<dyn SessionLock>) -> Self {
        self.registry = self.registry.lock(lock);
        self
    }

    /// All agents at once, in the place of those that were added.
    #[must_use]
    pub fn registry(mut self, registry: AgentRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// The name under which this process claims runs; without it, one that nobody else has.
    #[must_use]
    pub fn presence(mut self, presence: InstanceLock) -> Self {
        self.presence = Some(presence);
        self
    }

    /// The gateway.
    #[must_use]
    pub fn build(self) -> Gateway {
        let Self { store, settings, registry, presence } = self;
        let presence = presence.unwrap_or_else(|| InstanceLock::at("memory:"));
        let audit = settings.audit.as_deref().map_or_else(Audit::off, Audit::to);
        Gateway(Arc::new(Inner {
            store,
            settings,
            registry: RwLock::new(Arc::new(registry)),
            presence,
            metrics: Metrics::default(),
            audit,
            freed: Notify::new(),
            draining: AtomicBool::new(false),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            lives: Mutex::default(),
            broken: Mutex::default(),
            trouble: Mutex::default(),
            is_in_trouble: AtomicBool::new(false),
            made: AtomicU64::new(0),
        }))
    }
}

impl Gateway {
    /// Begins to put a gateway together.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, settings: Settings) -> Builder {
        Builder { store, settings, registry: AgentRegistry::default(), presence: None }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// The names of the agents.
    #[must_use]
    pub fn agents(&self) -> Vec<String> {
        self.0.registry().agents.keys().map(|name| name.to_string()).collect()
    }

    /// Puts other agents in the place of those there are. Requests from now on see the new ones; runs that go on keep
    /// the agent that they began with, and its settings. [`serve`](crate::serve) follows; a [`router`](Self::router)
    /// that is mounted elsewhere has the routes of the time at which it was made.
    pub fn replace_agents(&self, registry: AgentRegistry) {
        *self.0.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }
}

impl Inner {
    /// Who answers new requests now.
    pub(crate) fn registry(&self) -> Arc<AgentRegistry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

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

    pub(crate) fn register(&self, live: &Arc<Live>) {
        self.lives().insert(live.key.clone(), live.clone());
        self.metrics.runs_live.inc();
    }

    pub(crate) fn unregister(&self, live: &Live) {
        if self.lives().remove(&live.key).is_some() {
            self.metrics.runs_live.dec();
        }
        self.freed.notify_waiters();
    }

    /// Gives up on the log of a run. It gets its ending when it can be written again, unless somebody else sees to that.
    pub(crate) fn give_up(&self, live: &Live, broken: Broken) {
        if ![codes::THREAD_DELETED, codes::GATEWAY_LOST].contains(&broken.code) {
            self.broken().insert(live.key.clone(), broken);
        }
        live.give_up(broken);
    }

    pub(crate) fn broken(&self) -> MutexGuard<'_, HashMap<RunKey, Broken>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers whether the store could be written, if that was the question.
    pub(crate) fn note_written<T>(&self, done: &Result<T, StoreError>) {
        let failed = match done {
            Ok(_) => false,
            Err(error) if error.is_fault() => true,
            Err(_) => return,
        };
        // This is asked for every append, and almost always there is nothing to remember.
        if failed || self.is_in_trouble.load(Ordering::Relaxed) {
            self.is_in_trouble.store(failed, Ordering::Relaxed);
            *self.trouble() = failed.then(Instant::now);
        }
    }

    /// Whether a write failed a short while ago. A full disk takes what is small enough for a while, and then nothing.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble().is_some_and(|since| since.elapsed() < self.settings.store_patience)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Instant>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
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
