//! Keys of authentication: `[auth]`.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use agentwire_gateway::{
    auth::{Scope, Secret},
    is_loopback,
    settings::{
        AskSettings, Auth, AuthMode, JwtAlgorithm, JwtClaims, JwtIssuer, JwtKeys, KeySettings, MtlsEntry,
        ProxySettings,
    },
};
use reqwest::Url;
use serde_json::json;

use super::{
    table::{Shape, Table, Value, ValueType},
    types::{
        ANY_TEXT, Choice, DURATION, DURATION_OR_ZERO, HEADER, List, NAME, NETWORK, PATH, POINTER, TextType,
        URL, VARIABLE, did_you_mean,
    },
};

/// Intervals of a key set unless others are configured.
const REFRESH: Duration = Duration::from_secs(600);
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);

/// Reads `[auth]`.
pub(super) fn read(table: &mut Table<'_>, auth: &mut Auth) {
    table.set(
        "mode",
        &Choice(&[("required", AuthMode::Required), ("anonymous", AuthMode::Anonymous)]),
        &mut auth.mode,
        "`required`: every request needs a credential; the default as soon as one kind is configured. `anonymous`: none is looked at; only on loopback, or with `insecure = true`.",
    );
    let has_mode = table.has("mode");
    table.set(
        "jwt",
        &Tables("a list of tables, `[[auth.jwt]]`", issuer),
        &mut auth.jwt,
        "Issuers of signed tokens (JWT).",
    );
    check_issuers(table, &auth.jwt);
    let has_keys = table.has("keys");
    table.table("keys", "API keys, made by `agentwire keys`.", |table| {
        let pepper = table.required(
            "pepper",
            &SECRET,
            "The key of the hashes in the store: `{ env = \"…\" }` or `{ file = \"…\" }`. Whoever has the store without it cannot make keys.",
        );
        auth.keys = pepper.filter(|_| has_keys).map(KeySettings::new);
    });
    let has_proxy = table.has("proxy");
    table.table("proxy", "A proxy that authenticates users and names them in headers.", |table| {
        auth.proxy = proxy(table).filter(|_| has_proxy);
    });
    let has_ask = table.has("ask");
    table.table("ask", "An external handler for credentials that nothing else here knows.", |table| {
        auth.ask = ask(table).filter(|_| has_ask);
    });
    table.set(
        "mtls",
        &Tables("a list of tables, `[[auth.mtls]]`", mtls),
        &mut auth.mtls,
        "Services that authenticate by a client certificate (`tls.client_ca`).",
    );
    table.set("roles", &Roles, &mut auth.roles, "The scopes of each role, by its name.");
    let is_any =
        has_keys || has_proxy || has_ask || !auth.jwt.is_empty() || !auth.mtls.is_empty() || table.has("jwt");
    if !has_mode && is_any {
        auth.mode = AuthMode::Required;
    }
    if auth.mode == AuthMode::Required && !is_any {
        let hint = "add one of `[[auth.jwt]]`, `[auth.keys]`, `[auth.proxy]`, `[auth.ask]`, `[[auth.mtls]]`";
        table.reject("mode", "`auth` requires a credential and names no kind of it", hint);
    }
}

/// Where the secrets of `[auth]` come from, with their keys.
pub(super) fn secrets(auth: &Auth) -> Vec<(String, &Secret)> {
    let mut found = Vec::new();
    for issuer in &auth.jwt {
        if let JwtKeys::Secret(secret) = &issuer.keys {
            found.push((format!("auth.jwt `{}`", issuer.name), secret));
        }
    }
    found.extend(auth.keys.as_ref().map(|keys| ("auth.keys.pepper".to_owned(), &keys.pepper)));
    found.extend(auth.proxy.as_ref().map(|proxy| ("auth.proxy.secret".to_owned(), &proxy.secret)));
    found
}

/// Rejects issuers that cannot be told apart.
fn check_issuers(table: &Table<'_>, issuers: &[JwtIssuer]) {
    let span = table.span_of("jwt");
    let twice = |key: &str, value: &str, hint: &str| {
        let message = format!("two entries of `auth.jwt` have the {key} `{value}`");
        table.reject_at(span.clone(), message, Some(hint.to_owned()));
    };
    for (at, issuer) in issuers.iter().enumerate() {
        let earlier = &issuers[..at];
        if earlier.iter().any(|other| other.name == issuer.name) {
            twice("name", &issuer.name, "the name is a part of users' names: give each entry its own");
        }
        if earlier.iter().any(|other| other.issuer == issuer.issuer) {
            twice("issuer", &issuer.issuer, "an entry can have several audiences and algorithms");
        }
        if issuer.cookie.is_some() && earlier.iter().any(|other| other.cookie == issuer.cookie) {
            twice("cookie", issuer.cookie.as_deref().unwrap_or_default(), "give each entry its own");
        }
    }
    if issuers.iter().filter(|issuer| issuer.is_unprefixed).count() > 1 {
        let hint = "otherwise two issuers could give two people one name";
        table.reject_at(span, "only one entry of `auth.jwt` can have `prefix = \"\"`", Some(hint.to_owned()));
    }
}

/// The name of an entry: a part of users' names.
const ENTRY_NAME: TextType<String> = NAME;

/// Beginnings of names that never come from a token.
const RESERVED_NAMES: [&str; 3] = ["key:", "anon:", "svc:"];

fn issuer(table: &mut Table<'_>) -> Option<JwtIssuer> {
    let name = table.required("name", &ENTRY_NAME, "The first part of its users' names: `NAME|sub`.");
    if let Some(name) = &name
        && (name.contains('|') || name.chars().any(char::is_control))
    {
        let hint = "`|` separates the entry from the user in `NAME|sub`";
        table.reject("name", format!("`{}.name` cannot be `{}`", table.path(), name.escape_debug()), hint);
    }
    if let Some(name) = &name
        && RESERVED_NAMES.iter().any(|prefix| name.starts_with(prefix))
    {
        let hint = "names that begin with `key:`, `anon:` or `svc:` are the gateway's own";
        table.reject("name", format!("`{}.name` cannot be `{}`", table.path(), name.escape_debug()), hint);
    }
    let issuer = table.required("issuer", &NAME, "The `iss` of its tokens, exactly.");
    let audience = table.required(
        "audience",
        &List(NAME, "a list of texts"),
        "Accepted values of `aud`; a token must have one of them.",
    );
    if audience.as_ref().is_some_and(Vec::is_empty) {
        let hint = "without an audience, tokens for other servers would be accepted here";
        table.reject("audience", format!("`{}.audience` is empty", table.path()), hint);
    }
    let jwks = table.optional(
        "jwks",
        &JWKS,
        "The key set: `{ url = \"…\", refresh = \"10m\", max_stale = \"24h\" }` or `{ file = \"…\" }`.",
    );
    let secret = table.optional(
        "secret",
        &SECRET,
        "A secret shared with the issuer, for HS256, HS384 and HS512, in place of `jwks`.",
    );
    let keys = match (table.has("jwks"), table.has("secret")) {
        (true, true) => {
            let hint = "a key set has public keys, a secret is shared: keep one of them";
            table.reject("secret", format!("`{}` has both `jwks` and `secret`", table.path()), hint);
            None
        }
        (false, false) => {
            let hint =
                "give `jwks = { url = \"…\" }`, `jwks = { file = \"…\" }` or `secret = { env = \"…\" }`";
            table.reject("", format!("`{}` does not say where its keys are", table.path()), hint);
            None
        }
        _ => jwks.or(secret.map(JwtKeys::Secret)),
    };
    let is_secret = table.has("secret");
    let mut algorithms = if is_secret { vec![JwtAlgorithm::HS256] } else { JwtAlgorithm::DEFAULT.to_vec() };
    table.set(
        "algorithms",
        &List(Choice(JwtAlgorithm::NAMES), "a list of algorithms"),
        &mut algorithms,
        "Accepted algorithms of signatures.",
    );
    if algorithms.is_empty() {
        table.reject("algorithms", format!("`{}.algorithms` is empty", table.path()), "name at least one");
    }
    if let Some(wrong) = algorithms.iter().find(|algorithm| algorithm.is_symmetric() != is_secret) {
        let (message, hint) = if is_secret {
            (
                format!("`{wrong:?}` needs a key set, not a secret"),
                "allowed with `secret`: HS256, HS384, HS512",
            )
        } else {
            (
                format!("`{wrong:?}` needs a secret, not a key set"),
                "a public key would serve as the secret: HS and other algorithms are never in one entry",
            )
        };
        table.reject("algorithms", format!("`{}.algorithms`: {message}", table.path()), hint);
    }
    let mut leeway = Duration::from_secs(30);
    table.set("leeway", &DURATION_OR_ZERO, &mut leeway, "Tolerance for clocks that differ.");
    let mut claims = JwtClaims::default();
    table.table("claims", "Positions of names in a token, as JSON pointers.", |table| {
        table.set("user", &POINTER, &mut claims.user, "The user.");
        claims.tenant = table.optional("tenant", &POINTER, "The tenant; `default` for all if absent.");
        claims.roles = table.optional("roles", &POINTER, "The roles: a list, or text with spaces.");
        table.set("scopes", &POINTER, &mut claims.scopes, "The scopes: a list, or text with spaces.");
    });
    let cookie = table.optional(
        "cookie",
        &COOKIE,
        "A cookie that may carry the token in place of `Authorization`; best a `__Host-` one.",
    );
    let prefix = table.optional(
        "prefix",
        &ANY_TEXT,
        "`\"\"` names its users `sub` in place of `NAME|sub`; at most one entry may.",
    );
    if prefix.as_ref().is_some_and(|prefix| !prefix.is_empty()) {
        let hint = "the only value is `\"\"`; the prefix is the `name` otherwise";
        table.reject("prefix", format!("`{}.prefix` cannot be chosen", table.path()), hint);
    }
    let mut read = JwtIssuer::new(&name?, &issuer?, "", keys?);
    read.audience = audience?;
    read.algorithms = algorithms;
    read.leeway = leeway;
    read.claims = claims;
    read.cookie = cookie;
    read.is_unprefixed = prefix.is_some();
    Some(read)
}

/// The name of a cookie.
struct CookieName;
const COOKIE: CookieName = CookieName;

impl ValueType<String> for CookieName {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        let text = value.text("the name of a cookie")?;
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if text.is_empty() || !text.chars().all(is_token) {
            value.reject(format!("`{}` cannot be `{}`", value.path, text.escape_debug()), None);
            return None;
        }
        Some(text.to_owned())
    }

    fn shape(&self) -> Shape {
        Shape::Value("the name of a cookie".into(), json!({ "type": "string", "pattern": "^[^ =;,]+$" }))
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A secret: `{ env = "…" }` or `{ file = "…" }`.
pub(super) struct SecretType;
pub(super) const SECRET: SecretType = SecretType;

fn secret(table: &mut Table<'_>) -> Option<Secret> {
    let env = table.optional("env", &VARIABLE, "An environment variable.");
    let file = table.optional("file", &PATH, "A file, read again when it changes.");
    one_source(table);
    env.map(Secret::Env).or(file.map(Secret::File))
}

fn one_source(table: &Table<'_>) {
    if table.has("env") == table.has("file") {
        let message = format!("`{}` must name one source of the secret", table.path());
        table.reject("", message, "write `{ env = \"NAME\" }` or `{ file = \"/run/secrets/NAME\" }`");
    }
}

impl ValueType<Secret> for SecretType {
    fn read(&self, value: &Value<'_>) -> Option<Secret> {
        if let Some(text) = value.inner.get_ref().as_str() {
            // The text may be the secret itself: it is not repeated.
            let _ = text;
            let hint =
                "a secret stays out of the file: `{ env = \"NAME\" }` or `{ file = \"…\" }`".to_owned();
            value.wrong_type("a table such as `{ env = \"NAME\" }`", Some(hint));
            return None;
        }
        value.table("a table such as `{ env = \"NAME\" }`", secret)?.0
    }

    fn shape(&self) -> Shape {
        Shape::Table(Table::describe(secret))
    }

    fn show(&self, _: &Secret) -> Option<String> {
        None
    }
}

/// The key set of an issuer.
struct KeySetType;
const JWKS: KeySetType = KeySetType;

fn key_set(table: &mut Table<'_>) -> Option<JwtKeys> {
    let url = table.optional("url", &URL, "Its address: https, or http on this machine.");
    let path = table.optional("file", &PATH, "A file in its place.");
    let (mut refresh, mut max_stale) = (REFRESH, MAX_STALE);
    table.set("refresh", &DURATION, &mut refresh, "Interval at which it is read again.");
    table.set(
        "max_stale",
        &DURATION,
        &mut max_stale,
        "Time for which keys are used after the last successful read; then `AUTH_UNAVAILABLE`.",
    );
    if table.has("url") == table.has("file") {
        table.reject("", format!("`{}` must have one of `url` and `file`", table.path()), "keep one of them");
    }
    if let Some(url) = &url {
        require_https(table, "url", url);
    }
    if max_stale < refresh {
        let message = format!("`{}.max_stale` is shorter than `refresh`", table.path());
        table.reject("max_stale", message, "keys would be refused before they are read again");
    }
    match (url, path) {
        (Some(url), _) => Some(JwtKeys::Url { url, refresh, max_stale }),
        (None, Some(path)) => Some(JwtKeys::File { path, refresh, max_stale }),
        (None, None) => None,
    }
}

/// Rejects an address to which anybody on the way could answer.
fn require_https(table: &Table<'_>, key: &str, url: &str) {
    if Url::parse(url).is_ok_and(|url| url.scheme() != "https" && !is_loopback(&url)) {
        let message = format!("`{}.{key}` must be an https:// address", table.path());
        table.reject(
            key,
            message,
            "http:// is allowed on this machine only: anybody on the way could answer",
        );
    }
}

impl ValueType<JwtKeys> for KeySetType {
    fn read(&self, value: &Value<'_>) -> Option<JwtKeys> {
        value.table("a table such as `{ url = \"https://…\" }`", key_set)?.0
    }

    fn shape(&self) -> Shape {
        Shape::Table(Table::describe(key_set))
    }

    fn show(&self, _: &JwtKeys) -> Option<String> {
        None
    }
}

fn proxy(table: &mut Table<'_>) -> Option<ProxySettings> {
    let peers = table.required(
        "peers",
        &List(NETWORK, "a list of networks"),
        "The networks from which the proxy connects.",
    );
    if peers.as_ref().is_some_and(Vec::is_empty) {
        table.reject("peers", "`auth.proxy.peers` is empty", "no request would be accepted");
    }
    let mut header = None;
    let mut source = None;
    table.table("secret", "The secret that the proxy sends with each request.", |table| {
        header = table.required("header", &HEADER, "The header with it.");
        let env = table.optional("env", &VARIABLE, "The environment variable that has it.");
        let file = table.optional("file", &PATH, "The file that has it, read again when it changes.");
        if header.is_some() {
            one_source(table);
        }
        source = env.map(Secret::Env).or(file.map(Secret::File));
    });
    if table.has("peers") && !table.has("secret") {
        let hint = "`secret = { header = \"x-proxy-secret\", env = \"PROXY_SECRET\" }`: an address alone proves little";
        table.reject("", "`auth.proxy` lacks the key `secret`", hint);
    }
    let user = table.required("user", &HEADER, "The header with the user.");
    let tenant =
        table.optional("tenant", &HEADER, "The header with the tenant; `default` for all if absent.");
    let roles = table.optional("roles", &HEADER, "The header with the roles, a comma list.");
    let mut read = ProxySettings::new(peers?, &header?, source?, &user?);
    (read.tenant, read.roles) = (tenant, roles);
    let mut names = vec![&read.secret_header, &read.user];
    names.extend(read.tenant.iter().chain(&read.roles));
    names.sort();
    names.dedup();
    if names.len() != 2 + usize::from(read.tenant.is_some()) + usize::from(read.roles.is_some()) {
        table.reject("", "two values of `auth.proxy` are in one header", "give each its own");
    }
    Some(read)
}

fn ask(table: &mut Table<'_>) -> Option<AskSettings> {
    let url = table.required("url", &URL, "Its address, to which it gets the head of a request as JSON.");
    if let Some(url) = &url {
        require_https(table, "url", url);
    }
    let mut read = AskSettings::new(url.as_deref().unwrap_or_default());
    table.set("timeout", &DURATION, &mut read.timeout, "Time for its reply; then `AUTH_UNAVAILABLE`.");
    table.set("cache", &DURATION_OR_ZERO, &mut read.cache, "Time for which a reply is used again.");
    table.set(
        "headers",
        &List(HEADER, "a list of header names"),
        &mut read.headers,
        "The headers that it gets. A request without any of them is refused without asking.",
    );
    url.is_some().then_some(read)
}

fn mtls(table: &mut Table<'_>) -> Option<MtlsEntry> {
    let san = table.required(
        "san",
        &NAME,
        "A URI (SPIFFE) or DNS name in the certificate; `*` stands for any text. Its user is `svc:NAME`.",
    );
    let mut read = MtlsEntry::new(san.as_deref().unwrap_or_default());
    read.tenant = table.optional("tenant", &NAME, "The tenant; `default` if absent.");
    table.set("roles", &List(NAME, "a list of roles"), &mut read.roles, "Its roles.");
    table.set("scopes", &List(SCOPE, "a list of scopes"), &mut read.scopes, "Its scopes.");
    san.is_some().then_some(read)
}

/// A scope.
struct ScopeType;
const SCOPE: ScopeType = ScopeType;

const SCOPE_WORDS: &str = "a scope such as `\"agents:*:run\"`";

impl ValueType<Scope> for ScopeType {
    fn read(&self, value: &Value<'_>) -> Option<Scope> {
        let text = value.text(SCOPE_WORDS)?;
        match text.parse() {
            Ok(scope) => Some(scope),
            Err(error) => {
                let known = [
                    "agents:*:run",
                    "agents:*:read",
                    "agents:*:answer",
                    "agents:*:control",
                    "agents:*:state",
                    "agents:*:delete",
                    "agents:*:feedback",
                    "agents:*:*",
                    "feedback",
                    "admin",
                    "audit",
                    "metrics",
                    "*",
                ];
                value.reject(format!("`{}`: {error}", value.path), Some(did_you_mean(text, &known, "as in")));
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let pattern = r"^(\*|admin|audit|metrics|feedback|agents:(\*|[A-Za-z0-9._-]+):(\*|run|read|answer|control|state|delete|feedback))$";
        Shape::Value(SCOPE_WORDS.into(), json!({ "type": "string", "pattern": pattern }))
    }

    fn show(&self, value: &Scope) -> Option<String> {
        Some(format!("{:?}", value.to_string()))
    }
}

/// The table of roles.
struct Roles;

impl ValueType<BTreeMap<String, Vec<Scope>>> for Roles {
    fn read(&self, value: &Value<'_>) -> Option<BTreeMap<String, Vec<Scope>>> {
        let entries = value.entries("a table of roles such as `member = [\"agents:*:run\"]`")?;
        let read: Vec<(String, Range<usize>, Option<Vec<Scope>>)> = entries
            .into_iter()
            .map(|(name, span, value)| (name.to_owned(), span, List(SCOPE, "a list of scopes").read(&value)))
            .collect();
        read.into_iter().map(|(name, _, scopes)| Some((name, scopes?))).collect()
    }

    fn shape(&self) -> Shape {
        let Shape::Value(_, scopes) = List(SCOPE, "a list of scopes").shape() else {
            return Shape::Value("a table of roles".into(), json!({ "type": "object" }));
        };
        let schema = json!({ "type": "object", "additionalProperties": scopes });
        Shape::Value("a table of roles such as `{ member = [\"agents:*:run\"] }`".into(), schema)
    }

    fn show(&self, value: &BTreeMap<String, Vec<Scope>>) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }
}

/// A list of tables, each read by a function.
pub(super) struct Tables<T>(pub(super) &'static str, pub(super) fn(&mut Table<'_>) -> Option<T>);

impl<T> ValueType<Vec<T>> for Tables<T> {
    fn read(&self, value: &Value<'_>) -> Option<Vec<T>> {
        let items = value.items(self.0)?;
        // All are read before the result is decided, so that every invalid one is reported.
        let read: Vec<_> = items.iter().map(|item| item.table("a table", self.1)?.0).collect();
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        Shape::List(Box::new(Shape::Table(Table::describe(self.1))))
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        value.is_empty().then(|| "[]".to_owned())
    }
}
