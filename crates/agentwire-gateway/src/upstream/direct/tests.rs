//! Answers as servers write them, and as they should not.

use tokio::net::TcpListener;

use super::*;

/// What a server was asked that answers with `answer` and hangs up, and what came of it.
async fn exchange(path: &str, body: Option<&str>, answer: &[u8]) -> (String, Result<Response, Unanswered>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let url = Url::parse(&format!("http://127.0.0.1:{port}{path}")).expect("a URL");
    let direct = Direct::to(&url, false).expect("nothing is in between");
    let mut headers = HeaderMap::new();
    headers.insert("x-a", HeaderValue::from_static("b"));
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let mut asked = Vec::new();
        while !String::from_utf8_lossy(&asked).ends_with(body.unwrap_or("\r\n\r\n")) {
            assert!(stream.read_buf(&mut asked).await.expect("bytes") > 0);
        }
        stream.write_all(answer).await.expect("the answer is taken");
        String::from_utf8(asked).expect("text")
    };
    let asking = direct.send(Method::POST, &url, &headers, body.map(str::to_owned), None);
    let (asked, answered) = tokio::join!(server, asking);
    (asked.replace(&port.to_string(), "PORT"), answered)
}

async fn answered(answer: &str) -> (u16, Result<String, String>) {
    let response = exchange("/", None, answer.as_bytes()).await.1.expect("an answer");
    let status = response.status().as_u16();
    let body = response.text().await.map_err(|error| {
        let error: &dyn std::error::Error = &error;
        std::iter::successors(Some(error), |error| error.source()).last().expect("the error").to_string()
    });
    (status, body)
}

#[tokio::test]
async fn the_request_is_what_a_server_expects() {
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    let (asked, _) = exchange("/a%20b/c?d=e&f", Some("{\"x\":1}"), answer).await;
    let expected = "POST /a%20b/c?d=e&f HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nx-a: b\r\ncontent-length: 7\r\n\r\n{\"x\":1}";
    assert_eq!(asked, expected);
    let (asked, _) = exchange("", None, answer).await;
    assert_eq!(asked, "POST / HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\nx-a: b\r\ncontent-length: 0\r\n\r\n");
}

#[tokio::test]
async fn a_body_ends_where_its_head_says() {
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
async fn a_body_that_is_cut_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        assert_eq!(
            answered(answer).await,
            (200, Err("it was closed within the answer".to_owned())),
            "{answer}"
        );
    }
    let (_, wrong) =
        answered("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nabc, said the server").await;
    assert_eq!(wrong, Err("the size of a chunk is not a number".to_owned()));
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(2 * MAX_HEAD));
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(MAX_HEAD));
    for answer in [
        "hello\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        &endless,
        &long,
    ] {
        let result = exchange("/", None, answer.as_bytes()).await.1;
        assert!(matches!(result, Err(Unanswered::NotHttp(_))), "{answer:.40}: {result:?}");
    }
    let result = exchange("/", None, b"HTTP/1.1 200 OK\r\n").await.1;
    assert!(matches!(result, Err(Unanswered::Broken(_))), "{result:?}");
}

#[tokio::test]
async fn an_answer_to_a_request_that_was_not_read_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let url = Url::parse(&url).expect("a URL");
    let direct = Direct::to(&url, false).expect("nothing is in between");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await.expect("it is taken");
        stream.shutdown().await.expect("it is closed");
        // Reads on, so that what it said is not lost with the connection.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
    });
    let headers = HeaderMap::new();
    let answered = direct.send(Method::POST, &url, &headers, Some("x".repeat(4 << 20)), None).await;
    assert_eq!(answered.expect("an answer").status(), 413);
}

#[test]
fn what_needs_more_goes_another_way() {
    let direct = |url: &str| Direct::to(&Url::parse(url).expect("a URL"), false).is_some();
    assert!(direct("http://localhost:1/a") && direct("http://[::1]:8080") && direct("http://example.com"));
    assert!(!direct("https://localhost:1/a") && !direct("http://user:password@localhost"));
}

#[tokio::test]
async fn an_answer_is_seen_before_the_request_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let url = Url::parse(&format!("http://{address}/")).expect("a URL");
    let direct = Direct::to(&url, false).expect("nothing is in between");
    // More than the buffers of any system hold.
    let body = "a".repeat(64 << 20);
    let asking = async { direct.send(Method::POST, &url, &HeaderMap::new(), Some(body), None).await };
    let serving = async {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.expect("taken");
        stream
    };
    let (_open, answered) = tokio::join!(serving, asking);
    let response = answered.expect("an answer");
    assert_eq!(response.status(), 413);
    assert_eq!(response.text().await.expect("a body"), "no");
}
