//! The host of a request on real connections: HTTP/1 with its two places for it, and HTTP/2 with `:authority`.

use agentwire_gateway::agent::Demo;

use crate::support::{http2::Reply, *};

async fn server() -> Server {
    plan(std::sync::Arc::new(Demo::without_pauses())).on_memory().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_hosts_over_http2() {
    let server = server().await;
    let own = server.address().to_owned();
    let get = |hosts: &[(&'static str, &str)]| {
        let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":path", "/agents")];
        // Pseudo fields come first.
        let is_pseudo = |(name, _): &&(&str, &str)| name.starts_with(':');
        fields.extend(hosts.iter().filter(is_pseudo));
        fields.extend(hosts.iter().filter(|field| !is_pseudo(field)));
        let fields: Vec<(String, String)> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let server = &server;
        async move {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
            server.http2(&fields).await
        }
    };
    for good in [
        &[(":authority", &*own)][..],
        &[(":authority", "localhost")],
        &[(":authority", "LocalHost:1")],
        &[(":authority", "localhost.")],
        &[(":authority", "[::1]:7117")],
        &[(":authority", &own), ("host", &own)],
        &[(":authority", "LOCALHOST"), ("host", "localhost.")],
        &[("host", &own)],
    ] {
        let reply = get(good).await;
        assert!(matches!(&reply, Reply::Body(body) if body.contains("demo")), "{good:?}: {reply:?}");
    }
    for bad in [
        &[(":authority", "evil.example")][..],
        &[(":authority", "evil.example"), ("host", &own)],
        &[(":authority", &own), ("host", "evil.example")],
        &[(":authority", &own), ("host", "localhost")],
        &[(":authority", &own), ("host", &own), ("host", &own)],
        &[(":authority", &own), ("host", "")],
        &[(":authority", &own), (":authority", "evil.example")],
        &[("host", &own), ("host", "evil.example")],
        &[("host", "evil.example")],
        &[],
        &[(":authority", "")],
        &[(":authority", "user@localhost")],
        &[(":authority", "localhost:80:80")],
        &[(":authority", "localhost:99999")],
        &[(":authority", "localhost, evil.example")],
        &[(":authority", "localhost.evil.example")],
        &[(":authority", "127.0.0.1.evil.example")],
        &[(":authority", "[::1")],
        &[(":authority", "[::ffff:127.0.0.1]")],
        &[(":authority", "2130706433")],
        &[(":authority", &own), ("x-forwarded-host", "a"), ("host", "b")],
    ] {
        let reply = get(bad).await;
        let is_refused = match &reply {
            Reply::Body(body) => body.contains("HOST_NOT_ALLOWED"),
            Reply::Reset => true,
        };
        assert!(is_refused, "{bad:?}: {reply:?}");
    }
    // A forwarded host of a proxy is not the host.
    let reply = get(&[(":authority", &own), ("x-forwarded-host", "evil.example")]).await;
    assert!(matches!(&reply, Reply::Body(body) if body.contains("demo")), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t6_hosts_over_http1() {
    let server = server().await;
    let own = server.address().to_owned();
    let send = async |line: &str, fields: &str| {
        raw_status(&server.exchange(format!("{line}\r\n{fields}connection: close\r\n\r\n")).await)
    };
    let absolute = format!("GET http://{own}/agents HTTP/1.1");
    for (line, fields) in [
        ("GET /agents HTTP/1.1", format!("HOST: {own}\r\n")),
        ("GET /agents HTTP/1.1", format!("host:{own}\r\n")),
        ("GET /agents HTTP/1.1", "Host: LOCALHOST.:1\r\n".to_owned()),
        ("GET /agents HTTP/1.0", format!("host: {own}\r\n")),
        (&absolute, format!("host: {own}\r\n")),
    ] {
        assert_eq!(send(line, &fields).await, 200, "{line} {fields:?}");
    }
    for (line, fields) in [
        ("GET /agents HTTP/1.1", String::new()),
        ("GET /agents HTTP/1.0", String::new()),
        ("GET /agents HTTP/1.1", "host:\r\n".into()),
        ("GET /agents HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /agents HTTP/1.1", format!("host: {own}\r\nHost: {own}\r\n")),
        ("GET /livez HTTP/1.1", format!("host: {own}\r\nHost: evil.example\r\n")),
        ("GET /readyz HTTP/1.1", format!("host: {own}\r\nHost: {own}\r\n")),
        ("GET /agents HTTP/1.1", format!("host: {own}, evil.example\r\n")),
        ("GET /agents HTTP/1.1", format!("host: {own} evil.example\r\n")),
        ("GET /agents HTTP/1.1", format!("host: http://{own}\r\n")),
        ("GET /agents HTTP/1.1", "host: localhost:\u{661}\r\n".into()),
        (&absolute, "host: evil.example\r\n".into()),
        ("GET http://evil.example/agents HTTP/1.1", format!("host: {own}\r\n")),
        ("GET http://evil.example/agents HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET http://user@localhost/agents HTTP/1.1", "host: localhost\r\n".into()),
        ("POST /runs/x/stop HTTP/1.1", "host: evil.example\r\ncontent-length: 0\r\n".into()),
        (
            "OPTIONS /agents HTTP/1.1",
            "host: evil.example\r\norigin: http://evil.example\r\naccess-control-request-method: POST\r\n"
                .into(),
        ),
        ("OPTIONS * HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /nothing HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /console/ HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /copilotkit/info HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /openapi.json HTTP/1.1", "host: evil.example\r\n".into()),
        ("GET /metrics HTTP/1.1", "host: evil.example\r\n".into()),
    ] {
        let status = send(line, &fields).await;
        assert!(matches!(status, 400 | 421), "{line} {fields:?}: {status}");
    }
}
