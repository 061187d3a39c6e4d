//! The gateway inside a Python program: short calls that never block, and notes in the other direction.

use std::{
    collections::HashMap,
    io,
    net::ToSocketAddrs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use agentwire::embed::{EmbedError, Embedded};
use agentwire_gateway::{AgentRegistry, Connection, Gateway, InstanceLock, auth::Caller, store};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, request::Parts},
};
use futures_util::TryStreamExt;
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList},
};
use serde_json::Value;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{self, PythonIdentity},
    calls::{CallError, Calls, ContextHandle, Put},
    errors,
    exchange::{End, Exchange},
    hooks::{HooksPlan, PythonLock},
    log,
    notes::{Note, Notes, RequestHead},
    walk::{self, Models},
};

/// The shared runtime, with the process that it belongs to.
static RUNTIME: Mutex<(u32, Weak<Runtime>)> = Mutex::new((0, Weak::new()));

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runtime of this process.
fn runtime(threads: usize) -> io::Result<Arc<Runtime>> {
    let mut shared = locked(&RUNTIME);
    let process = std::process::id();
    if shared.0 == process
        && let Some(runtime) = shared.1.upgrade()
    {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("agentwire")
        .enable_all()
        .build()
        .map(Arc::new)?;
    *shared = (process, Arc::downgrade(&runtime));
    Ok(runtime)
}

/// A configuration with the description of its Python agents.
struct Plan {
    config: Embedded,
    /// By name; what `agents::build` needs, and `identity` if the agent has such a function.
    agents: Value,
    /// True if the gateway has an identity function.
    has_identity: bool,
    identity_timeout: Duration,
}

impl Plan {
    fn registry(&self, calls: &Arc<Calls>) -> Result<AgentRegistry, EmbedError> {
        let identity = |target: &str| PythonIdentity {
            calls: calls.clone(),
            target: target.into(),
            timeout: self.identity_timeout,
        };
        let make = |name: &str| agents::build(calls, name, &self.agents[name]);
        let registry = self.config.registry(make, |name, mut config| {
            // Those of the file have the hooks and the lock of the gateway.
            let about = if self.agents[name].is_null() { &self.agents[""] } else { &self.agents[name] };
            if about["identity"].as_bool() == Some(true) {
                config = config.identify(Arc::new(identity(name)));
            }
            if let Some(hooks) = HooksPlan::of(&about["hooks"]) {
                let (calls, target) = (calls.clone(), name.to_owned());
                config = config.hooks(move |run| hooks.for_run(&calls, &target, run));
            }
            if let Some(seconds) = about["lock"].as_f64() {
                let timeout = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                let lock = PythonLock { calls: calls.clone(), target: name.into(), timeout };
                config = config.lock(Arc::new(lock));
            }
            config
        })?;
        Ok(match self.has_identity {
            true => registry.identify(Arc::new(identity(""))),
            false => registry,
        })
    }
}

/// A gateway that has been started.
struct Running {
    runtime: Arc<Runtime>,
    /// Set when the store is open.
    gateway: Arc<OnceLock<Gateway>>,
}

/// The gateway of one `agentwire.Gateway`.
#[pyclass(frozen)]
pub(crate) struct Server {
    calls: Arc<Calls>,
    plan: Mutex<Plan>,
    running: Mutex<Option<Running>>,
    exchanges: Mutex<HashMap<u64, Arc<Exchange>>>,
    routers: Mutex<HashMap<String, Router>>,
    listening: Mutex<Option<Listening>>,
}

/// The gateway's own HTTP server.
struct Listening {
    /// Cancelled when it has to drain and end.
    closing: CancellationToken,
    task: JoinHandle<()>,
}

fn config_error(py: Python<'_>, error: &EmbedError) -> PyErr {
    let EmbedError { message, hint, key, position } = error;
    errors::config_at(py, message, hint.as_deref(), key.as_deref(), *position)
}

fn closed(py: Python<'_>) -> PyErr {
    errors::closed(py, "the gateway is not running")
}

#[allow(clippy::too_many_arguments, reason = "the arguments of `agentwire.Gateway`")]
fn plan(
    py: Python<'_>,
    file: Option<PathBuf>,
    overrides: &str,
    default: Option<&str>,
    agents: &str,
    has_identity: bool,
    identity_timeout: f64,
) -> PyResult<Plan> {
    let parsed = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| PyValueError::new_err(error.to_string()))
    };
    let overrides = parsed(overrides)?;
    let mut config = Embedded::load(file.as_deref(), &overrides).map_err(|error| config_error(py, &error))?;
    if let Some(default) = default {
        config.set_default(default).map_err(|error| config_error(py, &error))?;
    }
    let identity_timeout = Duration::try_from_secs_f64(identity_timeout).unwrap_or(Duration::MAX);
    Ok(Plan { config, agents: parsed(agents)?, has_identity, identity_timeout })
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (file, overrides, default, agents, has_identity, identity_timeout))]
    fn new(
        py: Python<'_>,
        file: Option<PathBuf>,
        overrides: &str,
        default: Option<&str>,
        agents: &str,
        has_identity: bool,
        identity_timeout: f64,
    ) -> PyResult<Self> {
        errors::guarded(py, || {
            let calls = Calls::new(Arc::new(Notes::default()));
            let plan = plan(py, file, overrides, default, agents, has_identity, identity_timeout)?;
            // Every mistake is told here, not at the first request.
            plan.registry(&calls).map_err(|error| config_error(py, &error))?;
            plan.config.store().map_err(|error| config_error(py, &error))?;
            Ok(Self {
                calls,
                plan: Mutex::new(plan),
                running: Mutex::default(),
                exchanges: Mutex::default(),
                routers: Mutex::default(),
                listening: Mutex::default(),
            })
        })
    }

    /// The agents of a configuration that are Python objects: name and `MODULE:ATTRIBUTE`.
    #[staticmethod]
    fn python_agents(
        py: Python<'_>,
        file: Option<PathBuf>,
        overrides: &str,
    ) -> PyResult<Vec<(String, String)>> {
        errors::guarded(py, || {
            let plan = plan(py, file, overrides, None, "{}", false, 1.0)?;
            let agents = plan.config.python_agents();
            Ok(agents.map(|(name, object)| (name.to_owned(), object.to_owned())).collect())
        })
    }

    /// The largest request body in bytes.
    fn body_limit(&self) -> usize {
        locked(&self.plan).config.settings().limits.body
    }

    /// The grace time of a drain in seconds.
    fn drain_grace(&self) -> f64 {
        locked(&self.plan).config.settings().drain_grace.as_secs_f64()
    }

    /// The names of the agents.
    fn agents(&self) -> Vec<String> {
        locked(&self.plan).config.agents().map(ToOwned::to_owned).collect()
    }

    /// Starts: opens the store and ends what a predecessor left open. Gives the file descriptor that wakes Python's loop;
    /// the note `done` with the number 0 follows.
    fn start(&self, py: Python<'_>, worker_threads: usize, log_to: &str) -> PyResult<i64> {
        errors::guarded(py, || {
            let mut running = locked(&self.running);
            if running.is_some() {
                return Err(PyRuntimeError::new_err("the gateway was started before"));
            }
            let failed = |error: io::Error| PyRuntimeError::new_err(format!("cannot start: {error}"));
            let runtime = runtime(worker_threads).map_err(failed)?;
            let notes = self.calls.notes().clone();
            let socket = notes.connect().map_err(failed)?;
            let plan = locked(&self.plan);
            match log_to {
                "stderr" => log::start_stderr(plan.config.log_level()),
                _ => log::start(&notes, plan.config.log_level()),
            }
            let (address, options) = plan.config.store().map_err(|error| config_error(py, &error))?;
            let settings = plan.config.settings().clone();
            let registry = plan.registry(&self.calls).map_err(|error| config_error(py, &error))?;
            let gateway = Arc::new(OnceLock::new());
            let started = gateway.clone();
            let calls = self.calls.clone();
            runtime.spawn(async move {
                let error = match store::open(&address, options).await {
                    Ok(store) => {
                        let gateway = Gateway::builder(store, settings)
                            .instance_lock(InstanceLock::at(&address))
                            .registry(registry)
                            .on_request(move |parts| tell_request(&calls, parts))
                            .build();
                        gateway.recover().await;
                        let _ = started.set(gateway);
                        None
                    }
                    Err(error) => Some(store_error(&address, &error)),
                };
                notes.push(Note::Done { id: 0, error });
            });
            *running = Some(Running { runtime, gateway });
            Ok(descriptor(socket))
        })
    }

    /// All notes, the number of log records that were lost, and the seconds that the notes have waited.
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, usize, f64)> {
        let (notes, dropped, late) = self.calls.notes().take();
        let list = PyList::empty(py);
        for note in notes {
            let note = match note {
                Note::Ready(id) => ("ready", id).into_pyobject(py)?.into_any(),
                Note::Call { id, target, kind, payload, context } => {
                    ("call", id, &*target, kind, payload, context).into_pyobject(py)?.into_any()
                }
                Note::Request(head) => {
                    let headers = head.headers.iter();
                    let headers =
                        headers.map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)));
                    let headers = PyList::new(py, headers.collect::<Vec<_>>())?;
                    ("request", head.id, head.method, head.target, headers, head.client)
                        .into_pyobject(py)?
                        .into_any()
                }
                Note::Cancel(id) => ("cancel", id).into_pyobject(py)?.into_any(),
                Note::Room(id) => ("room", id).into_pyobject(py)?.into_any(),
                Note::Release(id) => ("release", id).into_pyobject(py)?.into_any(),
                Note::Done { id, error } => ("done", id, error).into_pyobject(py)?.into_any(),
                Note::Log { level, target, message, fields } => {
                    ("log", level, target, message, fields).into_pyobject(py)?.into_any()
                }
            };
            list.append(note)?;
        }
        Ok((list, dropped, late.as_secs_f64()))
    }

    /// Begins an exchange. Raises `ValueError` for a head that HTTP does not allow.
    #[pyo3(signature = (method, target, headers, client, is_https, has_body, part, caller, prefix=""))]
    #[allow(clippy::too_many_arguments, reason = "the head of a request")]
    fn request(
        &self,
        py: Python<'_>,
        method: &str,
        target: &[u8],
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        client: Option<&str>,
        is_https: bool,
        has_body: bool,
        part: &str,
        caller: Option<(String, String, Option<String>)>,
        prefix: &str,
    ) -> PyResult<u64> {
        errors::guarded(py, || {
            let (handle, gateway) = self.gateway(py)?;
            let bad = |problem: &str| PyValueError::new_err(problem.to_owned());
            let id = self.calls.next_id();
            let mut map = HeaderMap::with_capacity(headers.len());
            for (name, value) in &headers {
                let name = HeaderName::from_bytes(name).map_err(|_| bad("a header has an invalid name"))?;
                let value =
                    HeaderValue::from_bytes(value).map_err(|_| bad("a header has an invalid value"))?;
                map.append(name, value);
            }
            let uri = Uri::try_from(target).map_err(|_| bad("the path is not valid"))?;
            let uri = if is_https { absolute(&uri, &map) } else { uri };
            let notes = self.calls.notes().clone();
            let exchange = Exchange::new(id, notes.clone());
            let body = if has_body {
                let failed = |error: CallError| io::Error::other(error.message);
                Body::from_stream(self.calls.open(id).map_err(failed))
            } else {
                Body::empty()
            };
            let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("the method is not valid"))?;
            let mut request = Request::new(body);
            *request.method_mut() = method;
            *request.uri_mut() = uri;
            *request.headers_mut() = map;
            let address = client.and_then(|client| client.parse().ok());
            let extensions = request.extensions_mut();
            extensions.insert(Connection::new(address, exchange.cut.clone()).mounted_at(prefix));
            extensions.insert(ContextHandle::context(id, false, notes));
            if let Some((tenant, user, thread)) = caller {
                let caller = Caller::new(&tenant, &user);
                extensions.insert(match thread {
                    Some(thread) => caller.in_thread(&thread),
                    None => caller,
                });
            }
            let router = locked(&self.routers)
                .entry(part.to_owned())
                .or_insert_with(|| match part {
                    "main" => gateway.main_routes(),
                    "history" => gateway.history_routes(),
                    "state" => gateway.state_routes(),
                    _ => gateway.router(),
                })
                .clone();
            locked(&self.exchanges).insert(id, exchange.clone());
            exchange.start(&handle, router, request, gateway.settings().limits.write_timeout);
            Ok(id)
        })
    }

    /// The piece of a response that waits: its status and headers if it is the first, its bytes, and 0 if more follows,
    /// 1 at the end, 2 if the connection must be cut.
    fn take<'py>(&self, py: Python<'py>, id: u64) -> PyResult<Bound<'py, PyAny>> {
        let Some(exchange) = locked(&self.exchanges).get(&id).cloned() else {
            let nothing = (None::<u16>, None::<u8>, PyBytes::new(py, b""), End::Cut as u8);
            return Ok(nothing.into_pyobject(py)?.into_any());
        };
        let piece = exchange.take();
        let (status, headers) = match &piece.head {
            Some((status, headers)) => {
                let pairs =
                    headers.iter().map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)));
                (Some(*status), Some(PyList::new(py, pairs.collect::<Vec<_>>())?))
            }
            None => (None, None),
        };
        let piece = (status, headers, PyBytes::new(py, &piece.bytes), piece.end as u8);
        Ok(piece.into_pyobject(py)?.into_any())
    }

    /// Ends an exchange: its client has left, or has everything.
    fn close(&self, id: u64) {
        let exchange = locked(&self.exchanges).remove(&id);
        if let Some(exchange) = exchange {
            exchange.close();
        }
    }

    /// Appends bytes to the stream of a call, or to the body of a request: 0 for more, 1 if it is full, 2 if nobody listens.
    fn put_bytes(&self, id: u64, bytes: &[u8]) -> u8 {
        let put = self.calls.put(id, |out| {
            out.extend_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(())
        });
        put.map_or(Put::Closed as u8, |put| put as u8)
    }

    /// Appends an object as a line of JSON to the stream of a call. As `put_bytes`; 3 if the object is no event.
    fn put(&self, py: Python<'_>, id: u64, value: &Bound<'_, PyAny>) -> PyResult<u8> {
        errors::guarded(py, || {
            let mut is_event = true;
            let put = self.calls.put(id, |out| {
                walk::write(out, value, Models::Lean)?;
                is_event = matches!(out.first(), Some(b'{' | b'['));
                match is_event {
                    true => out.push(b'\n'),
                    false => out.clear(),
                }
                Ok::<_, PyErr>(())
            })?;
            Ok(if is_event { put as u8 } else { 3 })
        })
    }

    /// Ends the stream of a call, or the body of a request.
    #[pyo3(signature = (id, code=None, message=None, detail=None, status=None, retry_after=None))]
    fn end(
        &self,
        id: u64,
        code: Option<String>,
        message: Option<String>,
        detail: Option<String>,
        status: Option<u16>,
        retry_after: Option<u64>,
    ) {
        let end = match message {
            None => Ok(()),
            Some(message) => {
                Err(CallError { code, message, detail: detail.unwrap_or_default(), status, retry_after })
            }
        };
        self.calls.end(id, end);
    }

    /// Replaces the agents; live runs keep theirs.
    #[allow(clippy::too_many_arguments, reason = "the arguments of `agentwire.Gateway`")]
    fn replace(
        &self,
        py: Python<'_>,
        file: Option<PathBuf>,
        overrides: &str,
        default: Option<&str>,
        agents: &str,
        has_identity: bool,
        identity_timeout: f64,
    ) -> PyResult<()> {
        errors::guarded(py, || {
            let plan = plan(py, file, overrides, default, agents, has_identity, identity_timeout)?;
            let registry = plan.registry(&self.calls).map_err(|error| config_error(py, &error))?;
            if let Some(running) = &*locked(&self.running)
                && let Some(gateway) = running.gateway.get()
            {
                gateway.replace_agents(registry);
            }
            locked(&self.routers).clear();
            *locked(&self.plan) = plan;
            Ok(())
        })
    }

    /// Refuses an address that others can reach, unless the configuration protects it, as `agentwire serve` does.
    fn check_listener(&self, py: Python<'_>, address: &str) -> PyResult<()> {
        errors::guarded(py, || {
            let address = address.to_socket_addrs()?.next();
            let address = address.ok_or_else(|| PyValueError::new_err("the address is none of a host"))?;
            let plan = locked(&self.plan);
            let checked = plan.config.check_listener(address, plan.has_identity);
            checked.map_err(|error| config_error(py, &error))
        })
    }

    /// Listens on an address with the gateway's own HTTP server: gives the address with its port, and the number of the
    /// note `done` that follows when it ends.
    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<(String, u64)> {
        errors::guarded(py, || {
            let (handle, gateway) = self.gateway(py)?;
            let address = address.to_socket_addrs()?.next();
            let address = address.ok_or_else(|| PyValueError::new_err("the address is none of a host"))?;
            {
                let plan = locked(&self.plan);
                let checked = plan.config.check_listener(address, plan.has_identity);
                checked.map_err(|error| config_error(py, &error))?;
            }
            let mut listening = locked(&self.listening);
            if listening.is_some() {
                return Err(PyRuntimeError::new_err("the gateway listens already"));
            }
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let listener = {
                let _inside = handle.enter();
                tokio::net::TcpListener::from_std(listener)?
            };
            let id = self.calls.next_id();
            let (notes, closing) = (self.calls.notes().clone(), CancellationToken::new());
            let shutdown = closing.clone().cancelled_owned();
            let task = handle.spawn(async move {
                let served = agentwire_gateway::serve(gateway, listener, shutdown).await;
                let error = served.err().map(|error| error.to_string());
                notes.push(Note::Done { id, error });
            });
            *listening = Some(Listening { closing, task });
            Ok((address.to_string(), id))
        })
    }

    /// Drains; the note `done` with this number follows.
    fn drain(&self, py: Python<'_>, grace: Option<f64>) -> PyResult<u64> {
        errors::guarded(py, || {
            let (handle, gateway) = self.gateway(py)?;
            let id = self.calls.next_id();
            let notes = self.calls.notes().clone();
            let grace = grace.and_then(|grace| Duration::try_from_secs_f64(grace).ok());
            let listening = locked(&self.listening).take();
            handle.spawn(async move {
                match grace {
                    Some(grace) => gateway.drain_within(grace).await,
                    // The server drains by itself, and then closes its connections.
                    None if listening.is_some() => {}
                    None => gateway.drain().await,
                }
                if let Some(Listening { closing, task }) = listening {
                    closing.cancel();
                    let _ = task.await;
                }
                notes.push(Note::Done { id, error: None });
            });
            Ok(id)
        })
    }

    /// Drains with a grace time of zero and waits for it: at the end of the interpreter, where no loop runs any more.
    fn drain_now(&self, py: Python<'_>) {
        let Ok((handle, gateway)) = self.gateway(py) else { return };
        py.detach(|| {
            let limit = Duration::from_secs(10);
            let _ = handle
                .block_on(async { tokio::time::timeout(limit, gateway.drain_within(Duration::ZERO)).await });
        });
    }

    /// Ends everything; the runtime ends with the last gateway.
    fn stop(&self, py: Python<'_>) {
        let running = locked(&self.running).take();
        let exchanges = std::mem::take(&mut *locked(&self.exchanges));
        let routers = std::mem::take(&mut *locked(&self.routers));
        if let Some(Listening { task, .. }) = locked(&self.listening).take() {
            task.abort();
        }
        self.calls.notes().disconnect();
        // The store waits for its threads.
        py.detach(|| {
            drop((exchanges, routers));
            if let Some(Running { runtime, gateway }) = running {
                drop(gateway);
                if let Some(runtime) = Arc::into_inner(runtime) {
                    runtime.shutdown_background();
                }
            }
        });
    }

    /// In a child process: the threads of the parent are not here, so nothing is ended or freed.
    fn abandon(&self) {
        if let Ok(mut running) = self.running.try_lock() {
            std::mem::forget(running.take());
        }
        if let Ok(mut routers) = self.routers.try_lock() {
            std::mem::forget(std::mem::take(&mut *routers));
        }
        if let Ok(mut listening) = self.listening.try_lock() {
            std::mem::forget(listening.take());
        }
        if let Ok(mut exchanges) = self.exchanges.try_lock() {
            std::mem::forget(std::mem::take(&mut *exchanges));
        }
    }
}

impl Server {
    fn gateway(&self, py: Python<'_>) -> PyResult<(tokio::runtime::Handle, Gateway)> {
        let running = locked(&self.running);
        let running = running.as_ref().ok_or_else(|| closed(py))?;
        let gateway = running.gateway.get().cloned().ok_or_else(|| closed(py))?;
        Ok((running.runtime.handle().clone(), gateway))
    }
}

/// Tells Python about a request of the gateway's own server, for its identity function, agents and hooks.
fn tell_request(calls: &Calls, parts: &mut Parts) {
    let id = calls.next_id();
    let notes = calls.notes().clone();
    let headers = parts.headers.iter();
    let address = parts.extensions.get::<Connection>().and_then(Connection::address);
    notes.push(Note::Request(Box::new(RequestHead {
        id,
        method: parts.method.to_string(),
        target: parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        headers: headers.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect(),
        client: address.map(|address| address.to_string()),
    })));
    parts.extensions.insert(ContextHandle::context(id, true, notes));
}

/// The address of an encrypted request, as its client sees it.
fn absolute(uri: &Uri, headers: &HeaderMap) -> Uri {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let made = host
        .and_then(|host| Uri::builder().scheme("https").authority(host).path_and_query(path).build().ok());
    made.unwrap_or_else(|| uri.clone())
}

/// The reason why a store cannot be opened, with its causes.
fn store_error(address: &str, error: &agentwire_store::StoreError) -> String {
    let mut text = format!("store `{}`: {error}", agentwire_store::redact_address(address));
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(unix)]
fn descriptor(socket: std::os::unix::net::UnixStream) -> i64 {
    use std::os::fd::IntoRawFd;
    i64::from(socket.into_raw_fd())
}

#[cfg(windows)]
fn descriptor(socket: std::net::TcpStream) -> i64 {
    use std::os::windows::io::IntoRawSocket;
    i64::try_from(socket.into_raw_socket()).unwrap_or(-1)
}
