//! Connections: pools, sessions, transactions, time limits and retries.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
    Timeouts,
};
use futures_util::future::join_all;
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    address::Address,
    error::{Failed, timed_out},
    server::{Server, timeline},
    tls::Tls,
    value::{Value, get, get_time, text},
};
use crate::{
    clock::{Clock, Time},
    error::StoreError,
    model::Durability,
};

/// Time limit of one call, a little above the server's own limit of one statement, so that the server's error is seen.
const CALL_TIMEOUT: Duration = Duration::from_secs(6);

/// Time that a read waits for a free connection, and that a write does.
const READ_WAIT: Duration = Duration::from_secs(1);
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Repetitions of a transaction that met a deadlock, a serialization failure or a race.
const MAX_RETRIES: u32 = 8;

/// Milliseconds since the Unix epoch by the server's clock.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}
pub(super) use clock;

/// The group of connections that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Appends without changes; reserved, so that slow reads do not hold up runs.
    Append,
    /// Renewals of leases; reserved, so that nothing lets a lease expire.
    Control,
    /// Everything else.
    General,
}

/// The clocks of the server and of this process.
#[derive(Debug)]
pub(super) struct Clocks {
    /// In place of the server's clock, for tests.
    pub(super) given: Option<Arc<dyn Clock>>,
    /// Server minus process, in milliseconds; measured with every transaction.
    offset: AtomicI64,
}

impl Clocks {
    /// The server's time, estimated.
    pub(super) fn estimate(&self) -> Time {
        if let Some(clock) = &self.given {
            return clock.now();
        }
        let local = local_millis();
        Time(u64::try_from(local.saturating_add(self.offset.load(Ordering::Relaxed))).unwrap_or(0))
    }

    /// Notes the server's time.
    pub(super) fn measured(&self, server: Time) {
        if self.given.is_some() {
            return;
        }
        let server = i64::try_from(server.0).unwrap_or(i64::MAX);
        self.offset.store(server.saturating_sub(local_millis()), Ordering::Relaxed);
    }

    /// The parameter for `coalesce($n, clock!())`.
    pub(super) fn parameter<'a>(&self) -> Value<'a> {
        let given = self.given.as_ref().map(|clock| clock.now());
        Value::Int(given.map(|time| i64::try_from(time.0).unwrap_or(i64::MAX)))
    }
}

fn local_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// State of the start: the database was found and its schema checked.
#[derive(Clone, Debug)]
pub(super) enum Gate {
    Open,
    /// The server could not be reached yet; every call fails at once.
    Waiting,
    /// It was reached, and cannot be used.
    Refused(StoreError),
}

/// The database with its pools.
pub(super) struct Database {
    pub(super) address: Address,
    pub(super) tls: Tls,
    pub(super) clocks: Clocks,
    pub(super) durability: Durability,
    pub(super) server: Arc<Server>,
    /// True if calls may use the connections.
    gate: watch::Sender<Gate>,
    append: Pool,
    control: Pool,
    general: Pool,
    /// One general connection is left to writes.
    reads: Semaphore,
    /// Statements with the name of the schema in place of `agentwire.`, unless that is the name.
    statements: Mutex<HashMap<&'static str, Arc<str>>>,
    /// True if the server would acknowledge commits before they are on its disk.
    is_lax: AtomicBool,
}

impl Database {
    pub(super) fn new(
        address: Address,
        durability: Durability,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, StoreError> {
        let tls = Tls::new(&address.verify)?;
        let server = Arc::new(Server::default());
        let general = address.pool.saturating_sub(3).max(1);
        let pool = |size: usize, lane: Lane| -> Result<Pool, StoreError> {
            let recycle = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let mut config = address.config.clone();
            if lane == Lane::Append && address.prepared {
                // The plan of the one statement here is made once, perhaps while the tables are empty, and must not be
                // a scan of all runs when they are not. A scan without an alternative, as of the one row of `meta`, then looks so
                // expensive that the server would compile it, which takes up to a second for each new connection.
                let given = config.get_options().unwrap_or_default().to_owned();
                config.options(format!(
                    "{given} -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
                ));
            }
            let manager = Manager::from_config(config, tls.clone(), recycle);
            let (schema, server) = (address.schema.clone(), Arc::clone(&server));
            let check = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
                let (schema, server) = (schema.clone(), Arc::clone(&server));
                Box::pin(async move { server.read(client, &schema).await.map_err(HookError::Backend) })
            });
            let connect = address.config.get_connect_timeout().copied().unwrap_or(CALL_TIMEOUT);
            Pool::builder(manager)
                .max_size(size)
                .runtime(Runtime::Tokio1)
                // Several hosts are tried one after the other.
                .create_timeout(Some(connect * u32::try_from(address.config.get_hosts().len()).unwrap_or(1)))
                .post_create(check)
                .build()
                .map_err(|error| StoreError::io(Failed(error.to_string())))
        };
        Ok(Self {
            append: pool(2, Lane::Append)?,
            control: pool(1, Lane::Control)?,
            general: pool(general, Lane::General)?,
            reads: Semaphore::new(general.saturating_sub(1).max(1)),
            clocks: Clocks { given: clock, offset: AtomicI64::new(0) },
            address,
            tls,
            durability,
            server,
            gate: watch::Sender::new(Gate::Open),
            statements: Mutex::default(),
            is_lax: AtomicBool::new(false),
        })
    }

    /// The server: its identity, and the promise of its commits.
    pub(super) fn notes(&self) -> Vec<String> {
        let epoch = self.server.epoch();
        let mut notes = vec![match self.server.identity() {
            None => format!("store: PostgreSQL, epoch {epoch}"),
            Some((system, timeline)) => {
                format!("store: PostgreSQL, system {system}, timeline {timeline}, epoch {epoch}")
            }
        }];
        if self.durability == Durability::Memory {
            notes.push("warning: durability `memory`: the death of the server loses the last events".into());
        }
        notes
    }

    /// Opens, closes or refuses all calls.
    pub(super) fn set_gate(&self, gate: Gate) {
        self.gate.send_replace(gate);
    }

    /// Waits until calls are allowed, or refused for good.
    pub(super) async fn opened(&self) -> Result<(), StoreError> {
        let mut gate = self.gate.subscribe();
        let decided = gate.wait_for(|gate| !matches!(gate, Gate::Waiting)).await;
        match &*decided.map_err(|_| StoreError::Closed)? {
            Gate::Refused(error) => Err(error.clone()),
            Gate::Open | Gate::Waiting => Ok(()),
        }
    }

    /// Notes the server's own setting of `synchronous_commit`.
    pub(super) fn set_lax(&self, is_lax: bool) {
        self.is_lax.store(is_lax, Ordering::Relaxed);
    }

    /// The value that `synchronous_commit` needs for a write at this level; `None` if the server's own is right. A
    /// stronger setting of the server, as `remote_apply`, stays.
    pub(super) fn synchronous_commit(&self, level: Durability) -> Option<&'static str> {
        match level.max(self.durability) {
            Durability::Memory => Some("off"),
            _ if self.is_lax.load(Ordering::Relaxed) => Some("on"),
            _ => None,
        }
    }

    async fn session(&self, lane: Lane, wait: Duration) -> Result<Session, StoreError> {
        match &*self.gate.borrow() {
            Gate::Open => {}
            Gate::Waiting => return Err(StoreError::io(Failed("the server was not reached yet".into()))),
            Gate::Refused(error) => return Err(error.clone()),
        }
        let pool = match lane {
            Lane::Append => &self.append,
            Lane::Control => &self.control,
            Lane::General => &self.general,
        };
        // The time for a new connection is apart from the wait for a free one.
        let timeouts = Timeouts { wait: Some(wait), ..pool.timeouts() };
        let client = pool.timeout_get(&timeouts).await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => busy(),
            error => error.into(),
        })?;
        Ok(Session(Arc::new(Open { client: Some(client), is_unfinished: AtomicBool::new(false) })))
    }

    /// The text of a statement with the name of the schema.
    pub(super) fn sql(&self, statement: &'static str) -> Cow<'static, str> {
        if self.address.schema == "agentwire" {
            return statement.into();
        }
        let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        let named = statements.entry(statement).or_insert_with(|| self.named(statement).into());
        named.to_string().into()
    }

    /// `text` with the name of the schema in place of `agentwire.`.
    pub(super) fn named(&self, text: &str) -> String {
        text.replace("agentwire.", &format!("{}.", self.address.schema))
    }

    /// Runs one statement outside a transaction.
    pub(super) async fn query(
        &self,
        lane: Lane,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let session = self.session(lane, WRITE_WAIT).await?;
        let work = async {
            session.unfinished(true);
            let rows = session.run(&self.sql(statement), values, self.address.prepared).await;
            // An error of the server leaves the connection usable; other errors are found by `is_closed`.
            session.unfinished(false);
            rows
        };
        timeout(CALL_TIMEOUT, work).await.map_err(|_| timed_out(CALL_TIMEOUT))?
    }

    /// Runs one statement that changes something, at a level of durability.
    pub(super) async fn write(
        &self,
        level: Durability,
        statement: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        match self.synchronous_commit(level) {
            None => self.query(Lane::General, statement, values).await,
            Some(_) => {
                let write = |t: Transaction| async move { t.query(statement, values).await };
                self.transact(Lane::General, level, write).await
            }
        }
    }

    /// Compares the server with the known one, by a connection that is in use anyway; see [`Server::read`].
    pub(super) async fn check_server(&self) -> Result<(), StoreError> {
        let session = self.session(Lane::Control, WRITE_WAIT).await?;
        session.unfinished(true);
        let read = timeout(CALL_TIMEOUT, self.server.read(session.client(), &self.address.schema)).await;
        read.map_err(|_| timed_out(CALL_TIMEOUT))??;
        session.unfinished(false);
        Ok(())
    }

    /// Runs reads outside a transaction: each statement sees its own snapshot.
    pub(super) async fn read<T, F, Fut>(&self, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(Transaction) -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let waited = timeout(READ_WAIT, self.reads.acquire()).await;
        let _permit = waited.map_err(|_| busy())?.map_err(|_| StoreError::Closed)?;
        let session = self.session(Lane::General, READ_WAIT).await?;
        let reading = async {
            session.unfinished(true);
            let result = work(self.transaction(&session, self.clocks.estimate())).await;
            session.unfinished(false);
            result
        };
        timeout(CALL_TIMEOUT, reading).await.map_err(|_| timed_out(CALL_TIMEOUT))?
    }

    fn transaction(&self, session: &Session, now: Time) -> Transaction {
        Transaction {
            session: session.clone(),
            now,
            prepared: self.address.prepared,
            schema: (self.address.schema != "agentwire").then(|| self.address.schema.clone().into()),
            epoch: self.server.epoch(),
            started: self.started(),
        }
    }

    /// The start of the server, by its own clock, if leases are judged by that.
    pub(super) fn started(&self) -> Option<Time> {
        self.clocks.given.is_none().then(|| self.server.started())
    }

    /// Runs a transaction, and repeats it after a deadlock, a serialization failure or a race of two inserts.
    pub(super) async fn transact<T, F, Fut>(
        &self,
        lane: Lane,
        level: Durability,
        work: F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let mut retries = 0;
        loop {
            let session = self.session(lane, WRITE_WAIT).await?;
            let done = timeout(CALL_TIMEOUT, self.transact_once(session, level, None, &work)).await;
            match done.map_err(|_| timed_out(CALL_TIMEOUT))? {
                Err(StoreError::Busy) if retries < MAX_RETRIES => {
                    retries += 1;
                    // Jitter from the clock's low digits; it only has to differ between two rivals.
                    let jitter = u64::from(
                        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos() % 997,
                    );
                    tokio::time::sleep(Duration::from_micros(
                        (1000 << retries.min(6)) * (500 + jitter) / 1500,
                    ))
                    .await;
                }
                other => return other,
            }
        }
    }

    /// Runs a long transaction once, without time limits: counting, checking and copying.
    pub(super) async fn transact_long<T, F, Fut>(&self, setup: &'static str, work: F) -> Result<T, StoreError>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let session = self.session(Lane::General, WRITE_WAIT).await?;
        self.transact_once(session, Durability::Os, Some(setup), &work).await
    }

    async fn transact_once<T, F, Fut>(
        &self,
        session: Session,
        level: Durability,
        setup: Option<&'static str>,
        work: &F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Transaction) -> Fut,
        Fut: Future<Output = Result<T, StoreError>>,
    {
        session.unfinished(true);
        let begin: Cow<'_, str> = match (setup, self.synchronous_commit(level)) {
            (Some(setup), _) => setup.into(),
            (None, Some(value)) => format!("BEGIN; SET LOCAL synchronous_commit TO {value}").into(),
            (None, None) => "BEGIN".into(),
        };
        // Both are sent at once.
        let now = [self.clocks.parameter()];
        let known = self.server.timeline();
        let clock = match known {
            Some(_) => concat!("SELECT coalesce($1, ", clock!(), "), ", timeline!()),
            None => concat!("SELECT coalesce($1, ", clock!(), "), NULL::int"),
        };
        let (begun, time) = tokio::join!(
            session.client().batch_execute(&begin),
            session.run(clock, &now, self.address.prepared),
        );
        begun?;
        let rows = time?;
        let row = rows.first().ok_or(StoreError::Closed)?;
        let now = get_time(row, 0)?;
        if get::<Option<i32>>(row, 1)? != known {
            // Behind a pooler, a connection may lead to another server than before.
            session.client().batch_execute("ROLLBACK").await?;
            self.server.read(session.client(), &self.address.schema).await?;
            session.unfinished(false);
            return Err(StoreError::Busy);
        }
        self.clocks.measured(now);
        let transaction = self.transaction(&session, now);
        let result = work(transaction).await;
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = session.client().batch_execute(end).await;
        match (result, ended) {
            (Ok(value), Ok(())) => {
                session.unfinished(false);
                Ok(value)
            }
            // The connection is discarded, because the state of its transaction is unknown.
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(error), ended) => {
                if ended.is_ok() {
                    session.unfinished(false);
                }
                Err(error)
            }
        }
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        for pool in [&self.append, &self.control, &self.general] {
            pool.close();
        }
    }
}

fn busy() -> StoreError {
    StoreError::io(Failed("all connections to the server are in use".into()))
}

/// A connection in use. It goes back to its pool only if its last call has ended: a caller may give up at any moment.
struct Open {
    client: Option<Object>,
    is_unfinished: AtomicBool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if *self.is_unfinished.get_mut()
            && let Some(client) = self.client.take()
        {
            // Out of the pool; dropping it closes the socket, and the server rolls back.
            drop(Object::take(client));
        }
    }
}

/// A connection in use.
#[derive(Clone)]
pub(super) struct Session(Arc<Open>);

impl Session {
    pub(super) fn client(&self) -> &deadpool_postgres::ClientWrapper {
        match &self.0.client {
            Some(client) => client,
            None => unreachable!("taken in `drop` only"),
        }
    }

    fn unfinished(&self, is_unfinished: bool) {
        self.0.is_unfinished.store(is_unfinished, Ordering::Relaxed);
    }

    async fn run(&self, sql: &str, values: &[Value<'_>], prepared: bool) -> Result<Vec<Row>, StoreError> {
        let client = self.client();
        if prepared {
            let types: Vec<Type> = values.iter().map(Value::kind).collect();
            let statement = client.prepare_typed_cached(sql, &types).await?;
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
            Ok(client.query(&statement, &values).await?)
        } else {
            let values: Vec<(&(dyn ToSql + Sync), Type)> =
                values.iter().map(|value| (value as _, value.kind())).collect();
            Ok(client.query_typed(sql, &values).await?)
        }
    }
}

/// A transaction, or a connection for reads outside of one.
#[derive(Clone)]
pub(super) struct Transaction {
    session: Session,
    /// The server's time when the transaction began.
    pub(super) now: Time,
    prepared: bool,
    /// The name of the schema, unless it is `agentwire`.
    schema: Option<Arc<str>>,
    pub(super) epoch: u32,
    /// The time at which the server started, if leases are judged by its clock.
    pub(super) started: Option<Time>,
}

impl Transaction {
    pub(super) async fn query(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        match &self.schema {
            None => self.session.run(sql, values, self.prepared).await,
            Some(schema) => {
                let sql = sql.replace("agentwire.", &format!("{schema}."));
                self.session.run(&sql, values, self.prepared).await
            }
        }
    }

    /// Runs statements that do not need each other's results, in this order and in one round trip.
    pub(super) async fn pipeline(
        &self,
        statements: &[(&'static str, Vec<Value<'_>>)],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let named = |sql: &'static str| match &self.schema {
            None => Cow::from(sql),
            Some(schema) => sql.replace("agentwire.", &format!("{schema}.")).into(),
        };
        let client = self.session.client();
        let mut prepared = Vec::new();
        if self.prepared {
            // Before the first one is sent, so that they are executed in order.
            for (sql, values) in statements {
                let types: Vec<Type> = values.iter().map(Value::kind).collect();
                prepared.push(client.prepare_typed_cached(&named(sql), &types).await?);
            }
        }
        let sent = statements.iter().enumerate().map(|(index, (sql, values))| {
            let statement = prepared.get(index).cloned();
            async move {
                match statement {
                    Some(statement) => {
                        let values: Vec<&(dyn ToSql + Sync)> =
                            values.iter().map(|value| value as _).collect();
                        client.query(&statement, &values).await
                    }
                    None => {
                        let values: Vec<(&(dyn ToSql + Sync), Type)> =
                            values.iter().map(|value| (value as _, value.kind())).collect();
                        client.query_typed(&named(sql), &values).await
                    }
                }
            }
        });
        Ok(join_all(sent).await.into_iter().collect::<Result<_, _>>()?)
    }

    /// The first row, if there is one.
    pub(super) async fn query_first(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// One number, as from `count(*)`.
    pub(super) async fn query_number(&self, sql: &str, values: &[Value<'_>]) -> Result<i64, StoreError> {
        match self.query_first(sql, values).await? {
            Some(row) => get(&row, 0),
            None => Err(StoreError::Corrupt("a query has no result".into())),
        }
    }

    /// Waits for other transactions with this lock in this schema, and excludes them until this one ends.
    pub(super) async fn advisory_lock(&self, kind: &str, of: &str) -> Result<(), StoreError> {
        let schema = self.schema.as_deref().unwrap_or("agentwire");
        let sql =
            "SELECT pg_advisory_xact_lock(hashtextextended('agentwire ' || $1 || ' ' || $2 || ' ' || $3, 0))";
        self.query(sql, &[text(kind), text(schema), text(of)]).await.map(|_| ())
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        let sql = match &self.schema {
            None => Cow::from(sql),
            Some(schema) => sql.replace("agentwire.", &format!("{schema}.")).into(),
        };
        Ok(self.session.client().batch_execute(&sql).await?)
    }
}
