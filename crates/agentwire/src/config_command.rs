//! `agentwire config check` and `agentwire config schema`.

use agentwire_core::format::Format;
use agentwire_gateway::{
    hooks::OnFailure,
    routes_without_identity,
    settings::{AgentSettings, Auth, Busy, IdentityField, IdentitySource},
};

use reqwest::Url;

use crate::{
    cli::ConfigCommand,
    config::{self, AgentConfig, Config, ConfigFile, DURABILITIES, Upstream},
    door,
    error::{ExitCode, Result},
    hooks,
};

/// Checks the file, or prints its schema.
pub(crate) fn run(command: &ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Check { file } => {
            let config = ConfigFile::load(file)?.config;
            door::check(&config)?;
            print_summary(&config);
            for warning in door::warnings(&config) {
                eprintln!("warning: {warning}");
            }
            for problem in config.missing_secrets() {
                eprintln!("note: {problem}");
            }
            // Not an error: the secrets are on the machine that will use the file, which may be another one.
            for (agent, name, _) in config.missing_variables() {
                eprintln!("note: the environment variable `{name}` of agent `{agent}` is not set here");
            }
            for agent in config.agents.iter().filter(|agent| !agent.settings.approve.is_empty()) {
                eprintln!(
                    "note: `approve` of agent `{}` holds calls of tools that the front end runs and of long-running tools; \
                     a tool that the agent runs itself cannot be held by a gateway, it has run by the time the call is seen",
                    agent.name
                );
            }
            for agent in &config.agents {
                let routes = routes_without_identity(&config.settings, &agent.settings);
                if !routes.is_empty() {
                    eprintln!(
                        "note: these routes of agent `{}` refuse every request with NO_IDENTITY, because a request to them \
                         cannot have the field that `identity` names: {}",
                        agent.name,
                        routes.join(", ")
                    );
                    eprintln!(
                        "hint: give them a source of their own (`identity.runs`, `identity.history`, `identity.state`), give a \
                         `default`, or switch them off (`routes`)"
                    );
                }
            }
            for agent in &config.agents {
                hooks::notes(agent).iter().for_each(|note| eprintln!("note: agent `{}` {note}", agent.name));
            }
        }
        ConfigCommand::Schema => println!("{:#}", config::schema()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a summary of the configuration.
fn print_summary(config: &Config) {
    let settings = &config.settings;
    let durability =
        DURABILITIES.iter().find(|(_, level)| *level == config.durability).map_or("", |(name, _)| name);
    println!("listen    {}", settings.listen);
    println!("store     {} (durability {durability})", agentwire_store::redact_address(&config.store));
    let is_anonymous = !settings.auth.is_required();
    let names = |field: &IdentityField| match is_anonymous {
        true => describe_identity(field),
        false => "of the credential".to_owned(),
    };
    println!("user      {}", names(&settings.identity.user));
    println!("tenant    {}", names(&settings.identity.tenant));
    if let Some(thread) = &settings.identity.thread {
        println!("thread    {}", describe_identity(thread));
    }
    if !settings.cors.is_empty() {
        println!("cors      {}", settings.cors.join(", "));
    }
    if settings.auth.is_required() {
        println!("auth      {}", describe_auth(&settings.auth));
    }
    println!("agents");
    let width = config.agents.iter().map(|agent| agent.name.len()).max().unwrap_or_default();
    for agent in &config.agents {
        let default = if config.default_agent.as_deref() == Some(&agent.name) { ", at / too" } else { "" };
        println!("  {:width$}  {}, busy {}{default}", agent.name, target(agent), busy(&agent.settings));
        if let Some(threads) = &agent.settings.threads {
            println!("  {:width$}  threads shared as {threads}", "");
        }
        if let Some(identities) = agent.settings.identity.as_ref().filter(|_| is_anonymous) {
            let (user, tenant) =
                (describe_identity(&identities.main.user), describe_identity(&identities.main.tenant));
            println!("  {:width$}  user {user}; tenant {tenant}", "");
        }
        if !agent.hooks.is_empty() {
            println!("  {:width$}  {}", "", describe_hooks(agent));
        }
    }
}

/// The kinds of credentials.
fn describe_auth(auth: &Auth) -> String {
    let mut kinds: Vec<_> =
        auth.jwt.iter().map(|issuer| format!("jwt {} ({})", issuer.name, issuer.issuer)).collect();
    kinds.extend(auth.keys.as_ref().map(|_| "API keys".to_owned()));
    kinds.extend(auth.proxy.as_ref().map(|proxy| format!("proxy (header {})", proxy.user)));
    kinds.extend(auth.ask.as_ref().map(|_| "external handler".to_owned()));
    kinds.extend(auth.mtls.iter().map(|entry| format!("mtls {}", entry.san)));
    kinds.join(", ")
}

/// The source of an identity field.
fn describe_identity(field: &IdentityField) -> String {
    let default =
        field.default.as_deref().map_or_else(String::new, |default| format!(", otherwise {default}"));
    match &field.source {
        IdentitySource::Constant => format!("always {}", field.default.as_deref().unwrap_or_default()),
        IdentitySource::Header(name) => format!("header {name}{default}"),
        IdentitySource::Path(name) => format!("path parameter {name}{default}"),
        IdentitySource::Body(pointer) => format!("body {pointer}{default}"),
    }
}

/// The upstream of an agent, without secrets.
pub(crate) fn target(agent: &AgentConfig) -> String {
    let kind = agent.upstream.kind();
    let server = agent.upstream.http().map(|http| match Url::parse(&http.url) {
        // Scheme, host and path: a user's name can be a token too. Both calls fail only if there is none.
        Ok(mut url) => {
            let _ = (url.set_password(None), url.set_username(""));
            url.set_query(None);
            url.set_fragment(None);
            url.to_string()
        }
        Err(_) => String::new(),
    });
    let server = server.as_deref().unwrap_or_default();
    match &agent.upstream {
        Upstream::Demo => kind.to_owned(),
        Upstream::Python(object) => format!("{kind} {object}"),
        Upstream::AgUi(_) | Upstream::Hai(_) => format!("{kind} {server}"),
        Upstream::Replay(upstream) => format!("{kind} {}", upstream.file.display()),
        Upstream::LangGraph(upstream) => format!("{kind} {server}, graph {}", upstream.graph),
        Upstream::Adk(upstream) => format!("{kind} {server}, app {}", upstream.app),
        Upstream::Events(upstream) => {
            format!("{kind} {server}, {} {}", upstream.method, read_as(upstream.format))
        }
        Upstream::Model(upstream) => format!("{kind} {server}, model {}", upstream.model),
        // Arguments may be secrets.
        Upstream::Exec(upstream) => {
            let program = upstream.command.first().map_or("", String::as_str);
            format!("{kind} `{program} …`, {}", read_as(upstream.format))
        }
    }
}

/// The name of the format to read.
fn read_as(format: Option<&'static Format>) -> &'static str {
    format.map_or("any format", |format| format.name)
}

/// The rules and hooks of an agent.
fn describe_hooks(agent: &AgentConfig) -> String {
    let mut parts = Vec::new();
    match agent.hooks.rules.len() {
        0 => {}
        1 => parts.push("1 rule".to_owned()),
        count => parts.push(format!("{count} rules")),
    }
    parts.extend(agent.hooks.servers().map(|(name, hook)| match hook.on_failure {
        OnFailure::Open => format!("{name} hook (open)"),
        OnFailure::Closed => format!("{name} hook (closed)"),
    }));
    parts.join(", ")
}

fn busy(settings: &AgentSettings) -> String {
    let policy = |busy| match busy {
        Busy::Reject => "reject".into(),
        Busy::Wait { retries, interval } => format!("wait ({retries} times {} ms)", interval.as_millis()),
        Busy::Enqueue { limit } => format!("enqueue (up to {limit})"),
        Busy::Interrupt => "interrupt".into(),
    };
    let (busy, detached) = (policy(settings.busy), policy(settings.detached));
    match settings.detached == AgentSettings::default().detached {
        true => busy,
        false => format!("{busy} ({detached} if nobody reads)"),
    }
}
