//! Artifacts of an ADK server, through the gateway.

use agentwire_gateway::{
    codes,
    upstream::{Adk, AdkOptions, AgUi, AgUiOptions},
};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{
    fixture,
    front::Front,
    server::{Seen, Server, Step, answer, events},
};

fn json_answer(status: &str, body: &Value) -> Vec<Step> {
    answer(status, "application/json", body.to_string().as_bytes())
}

/// What a session's artifacts are asked for: everything behind the session.
fn rest(seen: &Seen) -> Option<&str> {
    let (_, rest) = seen.line().strip_prefix("GET ")?.split_once("/sessions/")?;
    rest.split_once("/artifacts").map(|(_, rest)| rest)
}

/// A server with sessions for everybody and some artifacts in each.
async fn server() -> Server {
    Server::new(|seen| {
        let part = |mime_type: &str, data: &str| json!({"inlineData": {"mimeType": mime_type, "data": data}});
        let Some(rest) = rest(seen) else {
            return match seen.line().split(' ').next() {
                Some("GET") => json_answer("404 Not Found", &json!({"detail": "Session not found"})),
                _ if seen.line() == "POST /run_sse" => events(&fixture("adk_tool.sse")),
                _ => json_answer("200 OK", &json!({"id": "x"})),
            };
        };
        match rest {
            "" => json_answer("200 OK", &json!(["a/b.html", "report.txt", "user:me.png", "../x"])),
            "/report.txt" => json_answer("200 OK", &part("text/plain", "dmVyc2lvbiAx")),
            "/report.txt/versions/0" => json_answer("200 OK", &part("text/plain", "dmVyc2lvbiAw")),
            "/a%2Fb.html" => json_answer("200 OK", &part("text/html", "PGI-")),
            "/user%3Ame.png" => json_answer("200 OK", &part("image/png", "-_8=")),
            "/note" => json_answer("200 OK", &json!({"text": "grün"})),
            "/elsewhere" => json_answer("200 OK", &json!({"fileData": {"fileUri": "gs://secret/x"}})),
            "/forged" => json_answer("200 OK", &part("text/plain\r\nset-cookie: a=b", "aA==")),
            "/malformed" => json_answer("200 OK", &part("text/plain", "***")),
            "/broken" => answer("500 Internal Server Error", "text/plain", b"secret stack trace"),
            "/endless" => vec![
                Step::Send(super::server::head("200 OK", "application/json")),
                Step::Repeat(vec![b' '; 1 << 20]),
            ],
            _ => json_answer("404 Not Found", &json!({"detail": "Artifact not found"})),
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
async fn artifacts_are_listed_and_handed_out_as_they_are() {
    let server = server().await;
    let front = Front::of(agent(&server, None)).await;
    front.run("default-user", "t 1", "r1").await;
    assert_eq!(
        front.json("/threads/t%201/artifacts").await,
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
        let response = front.get(&at(name)).await;
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
async fn what_goes_wrong_has_a_code_and_nothing_of_the_servers_words() {
    let server = server().await;
    let front = Front::of(agent(&server, None)).await;
    front.run("default-user", "t1", "r1").await;
    let before = server.seen().len();
    for (name, status, code) in [
        // Ways elsewhere are not even asked for.
        ("%2e%2e%2fx", 404, codes::UNKNOWN_ARTIFACT),
        ("a%2f%2e%2e%2fx", 404, codes::UNKNOWN_ARTIFACT),
        ("..%5cx", 404, codes::UNKNOWN_ARTIFACT),
        ("a%00b", 404, codes::UNKNOWN_ARTIFACT),
        (&"x".repeat(2000), 404, codes::UNKNOWN_ARTIFACT),
        ("report.txt?version=-1", 400, codes::BAD_REQUEST),
        ("report.txt?version=latest", 400, codes::BAD_REQUEST),
    ] {
        let (found, body) = front.json(&format!("/threads/t1/artifacts/{name}")).await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{name}: {body}");
    }
    assert_eq!(server.seen().len(), before);
    for (name, status, code) in [
        ("nothing", 404, codes::UNKNOWN_ARTIFACT),
        ("report.txt?version=7", 404, codes::UNKNOWN_ARTIFACT),
        ("elsewhere", 409, codes::IMPOSSIBLE),
        ("malformed", 502, codes::UPSTREAM_MALFORMED),
        ("broken", 502, codes::UPSTREAM_STATUS),
        ("endless", 502, codes::LIMIT_EXCEEDED),
    ] {
        let (found, body) = front.json(&format!("/threads/t1/artifacts/{name}")).await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{name}: {body}");
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}

#[tokio::test]
async fn nobody_sees_anything_of_somebody_elses_thread() {
    let server = server().await;
    for (fixed, own) in [(None, true), (Some("one"), false)] {
        let front = Front::of(agent(&server, fixed)).await;
        front.run("ada", "t1", "r1").await;
        let fetch = async |user: &str, tenant: &str, path: &str| {
            let request = front.ask(Method::GET, path).header("x-user-id", user).header("x-tenant", tenant);
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
        assert!(server.seen().iter().all(|seen| !seen.line().contains("nothing/artifacts")));
        // Where all our users are one there, what is stored for that one is nobody's.
        let (status, _) = fetch("ada", "default", "/threads/t1/artifacts/user:me.png").await;
        assert_eq!(status, if own { 200 } else { 404 });
        let (_, list) = fetch("ada", "default", "/threads/t1/artifacts").await;
        let list: Vec<String> = serde_json::from_slice(&list).unwrap();
        assert_eq!(list.contains(&"user:me.png".to_owned()), own, "{list:?}");
    }
}

#[tokio::test]
async fn agents_without_artifacts_say_so() {
    let agent =
        AgUi::new(AgUiOptions { url: "http://127.0.0.1:9/".into(), ..AgUiOptions::default() }).unwrap();
    let front = Front::of(agent).await;
    for path in ["/threads/t1/artifacts", "/threads/t1/artifacts/a/b", "/agents/demo/threads/t1/artifacts/x"]
    {
        let (status, body) = front.json(path).await;
        assert_eq!((status, body["error"]["code"].as_str()), (404, Some(codes::NO_ARTIFACTS)), "{path}");
    }
}
