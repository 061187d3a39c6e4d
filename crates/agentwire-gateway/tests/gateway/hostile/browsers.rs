//! T6: pages of other sites against a gateway, over real sockets.

use agentwire_gateway::{codes, settings::CorsOptions};
use reqwest::Method;

use crate::support::*;

fn code(response: &str) -> &str {
    response
        .split("agentwire-error-code: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next())
        .unwrap_or_default()
}

/// Every route and method, also those that do not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_foreign_hosts_are_refused_on_every_route() {
    let server = plan(Puppet::new(|input| talk(input, 1))).on_memory().await;
    let routes = [
        "GET /agents",
        "GET /metrics",
        "GET /openapi.json",
        "GET /thread/list",
        "GET /nothing",
        "POST /",
        "POST /awp",
        "POST /api/chat",
        "POST /runs/r/stop",
        "GET /runs/r/stream",
        "DELETE /thread/t",
        "PATCH /state/t",
        "OPTIONS /",
        "PUT /",
        "GET /agents/nobody/x",
        "HEAD /agents",
    ];
    for route in routes {
        for hosts in ["host: evil.example\r\n", "host: 127.0.0.1\r\nhost: 127.0.0.1\r\n", "host:\r\n", ""] {
            let response =
                server.exchange(format!("{route} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n")).await;
            let status = raw_status(&response);
            assert!(status == 421 || status == 400, "{route} {hosts:?}: {response}");
            if status == 421 {
                assert_eq!(code(&response), codes::HOST_NOT_ALLOWED);
            }
        }
    }
    for route in ["GET /livez", "GET /readyz"] {
        let response =
            server.exchange(format!("{route} HTTP/1.1\r\nhost: 10.1.2.3\r\nconnection: close\r\n\r\n")).await;
        assert_eq!(raw_status(&response), 200, "{route}");
    }
    let mismatch = format!(
        "GET http://evil.example/agents HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        server.address()
    );
    assert_eq!(raw_status(&server.exchange(mismatch).await), 421);
}

/// A page of another site can send a POST without a body and without a preflight request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_foreign_pages_cannot_stop_a_run() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(|settings| settings.cors = vec!["https://app.example.com".into()])
        .on_memory()
        .await;
    let mut stream = server.run("t", "r", "hello").await;
    stream.take(1).await;
    let own = server.base.clone();
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for (method, path) in
            [(Method::POST, "/runs/r/stop"), (Method::POST, "/runs/r/pause"), (Method::DELETE, "/thread/t")]
        {
            let (status, body) = answer(server.ask(method, path).header(name, value)).await;
            let code = body["error"]["code"].as_str();
            assert_eq!(
                (status.as_u16(), code),
                (403, Some(codes::ORIGIN_NOT_ALLOWED)),
                "{name}: {value} {path}"
            );
        }
        // To leave this stream stops the run.
        let path = "/langgraph/threads/t/runs/r/stream?cancel_on_disconnect=true";
        let (status, body) = answer(server.ask(Method::GET, path).header(name, value)).await;
        assert_eq!(status, 403, "{name}: {value} {path} {body}");
    }
    assert_eq!(server.status("r").await, "running");
    for origin in [own.as_str(), "https://app.example.com"] {
        let paused = answer(server.ask(Method::POST, "/runs/r/pause").header("origin", origin)).await;
        assert_eq!(paused.0, 200, "{origin}: {}", paused.1);
    }
    assert_eq!(answer(server.ask(Method::POST, "/runs/r/stop")).await.0, 200, "a program has no origin");
}

/// Responses are not sniffed, and a malformed trace context goes nowhere.
#[tokio::test]
async fn every_response_forbids_sniffing() {
    let server = plan(Puppet::new(|input| talk(input, 1))).on_memory().await;
    for path in ["/agents", "/livez", "/nothing", "/runs/none"] {
        let response = server.ask(Method::GET, path).send().await.expect("a response");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{path}");
    }
}

/// Cookies from a listed origin only, in the preflight and in the response itself.
#[tokio::test]
async fn cors_with_credentials_names_one_origin() {
    let app = "https://app.example.com";
    let mut options = CorsOptions::with_credentials();
    options.headers = vec!["authorization".into(), "content-type".into()];
    let server = plan(Puppet::eager(|input| talk(input, 1)))
        .set(|settings| {
            settings.cors = vec![app.into()];
            settings.cors_options = options;
        })
        .on_memory()
        .await;
    let preflight = async |origin: &str| {
        let request = server.ask(Method::OPTIONS, "/").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        let request = request.header("access-control-request-headers", "authorization,content-type");
        with_timeout("a response", request.send()).await.expect("a response").headers().clone()
    };
    let listed = preflight(app).await;
    assert_eq!(listed["access-control-allow-origin"], app);
    assert_eq!(listed["access-control-allow-credentials"], "true");
    let headers = listed["access-control-allow-headers"].to_str().expect("ASCII").to_ascii_lowercase();
    assert!(headers.contains("authorization") && headers.contains("content-type"), "{headers}");
    for foreign in
        ["https://evil.example", "null", "https://app.example.com.evil.example", "http://app.example.com"]
    {
        let headers = preflight(foreign).await;
        assert!(!headers.contains_key("access-control-allow-origin"), "{foreign}: {headers:?}");
    }
    let response = server.post("/", &Server::input("t", "r", "x")).header("origin", app).send().await;
    let response = response.expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["access-control-allow-origin"], app);
    assert_eq!(response.headers()["access-control-allow-credentials"], "true");
    assert!(response.headers()["vary"].to_str().expect("ASCII").to_ascii_lowercase().contains("origin"));
    // Any origin, and then never with cookies.
    let open = plan(Puppet::eager(|input| talk(input, 1)))
        .set(|settings| {
            settings.cors = vec!["*".into()];
            settings.cors_options = CorsOptions::with_credentials();
        })
        .on_memory()
        .await;
    let response = open.ask(Method::GET, "/agents").header("origin", "https://evil.example").send().await;
    let headers = response.expect("a response").headers().clone();
    assert_eq!(headers["access-control-allow-origin"], "*");
    assert!(!headers.contains_key("access-control-allow-credentials"), "{headers:?}");
}
