//! Host and Origin: which names the gateway answers to, and which pages may change something.
//!
//! A page of any site can send requests to a gateway on the same machine. If its own name resolves to that machine (DNS
//! rebinding), its browser even lets it read the responses; the `Host` of such a request is the name of the page. And a
//! simple request, such as a POST without a body, is sent without asking, whatever CORS says.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use super::request::Connection;
use crate::{codes, error::ApiError, settings::Settings};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The hosts of a gateway on loopback unless others are configured.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A name with an optional port, in lower case and without the dot of the root.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    host: String,
    port: Option<u16>,
}

impl Authority {
    /// Reads `host` or `host:port`. `None` if it is anything else, such as a list or a name with a user.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                address.parse::<std::net::Ipv6Addr>().ok()?;
                (
                    format!("[{address}]"),
                    port.strip_prefix(':').map_or((!port.is_empty()).then_some(""), Some),
                )
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (text.to_owned(), None),
            },
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._[]:".contains(letter);
        let host = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
        if host.is_empty() || !host.chars().all(is_name) {
            return None;
        }
        let port = match port {
            None => None,
            Some(port) if port.chars().all(|digit| digit.is_ascii_digit()) => Some(port.parse().ok()?),
            Some(_) => return None,
        };
        Some(Self { host, port })
    }

    fn port_or(&self, default: u16) -> u16 {
        self.port.unwrap_or(default)
    }
}

/// The authority of a request: `Host`, or `:authority` of HTTP/2. There must be exactly one, or several that are equal.
fn authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut found: Option<Authority> = None;
    let mut hosts = headers.get_all(header::HOST).iter();
    if let Some(host) = hosts.next() {
        if hosts.next().is_some() {
            return None;
        }
        found = Some(Authority::parse(host.to_str().ok()?)?);
    }
    if let Some(target) = uri.authority() {
        let target = Authority::parse(target.as_str())?;
        match &found {
            Some(host) if *host != target => return None,
            _ => found = Some(target),
        }
    }
    found
}

/// The names that a listener answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// The public one.
    Public,
    /// That of probes and metrics, which also answers to IP addresses.
    Admin,
}

/// Checks the host of a request.
pub(super) fn check_host(
    settings: &Settings,
    listener: Listener,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let refused = |message: &str| {
        let hint = "`hosts` in the configuration lists the names of the gateway";
        Err(ApiError::new(codes::HOST_NOT_ALLOWED, message).hint(hint))
    };
    let Some(authority) = authority(uri, headers) else {
        return refused("the request must have exactly one valid `Host`");
    };
    let is_ip = || authority.host.starts_with('[') || authority.host.parse::<std::net::Ipv4Addr>().is_ok();
    if listener == Listener::Admin && (is_ip() || authority.host == "localhost") {
        return Ok(());
    }
    let is_loopback = settings.listen.ip().is_loopback();
    let is_allowed = match &settings.hosts[..] {
        [] if is_loopback => LOOPBACK.contains(&&*authority.host),
        // The configuration was checked: the gateway is `insecure`.
        [] => true,
        hosts => hosts.iter().any(|allowed| is_named(&authority, allowed)),
    };
    if is_allowed { Ok(()) } else { refused("the gateway does not answer to this host") }
}

/// True if an entry of `hosts` names the authority: a name, a name with a port, `*.example.com`, or `*`.
fn is_named(authority: &Authority, allowed: &str) -> bool {
    if allowed == "*" {
        return true;
    }
    if let Some(parent) = allowed.strip_prefix('*') {
        let parent = parent.to_ascii_lowercase();
        return parent.starts_with('.')
            && authority.host.len() > parent.len()
            && authority.host.ends_with(&parent);
    }
    let Some(allowed) = Authority::parse(allowed) else { return false };
    allowed.host == authority.host && (allowed.port.is_none() || allowed.port == authority.port)
}

/// Checks that a request which changes something does not come from a page of another site.
///
/// It binds where a browser adds the permission by itself: cookies, client certificates, `Authorization: Basic`, whatever
/// a trusted proxy has made a user of, and anonymous callers. A bearer token is only there if the sender has it.
pub(super) fn check_origin(
    settings: &Settings,
    connection: Option<&Connection>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => Ok(()),
        _ => check_change(settings, connection, uri, headers),
    }
}

/// The same for a request that changes something, whatever its method.
pub(super) fn check_change(
    settings: &Settings,
    connection: Option<&Connection>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let is_bearer = |value: &HeaderValue| {
        value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
    };
    let mut credentials = headers.get_all(header::AUTHORIZATION).iter().peekable();
    let has_other_scheme = credentials.peek().is_some();
    let has_cookie = headers.contains_key(header::COOKIE) && !has_other_scheme;
    let has_certificate = connection.is_some_and(|connection| connection.certificate.is_some());
    // The proxy may have removed the cookie or the password that it knows the user by.
    let is_proxied = settings.auth.proxy.as_ref().is_some_and(|proxy| proxy.is_claimed(headers));
    let is_added_by_browser = has_cookie || has_other_scheme || has_certificate || is_proxied;
    if settings.auth.is_required() && (!is_added_by_browser || credentials.any(is_bearer)) {
        return Ok(());
    }
    let refused = |message: &str| {
        let hint = "`cors` in the configuration lists the origins of other pages";
        Err(ApiError::new(codes::ORIGIN_NOT_ALLOWED, message).hint(hint))
    };
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() { Err(()) } else { Ok(first) }
    };
    let (Ok(origin), Ok(site)) = (only(header::ORIGIN), only(SEC_FETCH_SITE)) else {
        return refused("the request has more than one `Origin` or `Sec-Fetch-Site`");
    };
    if site.is_some_and(|site| site == "same-origin" || site == "none") {
        return Ok(());
    }
    // Any page may be listed for credentials that it has itself, never for those that its browser adds.
    let is_any = |listed: &str| listed == "*" && !settings.auth.is_required();
    let is_listed = |origin: &HeaderValue| {
        settings.cors.iter().any(|listed| is_any(listed) || listed.as_bytes() == origin.as_bytes())
    };
    match (origin, site) {
        (Some(origin), _) if is_listed(origin) => Ok(()),
        (Some(origin), None) if is_own(origin, settings, connection, uri, headers) => Ok(()),
        // No browser: browsers send at least one of them with such a request.
        (None, None) if !settings.auth.is_required() || !has_cookie => Ok(()),
        (None, None) => refused("a request with a cookie must have an `Origin`"),
        _ => refused("the page of this origin must not change anything here"),
    }
}

/// True if the origin is that of the gateway itself, as the client sees it.
fn is_own(
    origin: &HeaderValue,
    settings: &Settings,
    connection: Option<&Connection>,
    uri: &Uri,
    headers: &HeaderMap,
) -> bool {
    let Some((scheme, rest)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let address = connection.and_then(|connection| connection.address);
    let is_proxy = address.is_some_and(|address| super::peer::is_in(address, &settings.proxies));
    let is_encrypted = settings.tls.is_some()
        || uri.scheme_str() == Some("https")
        || (is_proxy && headers.get(FORWARDED_PROTO).is_some_and(|proto| proto == "https"));
    let (own_scheme, port) = if is_encrypted { ("https", 443) } else { ("http", 80) };
    let (Some(origin), Some(own)) = (Authority::parse(rest), authority(uri, headers)) else { return false };
    scheme == own_scheme && origin.host == own.host && origin.port_or(port) == own.port_or(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{AuthMode, ProxySettings};

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().expect("a header"));
        }
        headers
    }

    fn host(settings: &Settings, listener: Listener, hosts: &[&str]) -> bool {
        let lines: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        check_host(settings, listener, &Uri::from_static("/"), &map(&lines)).is_ok()
    }

    #[test]
    fn t6_hosts_of_a_gateway_on_loopback() {
        let settings = Settings::default();
        for good in [
            "localhost",
            "localhost:7117",
            "LOCALHOST:1",
            "localhost.",
            "127.0.0.1:80",
            "[::1]:7117",
            "[::1]",
        ] {
            assert!(host(&settings, Listener::Public, &[good]), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:7117",
            "127.0.0.2",
            "0.0.0.0",
            "[::ffff:127.0.0.1]",
            "localhost:80:80",
            "user@localhost",
            "localhost, evil.example",
            "localhost/",
            "localhost:7117x",
            "[::1",
            "2130706433",
            "0x7f.1",
            "localhost:99999",
        ] {
            assert!(!host(&settings, Listener::Public, &[bad]), "{bad}");
        }
        assert!(!host(&settings, Listener::Public, &[]), "no host");
        assert!(!host(&settings, Listener::Public, &["localhost", "localhost"]), "two hosts");
        assert!(host(&settings, Listener::Admin, &["10.1.2.3:7118"]), "probes use addresses");
        assert!(!host(&settings, Listener::Admin, &["evil.example"]));
    }

    #[test]
    fn t6_configured_hosts() {
        let settings = Settings::default().hosts(vec![
            "Agents.example.com".into(),
            "*.dev.example".into(),
            "b:8443".into(),
        ]);
        for (name, expected) in [
            ("agents.example.com", true),
            ("AGENTS.example.com:8443", true),
            ("a.dev.example", true),
            ("dev.example", false),
            ("evildev.example", false),
            ("b:8443", true),
            ("b", false),
            ("localhost", false),
            ("agents.example.com.evil.example", false),
        ] {
            assert_eq!(host(&settings, Listener::Public, &[name]), expected, "{name}");
        }
        let any = Settings::default().hosts(vec!["*".into()]);
        assert!(
            host(&any, Listener::Public, &["anything.example"]) && !host(&any, Listener::Public, &["a", "b"])
        );
    }

    #[test]
    fn t6_the_target_and_the_host_must_agree() {
        let settings = Settings::default();
        let check = |uri: &str, host: &str| {
            check_host(&settings, Listener::Public, &uri.parse().expect("a target"), &map(&[("host", host)]))
                .is_ok()
        };
        assert!(check("http://localhost:7117/x", "localhost:7117"));
        assert!(!check("http://localhost:7117/x", "evil.example"));
        assert!(!check("http://evil.example/x", "localhost:7117"));
        let http2 = Uri::from_static("http://localhost:7117/x");
        assert!(check_host(&settings, Listener::Public, &http2, &HeaderMap::new()).is_ok());
    }

    fn origin(settings: &Settings, method: Method, lines: &[(&'static str, &str)]) -> bool {
        let mut lines = lines.to_vec();
        lines.push(("host", "127.0.0.1:7117"));
        check_origin(settings, None, &method, &Uri::from_static("/"), &map(&lines)).is_ok()
    }

    #[test]
    fn t6_origins_of_an_anonymous_gateway() {
        let settings = Settings::default().cors(vec!["https://app.example.com".into()]);
        let post = |lines: &[(&'static str, &str)]| origin(&settings, Method::POST, lines);
        assert!(post(&[]), "curl and SDKs");
        assert!(post(&[("origin", "http://127.0.0.1:7117")]), "its own");
        assert!(post(&[("origin", "https://app.example.com")]));
        assert!(post(&[("origin", "https://app.example.com"), ("sec-fetch-site", "cross-site")]));
        assert!(post(&[("sec-fetch-site", "same-origin")]) && post(&[("sec-fetch-site", "none")]));
        for bad in [
            "null",
            "https://evil.example",
            "http://127.0.0.1:7118",
            "https://127.0.0.1:7117",
            "http://127.0.0.1",
            "http://localhost:7117",
            "https://app.example.com.evil.example",
            "https://evil-app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com, https://evil.example",
            "",
        ] {
            assert!(!post(&[("origin", bad)]), "{bad}");
            assert!(!post(&[("origin", bad), ("sec-fetch-site", "cross-site")]), "{bad}");
        }
        assert!(!post(&[("sec-fetch-site", "cross-site")]) && !post(&[("sec-fetch-site", "same-site")]));
        assert!(!post(&[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:7117")]));
        assert!(!post(&[("origin", "https://app.example.com"), ("origin", "https://evil.example")]));
        assert!(
            !post(&[("origin", "https://evil.example"), ("authorization", "Bearer x")]),
            "it is not looked at"
        );
        for method in [Method::PATCH, Method::DELETE, Method::PUT] {
            assert!(!origin(&settings, method, &[("origin", "https://evil.example")]));
        }
        assert!(origin(&settings, Method::GET, &[("origin", "https://evil.example")]), "CORS hides it");
    }

    #[test]
    fn t6_cookies_need_an_origin_and_credentials_do_not() {
        let mut settings = Settings::default().cors(vec!["https://app.example.com".into()]);
        settings.auth.mode = AuthMode::Required;
        let post = |lines: &[(&'static str, &str)]| origin(&settings, Method::POST, lines);
        assert!(post(&[("authorization", "Bearer x"), ("origin", "https://evil.example")]));
        assert!(post(&[("authorization", "Bearer x")]));
        assert!(!post(&[("cookie", "a=b")]));
        assert!(!post(&[("cookie", "a=b"), ("origin", "https://evil.example")]));
        assert!(!post(&[("cookie", "a=b"), ("origin", "null")]));
        assert!(post(&[("cookie", "a=b"), ("origin", "https://app.example.com")]));
        assert!(post(&[("cookie", "a=b"), ("sec-fetch-site", "same-origin")]));
        // A browser adds `Basic` by itself; programs send it without an origin.
        let basic = ("authorization", "Basic YTpi");
        assert!(post(&[basic]) && post(&[basic, ("sec-fetch-site", "same-origin")]));
        assert!(post(&[basic, ("origin", "https://app.example.com")]));
        assert!(!post(&[basic, ("origin", "https://evil.example")]));
        assert!(!post(&[basic, ("cookie", "a=b"), ("sec-fetch-site", "cross-site")]));
        assert!(!post(&[("authorization", "Bearer"), ("origin", "https://evil.example")]));
        assert!(post(&[("authorization", "bEARER x"), ("cookie", "a=b"), ("origin", "null")]));
        // Any origin is listed: never for cookies.
        settings.cors = vec!["*".into()];
        let post = |lines: &[(&'static str, &str)]| origin(&settings, Method::POST, lines);
        assert!(!post(&[("cookie", "a=b"), ("origin", "https://evil.example")]));
        assert!(post(&[("authorization", "Bearer x"), ("origin", "https://evil.example")]));
        settings.auth.mode = AuthMode::default();
        assert!(origin(&settings, Method::POST, &[("origin", "https://evil.example")]), "nobody is named");
    }

    #[test]
    fn t6_users_of_a_proxy_are_added_by_browsers() {
        let mut settings = Settings::default().cors(vec!["https://app.example.com".into()]);
        settings.auth.mode = AuthMode::Required;
        let secret = crate::auth::Secret::Value(b"secret".to_vec());
        let proxy = ProxySettings::new(Vec::new(), "x-proxy-secret", secret, "x-user-id");
        settings.auth.proxy = Some(proxy);
        for name in ["x-user-id", "x-proxy-secret"] {
            let post = |lines: &[(&'static str, &str)]| {
                origin(&settings, Method::POST, &[&[(name, "ada")], lines].concat())
            };
            assert!(post(&[]) && post(&[("sec-fetch-site", "same-origin")]), "{name}");
            assert!(post(&[("origin", "https://app.example.com")]), "{name}");
            assert!(!post(&[("origin", "https://evil.example")]) && !post(&[("origin", "null")]), "{name}");
            assert!(!post(&[("sec-fetch-site", "cross-site")]), "{name}");
        }
        assert!(
            origin(&settings, Method::POST, &[("origin", "https://evil.example")]),
            "no credential at all"
        );
    }

    #[test]
    fn t6_client_certificates_are_added_by_browsers() {
        let mut settings = Settings::default().cors(vec!["https://app.example.com".into()]);
        settings.auth.mode = AuthMode::Required;
        let connection = Connection { certificate: Some(std::sync::Arc::default()), ..Connection::default() };
        let post = |lines: &[(&'static str, &str)]| {
            let mut lines = lines.to_vec();
            lines.push(("host", "127.0.0.1:7117"));
            let uri = Uri::from_static("/");
            check_origin(&settings, Some(&connection), &Method::POST, &uri, &map(&lines)).is_ok()
        };
        assert!(post(&[]), "a service");
        assert!(post(&[("origin", "https://app.example.com")]) && post(&[("sec-fetch-site", "same-origin")]));
        assert!(!post(&[("origin", "https://evil.example")]) && !post(&[("origin", "null")]));
        assert!(!post(&[("sec-fetch-site", "cross-site")]) && !post(&[("sec-fetch-site", "same-site")]));
        assert!(post(&[("origin", "https://evil.example"), ("authorization", "Bearer x")]));
    }
}
