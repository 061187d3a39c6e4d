//! The open door: a gateway that others can reach must know who they are, which name it has, and encrypt.

use agentwire_gateway::{
    is_loopback,
    settings::{IdentitySource, Tls},
};
use reqwest::Url;

use crate::{
    config::Config,
    error::{Class, Error, Result},
};

/// A gap, and how to close it.
struct Gap {
    message: &'static str,
    hint: &'static str,
}

/// The gaps of a configuration that listens beyond loopback. `has_identity`: a program names the senders itself.
fn gaps(config: &Config, has_identity: bool) -> Vec<Gap> {
    let settings = &config.settings;
    let mut gaps = Vec::new();
    if settings.listen.ip().is_loopback() {
        return gaps;
    }
    let identities = config.agents.iter().filter_map(|agent| agent.settings.identity.as_ref());
    let mut users = identities.map(|identities| &identities.main.user).chain([&settings.identity.user]);
    let is_header = users.any(|user| matches!(user.source, IdentitySource::Header(_)));
    if settings.auth.is_required() && settings.auth.proxy.is_none() && is_header {
        // Not read with authentication; whoever wrote it counts on a proxy that sets it.
        gaps.push(Gap {
            message: "`identity` names a header with the user, which nobody vouches for",
            hint: "take it from a trusted proxy by `[auth.proxy]`, or remove it: the credential names the user",
        });
    }
    if !settings.auth.is_required() && !has_identity {
        gaps.push(match is_header {
            true => Gap {
                message: "the user is a header that anybody who reaches the port may set",
                hint: "`[auth.proxy]` takes it from a trusted proxy only, with `peers` and a `secret`",
            },
            false => Gap {
                message: "nobody has to show who they are",
                hint: "add `[auth]` with `[[auth.jwt]]`, `[auth.keys]` or `[auth.proxy]`",
            },
        });
    }
    if settings.hosts.is_empty() {
        gaps.push(Gap {
            message: "requests for any host name are answered",
            hint: "add `hosts = [\"…\"]` with the names under which clients reach it",
        });
    }
    if settings.tls.is_none() {
        gaps.push(Gap {
            message: "connections are not encrypted",
            hint: "add `tls = { cert = \"…\", key = \"…\" }`, or `tls = \"proxy\"` if a proxy in front encrypts",
        });
    }
    gaps
}

/// Refuses a gateway with gaps unless they are waived.
pub(crate) fn check(config: &Config) -> Result<()> {
    check_for(config, false)
}

/// As [`check`], for a program that may have a function that names the senders.
pub(crate) fn check_for(config: &Config, has_identity: bool) -> Result<()> {
    let gaps = gaps(config, has_identity);
    if gaps.is_empty() || config.settings.insecure {
        return Ok(());
    }
    let lines: Vec<_> = gaps.iter().map(|gap| format!("\n  - {} ({})", gap.message, gap.hint)).collect();
    let message = format!("`{}` can be reached by others, and:{}", config.settings.listen, lines.concat());
    Err(Error::new(Class::Usage, message).hint(
        "listen on 127.0.0.1, close the gaps, or waive them with `insecure = true` or `serve --insecure`",
    ))
}

/// Warnings about what is allowed and dangerous.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if config.settings.insecure {
        let waived = gaps(config, false);
        found.extend(waived.iter().map(|gap| format!("`insecure` waives: {}; {}", gap.message, gap.hint)));
        if waived.is_empty() {
            found.push("`insecure` waives nothing here: remove it".into());
        }
    }
    for agent in &config.agents {
        let http = agent.upstream.http().filter(|http| !http.headers.is_empty());
        let url = http.and_then(|http| Url::parse(&http.url).ok());
        if url.is_some_and(|url| url.scheme() == "http" && !is_loopback(&url)) {
            found.push(format!(
                "agent `{}`: headers with secrets go to an http:// address off this machine",
                agent.name
            ));
        }
    }
    for agent in &config.agents {
        let is_forwarded = |name: &String| name == "authorization";
        if config.settings.auth.is_required() && agent.settings.forward_headers.iter().any(is_forwarded) {
            found.push(format!(
                "agent `{}`: `authorization` is the credential for this gateway and is not forwarded; `upstream.identity` tells the agent who asks",
                agent.name
            ));
        }
    }
    if config.settings.auth.keys.is_some() && config.store.starts_with("memory:") {
        found.push("`[auth.keys]` needs a store that keeps keys: with `memory:` there are none".into());
    }
    if !config.settings.auth.mtls.is_empty()
        && !matches!(&config.settings.tls, Some(Tls::Files(files)) if files.client_ca.is_some())
    {
        found.push("`[[auth.mtls]]` needs `tls.client_ca`: no client certificate is asked for".into());
    }
    found
}
