//! Routes and scopes (T1), the trusted proxy (T5), the external handler, and isolation by every kind of credential (P7).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agentwire_gateway::{
    agent::Demo,
    auth::{Scope, Secret},
    settings::{AgentSettings, AskSettings, Auth, MtlsEntry, ProxySettings, Rate, Tls, TlsFiles},
};
use axum::{Router, body::Bytes, extract::State, routing::post};
use rcgen::SanType;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::{
    INVALID,
    keys::{key, pepper},
    ok, refusal, required, status,
};
use crate::support::*;

/// The routes of the OpenAPI document: method and path.
async fn routes(server: &Server, credential: &str) -> Vec<(Method, String)> {
    let document = ok(server.ask(Method::GET, "/openapi.json").bearer_auth(credential)).await;
    let paths = document["paths"].as_object().expect("paths").clone();
    let methods = |(path, methods): (String, Value)| {
        let methods: Vec<String> = methods.as_object().expect("methods").keys().cloned().collect();
        methods
            .into_iter()
            .map(move |method| (method.to_uppercase().parse().expect("a method"), path.clone()))
    };
    paths.into_iter().flat_map(methods).collect()
}

fn filled(path: &str, id: &str) -> String {
    ["{id}", "{run}", "{name}"].iter().fold(path.to_owned(), |path, name| path.replace(name, id))
}

#[tokio::test]
async fn t1_every_route_has_a_scope() {
    let issuer = Issuer::new();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .and("other", AgentSettings::default(), Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    let all = issuer.token("ada", "*");
    let wrong = issuer.token("ada", "agents:third:* audit openid");
    Stream::of(server.post("/", &Server::input("own", "own", "hi")).bearer_auth(&all)).await.rest().await;
    let (mut public, mut any, mut scoped) = (Vec::new(), Vec::new(), 0);
    for (method, path) in routes(&server, &all).await {
        if path.starts_with("/console") {
            // The page has no data; its requests have the credential of the person.
            continue;
        }
        let mut refusals = Vec::new();
        for id in ["own", "unknown"] {
            let ask = || {
                let body = json!({"threadId": id, "runId": id, "run": id, "messages": []}).to_string();
                server
                    .ask(method.clone(), &filled(&path, id))
                    .header("content-type", "application/json")
                    .body(body)
            };
            let nobody = refusal(ask()).await;
            if nobody.0 == 200 {
                public.push(path.clone());
                break;
            }
            assert_eq!(nobody, (401, "UNAUTHENTICATED".into(), "Bearer".into()), "{method} {path}");
            let response = ask().bearer_auth(&wrong).send().await.expect("a response");
            let (status, challenge) =
                (response.status(), response.headers().get("www-authenticate").cloned());
            if status == 200 {
                any.push(path.clone());
                break;
            }
            assert_eq!(status, 403, "{method} {path}");
            let challenge = challenge.expect("a challenge");
            let challenge = challenge.to_str().expect("ASCII");
            assert!(challenge.starts_with(r#"Bearer error="insufficient_scope", scope=""#), "{challenge}");
            refusals.push(response.text().await.expect("a body"));
        }
        if let [own, unknown] = &*refusals {
            assert_eq!(own, unknown, "{method} {path}: the refusal says nothing about ids");
            scoped += 1;
        }
    }
    assert_eq!(public, ["/livez", "/readyz"]);
    any.sort();
    assert_eq!(
        any,
        [
            "/agents",
            "/agents/demo/capabilities",
            "/agents/other/capabilities",
            "/capabilities",
            "/copilotkit/info",
            "/langgraph/assistants/count",
            "/langgraph/assistants/search",
            "/langgraph/info",
            "/langgraph/ok",
            "/openapi.json"
        ]
    );
    assert!(scoped > 60, "{scoped}");
    // Unknown paths and methods tell nobody which routes there are.
    for path in ["/nothing", "/agents/nobody", "/agents/nobody/runs/x"] {
        assert_eq!(status(server.ask(Method::GET, path)).await, 401, "{path}");
        assert_eq!(status(server.ask(Method::GET, path).bearer_auth(&all)).await, 404, "{path}");
    }
    assert_eq!(status(server.ask(Method::PUT, "/thread/list")).await, 401);
}

#[tokio::test]
async fn t7_every_route_counts_for_its_user_with_and_without_a_scope() {
    let issuer = Issuer::new();
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .and("other", AgentSettings::default(), Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = required(vec![issuer.settings.clone()]))
        .set(|settings| settings.limits.user.requests = Some(Rate::new(1, Duration::from_secs(600))))
        .on_memory()
        .await;
    let mut all = routes(&server, &issuer.token("reader", "*")).await;
    // Paths and methods that are not there.
    all.extend([(Method::GET, "/nothing".into()), (Method::POST, "/agents/nobody/awp".into())]);
    all.push((Method::PUT, "/thread/list".into()));
    for (index, (method, path)) in all.into_iter().enumerate() {
        let ask = |user: &str, scope: &str| {
            let user = format!("{user}{index}");
            let body = json!({"threadId": user, "runId": user, "run": user, "messages": []}).to_string();
            let request =
                server.ask(method.clone(), &filled(&path, &user)).bearer_auth(issuer.token(&user, scope));
            request.header("content-type", "application/json").body(body)
        };
        if path.starts_with("/console") || matches!(&*path, "/livez" | "/readyz") {
            continue;
        }
        for (user, scope) in [("ada", "*"), ("bob", "openid")] {
            assert_ne!(status(ask(user, scope)).await, 429, "{method} {path} {scope}");
            assert_eq!(status(ask(user, scope)).await, 429, "{method} {path} {scope}");
        }
    }
}

#[tokio::test]
async fn t1_each_action_opens_its_routes_only() {
    let issuer = Issuer::new();
    let puppet = Puppet::eager(asker_script);
    let server = plan(puppet)
        .set(|settings| settings.auth = required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    let token = |scope: &str| issuer.token("ada", scope);
    let run = |input: Value, scope: &str| server.post("/", &input).bearer_auth(token(scope));
    let input = Server::input("t", "r", r#"{"ask":[{"id":"q"}]}"#);
    for scope in
        ["", "openid", "agents:demo:answer", "agents:demo:control agents:demo:state", "audit", "metrics"]
    {
        assert_eq!(status(run(input.clone(), scope)).await, 403, "{scope}");
    }
    let refused = answer(run(input.clone(), "agents:demo:read")).await;
    assert_eq!(
        (refused.0.as_u16(), &refused.1["error"]["message"]),
        (403, &json!("the scope `agents:demo:run` is missing"))
    );
    assert_eq!(status(run(input.clone(), "agents:demo:run")).await, 200);
    wait_until("the question", async || {
        let pending = server.ask(Method::GET, "/threads/t/pending").bearer_auth(token("agents:*:read"));
        answer(pending).await.1[0]["id"] == "q"
    })
    .await;
    // A sync is a read.
    let mut sync = Server::input("t", "s", "");
    sync["messages"] = json!([]);
    assert_eq!(status(run(sync.clone(), "agents:demo:run")).await, 403);
    assert_eq!(status(run(sync, "agents:demo:read")).await, 200);
    // An answer needs `run` and `answer`, whatever the thread.
    for thread in ["t", "unknown"] {
        let mut answered = Server::input(thread, "r2", "");
        answered["messages"] = json!([]);
        answered["resume"] = json!([{"interruptId": "q", "status": "resolved", "payload": 1}]);
        for scope in [
            "agents:demo:run",
            "agents:demo:read agents:demo:answer",
            "agents:demo:answer",
            "agents:other:answer agents:demo:run",
        ] {
            assert_eq!(status(run(answered.clone(), scope)).await, 403, "{thread} {scope}");
        }
    }
    let mut answered = Server::input("t", "r2", "");
    answered["messages"] = json!([]);
    answered["resume"] = json!([{"interruptId": "q", "status": "resolved", "payload": 1}]);
    assert_eq!(status(run(answered, "agents:demo:run agents:demo:answer")).await, 200);
    for (method, path, scope) in [
        (Method::DELETE, "/thread/t", "agents:demo:delete"),
        (Method::GET, "/metrics", "metrics"),
        (Method::GET, "/metrics", "admin"),
    ] {
        let ask = |scope: &str| server.ask(method.clone(), path).bearer_auth(token(scope));
        assert_eq!(status(ask("agents:demo:run agents:demo:read")).await, 403, "{path}");
        assert_eq!(status(ask(scope)).await, 200, "{path}");
    }
}

#[tokio::test]
async fn users_of_two_issuers_are_two_users_and_roles_have_scopes() {
    let (one, two) = (Issuer::new(), Issuer::new());
    let mut second = two.settings.clone();
    (second.name, second.issuer) = ("partner".into(), "https://partner.example/".into());
    let puppet = Puppet::eager(|input| talk(input, 1));
    let mut auth = required(vec![one.settings.clone(), second]);
    let scopes = |texts: &[&str]| texts.iter().map(|text| text.parse::<Scope>().expect("a scope")).collect();
    auth.roles = BTreeMap::from([("member".to_owned(), scopes(&["agents:*:run", "agents:*:read"]))]);
    let server = plan(puppet.clone()).set(|settings| settings.auth = auth).on_memory().await;
    let member = json!({"roles": ["member", "unknown"]});
    let ada = one.token_with("ada", "", &[("realm", member.clone())]);
    let partner =
        two.token_with("ada", "", &[("realm", member.clone()), ("iss", json!("https://partner.example/"))]);
    let elsewhere = one.token_with("ada", "", &[("realm", member), ("org", json!("other"))]);
    for (token, user, tenant) in
        [(&ada, "corp|ada", "acme"), (&partner, "partner|ada", "acme"), (&elsewhere, "corp|ada", "other")]
    {
        Stream::of(server.post("/", &Server::input("t", "r", "hi")).bearer_auth(token)).await.rest().await;
        let owner = puppet.last_request().owner;
        assert_eq!((owner.user.as_str(), owner.tenant.as_str()), (user, tenant));
        assert_eq!(puppet.last_request().input.messages.len(), 1, "a thread of its own");
    }
    assert_eq!(status(server.ask(Method::DELETE, "/thread/t").bearer_auth(&ada)).await, 403);
    let none = one.token_with("ada", "", &[("realm", json!({"roles": ["unknown"]}))]);
    assert_eq!(status(server.ask(Method::GET, "/thread/list").bearer_auth(&none)).await, 403);
}

fn with_proxy(peers: &str) -> Auth {
    let mut auth = required(Vec::new());
    let secret = Secret::Value(b"between us".to_vec());
    let mut proxy =
        ProxySettings::new(vec![peers.parse().expect("a network")], "X-Proxy-Secret", secret, "X-User-Id");
    proxy.tenant = Some("x-tenant".into());
    proxy.roles = Some("x-roles".into());
    auth.proxy = Some(proxy);
    auth.roles = BTreeMap::from([("member".to_owned(), vec!["agents:*:*".parse().expect("a scope")])]);
    auth
}

#[tokio::test]
async fn t5_headers_count_only_from_the_proxy() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server =
        plan(puppet.clone()).set(|settings| settings.auth = with_proxy("127.0.0.0/8")).on_memory().await;
    let run = |headers: &[(&str, &str)]| {
        let request = server.post("/", &Server::input("t", "r", "hi"));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    };
    let good = [
        ("x-proxy-secret", "between us"),
        ("x-user-id", "ada"),
        ("x-tenant", "acme"),
        ("x-roles", "guest, member"),
    ];
    assert_eq!(status(run(&good)).await, 200);
    let owner = puppet.last_request().owner;
    assert_eq!((owner.tenant.as_str(), owner.user.as_str()), ("acme", "ada"));
    let invalid = (401, "UNAUTHENTICATED".to_owned(), INVALID.to_owned());
    for (at, headers) in [
        &good[1..],
        &good[1..2],
        &good[2..3],
        &good[3..],
        &good[..1],
        &[("x-proxy-secret", "between u"), good[1], good[2], good[3]],
        &[("x-proxy-secret", ""), good[1], good[2], good[3]],
        &[good[0], ("x-user-id", ""), good[2], good[3]],
        &[good[0], ("x-user-id", "default-user"), good[2], good[3]],
        &[good[0], ("x-user-id", "svc:x"), good[2], good[3]],
        &[good[0], good[1], good[3]],
        &[good[0], good[1], good[1], good[2], good[3]],
        &[good[0], good[0], good[1], good[2], good[3]],
        &[good[0], good[1], good[2], good[3], ("authorization", "Bearer x")],
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(refusal(run(headers)).await, invalid, "{at}: {headers:?}");
    }
    assert_eq!(refusal(run(&[])).await.2, "Bearer");
    assert_eq!(status(run(&good[..3])).await, 403, "no roles");
    // The secret from elsewhere, and an address that the client claims.
    let server = plan(puppet).set(|settings| settings.auth = with_proxy("10.0.0.0/8")).on_memory().await;
    for forwarded in ["10.0.0.1", "127.0.0.1"] {
        let request = server.post("/", &Server::input("t", "r", "hi")).header("x-forwarded-for", forwarded);
        let request = good.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        assert_eq!(refusal(request).await, invalid);
    }
}

type Asked = (Arc<std::sync::Mutex<Vec<Value>>>, Arc<AtomicUsize>);

/// A handler that knows the session `good`, the blocked `bad`, and is down for `down`.
async fn handler() -> (String, Asked) {
    let state: Asked = Default::default();
    let app = Router::new()
        .route(
            "/authz",
            post(|State((asked, count)): State<Asked>, body: Bytes| async move {
                count.fetch_add(1, Ordering::SeqCst);
                let question: Value = serde_json::from_slice(&body).expect("JSON");
                let session = question["headers"].to_string();
                asked.lock().expect("no panic").push(question);
                match &session {
                    text if text.contains("good") => {
                        let reply = json!({"tenant": "acme", "user": "ada", "roles": [], "scopes": ["agents:*:*"], "ttl": 60});
                        (StatusCode::OK, reply.to_string())
                    }
                    text if text.contains("bad") => (StatusCode::FORBIDDEN, String::new()),
                    text if text.contains("down") => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
                    text if text.contains("odd") => (StatusCode::OK, r#"{"user":"default-user"}"#.into()),
                    text if text.contains("moved") => (StatusCode::FOUND, String::new()),
                    _ => (StatusCode::UNAUTHORIZED, String::new()),
                }
            }),
        )
        .with_state(state.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/authz", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, state)
}

#[tokio::test]
async fn an_external_handler_knows_what_nothing_else_knows() {
    let (url, (asked, count)) = handler().await;
    let issuer = Issuer::new();
    let mut auth = required(vec![issuer.settings.clone()]);
    let mut ask = AskSettings::new(&url);
    ask.headers = vec!["authorization".into(), "cookie".into()];
    auth.ask = Some(ask);
    let server =
        plan(Arc::new(Demo::without_pauses())).set(|settings| settings.auth = auth).on_memory().await;
    let list = || server.ask(Method::GET, "/thread/list");
    assert_eq!(status(list().bearer_auth("good-session")).await, 200);
    assert_eq!(status(list().bearer_auth("good-session")).await, 200);
    assert_eq!(count.load(Ordering::SeqCst), 1, "a reply is used again");
    let question = asked.lock().expect("no panic")[0].clone();
    let expected = json!({"method": "GET", "route": "/thread/list", "agent": "demo",
        "headers": {"authorization": "Bearer good-session"}, "peer": "127.0.0.1"});
    assert_eq!(question, expected);
    assert_eq!(status(list().header("cookie", "session=good")).await, 200);
    assert_eq!(status(list().header("authorization", "Basic good")).await, 200);
    assert_eq!(refusal(list().bearer_auth("unknown")).await, (401, "UNAUTHENTICATED".into(), INVALID.into()));
    assert_eq!(refusal(list().bearer_auth("bad")).await.1, "FORBIDDEN");
    assert_eq!(refusal(list().bearer_auth("odd")).await.1, "UNAUTHENTICATED", "a reserved name");
    for broken in ["down", "moved"] {
        assert_eq!(refusal(list().bearer_auth(broken)).await.1, "AUTH_UNAVAILABLE");
    }
    // Tokens of a known issuer are its own business.
    let before = count.load(Ordering::SeqCst);
    assert_eq!(status(list().bearer_auth(issuer.token("ada", "*"))).await, 200);
    let forged = Issuer::new().token("good", "*");
    assert_eq!(refusal(list().bearer_auth(forged)).await.1, "UNAUTHENTICATED");
    assert_eq!(refusal(list()).await.2, "Bearer", "nothing to ask about");
    assert_eq!(count.load(Ordering::SeqCst), before);
}

type Add<'c> = Box<dyn Fn(RequestBuilder) -> RequestBuilder + 'c>;

/// A kind of credential of somebody else: its name, the client that sends it, and how a request carries it.
struct Credential<'c> {
    kind: &'static str,
    client: reqwest::Client,
    add: Add<'c>,
}

/// An encrypted gateway that knows every kind of credential, with a live and an ended run of a victim.
struct Victim {
    server: Server,
    issuer: Issuer,
    victim: String,
    key: String,
    ticket: String,
    service: reqwest::Client,
    _streams: [Stream; 3],
    _backend: Backend,
    _folder: tempfile::TempDir,
}

impl Victim {
    async fn new() -> Self {
        let (url, _) = handler().await;
        let issuer = Issuer::new();
        let mut settings = issuer.settings.clone();
        settings.cookie = Some("session-token".into());
        let mut auth = with_proxy("127.0.0.0/8");
        auth.jwt = vec![settings];
        auth.keys = Some(agentwire_gateway::settings::KeySettings::new(pepper()));
        auth.ask = Some(AskSettings::new(&url));
        // As tenant `acme` too.
        let mut services = MtlsEntry::new("spiffe://example.org/*");
        services.tenant = Some("acme".into());
        services.scopes = vec!["*".parse().expect("a scope")];
        auth.mtls = vec![services];
        let folder = tempfile::tempdir().expect("a folder");
        let (authority, clients) = (certificates::authority("ca"), certificates::authority("clients"));
        certificates::write(
            folder.path(),
            &certificates::certificate(&authority, certificates::server_names()),
        );
        std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
        let mut files = TlsFiles::new(folder.path().join("cert.pem"), folder.path().join("key.pem"));
        files.client_ca = Some(folder.path().join("clients.pem"));
        let backend = Backend::sqlite().await;
        let puppet = Puppet::new(|input| talk(input, 3));
        let mut server = plan(puppet.clone())
            .and("other", AgentSettings::default(), puppet.clone())
            .set(|settings| {
                settings.auth = auth;
                settings.tls = Some(Tls::Files(files));
            })
            .on(&backend.store)
            .await;
        server.client = certificates::client(&authority).build().expect("a client");
        let name = SanType::URI("spiffe://example.org/eve".try_into().expect("a URI"));
        let (cert, private) = certificates::certificate(&clients, vec![name]);
        let identity =
            reqwest::Identity::from_pem(format!("{cert}{private}").as_bytes()).expect("an identity");
        let service = certificates::client(&authority).identity(identity).build().expect("a client");
        let victim = issuer.token("victim", "*");
        let run = |thread: &str, run: &str| {
            server.post("/", &Server::input(thread, run, "secret")).bearer_auth(&victim)
        };
        let (mut live, mut done) =
            (Stream::of(run("live", "live-run")).await, Stream::of(run("done", "done-run")).await);
        live.take(1).await;
        puppet.allow(5);
        let _ = tokio::join!(live.take(1), done.take(1));
        let (key, _) = key(&backend.store, "eve", &["*"], &[]).await;
        // A ticket for a run of her own.
        let token = issuer.token("eve", "*");
        let own =
            Stream::of(server.post("/", &Server::input("own", "own-run", "x")).bearer_auth(&token)).await;
        let made = server.post("/tickets", &json!({"run": "own-run"})).bearer_auth(&token);
        let ticket = ok(made).await["ticket"].as_str().expect("a ticket").to_owned();
        let streams = [live, done, own];
        let (_streams, _backend, _folder) = (streams, backend, folder);
        Self { server, issuer, victim, key, ticket, service, _streams, _backend, _folder }
    }

    fn credentials(&self) -> [Credential<'_>; 7] {
        let token = self.issuer.token("eve", "*");
        let cookie = format!("session-token={token}");
        let of = |kind, add: Add<'static>| Credential { kind, client: self.server.client.clone(), add };
        let key = self.key.clone();
        [
            of("jwt", Box::new(move |request| request.bearer_auth(&token))),
            of(
                "cookie",
                Box::new(move |request| {
                    request.header("cookie", &cookie).header("sec-fetch-site", "same-origin")
                }),
            ),
            of("key", Box::new(move |request| request.bearer_auth(&key))),
            of(
                "proxy",
                Box::new(|request| {
                    let request = request.header("x-proxy-secret", "between us").header("x-user-id", "eve");
                    request.header("x-tenant", "acme").header("x-roles", "member")
                }),
            ),
            of("ask", Box::new(|request| request.bearer_auth("good"))),
            of("ticket", Box::new(|request| request)),
            Credential { kind: "mtls", client: self.service.clone(), add: Box::new(|request| request) },
        ]
    }

    /// Sends a request with a credential: its status, number of headers and body.
    async fn fetch(
        &self,
        by: &Credential<'_>,
        method: &Method,
        path: &str,
        headers: &[(&str, String)],
        body: &Value,
    ) -> (StatusCode, usize, String) {
        let mut path = path.to_owned();
        if by.kind == "ticket" {
            let mark = if path.contains('?') { '&' } else { '?' };
            path = format!("{path}{mark}ticket={}", self.ticket);
        }
        let request = by.client.request(method.clone(), format!("{}{path}", self.server.base));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, value.as_str()));
        let response = with_timeout(&path, (by.add)(request).send()).await.expect("a response");
        let (status, headers) = (response.status(), response.headers().len());
        (status, headers, with_timeout(&path, response.text()).await.expect("a body"))
    }
}

/// Every route with an id × a foreign id × every kind of credential: byte for byte the response of an unknown id.
#[tokio::test]
async fn p7_a_foreign_id_is_an_unknown_id_for_every_credential_on_every_route() {
    let victim = Victim::new().await;
    let mut tried = 0;
    for (method, path) in routes(&victim.server, &victim.victim).await {
        if !path.contains("{id}") && !path.contains("{run}") && !path.ends_with("/tickets") {
            continue;
        }
        for credential in &victim.credentials() {
            let kind = credential.kind;
            for state in ["live", "done"] {
                let fetch = async |id: &str, run: &str| {
                    let path = path.replace("{id}", id).replace("{run}", run).replace("{name}", "x");
                    let body = match method {
                        Method::PATCH => json!([]),
                        _ => json!({"run": run, "decision": "approve", "argumentsHash": "x"}),
                    };
                    victim.fetch(credential, &method, &path, &[], &body).await
                };
                let foreign = fetch(state, &format!("{state}-run")).await;
                let unknown = fetch("nothing", "no-run").await;
                assert_eq!(foreign, unknown, "{method} {path} of a {state} thread by {kind}");
                assert!(
                    !foreign.0.is_success() || foreign.2.len() < 100,
                    "{method} {path} by {kind}: {}",
                    foreign.2
                );
                tried += 1;
            }
        }
    }
    assert!(tried >= 600, "{tried}");
    for credential in victim.credentials().iter().filter(|it| !["jwt", "cookie", "ticket"].contains(&it.kind))
    {
        let request = credential.client.get(format!("{}/thread/list", victim.server.base));
        assert_eq!(answer((credential.add)(request)).await.1, json!([]), "{}", credential.kind);
    }
}

/// The same for ids in bodies, queries and headers.
#[tokio::test]
async fn p7_a_foreign_id_beside_the_path_is_an_unknown_id_for_every_credential() {
    let victim = Victim::new().await;
    let input = |thread: &str, run: &str| {
        json!({"threadId": thread, "runId": run, "messages": [], "tools": [], "context": [], "state": {},
            "forwardedProps": {}})
    };
    let call = |method: &str, thread: &str, run: &str, path: &str, verb: &str| {
        json!({"method": method, "body": input(thread, run),
            "params": {"agentId": "demo", "threadId": thread, "path": path, "httpMethod": verb}})
    };
    let cases = |thread: &str, run: &str| {
        let cursor = |seq: u32| vec![("last-event-id", format!("{run}:{seq}"))];
        let mut cases = vec![
            (Method::GET, format!("/api/chat?chatId={thread}"), vec![], json!({})),
            (Method::GET, format!("/runs/{run}/stream?after={run}:0"), vec![], json!({})),
            (Method::GET, format!("/runs/{run}/stream"), cursor(1), json!({})),
            (Method::GET, "/runs/own-run/stream".into(), cursor(1), json!({})),
            (Method::GET, format!("/runs/own-run/stream?after={run}:1"), vec![], json!({})),
            (Method::GET, format!("/threads/{thread}/stream?after={run}:0"), vec![], json!({})),
            (Method::GET, "/threads/own/stream".into(), cursor(0), json!({})),
            (Method::POST, "/".into(), vec![], input(thread, run)),
            (Method::POST, "/".into(), cursor(1), input(thread, run)),
            (Method::POST, "/".into(), cursor(1), input("own", "new-run")),
            (Method::POST, "/awp".into(), vec![], input(thread, run)),
            (Method::POST, "/feedback".into(), vec![], json!({"threadId": thread, "rating": "up"})),
            (
                Method::POST,
                "/feedback".into(),
                vec![],
                json!({"threadId": "own", "runId": run, "rating": "up"}),
            ),
            (Method::POST, "/tickets".into(), vec![], json!({"run": run})),
            (Method::POST, "/copilotkit/agent/demo/connect".into(), vec![], input(thread, run)),
            (Method::POST, "/copilotkit".into(), vec![], call("agent/connect", thread, run, "", "")),
            (Method::POST, "/copilotkit".into(), vec![], call("agent/stop", thread, run, "", "")),
        ];
        let commands = format!("/langgraph/threads/{thread}/commands");
        let answered =
            json!({"id": 1, "method": "input.respond", "params": {"interrupt_id": "q", "response": 1}});
        cases.extend([
            (
                Method::POST,
                format!("/langgraph/threads/{thread}/stream/events"),
                vec![],
                json!({"channels": ["values", "messages", "lifecycle"]}),
            ),
            (Method::POST, commands.clone(), vec![], json!({"id": 1, "method": "agent.getTree"})),
            (Method::POST, commands, vec![], answered),
        ]);
        for (verb, rest) in [
            ("GET", "/messages"),
            ("GET", "/events"),
            ("GET", "/state"),
            ("PATCH", ""),
            ("DELETE", ""),
            ("POST", "/archive"),
        ] {
            let body = call("resource/request", thread, run, &format!("/threads/{thread}{rest}"), verb);
            cases.push((Method::POST, "/copilotkit".into(), vec![], body));
        }
        cases
    };
    for credential in &victim.credentials() {
        for state in ["live", "done"] {
            let run = format!("{state}-run");
            for (foreign, unknown) in cases(state, &run).into_iter().zip(cases("nothing", "no-run")) {
                let shown = format!("{} {} by {}", foreign.0, foreign.1, credential.kind);
                let fetch =
                    async |(method, path, headers, body): (Method, String, Vec<(&str, String)>, Value)| {
                        let (status, headers, text) =
                            victim.fetch(credential, &method, &path, &headers, &body).await;
                        // Times differ, and ids are repeated.
                        let text: String = text.split(r#""timestamp":"#).enumerate().fold(
                            String::new(),
                            |text, (at, part)| {
                                let rest =
                                    if at == 0 { part } else { part.trim_start_matches(char::is_numeric) };
                                text + rest
                            },
                        );
                        (status, headers, text)
                    };
                let (foreign, unknown) = (fetch(foreign).await, fetch(unknown).await);
                assert!(!foreign.2.contains("secret") && !foreign.2.contains("w0"), "{shown}: {foreign:?}");
                let renamed = foreign.2.replace(&run, "no-run").replace(state, "nothing");
                assert_eq!((foreign.0, foreign.1, renamed), unknown, "{shown}");
            }
        }
    }
}

/// The client's credentials are for this gateway: an agent never gets them, whatever `forward_headers` says.
#[tokio::test]
async fn credentials_are_not_forwarded() {
    let mut issuer = Issuer::new();
    issuer.settings.cookie = Some("__Host-agentwire".into());
    let puppet = Puppet::eager(|input| talk(input, 1));
    let mut auth = required(vec![issuer.settings.clone()]);
    let network = "127.0.0.0/8".parse().expect("a network");
    let secret = Secret::Value(b"between us".to_vec());
    let mut proxy = ProxySettings::new(vec![network], "X-Proxy-Secret", secret, "x-user-id");
    proxy.roles = Some("x-roles".into());
    auth.proxy = Some(proxy);
    auth.roles.insert("member".into(), vec!["*".parse().expect("a scope")]);
    let mut ask = AskSettings::new("http://127.0.0.1:9/authz");
    ask.headers = vec!["x-session".into()];
    auth.ask = Some(ask);
    let names = ["authorization", "cookie", "x-proxy-secret", "x-session", "agentwire-identity", "x-note"];
    let server = plan(puppet.clone())
        .agent(|agent| agent.forward_headers = names.map(Into::into).to_vec())
        .set(|settings| settings.auth = auth)
        .on_memory()
        .await;
    let token = issuer.token("ada", "*");
    let of_cookie = format!("theme=dark; __Host-agentwire={token}; lang=de");
    let cases: [&[(&str, &str)]; 3] = [
        &[
            ("authorization", &format!("Bearer {token}")),
            ("cookie", "theme=dark; lang=de"),
            ("x-session", "s"),
        ],
        &[("cookie", &of_cookie), ("sec-fetch-site", "same-origin")],
        &[
            ("x-proxy-secret", "between us"),
            ("x-user-id", "ada"),
            ("x-roles", "member"),
            ("sec-fetch-site", "same-origin"),
            ("cookie", "theme=dark; lang=de"),
        ],
    ];
    for (at, headers) in cases.into_iter().enumerate() {
        let run = format!("r{at}");
        let request = server.post("/", &Server::input(&run, &run, "hi"));
        let request = request.header("agentwire-identity", "forged").header("x-note", "kept");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (status, code, _) = refusal(request).await;
        assert_eq!((status, &*code), (200, ""), "{headers:?}");
        let forwarded = puppet.last_request().headers;
        let forwarded: Vec<_> = forwarded.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(forwarded, [("cookie", "theme=dark; lang=de"), ("x-note", "kept")], "{headers:?}");
    }
}
