//! `agentwire config check` and `agentwire config schema`.

use std::process::ExitCode;

use agentwire_core::format::Format;
use agentwire_gateway::{
    hooks::OnFailure,
    settings::{Busy, IdentityField, IdentitySource},
};

use reqwest::Url;

use crate::{
    cli::ConfigCommand,
    config::{self, AgentConfig, Config, DURABILITIES, File, Upstream},
    error::Result,
    hooks,
};

/// Checks the file, or prints its schema.
pub(crate) fn run(command: &ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Check { file } => {
            let config = File::load(file, false)?.config;
            show(&config);
            // Not an error: whoever checks a file need not know the secrets of the machine that will use it.
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
                hooks::notes(agent).iter().for_each(|note| eprintln!("note: agent `{}` {note}", agent.name));
            }
        }
        ConfigCommand::Schema => println!("{:#}", config::schema()),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is configured, as a short table.
fn show(config: &Config) {
    let settings = &config.settings;
    let durability =
        DURABILITIES.iter().find(|(_, level)| *level == config.durability).map_or("", |(name, _)| name);
    println!("listen    {}", settings.listen);
    println!("store     {} (durability {durability})", config.store);
    println!("user      {}", extract(&settings.identity.user));
    println!("tenant    {}", extract(&settings.identity.tenant));
    if let Some(thread) = &settings.identity.thread {
        println!("thread    {}", extract(thread));
    }
    if !settings.cors.is_empty() {
        println!("cors      {}", settings.cors.join(", "));
    }
    println!("agents");
    let width = config.agents.iter().map(|agent| agent.name.len()).max().unwrap_or_default();
    for agent in &config.agents {
        let default = if config.default_agent.as_deref() == Some(&agent.name) { ", at / too" } else { "" };
        println!("  {:width$}  {}, busy {}{default}", agent.name, target(agent), busy(agent.settings.busy));
        if !agent.hooks.is_empty() {
            println!("  {:width$}  {}", "", hooked(agent));
        }
    }
}

/// Where a name comes from.
fn extract(extract: &IdentityField) -> String {
    let default =
        extract.default.as_deref().map_or_else(String::new, |default| format!(", otherwise {default}"));
    match &extract.source {
        IdentitySource::Constant => format!("always {}", extract.default.as_deref().unwrap_or_default()),
        IdentitySource::Header(name) => format!("header {name}{default}"),
        IdentitySource::Path(name) => format!("path parameter {name}{default}"),
        IdentitySource::Body(pointer) => format!("body {pointer}{default}"),
    }
}

/// How an agent is reached, without anything secret.
pub(crate) fn target(agent: &AgentConfig) -> String {
    let kind = agent.upstream.kind();
    let server = agent.upstream.http().map(|http| match Url::parse(&http.url) {
        Ok(mut url) => {
            if url.password().is_some() {
                // Fails for addresses that cannot have one, and this one has.
                let _ = url.set_password(Some("***"));
            }
            url.set_query(None);
            url.to_string()
        }
        Err(_) => String::new(),
    });
    let server = server.as_deref().unwrap_or_default();
    match &agent.upstream {
        Upstream::Demo => kind.to_owned(),
        Upstream::AgUi(_) => format!("{kind} {server}"),
        Upstream::Replay(of) => format!("{kind} {}", of.file.display()),
        Upstream::LangGraph(of) => format!("{kind} {server}, graph {}", of.graph),
        Upstream::Adk(of) => format!("{kind} {server}, app {}", of.app),
        Upstream::Events(of) => format!("{kind} {server}, {} {}", of.method, read_as(of.format)),
        Upstream::OpenAi(of) => format!("{kind} {server}, model {}", of.model),
        Upstream::Exec(of) => {
            let line = match of.command.as_slice() {
                [shell, flag, line] if shell == "sh" && flag == "-c" => line.clone(),
                words => words.join(" "),
            };
            format!("{kind} `{line}`, {}", read_as(of.format))
        }
    }
}

/// The name of the format that is read.
fn read_as(format: Option<&'static Format>) -> &'static str {
    format.map_or("any format", |format| format.name)
}

/// What takes part in an agent's runs.
fn hooked(agent: &AgentConfig) -> String {
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

fn busy(busy: Busy) -> String {
    match busy {
        Busy::Reject => "reject".into(),
        Busy::Wait { retries, interval } => format!("wait ({retries} times {} ms)", interval.as_millis()),
        Busy::Enqueue { limit } => format!("enqueue (up to {limit})"),
        Busy::Interrupt => "interrupt".into(),
    }
}
