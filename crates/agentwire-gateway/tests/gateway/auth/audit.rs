//! The audit log with authentication: it closes the gateway if it cannot be written (T10), and has no holes.

use std::{os::unix::fs::symlink, path::Path, time::Duration};

use agentwire_gateway::{
    auth::Secret,
    ops::audit,
    settings::{AuditFailure, AuditSettings, Rate},
};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{refusal, required, status};
use crate::support::*;

const KEY: &[u8] = b"the key of the audit log";

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A gateway whose audit log can be replaced by a full device.
struct Audited {
    folder: tempfile::TempDir,
    issuer: Issuer,
    server: Server,
}

impl Audited {
    async fn new(failure: Option<AuditFailure>) -> Self {
        let (folder, issuer) = (tempfile::tempdir().expect("a folder"), Issuer::new());
        let mut audit = AuditSettings::new(folder.path().join("audit.jsonl")).key(Secret::Value(KEY.into()));
        audit.failure = failure;
        let server = plan(Puppet::eager(|input| talk(input, 1)))
            .set(|settings| {
                settings.auth = required(vec![issuer.settings.clone()]);
                settings.audit = Some(audit);
            })
            .on_memory()
            .await;
        Self { folder, issuer, server }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.server.ask(method, path).bearer_auth(self.issuer.token("ada", "*"))
    }

    async fn run(&self, id: &str) -> u16 {
        let token = self.issuer.token("ada", "*");
        let mut stream =
            Stream::of(self.server.post("/", &Server::input(id, id, "hi")).bearer_auth(token)).await;
        let status = stream.status();
        if status == 200 {
            stream.rest().await;
        }
        status
    }

    /// The disk is full from now on.
    fn fill(&self) {
        std::fs::rename(self.path(), self.folder.path().join("kept")).expect("ours");
        symlink("/dev/full", self.path()).expect("a link");
    }

    fn free(&self) {
        std::fs::remove_file(self.path()).expect("ours");
        std::fs::rename(self.folder.path().join("kept"), self.path()).expect("ours");
    }

    /// Ends the gateway, verifies the chain and returns its lines.
    async fn ended(self) -> Vec<Value> {
        let path = self.path();
        self.server.drain();
        self.server.ended().await;
        assert_eq!(audit::verify(&path, Some(KEY), |_| Ok(())).expect("it can be read"), []);
        lines(&path)
    }
}

#[tokio::test]
async fn t10_audit_closed() {
    let audited = Audited::new(None).await;
    assert_eq!(audited.run("before").await, 200);
    audited.fill();
    // The first change already, and every kind of it.
    for (method, path) in [
        (Method::POST, "/runs/before/stop"),
        (Method::DELETE, "/thread/before"),
        (Method::PATCH, "/state/before"),
        (Method::POST, "/api/chat"),
        (Method::POST, "/feedback"),
    ] {
        let body = audited.ask(method.clone(), path).header("content-type", "application/json").body("[]");
        let (status, code, _) = refusal(body).await;
        assert_eq!((status, &*code), (503, "AUDIT_UNAVAILABLE"), "{method} {path}");
    }
    assert_eq!(audited.run("refused").await, 503);
    let (status, code, _) = refusal(audited.server.ask(Method::GET, "/readyz")).await;
    assert_eq!((status, &*code), (503, "AUDIT_UNAVAILABLE"));
    // Reads go on, and the process lives.
    for path in ["/threads", "/runs/before", "/message_snapshot/before", "/runs/before/stream", "/livez"] {
        assert_eq!(super::status(audited.ask(Method::GET, path)).await, 200, "{path}");
    }
    let ticket = audited.ask(Method::POST, "/tickets").json(&json!({"run": "before"}));
    assert_eq!(super::status(ticket).await, 200, "a ticket reads");
    audited.free();
    wait_until("the gateway is ready again", || async {
        super::status(audited.server.ask(Method::GET, "/readyz")).await == 200
    })
    .await;
    assert_eq!(audited.run("after").await, 200);
    assert_eq!(super::status(audited.ask(Method::GET, "/runs/refused")).await, 404, "nothing was done");
    let lines = audited.ended().await;
    let resumed = lines.iter().find(|line| line["action"] == "audit resumed").expect("the gap is on record");
    assert_eq!(resumed["lost"], 0);
    let refused: Vec<_> = lines.iter().filter(|line| line["outcome"] == "AUDIT_UNAVAILABLE").collect();
    assert_eq!(refused.len(), 6);
    assert!(lines.iter().any(|line| line["action"] == "read" && line["run"] == "before"), "reads were kept");
}

#[tokio::test]
async fn t10_nobody_closes_the_gateway_without_a_credential() {
    let audited = Audited::new(None).await;
    assert_eq!(audited.run("before").await, 200);
    wait_until("its lines", || async { lines(&audited.path()).len() >= 2 }).await;
    audited.fill();
    for _ in 0..30 {
        assert_eq!(status(audited.server.ask(Method::POST, "/runs/x/stop").bearer_auth("forged")).await, 401);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(status(audited.server.ask(Method::GET, "/readyz")).await, 200);
    audited.free();
}

#[tokio::test]
async fn t10_an_open_gateway_goes_on() {
    let audited = Audited::new(Some(AuditFailure::Open)).await;
    audited.run("first").await;
    wait_until("its line", || async { !lines(&audited.path()).is_empty() }).await;
    audited.fill();
    assert_eq!(audited.run("second").await, 200);
    assert_eq!(status(audited.server.ask(Method::GET, "/readyz")).await, 200);
    audited.free();
    assert!(audited.ended().await.iter().any(|line| line["run"] == "second"), "the line was kept");
}

/// A file that cannot be opened closes the gateway from the start.
#[tokio::test]
async fn t10_a_missing_folder_is_a_failure_too() {
    let (folder, issuer) = (tempfile::tempdir().expect("a folder"), Issuer::new());
    let inner = folder.path().join("later");
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .set(|settings| {
            settings.auth = required(vec![issuer.settings.clone()]);
            settings.audit = Some(AuditSettings::new(inner.join("audit.jsonl")));
        })
        .on_memory()
        .await;
    let ready = || async { status(server.ask(Method::GET, "/readyz")).await };
    wait_until("it is closed", || async { ready().await == 503 }).await;
    std::fs::create_dir(&inner).expect("ours");
    wait_until("it is open", || async { ready().await == 200 }).await;
}

/// Each step of the order of checks, each list and each bad cursor has a line with everything that is known, and no line has
/// a secret.
#[tokio::test]
async fn the_audit_log_has_no_holes() {
    let (record, issuer) = (AuditFile::new(), Issuer::new());
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .set(record.keep())
        .set(|settings| {
            settings.auth = required(vec![issuer.settings.clone()]);
            settings.limits.user.requests = Some(Rate::new(60, Duration::from_secs(600)));
            settings.limits.body = 2000;
        })
        .on_memory()
        .await;
    let all = issuer.token("ada", "*");
    let wrong = issuer.token("bob", "agents:third:*");
    let expired = issuer.token_with("ada", "*", &[("exp", json!(now() - 3600))]);
    Stream::of(server.post("/", &Server::input("t", "r", "hi")).bearer_auth(&all)).await.rest().await;
    let get = |path: &str| server.ask(Method::GET, path);
    let large = json!({"messages": "x".repeat(4000)});
    let cases: Vec<(RequestBuilder, u16, Value)> = vec![
        (
            get("/threads").header("host", "evil.example"),
            421,
            json!({"outcome": "HOST_NOT_ALLOWED", "method": "GET"}),
        ),
        (
            server
                .ask(Method::POST, "/runs/r/stop")
                .header("cookie", "a=b")
                .header("origin", "https://evil.example"),
            403,
            json!({"outcome": "ORIGIN_NOT_ALLOWED", "method": "POST"}),
        ),
        (
            get("/threads/canary-id/runs"),
            401,
            json!({"outcome": "UNAUTHENTICATED", "route": "/threads/{id}/runs", "agent": "demo"}),
        ),
        (
            get("/agents/demo/runs/canary-id").bearer_auth("canary-token"),
            401,
            json!({"outcome": "UNAUTHENTICATED", "route": "/agents/demo/runs/{run}", "auth": "jwt", "user": "", "agent": "demo"}),
        ),
        (
            get("/threads").bearer_auth(&expired),
            401,
            json!({"outcome": "TOKEN_EXPIRED", "route": "/threads", "auth": "jwt"}),
        ),
        (
            get("/threads").bearer_auth("aw_abcdefghijkl_0123456789012345678901234567890123456789abc"),
            401,
            json!({"outcome": "UNAUTHENTICATED", "auth": "key", "credential": "key:abcdefghijkl"}),
        ),
        (
            get("/threads").bearer_auth(&wrong),
            403,
            json!({"outcome": "FORBIDDEN", "route": "/threads", "user": "corp|bob", "auth": "jwt", "agent": "demo"}),
        ),
        (
            get("/thread/list").bearer_auth(&all),
            200,
            json!({"action": "list", "outcome": "ok", "user": "corp|ada", "auth": "jwt"}),
        ),
        (get("/threads?limit=7").bearer_auth(&all), 200, json!({"action": "list", "outcome": "ok"})),
        (
            get("/threads?before=x").bearer_auth(&all),
            400,
            json!({"outcome": "BAD_REQUEST", "route": "/threads", "user": "corp|ada"}),
        ),
        (
            get("/thread/list?before=x").bearer_auth(&all),
            400,
            json!({"outcome": "BAD_REQUEST", "route": "/thread/list"}),
        ),
        (
            get("/runs/r/stream?after=x").bearer_auth(&all),
            400,
            json!({"outcome": "BAD_CURSOR", "route": "/runs/{run}/stream"}),
        ),
        (get("/threads/t/stream?after=x").bearer_auth(&all), 400, json!({"outcome": "BAD_CURSOR"})),
        (
            get("/threads/t/feedback?after=x").bearer_auth(&all),
            400,
            json!({"outcome": "BAD_REQUEST", "route": "/threads/{id}/feedback"}),
        ),
        (
            get("/approvals").bearer_auth(&all),
            200,
            json!({"action": "list approvals", "outcome": "ok", "auth": "jwt"}),
        ),
        (
            get("/approvals?after=x").bearer_auth(&all),
            400,
            json!({"outcome": "BAD_REQUEST", "route": "/approvals"}),
        ),
        (
            get("/agents").bearer_auth(&all),
            200,
            json!({"action": "request", "outcome": "ok", "route": "/agents"}),
        ),
        (
            get("/metrics").bearer_auth(&all),
            200,
            json!({"action": "request", "outcome": "ok", "route": "/metrics"}),
        ),
        (get("/nothing").bearer_auth(&all), 404, json!({"outcome": "UNKNOWN_ROUTE"})),
        (
            server.ask(Method::PUT, "/threads").bearer_auth(&all),
            405,
            json!({"outcome": "METHOD_NOT_ALLOWED", "method": "PUT"}),
        ),
        (
            server.post("/", &large).bearer_auth(&all),
            413,
            json!({"outcome": "BODY_TOO_LARGE", "route": "/", "method": "POST"}),
        ),
        (
            server.ask(Method::POST, "/").body("x").bearer_auth(&all),
            415,
            json!({"outcome": "UNSUPPORTED_MEDIA_TYPE"}),
        ),
        (
            server.post("/", &json!([])).bearer_auth(&all),
            400,
            json!({"outcome": "BAD_REQUEST", "route": "/", "auth": "jwt"}),
        ),
        (
            server.post("/approvals/x", &json!({})).bearer_auth(&all),
            400,
            json!({"action": "approve", "outcome": "BAD_REQUEST"}),
        ),
        (
            get("/runs/nobody").bearer_auth(&all),
            404,
            json!({"action": "read", "run": "nobody", "outcome": "UNKNOWN_RUN"}),
        ),
    ];
    let before = record.lines().len();
    for (request, expected, members) in cases {
        let found = status(request).await;
        assert_eq!(found, expected, "{members}");
        let line = record
            .line(&members.to_string(), |line| {
                line["seq"].as_u64() >= Some(before as u64)
                    && members
                        .as_object()
                        .is_some_and(|members| members.iter().all(|(key, value)| line[key] == *value))
            })
            .await;
        assert_eq!(line["peer"], "127.0.0.1", "{line}");
        assert!(line["request"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
        if members["auth"] == "jwt" {
            assert!(line["credential"].as_str().is_some_and(|id| id.starts_with("jwt:")), "{line}");
        }
    }
    // A rate, and a head that is none.
    for _ in 0..60 {
        status(get("/runs/r").bearer_auth(&all)).await;
    }
    record.line("the rate", |line| line["outcome"] == "RATE_LIMITED" && line["user"] == "corp|ada").await;
    server.exchange("GET / HTTP/1.1\r\nho st: a\r\n\r\n").await;
    record.line("the head", |line| line["action"] == "connection" && line["outcome"] == "BAD_REQUEST").await;
    let text: String = record.lines().iter().map(Value::to_string).collect();
    for secret in
        [&*all, &wrong, &expired, "canary-token", "canary-id", "0123456789012345678901234567890123456789abc"]
    {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// A flood is twenty lines of a peer, and one with the count of the rest.
#[tokio::test]
async fn a_flood_of_denials_is_folded() {
    let (record, issuer) = (AuditFile::new(), Issuer::new());
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .set(record.keep())
        .set(|settings| settings.auth = required(vec![issuer.settings.clone()]))
        .on_memory()
        .await;
    for _ in 0..70 {
        assert_eq!(status(server.ask(Method::GET, "/threads").bearer_auth("forged")).await, 401);
    }
    // Those of a known sender are counted apart.
    let wrong = issuer.token("bob", "agents:third:*");
    assert_eq!(status(server.ask(Method::GET, "/threads").bearer_auth(&wrong)).await, 403);
    server.drain();
    server.ended().await;
    let lines = record.lines();
    let of = |code: &str| lines.iter().filter(|line| line["outcome"] == code).count();
    assert_eq!((of("UNAUTHENTICATED"), of("FORBIDDEN")), (20, 1));
    let folded = lines.iter().find(|line| line["action"] == "denials").expect("the count");
    assert_eq!((&folded["count"], &folded["peer"]), (&json!(50), &json!("127.0.0.1")));
    assert_eq!(folded["outcomes"]["UNAUTHENTICATED"], 50);
}
