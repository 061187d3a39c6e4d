//! Test support: a gateway in this process, scripted agents, a store that fails on demand, and an HTTP client that checks
//! every byte.

mod asker;
pub(crate) mod certificates;
mod client;
mod faulty;
pub(crate) mod http2;
mod issuer;
#[path = "../../../../agentwire-store/tests/postgres_server/mod.rs"]
pub(crate) mod postgres_server;
mod puppet;
mod raw;
mod record;

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{AgentConfig, Builder, Gateway, InstanceLock, agent::Agent, serve, settings::*};
use agentwire_store::{Clock, Options, PostgresOptions, Store, SystemClock};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    asker::{asker, asker_script},
    client::{Frame, Stream, answer, assert_valid, events_of, ids, types},
    faulty::FaultyStore,
    issuer::{ISSUER, Issuer, KeyServer, Signer, base64, now},
    puppet::{Puppet, delta, end, error, finished, play, start, talk},
    raw::raw_status,
    record::AuditFile,
};

/// Upper limit of every wait, far above the slowest step of a test on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(240);

/// Waits for a future and panics at the limit with the name of the awaited item.
pub(crate) async fn with_timeout<T>(name: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_LIMIT, wait).await {
        Ok(done) => done,
        Err(_) => panic!("timeout while waiting for: {name}"),
    }
}

/// Polls a condition until it is true.
pub(crate) async fn wait_until<F: Future<Output = bool>>(name: &str, mut is_true: impl FnMut() -> F) {
    with_timeout(name, async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// True if every store of the tests is PostgreSQL: `scripts/test` runs the suite a second time this way.
pub(crate) fn is_on_postgres() -> bool {
    std::env::var("AGENTWIRE_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// A store and its address; the file of a SQLite store is deleted with it.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: String,
    _folder: Option<tempfile::TempDir>,
}

impl Backend {
    pub(crate) async fn memory() -> Self {
        if is_on_postgres() {
            return Self::postgres(None).await;
        }
        Self::memory_at(Arc::new(SystemClock::default())).await
    }

    pub(crate) async fn postgres(clock: Option<Arc<dyn Clock>>) -> Self {
        let address = postgres_server::fresh();
        let postgres = PostgresOptions { clock, ..PostgresOptions::default() };
        let options = Options { postgres, ..Options::default() };
        let store = agentwire_store::open(&address, options).await.expect("a new schema");
        Self { store, address, _folder: None }
    }

    pub(crate) async fn memory_at(clock: Arc<dyn Clock>) -> Self {
        if is_on_postgres() {
            return Self::postgres(Some(clock)).await;
        }
        let options = Options { clock, ..Options::default() };
        let store = agentwire_store::open("memory:", options).await.expect("a memory store");
        Self { store, address: "memory:".into(), _folder: None }
    }

    pub(crate) async fn sqlite() -> Self {
        if is_on_postgres() {
            return Self::postgres(None).await;
        }
        Self::sqlite_at(Arc::new(SystemClock::default())).await
    }

    pub(crate) async fn sqlite_at(clock: Arc<dyn Clock>) -> Self {
        if is_on_postgres() {
            return Self::postgres(Some(clock)).await;
        }
        let folder = tempfile::tempdir().expect("a folder for the test");
        let address = format!("sqlite:{}", folder.path().join("test.db").display());
        let options = Options { clock, ..Options::default() };
        let store = agentwire_store::open(&address, options).await.expect("a new file");
        Self { store, address, _folder: Some(folder) }
    }

    /// A memory store and a SQLite store.
    pub(crate) async fn each() -> [Self; 2] {
        [Self::memory().await, Self::sqlite().await]
    }

    /// A second handle to the same store, as another process would open it.
    pub(crate) async fn reopened(&self) -> Arc<dyn Store> {
        agentwire_store::open(&self.address, Options::default()).await.expect("an existing file")
    }
}

/// A running gateway and an HTTP client for it.
pub(crate) struct Server {
    pub(crate) base: String,
    pub(crate) client: reqwest::Client,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// The configuration of a gateway under test.
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) agents: Vec<(&'static str, AgentSettings, Arc<dyn Agent>)>,
    instance_lock: Option<InstanceLock>,
    wire: Option<Wire>,
}

type Wire = Box<dyn FnOnce(Builder) -> Builder + Send>;

/// A gateway with one agent, named `demo`, and default settings, but without a limit on failed authentications: all tests
/// have one address.
pub(crate) fn plan(agent: Arc<dyn Agent>) -> Plan {
    let mut settings = Settings::default();
    settings.limits.peer.failures = None;
    Plan {
        settings,
        agents: vec![("demo", AgentSettings::default(), agent)],
        instance_lock: None,
        wire: None,
    }
}

impl Plan {
    pub(crate) fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub(crate) fn agent(mut self, change: impl FnOnce(&mut AgentSettings)) -> Self {
        change(&mut self.agents[0].1);
        self
    }

    pub(crate) fn and(mut self, name: &'static str, settings: AgentSettings, agent: Arc<dyn Agent>) -> Self {
        self.agents.push((name, settings, agent));
        self
    }

    pub(crate) fn instance_lock(mut self, lock: InstanceLock) -> Self {
        self.instance_lock = Some(lock);
        self
    }

    /// A last change of the builder, for hooks and session locks.
    pub(crate) fn wire(mut self, wire: impl FnOnce(Builder) -> Builder + Send + 'static) -> Self {
        self.wire = Some(Box::new(wire));
        self
    }

    pub(crate) async fn on(self, store: &Arc<dyn Store>) -> Server {
        self.listen(store, None).await
    }

    /// Starts the gateway on a runtime of its own, so that [`Server::crash`] can end all of its tasks.
    pub(crate) async fn killable(self, store: &Arc<dyn Store>) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        self.listen(store, Some(runtime.expect("a runtime"))).await
    }

    /// Starts the gateway on a runtime with few threads, beside the workers, for work that blocks.
    pub(crate) async fn with_few_threads(self, store: &Arc<dyn Store>, blocking: usize) -> Server {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).max_blocking_threads(blocking).enable_all().build();
        self.listen(store, Some(runtime.expect("a runtime"))).await
    }

    async fn listen(self, store: &Arc<dyn Store>, runtime: Option<tokio::runtime::Runtime>) -> Server {
        let is_encrypted = matches!(self.settings.tls, Some(Tls::Files(_)));
        let mut builder = Gateway::builder(store.clone(), self.settings);
        for (name, settings, agent) in self.agents {
            builder = builder.agent(name, AgentConfig::shared(agent).settings(settings));
        }
        if let Some(lock) = self.instance_lock {
            builder = builder.instance_lock(lock);
        }
        if let Some(wire) = self.wire {
            builder = wire(builder);
        }
        let scheme = if is_encrypted { "https" } else { "http" };
        let gateway = builder.build();
        // With as many waiting connections as `serve` has: hundreds may come at once.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(1024).and_then(tokio::net::TcpListener::into_std).expect("a listener");
        let base = format!("{scheme}://{}", listener.local_addr().expect("it is bound"));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let served = async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            serve(gateway, listener, stopped).await
        };
        let served = match &runtime {
            Some(runtime) => runtime.spawn(served),
            None => tokio::spawn(served),
        };
        let client = agentwire_client::transport::builder().no_proxy().build().expect("a client");
        Server { base, client, stop, served, runtime }
    }

    pub(crate) async fn on_memory(self) -> Server {
        self.on(&Backend::memory().await.store).await
    }
}

impl Server {
    /// Starts a graceful shutdown, as SIGTERM does.
    pub(crate) fn drain(&self) {
        self.stop.cancel();
    }

    /// Waits for the end of a graceful shutdown.
    pub(crate) async fn ended(mut self) {
        with_timeout("the end of the server", &mut self.served).await.expect("no panic").expect("no error");
    }

    /// Ends the gateway as `kill -9` would, as far as that is possible within a process: all of its tasks are dropped.
    pub(crate) async fn crash(mut self) {
        let runtime = self.runtime.take().expect("a server on a runtime of its own");
        let shutdown = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(WAIT_LIMIT));
        with_timeout("the shutdown of the runtime", shutdown).await.expect("no panic");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
