//! Artifacts of an ADK server through the gateway: bytes, headers, errors and isolation.

use agentwire_gateway::{
    codes,
    upstream::{Adk, AdkOptions, AgUi, AgUiOptions},
};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{
    fixture,
    gateway::TestGateway,
    server::{ReceivedRequest, Server, Step, events, response},
};

fn json_response(status: &str, body: &Value) -> Vec<Step> {
    response(status, "application/json", body.to_string().as_bytes())
}

/// The part of the path after `/artifacts`, if the request is for artifacts of a session.
fn rest(request: &ReceivedRequest) -> Option<&str> {
    let (_, rest) = request.line().strip_prefix("GET ")?.split_once("/sessions/")?;
    rest.split_once("/artifacts").map(|(_, rest)| rest)
}

/// A server that has the same artifacts in every session.
async fn server() -> Server {
    Server::new(|request| {
        let part = |mime_type: &str, data: &str| json!({"inlineData": {"mimeType": mime_type, "data": data}});
        let Some(rest) = rest(request) else {
            return match request.line().split(' ').next() {
                Some("GET") => json_response("404 Not Found", &json!({"detail": "Session not found"})),
                _ if request.line() == "POST /run_sse" => events(&fixture("adk_tool.sse")),
                _ => json_response("200 OK", &json!({"id": "x"})),
            };
        };
        match rest {
            "" => json_response("200 OK", &json!(["a/b.html", "report.txt", "user:me.png", "../x"])),
            "/report.txt" => json_response("200 OK", &part("text/plain", "dmVyc2lvbiAx")),
            "/report.txt/versions/0" => json_response("200 OK", &part("text/plain", "dmVyc2lvbiAw")),
            "/a%2Fb.html" => json_response("200 OK", &part("text/html", "PGI-")),
            "/user%3Ame.png" => json_response("200 OK", &part("image/png", "-_8=")),
            "/note" => json_response("200 OK", &json!({"text": "grün"})),
            "/elsewhere" => json_response("200 OK", &json!({"fileData": {"fileUri": "gs://secret/x"}})),
            "/forged" => json_response("200 OK", &part("text/plain\r\nset-cookie: a=b", "aA==")),
            "/malformed" => json_response("200 OK", &part("text/plain", "***")),
            "/broken" => response("500 Internal Server Error", "text/plain", b"secret stack trace"),
            "/endless" => vec![
                Step::Send(super::server::head("200 OK", "application/json")),
                Step::Repeat(vec![b' '; 1 << 20]),
            ],
            _ => json_response("404 Not Found", &json!({"detail": "Artifact not found"})),
        }
    })
    .await
}

fn agent(server: &Server, user: Option<&str>) -> Adk {
    let user = user.map(Into::into);
    Adk::new(AdkOptions { url: server.url.clone(), app: "demo".into(), user, ..AdkOptions::default() })
        .unwrap()
}

#[tokio::test]
async fn artifacts_are_listed_and_served_unchanged() {
    let server = server().await;
    let gateway = TestGateway::of(agent(&server, None)).await;
    gateway.run("default-user", "t 1", "r1").await;
    assert_eq!(
        gateway.json("/threads/t%201/artifacts").await,
        (200, json!(["a/b.html", "report.txt", "user:me.png"]))
    );
    let at = |name: &str| format!("/threads/t%201/artifacts/{name}");
    for (name, bytes, mime_type, disposition) in [
        ("report.txt", &b"version 1"[..], "text/plain", "inline; filename*=UTF-8''report.txt"),
        ("report.txt?version=0", b"version 0", "text/plain", "inline; filename*=UTF-8''report.txt"),
        ("a/b.html", b"<b>", "text/html", "attachment; filename*=UTF-8''b.html"),
        ("a%2Fb.html", b"<b>", "text/html", "attachment; filename*=UTF-8''b.html"),
        ("user:me.png", &[0xfb, 0xff], "image/png", "inline; filename*=UTF-8''me.png"),
        ("note", "grün".as_bytes(), "text/plain; charset=utf-8", "inline; filename*=UTF-8''note"),
        ("forged", b"h", "application/octet-stream", "attachment; filename*=UTF-8''forged"),
    ] {
        let response = gateway.get(&at(name)).await;
        assert_eq!(response.status(), 200, "{name}");
        let headers = response.headers().clone();
        assert_eq!(headers[header::CONTENT_TYPE], mime_type, "{name}");
        assert_eq!(headers[header::CONTENT_DISPOSITION], disposition, "{name}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{name}");
        assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("sandbox"), "{name}");
        assert!(!headers.contains_key(header::SET_COOKIE), "{name}");
        assert_eq!(response.bytes().await.unwrap(), bytes, "{name}");
    }
}

#[tokio::test]
async fn errors_have_a_code_and_no_text_of_the_server() {
    let server = server().await;
    let gateway = TestGateway::of(agent(&server, None)).await;
    gateway.run("default-user", "t1", "r1").await;
    let before = server.requests().len();
    for (name, status, code) in [
        // Path traversal is rejected without a request to the server.
        ("%2e%2e%2fx", 404, codes::UNKNOWN_ARTIFACT),
        ("a%2f%2e%2e%2fx", 404, codes::UNKNOWN_ARTIFACT),
        ("..%5cx", 404, codes::UNKNOWN_ARTIFACT),
        ("a%00b", 404, codes::UNKNOWN_ARTIFACT),
        (&"x".repeat(2000), 404, codes::UNKNOWN_ARTIFACT),
        ("report.txt?version=-1", 400, codes::BAD_REQUEST),
        ("report.txt?version=latest", 400, codes::BAD_REQUEST),
    ] {
        let (found, body) = gateway.json(&format!("/threads/t1/artifacts/{name}")).await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{name}: {body}");
    }
    assert_eq!(server.requests().len(), before);
    for (name, status, code) in [
        ("nothing", 404, codes::UNKNOWN_ARTIFACT),
        ("report.txt?version=7", 404, codes::UNKNOWN_ARTIFACT),
        ("elsewhere", 409, codes::IMPOSSIBLE),
        ("malformed", 502, codes::UPSTREAM_MALFORMED),
        ("broken", 502, codes::UPSTREAM_STATUS),
        ("endless", 502, codes::LIMIT_EXCEEDED),
    ] {
        let (found, body) = gateway.json(&format!("/threads/t1/artifacts/{name}")).await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{name}: {body}");
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}

#[tokio::test]
async fn artifacts_of_another_user_look_like_an_unknown_thread() {
    let server = server().await;
    for (fixed, own) in [(None, true), (Some("one"), false)] {
        let gateway = TestGateway::of(agent(&server, fixed)).await;
        gateway.run("ada", "t1", "r1").await;
        let fetch = async |user: &str, tenant: &str, path: &str| {
            let request =
                gateway.request(Method::GET, path).header("x-user-id", user).header("x-tenant", tenant);
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.bytes().await.unwrap())
        };
        for rest in ["", "/report.txt", "/user:me.png", "/nothing", "/%2e%2e"] {
            let unknown = fetch("eve", "default", &format!("/threads/nothing/artifacts{rest}")).await;
            assert_eq!(unknown.0, 404);
            for (user, tenant) in [("eve", "default"), ("ada", "other")] {
                let foreign = fetch(user, tenant, &format!("/threads/t1/artifacts{rest}")).await;
                assert_eq!(foreign, unknown, "{rest}");
            }
        }
        assert!(server.requests().iter().all(|request| !request.line().contains("nothing/artifacts")));
        // With one fixed user at the server, artifacts of that user are shown to nobody.
        let (status, _) = fetch("ada", "default", "/threads/t1/artifacts/user:me.png").await;
        assert_eq!(status, if own { 200 } else { 404 });
        let (_, list) = fetch("ada", "default", "/threads/t1/artifacts").await;
        let list: Vec<String> = serde_json::from_slice(&list).unwrap();
        assert_eq!(list.contains(&"user:me.png".to_owned()), own, "{list:?}");
    }
}

#[tokio::test]
async fn agents_without_artifacts_respond_with_no_artifacts() {
    let agent =
        AgUi::new(AgUiOptions { url: "http://127.0.0.1:9/".into(), ..AgUiOptions::default() }).unwrap();
    let gateway = TestGateway::of(agent).await;
    for path in ["/threads/t1/artifacts", "/threads/t1/artifacts/a/b", "/agents/demo/threads/t1/artifacts/x"]
    {
        let (status, body) = gateway.json(path).await;
        assert_eq!((status, body["error"]["code"].as_str()), (404, Some(codes::NO_ARTIFACTS)), "{path}");
    }
}
