//! Valid and malformed responses of servers.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use reqwest::header::HeaderValue;

use super::{
    direct::{DirectConnector, MAX_HEAD},
    *,
};

/// Sends a request to a server that responds with `response` and closes. Returns the request as the server read it, and the
/// result.
async fn exchange(
    path: &str,
    body: Option<&str>,
    response: &[u8],
) -> (String, Result<Response, TransportError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let url = Url::parse(&format!("http://127.0.0.1:{port}{path}")).expect("a URL");
    let direct = DirectConnector::new(&url, false).expect("a direct URL");
    let mut headers = HeaderMap::new();
    headers.insert("x-a", HeaderValue::from_static("b"));
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut asked = Vec::new();
        while !String::from_utf8_lossy(&asked).ends_with(body.unwrap_or("\r\n\r\n")) {
            assert!(stream.read_buf(&mut asked).await.expect("bytes") > 0);
        }
        stream.write_all(response).await.expect("the response is taken");
        String::from_utf8(asked).expect("text")
    };
    let asking = direct.send(Method::POST, &url, &headers, body.map(str::to_owned), None);
    let (asked, answered) = tokio::join!(server, asking);
    (asked.replace(&port.to_string(), "PORT"), answered)
}

async fn answered(response: &str) -> (u16, Result<String, String>) {
    let response = exchange("/", None, response.as_bytes()).await.1.expect("an response");
    let status = response.status().as_u16();
    let body = response.text().await.map_err(|error| {
        let error: &dyn std::error::Error = &error;
        std::iter::successors(Some(error), |&error| error.source()).last().expect("the error").to_string()
    });
    (status, body)
}

#[tokio::test]
async fn requests_are_valid_http() {
    let response = b"HTTP/1.1 204 No Content\r\n\r\n";
    let (asked, _) = exchange("/a%20b/c?d=e&f", Some("{\"x\":1}"), response).await;
    let expected = "POST /a%20b/c?d=e&f HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nx-a: b\r\ncontent-length: 7\r\n\r\n{\"x\":1}";
    assert_eq!(asked, expected);
    let (asked, _) = exchange("", None, response).await;
    assert_eq!(asked, "POST / HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nx-a: b\r\ncontent-length: 0\r\n\r\n");
}

#[tokio::test]
async fn a_body_ends_by_its_head() {
    let ok = |body: &str| (200, Ok(body.to_owned()));
    assert_eq!(answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabc").await, ok("ab"));
    assert_eq!(answered("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nabc").await, ok(""));
    assert_eq!(
        answered("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n").await,
        ok("abc")
    );
    assert_eq!(
        answered("HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\ncontent-length: 2\r\n\r\nabc").await,
        ok("ab")
    );
    assert_eq!(answered("HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nabc").await, ok("abc"));
    assert_eq!(answered("HTTP/1.1 200 OK\r\n\r\nabc").await, ok("abc"));
    assert_eq!(answered("HTTP/1.0 200\r\n\r\nabc").await, ok("abc"));
    assert_eq!(answered("HTTP/1.1 204 No Content\r\n\r\n").await, (204, Ok(String::new())));
    let after = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    assert_eq!(answered(after).await, ok("a"));
}

#[tokio::test]
async fn a_truncated_body_is_an_error() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        assert_eq!(
            answered(response).await,
            (200, Err("it was closed within the answer".to_owned())),
            "{response}"
        );
    }
    let (_, wrong) =
        answered("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nabc, said the server").await;
    assert_eq!(wrong, Err("Invalid chunk size line: Invalid Size".to_owned()));
}

#[tokio::test]
async fn chunks_before_a_malformed_one_are_returned() {
    let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\nx";
    let mut response = exchange("/", None, text.as_bytes()).await.1.expect("a response");
    let mut body = Vec::new();
    let error = loop {
        match response.chunk().await {
            Ok(chunk) => body.extend_from_slice(&chunk.expect("no regular end")),
            Err(error) => break error,
        }
    };
    assert_eq!(body, b"ab");
    assert!(format!("{error:?}").contains("missing size digit"), "{error:?}");
}

/// Each part of a stream is there when it was sent, however the chunks are cut.
#[tokio::test]
async fn a_stream_is_read_as_it_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let url = Url::parse(&url).expect("a URL");
    let direct = DirectConnector::new(&url, false).expect("a direct URL");
    let serving = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.expect("taken");
        stream
    };
    let (headers, body) = (HeaderMap::new(), Some("{}".to_owned()));
    let asking = direct.send(Method::POST, &url, &headers, body, None);
    let (mut server, response) = tokio::join!(serving, asking);
    let mut response = response.expect("a response");
    let long = "y".repeat(200_000);
    let long_chunk = format!("1\r\nx\r\n{:x};a=b\r\n{long}\r\n", long.len());
    for (sent, arrives) in [
        ("5\r\nhello\r\n", "hello"),
        ("A\r\n01234", "01234"),
        ("56789\r\n1\r", "56789"),
        ("\na\r\n2\r\nbc\r\n", "abc"),
        (&long_chunk, &format!("x{long}")),
        ("1\r\nz\r\n", "z"),
    ] {
        let sending = async { server.write_all(sent.as_bytes()).await.expect("taken") };
        let reading = async {
            let mut read = Vec::new();
            while read.len() < arrives.len() {
                read.extend_from_slice(&response.chunk().await.expect("bytes").expect("no end"));
            }
            assert!(read == arrives.as_bytes(), "{} bytes", read.len());
        };
        tokio::join!(sending, reading);
    }
    server.write_all(b"0\r\n\r\n").await.expect("taken");
    assert!(response.chunk().await.expect("the end").is_none());
    drop(response);
    let closed = server.read_to_end(&mut Vec::new()).await;
    assert!(closed.is_ok_and(|left| left > 0), "the request was there, and the connection is closed");
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(2 * MAX_HEAD));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(MAX_HEAD));
    for response in [
        "hello\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        &endless,
        &long,
    ] {
        let result = exchange("/", None, response.as_bytes()).await.1;
        assert!(matches!(result, Err(TransportError::NotHttp(_))), "{response:.40}: {result:?}");
    }
    let result = exchange("/", None, b"HTTP/1.1 200 OK\r\n").await.1;
    assert!(matches!(result, Err(TransportError::Broken(_))), "{result:?}");
}

#[tokio::test]
async fn a_response_before_the_request_was_read_is_returned() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let url = Url::parse(&url).expect("a URL");
    let direct = DirectConnector::new(&url, false).expect("a direct URL");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.expect("it is taken");
        stream.shutdown().await.expect("it is closed");
        // Reads the rest, so that the response is not lost with the connection.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
    });
    let headers = HeaderMap::new();
    let answered = direct.send(Method::POST, &url, &headers, Some("x".repeat(4 << 20)), None).await;
    assert_eq!(answered.expect("an response").status(), 413);
}

#[test]
fn tls_and_credentials_need_the_other_client() {
    let direct = |url: &str| DirectConnector::new(&Url::parse(url).expect("a URL"), false).is_some();
    assert!(direct("http://localhost:1/a") && direct("http://[::1]:8080") && direct("http://example.com"));
    assert!(!direct("https://localhost:1/a") && !direct("http://user:password@localhost"));
}

#[tokio::test]
async fn a_response_before_the_request_was_sent_is_returned() {
    early_response(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await;
    early_response(b"HTTP/1.1 413 Too Large\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n").await;
}

async fn early_response(text: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let url = Url::parse(&format!("http://{address}/")).expect("a URL");
    let direct = DirectConnector::new(&url, false).expect("a direct URL");
    // More than the buffers of any system hold.
    let body = "a".repeat(64 << 20);
    let asking = async { direct.send(Method::POST, &url, &HeaderMap::new(), Some(body), None).await };
    let serving = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(text).await.expect("taken");
        stream
    };
    let (_open, answered) = tokio::join!(serving, asking);
    let response = answered.expect("an response");
    assert_eq!(response.status(), 413);
    assert_eq!(response.text().await.expect("a body"), "no");
}
