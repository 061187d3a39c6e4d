//! `agentwire health`: asks a running gateway whether it is alive or ready.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use agentwire_client::transport::client_builder;
use agentwire_gateway::settings::{Settings, Tls};
use reqwest::Url;

use crate::{
    cli::Health,
    config::{self, Config, ConfigFile},
    error::{Class, Error, ExitCode, Result},
    terminal::style::one_line,
};

/// Characters of a response that are shown.
const EXCERPT: usize = 400;

pub(crate) fn run(arguments: &Health) -> Result<ExitCode> {
    let (base, is_own) = match &arguments.url {
        Some(url) => (url.clone(), false),
        None => (own_address(&configured(arguments.config.as_deref())?.settings), true),
    };
    let path = if arguments.live { "/livez" } else { "/readyz" };
    let url = format!("{}{path}", base.trim_end_matches('/'));
    let url = Url::parse(&url).map_err(|error| Error::new(Class::Usage, format!("`{url}`: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(Class::Io, format!("the runtime could not be started: {error}")))?;
    let timeout = Duration::from_secs(arguments.timeout.max(1));
    let (status, body) = runtime
        .block_on(ask(&url, timeout, is_own))
        .map_err(|error| Error::new(Class::Server, format!("`{url}` does not respond: {}", cause(&error))))?;
    if !status.is_success() {
        let body: String = body.chars().take(EXCERPT).collect();
        return Err(Error::new(Class::Server, format!("`{url}` responded {status}: {}", one_line(&body))));
    }
    print!("{body}");
    Ok(ExitCode::SUCCESS)
}

/// The file, or `./agentwire.toml`, or the defaults, as `agentwire serve` chooses.
fn configured(file: Option<&Path>) -> Result<Config> {
    let implied = Path::new(config::FILE);
    match file.or_else(|| implied.exists().then_some(implied)) {
        Some(file) => Ok(ConfigFile::load(file)?.config),
        None => Ok(Config::default()),
    }
}

/// The address of the probes on this machine.
fn own_address(settings: &Settings) -> String {
    let (address, scheme) = match (settings.admin_listen, &settings.tls) {
        (Some(address), _) => (address, "http"),
        (None, Some(Tls::Files(_))) => (settings.listen, "https"),
        (None, _) => (settings.listen, "http"),
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

async fn ask(url: &Url, timeout: Duration, is_own: bool) -> reqwest::Result<(reqwest::StatusCode, String)> {
    let mut builder = client_builder(url).no_proxy().timeout(timeout);
    if is_own {
        // The certificate has the public name of the gateway, and nothing secret is sent.
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    let response = builder.build()?.get(url.clone()).send().await?;
    let status = response.status();
    Ok((status, response.text().await?))
}

/// The innermost reason, which is the one that helps.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    one_line(&innermost.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_probes_on_this_machine() {
        let of = |text: &str| own_address(&config::parse(text).expect("a valid file").settings);
        assert_eq!(of(""), "http://127.0.0.1:7117");
        assert_eq!(of("listen = \"0.0.0.0:80\""), "http://127.0.0.1:80");
        assert_eq!(of("listen = \"[::]:80\""), "http://[::1]:80");
        assert_eq!(of("listen = \"0.0.0.0:80\"\nadmin_listen = \"10.1.2.3:81\""), "http://10.1.2.3:81");
        let tls = "listen = \"0.0.0.0:443\"\ntls = { cert = \"a\", key = \"b\" }";
        assert_eq!(of(tls), "https://127.0.0.1:443");
        assert_eq!(of(&format!("{tls}\nadmin_listen = \"0.0.0.0:81\"")), "http://127.0.0.1:81");
    }
}
