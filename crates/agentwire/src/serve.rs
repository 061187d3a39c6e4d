//! `agentwire serve`: configures, starts, reloads and stops the gateway.

use std::{io, net::SocketAddr, path::Path, time::Duration};

use agentwire_core::format::Format;
use agentwire_gateway::{
    Gateway, InstanceLock,
    settings::{IdentitySource, Tls},
    upstream::ModelApi,
};
use agentwire_store::{Options, Store, StoreError};
use reqwest::header::{HeaderName, HeaderValue};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    cli::Serve,
    config::{
        self, Adk, AgentConfig, Config, ConfigFile, DURABILITIES, Events, Exec, Http, LangGraph, LogFormat,
        Model, Replay, Secret, Tenancy, Upstream,
    },
    config_command, door,
    error::{Class, Error, ExitCode, Result},
    formats,
    reload::{self, Changes},
    store_command,
};

/// Accept queue of the listening socket. With the usual 128, the system refuses connections when many readers reconnect
/// at once, and their retries take a second. The system may enforce a lower limit.
const BACKLOG: u32 = 4096;

/// Time limit for a database server that cannot be reached at the start. Longer than a restart or a failover takes.
const STORE_PATIENCE: Duration = Duration::from_secs(600);

/// Serves until a shutdown signal.
pub(crate) fn run(arguments: &Serve) -> Result<ExitCode> {
    let mut arguments = arguments.clone();
    let config = configure(&mut arguments)?;
    start_log(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Threads for long work keep memory while they wait for more of it.
        .thread_keep_alive(Duration::from_secs(2))
        .build()
        .map_err(|error| Error::new(Class::Io, format!("cannot start: {error}")))?;
    let code = runtime.block_on(serve(arguments, config))?;
    if code != ExitCode::SUCCESS {
        // Ended at once: the store is consistent at any moment, and nothing else needs a cleanup.
        runtime.shutdown_background();
    }
    Ok(code)
}

/// Loads the file and applies the flags on top of it. An implied file is stored in `arguments`, so that a reload reads
/// the same one.
fn configure(arguments: &mut Serve) -> Result<Config> {
    let agent = flag_agent(arguments)?;
    let implied = Path::new(config::FILE);
    if arguments.config.is_none() && implied.exists() {
        arguments.config = Some(implied.to_owned());
    }
    let file = arguments.config.as_deref();
    let file = file.map(ConfigFile::load).transpose()?;
    let mut config = file.as_ref().map_or_else(Config::default, |file| file.config.clone());
    if let Some(agent) = agent {
        config.default_agent = Some(agent.name.clone());
        config.agents = vec![agent];
    }
    if let Some(listen) = arguments.listen {
        config.settings.listen = listen;
    }
    if let Some(store) = &arguments.store {
        config.store.clone_from(store);
    }
    if !arguments.cors.is_empty() {
        config.settings.cors.clone_from(&arguments.cors);
    }
    config.settings.insecure |= arguments.insecure;
    if let Some(durability) = arguments.durability {
        config.durability = durability;
    }
    if let Some(level) = &arguments.log {
        config.log.level.clone_from(level);
    }
    if let Some(format) = arguments.log_format {
        config.log.format = format;
    }
    if let Some(file) = &file {
        file.check_environment(&config)?;
    }
    if let Some((_, name, _)) = config.missing_variables().next() {
        return Err(Error::new(Class::Usage, format!("the environment variable `{name}` is not set")));
    }
    if let Some(problem) = config.missing_secrets().next() {
        return Err(Error::new(Class::Usage, problem));
    }
    door::check(&config)?;
    Ok(config)
}

/// The agent that the flags describe, if any.
fn flag_agent(arguments: &Serve) -> Result<Option<AgentConfig>> {
    let pairs = &arguments.options;
    let options = |format: Option<&'static Format>| formats::reader_options(pairs, format);
    let headers = headers(&arguments.headers)?;
    let http = |url: &String| Http {
        url: url.clone(),
        headers,
        forward_headers: Vec::new(),
        tenancy: Tenancy::default(),
    };
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let upstream = if let Some(url) = &arguments.langgraph {
        let graph = arguments.graph.clone().unwrap_or_else(|| "agent".into());
        let options = options(Format::find("langgraph"))?;
        Upstream::LangGraph(LangGraph {
            http: http(url),
            graph,
            assistant: None,
            context: None,
            state_keys: Vec::new(),
            stream_modes: None,
            options,
        })
    } else if let Some(url) = &arguments.adk {
        let options = options(Format::find("adk"))?;
        Upstream::Adk(Adk {
            http: http(url),
            app: name(&arguments.app),
            user: None,
            streaming: true,
            custom_metadata: None,
            service_tier: None,
            options,
        })
    } else if let Some(url) = &arguments.ag_ui {
        Upstream::AgUi(http(url))
    } else if let Some(url) = &arguments.hai {
        Upstream::Hai(http(url))
    } else if let Some(url) = &arguments.events {
        let (format, options) = (arguments.format, options(arguments.format)?);
        Upstream::Events(Events { http: http(url), method: "POST", body: None, format, options })
    } else if let Some((api, url)) = model_api(arguments) {
        let api_key = arguments.api_key_env.clone().map(|name| Secret::Variable(name, 0..0));
        let (model, options) = (name(&arguments.model), serde_json::Map::new());
        Upstream::Model(Model { api, http: http(url), model, system: None, api_key, options })
    } else if let Some(line) = &arguments.exec {
        let (format, options) = (arguments.format, options(arguments.format)?);
        Upstream::Exec(Exec {
            command: config::shell(line),
            format,
            env: Vec::new(),
            cwd: None,
            tenancy: Tenancy::default(),
            options,
        })
    } else if let Some(file) = &arguments.replay {
        let options = options(arguments.format)?;
        Upstream::Replay(Replay { file: file.clone(), format: arguments.format, speed: None, options })
    } else {
        return Ok(None);
    };
    Ok(Some(AgentConfig::new(upstream.kind(), upstream)))
}

/// The API and the URL of a model.
fn model_api(arguments: &Serve) -> Option<(ModelApi, &String)> {
    let apis = [
        (ModelApi::ChatCompletions, &arguments.openai),
        (ModelApi::Responses, &arguments.openai_responses),
        (ModelApi::Messages, &arguments.anthropic),
    ];
    apis.into_iter().find_map(|(api, url)| Some((api, url.as_ref()?)))
}

fn headers(lines: &[String]) -> Result<Vec<(String, Secret)>> {
    let header = |line: &String| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let value = value.trim();
        HeaderValue::from_str(value).ok()?;
        Some((name.as_str().to_owned(), Secret::Literal(value.to_owned())))
    };
    let checked = |line: &String| {
        // The value is likely a secret.
        let name = || line.split(':').next().unwrap_or_default().escape_debug().to_string();
        header(line).ok_or_else(|| {
            let name = if line.contains(':') { format!(" `{}`", name()) } else { String::new() };
            Error::new(Class::Usage, format!("the header{name} is not of the form `NAME: VALUE`"))
        })
    };
    lines.iter().map(checked).collect()
}

/// Starts logging to stderr, as text or JSON.
fn start_log(config: &Config) {
    let levels: Targets = config.log.level.parse().unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match config.log.format {
        LogFormat::Json => lines.json().flatten_event(true).with_filter(levels).boxed(),
        LogFormat::Text => {
            let colour = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
            lines.with_ansi(colour).with_filter(levels).boxed()
        }
    };
    // A process that is not ours may have a subscriber already.
    let _ = tracing_subscriber::registry().with(lines).try_init();
}

async fn serve(arguments: Serve, config: Config) -> Result<ExitCode> {
    // Bind first: if the port is in use, the store must not be touched.
    let requested = config.settings.listen;
    let listener = listen(requested).map_err(|error| cannot_listen(requested, &error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(requested, &error))?;

    let mut options = Options::default();
    options.sqlite.durability = config.durability;
    options.postgres.durability = config.durability;
    options.postgres.patience = Some(STORE_PATIENCE);
    let store_address = store_command::resolve(&config.store)?;
    let store = store_command::open(&store_address, options).await?;

    let opening = store.clone();
    let gateway = Gateway::builder(store, config.settings.clone())
        .instance_lock(InstanceLock::at(&store_address))
        .registry(reload::registry(&config)?)
        .build();
    gateway.load_certificates().map_err(|error| {
        Error::new(Class::Usage, format!("tls: {error}"))
            .hint("`tls.cert` and `tls.key` are PEM files that belong together")
    })?;
    // Installed before the banner, so that a signal after it is never lost.
    let signals = Signals::new();
    let hangup = Hangup::new();
    print_banner(&config, address);
    for warning in door::warnings(&config) {
        tracing::warn!("{warning}");
    }
    let is_one_user = config.settings.identity.user.source == IdentitySource::Constant;
    if !address.ip().is_loopback() && is_one_user && !config.settings.auth.is_required() {
        tracing::warn!(%address, "everyone who reaches this address is the same user; `identity` tells them apart");
    }
    for agent in &config.agents {
        let routes = agentwire_gateway::routes_without_identity(&config.settings, &agent.settings);
        if !routes.is_empty() {
            let routes = routes.join(", ");
            tracing::warn!(
                agent = agent.name,
                routes,
                "these routes refuse every request: `identity` names a part of the request that they do not have"
            );
        }
    }
    tokio::spawn(reload_on_hangup(hangup, gateway.clone(), arguments, config));
    let (second, at_once) = oneshot::channel();
    let served = tokio::select! {
        served = agentwire_gateway::serve(gateway, listener, shutdown_signal(signals, second)) => served,
        Ok(code) = at_once => return Ok(code),
        error = refusal(&*opening) => return Err(store_command::failed(&store_address, &error)),
    };
    served
        .map_err(|error| Error::new(Class::Io, format!("cannot go on listening on `{address}`: {error}")))?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Resolves when it is clear that the store cannot be used.
async fn refusal(store: &dyn Store) -> StoreError {
    match store.opened().await {
        Err(error) => error,
        Ok(()) => std::future::pending().await,
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Allows binding while old connections are in TIME_WAIT; on Windows this option has another meaning.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Error {
    let failed = Error::new(Class::Io, format!("cannot listen on `{address}`: {error}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let free = SocketAddr::new(address.ip(), 0);
            failed.hint(format!("something listens there already; `--listen {free}` takes any free port"))
        }
        io::ErrorKind::PermissionDenied => {
            failed.hint("ports below 1024 need special rights; choose another with `--listen`")
        }
        io::ErrorKind::AddrNotAvailable => failed.hint("this machine does not have that address"),
        _ => failed,
    }
}

/// Prints address, store, agents and routes; one log line if the log format is JSON.
fn print_banner(config: &Config, address: SocketAddr) {
    if config.log.format == LogFormat::Json {
        let agents: Vec<_> = config.agents.iter().map(|agent| agent.name.as_str()).collect();
        tracing::info!(%address, store = agentwire_store::redact_address(&config.store), agents = agents.join(","), "listening");
        return;
    }
    let bold = |text: &str| format!("\x1b[1m{text}\x1b[0m");
    let durability =
        DURABILITIES.iter().find(|(_, level)| *level == config.durability).map_or("", |(name, _)| name);
    let scheme = if matches!(config.settings.tls, Some(Tls::Files(_))) { "https" } else { "http" };
    let server = format!("{scheme}://{}", reachable(address));
    anstream::eprintln!("{} {}\n", bold("agentwire"), env!("CARGO_PKG_VERSION"));
    anstream::eprintln!("  listening  {}", bold(&server));
    let settings = &config.settings;
    if settings.console.unwrap_or(settings.auth.is_required() || address.ip().is_loopback()) {
        anstream::eprintln!("  console    {}", bold(&format!("{server}/console")));
    }
    anstream::eprintln!(
        "  store      {} (durability {durability})",
        agentwire_store::redact_address(&config.store)
    );
    for (index, agent) in config.agents.iter().enumerate() {
        let lead = if index == 0 { "agents" } else { "" };
        anstream::eprintln!("  {lead:9}  {}: {}", bold(&agent.name), config_command::target(agent));
    }
    let default = config.agents.iter().find(|agent| Some(&agent.name) == config.default_agent.as_ref());
    let Some(agent) = default.or(config.agents.first()) else { return };
    let base = if default.is_some() { String::new() } else { format!("/agents/{}", agent.name) };
    anstream::eprintln!(
        "\n  routes     of each agent below /agents/NAME{}",
        match default {
            Some(agent) => format!(", those of {} at / too", bold(&agent.name)),
            None => String::new(),
        }
    );
    for (on, route, about) in routes(agent) {
        if on {
            anstream::eprintln!("    {route:48} {about}");
        }
    }
    anstream::eprintln!(
        "    {:48} {}",
        "GET /openapi.json, /metrics, /livez, /readyz",
        "all routes; for machines"
    );
    if agent.settings.routes.ag_ui && !agent.settings.path.contains('{') {
        let path = if agent.settings.path.starts_with('/') { &agent.settings.path } else { "/" };
        // The ids are new each time the command is pasted.
        let body = r#"{"threadId":"try","runId":"'$(date +%s)'","messages":[{"id":"'$(date +%s)'","role":"user","content":"hello"}],"tools":[],"context":[],"state":{},"forwardedProps":{}}"#;
        anstream::eprintln!(
            "\n  try it:\n  curl -N {server}{base}{path} -H 'content-type: application/json' -d '{body}'\n"
        );
    }
}

/// The routes of an agent for the banner: whether enabled, route, protocol or purpose.
fn routes(agent: &AgentConfig) -> [(bool, String, &'static str); 7] {
    let on = agent.settings.routes;
    [
        (on.ag_ui, format!("POST {}", agent.settings.path), "AG-UI"),
        (on.hai, format!("POST {}", agent.settings.hai_paths.join(", ")), "HAI"),
        (on.ai_sdk, "POST /api/chat".into(), "AI SDK"),
        (on.history, "GET /thread/list, /message_snapshot/{id}".into(), "history"),
        (on.state, "GET /state_snapshot/{id}, PATCH /state/{id}".into(), "state"),
        (on.runs, "GET /runs/{run}/stream, /threads/{id}/stream".into(), "follow or come back"),
        (true, "GET /capabilities".into(), "what the agent can do"),
    ]
}

/// The address as a client on this machine uses it.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        std::net::IpAddr::V4(_) => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
        std::net::IpAddr::V6(_) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
    }
}

/// Resolves at SIGINT or SIGTERM. The handlers are installed at once.
pub(crate) fn first_signal() -> impl Future<Output = ()> {
    let signals = Signals::new();
    async move {
        match signals {
            Ok(mut signals) => {
                let _ = signals.next().await;
            }
            Err(_) => std::future::pending().await,
        }
    }
}

/// Returns at the first signal; the exit code of the second one is sent to `second`.
async fn shutdown_signal(signals: io::Result<Signals>, second: oneshot::Sender<ExitCode>) {
    let mut signals = match signals {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signal handlers cannot be installed: only SIGKILL ends this process");
            return std::future::pending().await;
        }
    };
    let (name, _) = signals.next().await;
    tracing::info!(
        signal = name,
        "stopping: no new runs, active runs may finish; a second signal ends at once"
    );
    tokio::spawn(async move {
        let (name, number) = signals.next().await;
        tracing::warn!(signal = name, "ended at once");
        let _ = second.send(ExitCode::from(128 + number));
    });
}

/// Reloads the agents on every SIGHUP.
async fn reload_on_hangup(
    hangup: io::Result<Hangup>,
    gateway: Gateway,
    arguments: Serve,
    mut config: Config,
) {
    let mut hangup = match hangup {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::error!(%error, "the SIGHUP handler cannot be installed: a changed configuration needs a restart");
            return;
        }
    };
    loop {
        hangup.next().await;
        let (mut arguments, certificates) = (arguments.clone(), gateway.clone());
        // Blocking: reads the certificates, the file and recordings.
        let read = tokio::task::spawn_blocking(move || {
            if let Err(error) = certificates.load_certificates() {
                tracing::error!(%error, "the new certificates are not used; the old ones stay");
            }
            let config = configure(&mut arguments)?;
            reload::registry(&config).map(|registry| (config, registry))
        });
        match read.await {
            Ok(Ok((new, registry))) => {
                let Changes { added, changed, removed, needs_restart } = Changes::between(&config, &new);
                gateway.replace_agents(registry);
                gateway.adopt_threads().await;
                if !needs_restart.is_empty() {
                    let keys = needs_restart.join(", ");
                    tracing::warn!(keys, "these keys changed and need a restart; the old values stay");
                }
                let agents = gateway.agents().join(", ");
                let (added, changed, removed) = (added.join(", "), changed.join(", "), removed.join(", "));
                tracing::info!(agents, added, changed, removed, "configuration reloaded");
                config.agents = new.agents;
                config.default_agent = new.default_agent;
            }
            Ok(Err(error)) => {
                const NOT_RELOADED: &str = "the configuration was not reloaded; the old one stays";
                match config.log.format {
                    LogFormat::Json => {
                        let problem = anstream::adapter::strip_str(&error.render()).to_string();
                        tracing::error!(problem, "{NOT_RELOADED}");
                    }
                    LogFormat::Text => {
                        tracing::error!("{NOT_RELOADED}");
                        error.report();
                    }
                }
            }
            Err(error) => tracing::error!(%error, "the configuration could not be read again"),
        }
    }
}

#[cfg(unix)]
struct Hangup(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangup {
    fn new() -> io::Result<Self> {
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        // `None` means that no further signal can arrive.
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Other systems have no SIGHUP.
#[cfg(not(unix))]
struct Hangup;

#[cfg(not(unix))]
impl Hangup {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> (&'static str, u8) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", 15),
            _ = self.interrupt.recv() => ("SIGINT", 2),
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> (&'static str, u8) {
        let _ = tokio::signal::ctrl_c().await;
        ("Ctrl-C", 2)
    }
}
