//! The gateway as a value: its agents, its store, and the runs of this process.
//!
//! [`Gateway`] is a cheap handle on shared data. Other modules add its operations: `run/admission.rs` starts runs,
//! `http/` builds the router, `ops/` recovers, maintains and drains.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use agentwire_core::event::{RunId, RunInput, ThreadId};
use agentwire_store::{Holder, Owner, RunKey, Store, StoreError, ThreadIds};
use axum::http::request::Parts;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent::{Agent, Request},
    auth::{Authenticator, Identify},
    codes,
    health::Health,
    hooks::{Factory, HookSet, Hooks, RunContext, SessionLock},
    limits::{Breaker, ByteBudget, Memory, OwnerSeats, Quotas},
    metrics::Metrics,
    ops::{audit::Audit, instance_lock::InstanceLock},
    replica::{
        ProcessLease, TAIL_LOST, TAKEN_OVER,
        direct::{self, Direct},
    },
    settings::{AgentSettings, Settings},
    stream::{
        cold::ColdReads,
        conversations::Conversations,
        live::{LiveRun, LogFailure},
        starts::ThreadStarts,
    },
    tls::{Certificates, TlsError},
    trace::{Counters, Tracer},
};

/// A gateway in front of agents. Cheap to clone.
///
/// ```
/// use agentwire_gateway::{AgentConfig, Gateway, agent::Demo, settings::Settings, store};
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = store::open("memory:", Default::default()).await?;
/// let gateway = Gateway::builder(store, Settings::default())
///     .agent("demo", AgentConfig::new(Demo::default()))
///     .build();
/// assert_eq!(gateway.agents(), ["demo"]);
/// # Ok::<(), store::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

/// Runs that are remembered as read to the end: more than people answer within a minute.
const READ_TO_END: usize = 1024;

/// In place of a holder: the mark, among the readers of a run, that a client has read the run to its end.
const READ_TO_END_MARK: &str = "read to the end";

/// The lifetime of that mark.
const READ_TO_END_TTL: std::time::Duration = std::time::Duration::from_secs(3600);

/// The data that all clones of a [`Gateway`] share.
struct Shared {
    store: Arc<dyn Store>,
    settings: Settings,
    /// The agents for new requests. A run keeps the agent that it started with.
    registry: RwLock<Arc<AgentRegistry>>,
    instance: InstanceLock,
    lease: ProcessLease,
    /// The way to other gateways past the store, if there is a key.
    direct: Option<Direct>,
    metrics: Metrics,
    tracer: Option<Arc<Tracer>>,
    health: Health,
    audit: Audit,
    authenticator: Authenticator,
    certificates: Option<Certificates>,
    /// The budget of request bodies and large responses.
    bytes: Arc<ByteBudget>,
    reads: Arc<ByteBudget>,
    cold_reads: ColdReads,
    quotas: Quotas,
    memory: Memory,
    /// Notified whenever a run ends, so that runs that wait for its thread try again.
    run_ended: Notify,
    draining: AtomicBool,
    /// Cancelled when the drain begins.
    drain: CancellationToken,
    /// Cancelled when the drain's grace period is over.
    shutdown: CancellationToken,
    tasks: TaskTracker,
    runs: Mutex<HashMap<RunKey, RegisteredRun>>,
    /// Notified when a run is added.
    run_added: Notify,
    /// Readers that wait for the next run of a thread.
    starts: ThreadStarts,
    /// The parsed conversations of recently used threads.
    conversations: Conversations,
    /// Runs of other processes that have readers here.
    tails: Mutex<HashMap<RunKey, Weak<LiveRun>>>,
    /// Runs of this process whose log could not be written, until the log has their terminal event.
    failed_logs: Mutex<HashMap<RunKey, LogFailure>>,
    /// Runs that left items open and that a client has read to the end; the newest last, at most [`READ_TO_END`].
    read_to_end: Mutex<VecDeque<RunKey>>,
    /// The time of the last failed write to the store; `None` after a successful one.
    write_failure: Mutex<Option<Instant>>,
    /// The time of the last write that the store has accepted, as far as it is noted.
    store_checked: Mutex<Option<Instant>>,
    /// True if the store has failed since then.
    has_store_failed: AtomicBool,
    /// True if a request has failed because of the store since it was last checked.
    is_store_doubted: AtomicBool,
    /// True if something may have happened in the store since the last sweep; always true for a store that never sleeps.
    is_awake: AtomicBool,
    /// Whether `write_failure` is set: a check without a lock for every append.
    has_write_failure: AtomicBool,
    /// True if [`serve`](crate::serve) listens beyond loopback.
    listens_beyond_loopback: AtomicBool,
    /// True once the background work has started.
    is_recovered: AtomicBool,
    on_request: Option<OnRequest>,
    ids_issued: AtomicU64,
}

/// A live run, and its place in the limits of its user.
struct RegisteredRun {
    live: Arc<LiveRun>,
    _seats: Option<OwnerSeats>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("registry", &self.registry()).field("holder", self.holder()).finish()
    }
}

/// An agent with its settings, hooks and session lock.
///
/// ```
/// use agentwire_gateway::{AgentConfig, agent::Demo, settings::{AgentSettings, History}};
/// let config = AgentConfig::new(Demo::default())
///     .settings(AgentSettings::default().history(Some(History::Server)));
/// ```
#[derive(Clone)]
pub struct AgentConfig {
    agent: Arc<dyn Agent>,
    settings: AgentSettings,
    hooks: Option<Factory>,
    lock: Option<Arc<dyn SessionLock>>,
    identify: Option<Arc<dyn Identify>>,
}

impl fmt::Debug for AgentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConfig").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl AgentConfig {
    /// An agent with default settings.
    #[must_use]
    pub fn new(agent: impl Agent) -> Self {
        Self::shared(Arc::new(agent))
    }

    /// The same for an agent that is shared or made by [`agent_fn`](crate::agent::agent_fn).
    #[must_use]
    pub fn shared(agent: Arc<dyn Agent>) -> Self {
        Self { agent, settings: AgentSettings::default(), hooks: None, lock: None, identify: None }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn settings(mut self, settings: AgentSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Hooks, made anew for each run.
    #[must_use]
    pub fn hooks<H: Hooks>(mut self, make: impl Fn(&RunContext) -> H + Send + Sync + 'static) -> Self {
        self.hooks = Some(factory(make));
        self
    }

    /// A lock around every run.
    #[must_use]
    pub fn lock(mut self, lock: Arc<dyn SessionLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Names the sender of each request, in place of the identity settings.
    #[must_use]
    pub fn identify(mut self, identify: Arc<dyn Identify>) -> Self {
        self.identify = Some(identify);
        self
    }
}

impl From<Arc<dyn Agent>> for AgentConfig {
    fn from(agent: Arc<dyn Agent>) -> Self {
        Self::shared(agent)
    }
}

fn factory<H: Hooks>(make: impl Fn(&RunContext) -> H + Send + Sync + 'static) -> Factory {
    Arc::new(move |run| HookSet::new(make(run)))
}

/// A configured agent under its name.
#[derive(Clone)]
pub(crate) struct AgentEntry {
    pub(crate) name: Box<str>,
    pub(crate) settings: AgentSettings,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) hooks: Option<Factory>,
    pub(crate) lock: Option<Arc<dyn SessionLock>>,
    pub(crate) identify: Option<Arc<dyn Identify>>,
    /// Closed again when the agents are replaced.
    pub(crate) breaker: Arc<Breaker>,
}

impl AgentEntry {
    /// The name under which its threads are stored: its own, or that of the group that it shares them with.
    pub(crate) fn owner_agent(&self) -> &str {
        self.settings.threads.as_deref().unwrap_or(&self.name)
    }
}

/// The configured agents, and the name of the one that is also mounted at `/`.
#[derive(Clone, Default)]
pub struct AgentRegistry {
    pub(crate) agents: BTreeMap<Box<str>, Arc<AgentEntry>>,
    pub(crate) default: Option<Box<str>>,
    /// For agents without their own.
    hooks: Option<Factory>,
    lock: Option<Arc<dyn SessionLock>>,
    /// Also for the routes of the server.
    pub(crate) identify: Option<Arc<dyn Identify>>,
}

impl fmt::Debug for AgentRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agents = self.agents.keys();
        f.debug_struct("AgentRegistry").field("agents", &agents).field("default", &self.default).finish()
    }
}

impl AgentRegistry {
    /// Adds an agent. The first one is the default one unless another is named.
    #[must_use]
    pub fn agent(mut self, name: &str, config: impl Into<AgentConfig>) -> Self {
        let AgentConfig { agent, settings, hooks, lock, identify } = config.into();
        self.default.get_or_insert_with(|| name.into());
        let breaker = Breaker::new(settings.breaker);
        let entry = AgentEntry { name: name.into(), settings, agent, hooks, lock, identify, breaker };
        self.agents.insert(name.into(), Arc::new(entry));
        self
    }

    /// Hooks for every agent that has none of its own, made anew for each run.
    #[must_use]
    pub fn hooks<H: Hooks>(mut self, make: impl Fn(&RunContext) -> H + Send + Sync + 'static) -> Self {
        self.hooks = Some(factory(make));
        self
    }

    /// A lock around every run of every agent that has none of its own.
    #[must_use]
    pub fn lock(mut self, lock: Arc<dyn SessionLock>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Names the sender of each request to the server and to every agent that has no such function of its own.
    #[must_use]
    pub fn identify(mut self, identify: Arc<dyn Identify>) -> Self {
        self.identify = Some(identify);
        self
    }

    /// The agent at `/`.
    #[must_use]
    pub fn default_agent(mut self, name: &str) -> Self {
        self.default = Some(name.into());
        self
    }

    /// The agents whose threads are stored under `owner_agent`.
    pub(crate) fn agents_of(&self, owner_agent: &str) -> impl Iterator<Item = &Arc<AgentEntry>> {
        self.agents.values().filter(move |agent| agent.owner_agent() == owner_agent)
    }

    /// True if there can be more than one user, by the configuration. A function that names senders can name several.
    fn has_users(&self, settings: &Settings) -> bool {
        let may_have_users =
            |agent: &Arc<AgentEntry>| agent.identify.is_some() || settings.has_users(&agent.settings);
        self.identify.is_some()
            || settings.has_users(&AgentSettings::default())
            || self.agents.values().any(may_have_users)
    }

    /// Gives the default hooks, lock and identity to the agents that have none of their own.
    fn resolve(mut self) -> Arc<Self> {
        for entry in self.agents.values_mut() {
            let is_hooked = entry.hooks.is_some() || self.hooks.is_none();
            let is_locked = entry.lock.is_some() || self.lock.is_none();
            let is_identified = entry.identify.is_some() || self.identify.is_none();
            if !is_hooked || !is_locked || !is_identified {
                let entry = Arc::make_mut(entry);
                entry.hooks = entry.hooks.take().or_else(|| self.hooks.clone());
                entry.lock = entry.lock.take().or_else(|| self.lock.clone());
                entry.identify = entry.identify.take().or_else(|| self.identify.clone());
            }
        }
        Arc::new(self)
    }
}

/// A function of [`Builder::on_request`].
type OnRequest = Arc<dyn Fn(&mut Parts) + Send + Sync>;

/// Builds a [`Gateway`]; see [`Gateway::builder`].
pub struct Builder {
    store: Arc<dyn Store>,
    settings: Settings,
    registry: AgentRegistry,
    instance: Option<InstanceLock>,
    on_request: Option<OnRequest>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Builder {
    /// As [`AgentRegistry::agent`].
    #[must_use]
    pub fn agent(mut self, name: &str, config: impl Into<AgentConfig>) -> Self {
        self.registry = self.registry.agent(name, config);
        self
    }

    /// As [`AgentRegistry::default_agent`].
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

    /// Replaces all agents that were added so far.
    #[must_use]
    pub fn registry(mut self, registry: AgentRegistry) -> Self {
        self.registry = registry;
        self
    }

    /// The name under which this process claims runs; a unique one by default.
    #[must_use]
    pub fn instance_lock(mut self, instance: InstanceLock) -> Self {
        self.instance = Some(instance);
        self
    }

    /// Calls `prepare` with the head of every request that [`serve`](crate::serve) accepts, before its route: to add
    /// extensions, such as a [`RequestContext`](crate::agent::RequestContext).
    #[must_use]
    pub fn on_request(mut self, prepare: impl Fn(&mut Parts) + Send + Sync + 'static) -> Self {
        self.on_request = Some(Arc::new(prepare));
        self
    }

    /// Builds the gateway. Starts nothing: see [`Gateway::recover`] and [`serve`](crate::serve).
    #[must_use]
    pub fn build(self) -> Gateway {
        let Self { store, settings, registry, instance, on_request } = self;
        let direct = Direct::of(&settings.replicas);
        let mut instance = instance.unwrap_or_else(|| InstanceLock::at("memory:"));
        if let Some(address) = settings.replicas.advertise.as_ref().filter(|_| direct.is_some()) {
            instance.holder = direct::with_address(&instance.holder, address);
        }
        let audit = Audit::of(&settings, store.identity().is_some());
        let authenticator = Authenticator::new(settings.auth.clone(), settings.replicas.key.clone(), &store);
        let certificates = Certificates::of(settings.tls.as_ref());
        let bytes = ByteBudget::new(settings.limits.inflight_bytes, settings.limits.body);
        let largest = settings.limits.thread_messages.saturating_add(settings.limits.thread_state);
        let reads = ByteBudget::new(settings.limits.inflight_bytes, largest);
        let quotas = Quotas::new(&settings.limits, registry.has_users(&settings));
        let memory = Memory::new(settings.limits.memory);
        let metrics = Metrics::default();
        let counters = Counters {
            exported: metrics.trace_spans_exported.clone(),
            dropped: metrics.trace_spans_dropped.clone(),
        };
        let tracer = settings.traces.as_ref().and_then(|traces| Tracer::new(traces, &counters)).map(Arc::new);
        let shared = Shared {
            memory,
            quotas,
            tracer,
            bytes,
            reads,
            cold_reads: ColdReads::default(),
            store,
            settings,
            registry: RwLock::new(registry.resolve()),
            instance,
            lease: ProcessLease::default(),
            direct,
            metrics,
            health: Health::default(),
            audit,
            authenticator,
            certificates,
            run_ended: Notify::new(),
            draining: AtomicBool::new(false),
            drain: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runs: Mutex::default(),
            run_added: Notify::new(),
            starts: ThreadStarts::default(),
            conversations: Conversations::default(),
            tails: Mutex::default(),
            failed_logs: Mutex::default(),
            read_to_end: Mutex::default(),
            write_failure: Mutex::default(),
            store_checked: Mutex::default(),
            has_store_failed: AtomicBool::new(false),
            is_store_doubted: AtomicBool::new(false),
            is_awake: AtomicBool::new(true),
            has_write_failure: AtomicBool::new(false),
            listens_beyond_loopback: AtomicBool::new(false),
            is_recovered: AtomicBool::new(false),
            on_request,
            ids_issued: AtomicU64::new(0),
        };
        Gateway { shared: Arc::new(shared) }
    }
}

impl Gateway {
    /// Starts to build a gateway on a store.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>, settings: Settings) -> Builder {
        Builder { store, settings, registry: AgentRegistry::default(), instance: None, on_request: None }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The settings of the server.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The names of the agents.
    #[must_use]
    pub fn agents(&self) -> Vec<String> {
        self.registry().agents.keys().map(|name| name.to_string()).collect()
    }

    /// Replaces the agents. New requests see the new ones; live runs keep the agent and the settings that they started
    /// with. [`serve`](crate::serve) follows; a [`router`](Self::router) that is mounted elsewhere keeps the routes that
    /// it was made with.
    pub fn replace_agents(&self, registry: AgentRegistry) {
        *self.shared.registry.write().unwrap_or_else(PoisonError::into_inner) = registry.resolve();
    }

    /// The agents for new requests.
    pub(crate) fn registry(&self) -> Arc<AgentRegistry> {
        self.shared.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tracer, if traces are configured.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.shared.tracer.as_ref()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn health(&self) -> &Health {
        &self.shared.health
    }

    /// True at the first call.
    pub(crate) fn begin_recovery(&self) -> bool {
        !self.shared.is_recovered.swap(true, Ordering::Relaxed)
    }

    /// Lets the program add to the head of a request.
    pub(crate) fn prepare_request(&self, parts: &mut Parts) {
        if let Some(prepare) = &self.shared.on_request {
            prepare(parts);
        }
    }

    /// Remembers the address of a listener.
    pub(crate) fn note_listener(&self, address: std::net::IpAddr) {
        if !address.is_loopback() {
            self.shared.listens_beyond_loopback.store(true, Ordering::Relaxed);
        }
    }

    /// True if only this machine can reach the gateway, as far as it knows its listeners.
    pub(crate) fn is_local(&self) -> bool {
        self.settings().listen.ip().is_loopback()
            && !self.shared.listens_beyond_loopback.load(Ordering::Relaxed)
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.shared.audit
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.authenticator
    }

    /// The certificates of its own encryption, if any.
    pub(crate) fn certificates(&self) -> Option<&Certificates> {
        self.shared.certificates.as_ref()
    }

    /// Reads the certificates of [`Settings::tls`] again; new connections get them. Nothing happens if the gateway does
    /// not encrypt.
    ///
    /// # Errors
    /// If they cannot be used. The old ones stay.
    pub fn load_certificates(&self) -> Result<(), TlsError> {
        self.certificates().map_or(Ok(()), Certificates::load)
    }

    /// The budget of bytes that wait in memory for clients.
    pub(crate) fn bytes(&self) -> &Arc<ByteBudget> {
        &self.shared.bytes
    }

    /// The budget of what requests read of threads. It is another one than [`Self::bytes`]: a request has those of its body
    /// while it waits for these.
    pub(crate) fn reads(&self) -> &Arc<ByteBudget> {
        &self.shared.reads
    }

    /// Reads of the log from the store.
    pub(crate) fn cold_reads(&self) -> &ColdReads {
        &self.shared.cold_reads
    }

    /// The limits of users, tenants and peers.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.shared.quotas
    }

    /// The memory of this process and its limit.
    pub(crate) fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }

    /// Cancelled when live runs must end now.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shared.shutdown
    }

    /// Notified whenever a run has ended.
    pub(crate) fn run_ended(&self) -> &Notify {
        &self.shared.run_ended
    }

    /// The name under which this process claims runs.
    pub(crate) fn holder(&self) -> &Holder {
        &self.shared.instance.holder
    }

    /// The previous process on this store, if it is known to be dead: its runs need not wait for their lease to expire.
    pub(crate) fn dead_holder(&self) -> Option<&Holder> {
        self.shared.instance.dead.as_ref()
    }

    /// The way to other gateways past the store.
    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.shared.direct.as_ref()
    }

    /// The lease of this process.
    pub(crate) fn lease(&self) -> &ProcessLease {
        &self.shared.lease
    }

    /// The live runs of this process.
    pub(crate) fn live_runs(&self) -> Vec<Arc<LiveRun>> {
        self.runs().values().map(|run| run.live.clone()).collect()
    }

    pub(crate) fn tails(&self) -> MutexGuard<'_, HashMap<RunKey, Weak<LiveRun>>> {
        self.shared.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this process has live runs, or has none.
    pub(crate) async fn wait_for_runs(&self, any: bool) {
        loop {
            let (added, ended) = (self.shared.run_added.notified(), self.shared.run_ended.notified());
            tokio::pin!(added, ended);
            added.as_mut().enable();
            ended.as_mut().enable();
            if (self.live_run_count() > 0) == any {
                return;
            }
            tokio::select! {
                () = added => {}
                () = ended => {}
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, RegisteredRun>> {
        self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn live_run(&self, owner: &Owner, run: &RunId) -> Option<Arc<LiveRun>> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        self.runs().get(&key).map(|run| run.live.clone())
    }

    /// True if there can be more than one user, by the configuration.
    pub(crate) fn has_users(&self) -> bool {
        self.registry().has_users(self.settings())
    }

    /// The form of the ids of a new thread on the agent's side. Agents may share a server, so the users of all of them count.
    pub(crate) fn thread_ids(&self, agent: &AgentEntry) -> ThreadIds {
        let by_users = || if self.has_users() { ThreadIds::Scoped } else { ThreadIds::Raw };
        agent.settings.thread_ids.unwrap_or_else(by_users)
    }

    /// A request to an agent about a thread as a whole: recall, deletion, artifacts.
    pub(crate) async fn thread_request(
        &self,
        agent: &AgentEntry,
        owner: &Owner,
        thread: &ThreadId,
        headers: Arc<[(String, String)]>,
    ) -> Result<Request, StoreError> {
        let (upstream_scope, thread_ids) = match self.store().thread(owner, thread).await {
            Ok(stored) => (stored.upstream_scope, stored.thread_ids),
            Err(StoreError::NotFound(_)) => {
                (self.store().upstream_scope(owner, thread).await?, Some(self.thread_ids(agent)))
            }
            Err(error) => return Err(error),
        };
        Ok(Request {
            owner: owner.clone(),
            agent: (&*agent.name).into(),
            thread_ids,
            has_users: self.has_users(),
            upstream_identity: agent.settings.upstream_identity.clone(),
            upstream_scope,
            headers,
            timeouts: agent.settings.timeouts,
            limits: agent.settings.limits,
            ..Request::new(RunInput::new(thread.clone(), ""))
        })
    }

    /// Registers a live run, with its place in the limits of its user.
    pub(crate) fn register_run(&self, live: &Arc<LiveRun>, seats: Option<OwnerSeats>) {
        let run = RegisteredRun { live: live.clone(), _seats: seats };
        let before = self.runs().insert(live.key.clone(), run);
        match before {
            // A run that other processes had taken over meanwhile comes back before its first task here has noticed.
            Some(before) => self.give_up(&before.live, TAKEN_OVER),
            None => _ = self.metrics().runs_live.inc(),
        }
        self.shared.run_added.notify_waiters();
        self.shared.starts.notify(&live.key.owner, &live.thread);
    }

    /// The parsed conversations of recently used threads.
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.shared.conversations
    }

    /// The starts of runs, by thread.
    pub(crate) fn starts(&self) -> &ThreadStarts {
        &self.shared.starts
    }

    /// Ends the registration of a live run, unless another task drives the same run by now.
    pub(crate) fn unregister_run(&self, live: &Arc<LiveRun>) {
        let mut runs = self.runs();
        if runs.get(&live.key).is_some_and(|registered| Arc::ptr_eq(&registered.live, live)) {
            runs.remove(&live.key);
            self.metrics().runs_live.dec();
        }
        drop(runs);
        self.run_ended().notify_waiters();
    }

    /// The live runs of the threads that are stored under `owner_agent`, and the readers of these runs.
    pub(crate) fn live_runs_and_readers(&self, owner_agent: &str) -> (usize, usize) {
        let runs = self.runs();
        let of_agent = runs.values().filter(|run| run.live.key.owner.agent.as_str() == owner_agent);
        of_agent.fold((0, 0), |(runs, readers), run| (runs + 1, readers + run.live.readers_now()))
    }

    pub(crate) fn live_run_count(&self) -> usize {
        self.runs().len()
    }

    /// Stops writing the log of a run. Maintenance appends the terminal event when the store accepts writes again, unless
    /// the thread is gone or another process has taken the run over.
    pub(crate) fn mark_log_failed(&self, live: &LiveRun, failure: LogFailure) {
        if failure == TAIL_LOST || ![codes::THREAD_DELETED, codes::GATEWAY_LOST].contains(&failure.code) {
            self.failed_logs().insert(live.key.clone(), failure);
        }
        live.mark_log_failed(failure);
    }

    pub(crate) fn failed_logs(&self) -> MutexGuard<'_, HashMap<RunKey, LogFailure>> {
        self.shared.failed_logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that a client has read a run with open items to its end.
    pub(crate) fn note_read_to_end(&self, owner: &Owner, run: &RunId) {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        let mut read = self.shared.read_to_end.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|other| *other != key);
        if read.len() >= READ_TO_END {
            read.pop_front();
        }
        read.push_back(key.clone());
        drop(read);
        if self.store().outlives_process() {
            let gateway = self.clone();
            self.tasks().spawn(async move {
                let noted =
                    gateway.store().note_readers(&key, &READ_TO_END_MARK.into(), READ_TO_END_TTL).await;
                if let Err(error) = noted {
                    tracing::debug!(run = %key.run, %error, "other gateways do not know that a run was read");
                }
            });
        }
    }

    /// True if a client of this or another process has read a run with open items to its end.
    pub(crate) async fn was_read_to_end(&self, owner: &Owner, run: &RunId) -> Result<bool, StoreError> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        let was_read_here =
            || self.shared.read_to_end.lock().unwrap_or_else(PoisonError::into_inner).contains(&key);
        Ok(was_read_here() || self.store().has_readers(&key, &"".into()).await?)
    }

    /// Remembers whether the last write to the store failed. Logical errors (a conflict, an old fencing token) do not
    /// count.
    pub(crate) fn note_store_result<T>(&self, result: &Result<T, StoreError>) {
        let failed = match result {
            Ok(_) => false,
            Err(error) if error.is_fault() => true,
            Err(_) => return,
        };
        // Called for every append, and almost always there is nothing to change.
        if failed || self.shared.has_write_failure.load(Ordering::Relaxed) {
            self.shared.has_write_failure.store(failed, Ordering::Relaxed);
            *self.write_failure() = failed.then(Instant::now);
        }
        if failed {
            self.note_store_failure();
        }
    }

    /// Asks for a check of the store: a request has failed because of it.
    pub(crate) fn doubt_store(&self) {
        self.shared.is_store_doubted.store(true, Ordering::Relaxed);
    }

    /// True if a check of the store was asked for since the last call.
    pub(crate) fn take_store_doubt(&self) -> bool {
        self.shared.is_store_doubted.swap(false, Ordering::Relaxed)
    }

    /// Remembers that the store has accepted a write. A read is not enough: a full or read-only store can be read.
    pub(crate) fn note_store_check(&self) {
        let now = Some(Instant::now());
        *self.shared.store_checked.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.shared.has_store_failed.store(false, Ordering::Relaxed);
    }

    /// Remembers that the store has failed, until it accepts a write again.
    pub(crate) fn note_store_failure(&self) {
        self.shared.has_store_failed.store(true, Ordering::Relaxed);
    }

    /// True if the store has failed and has accepted no write since.
    pub(crate) fn has_store_failed(&self) -> bool {
        self.shared.has_store_failed.load(Ordering::Relaxed)
    }

    /// The time since the last success of the store.
    pub(crate) fn store_age(&self) -> Option<std::time::Duration> {
        let checked = *self.shared.store_checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.map(|checked| checked.elapsed())
    }

    /// True if the store has passed a check within `age`.
    pub(crate) fn was_store_checked(&self, age: std::time::Duration) -> bool {
        self.store_age().is_some_and(|since| since < age)
    }

    /// Ends the silence of an idle gateway at its next sweep: a client has asked for something.
    pub(crate) fn wake(&self) {
        if !self.shared.is_awake.load(Ordering::Relaxed) {
            self.set_awake(true);
        }
    }

    /// Sets whether there is something to look after. A sweep sets it to false before it looks, so that a wake-up meanwhile counts.
    pub(crate) fn set_awake(&self, is_awake: bool) {
        self.shared.is_awake.store(is_awake, Ordering::Relaxed);
    }

    /// True if runs of this or other processes have to be looked after.
    pub(crate) fn is_awake(&self) -> bool {
        self.shared.is_awake.load(Ordering::Relaxed)
            || self.live_run_count() > 0
            || self.tails().values().any(|tail| tail.strong_count() > 0)
    }

    /// Whether the last write to the store failed, and recently. A full disk still accepts small writes for a while.
    pub(crate) fn has_recent_write_failure(&self) -> bool {
        self.write_failure().is_some_and(|since| since.elapsed() < self.settings().store_patience)
    }

    fn write_failure(&self) -> MutexGuard<'_, Option<Instant>> {
        self.shared.write_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Cancelled when the drain begins.
    pub(crate) fn drain_begun(&self) -> &CancellationToken {
        &self.shared.drain
    }

    /// Accepts no new runs from now on, and wakes the readers so that they announce it to their clients.
    pub(crate) fn begin_drain(&self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.shared.drain.cancel();
        self.runs().values().for_each(|run| run.live.wake_readers());
        self.tails().values().filter_map(Weak::upgrade).for_each(|tail| tail.wake_readers());
    }

    /// An id for a run or message that its client did not name. Unique, because the holder's name is.
    pub(crate) fn new_id(&self, prefix: &str) -> String {
        use std::hash::{BuildHasher, RandomState};
        let count = self.shared.ids_issued.fetch_add(1, Ordering::Relaxed);
        let salt = RandomState::new().hash_one((self.holder().as_str(), count));
        format!("{prefix}-{:x}-{count:x}-{salt:016x}", self.store().now().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_of_a_run_that_came_back_keeps_its_registration() {
        let store = agentwire_store::open("memory:", Default::default()).await.expect("a store");
        let gateway = Gateway::builder(store, Settings::default()).build();
        let owner = Owner::new("t", "u", "a");
        let key = RunKey { owner: owner.clone(), run: "r".into() };
        let live = || LiveRun::new(key.clone(), "t".into(), 0, &gateway.settings().limits).0;
        let (first, second) = (live(), live());
        gateway.register_run(&first, None);
        gateway.register_run(&second, None);
        assert!(first.give_up.is_cancelled(), "two tasks drive one run");
        gateway.unregister_run(&first);
        let registered = gateway.live_run(&owner, &key.run).expect("the second task drives the run");
        assert!(Arc::ptr_eq(&registered, &second) && !second.give_up.is_cancelled());
        assert_eq!((gateway.live_run_count(), gateway.metrics().runs_live.get()), (1, 1));
        gateway.unregister_run(&second);
        assert_eq!((gateway.live_run_count(), gateway.metrics().runs_live.get()), (0, 0));
    }
}
