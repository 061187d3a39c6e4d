//! HTTP/2 streams that their client opens and resets at once: each costs the client two small frames.

use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_streams_that_are_reset_at_once_delay_nobody() {
    let server = plan(Puppet::eager(|input| talk(input, 3))).on_memory().await;
    let before = server.metric("agentwire_connections").await;
    let socket = tokio::net::TcpStream::connect(server.address()).await.expect("a connection");
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(socket))
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    for number in 0..3000 {
        if client.ready().await.is_err() {
            // The gateway has had enough of it.
            break;
        }
        let request = hyper::Request::get(format!("{}/threads?query=x{number}", server.base))
            .body(Empty::<bytes::Bytes>::new())
            .expect("a request");
        let response = client.send_request(request);
        tokio::select! {
            biased;
            _ = response => {}
            () = tokio::task::yield_now() => {}
        }
        if number % 1000 == 0 {
            let run = format!("r{number}");
            assert_valid(&server.run_to_end("t", &run, "hello").await);
        }
    }
    assert_valid(&server.run_to_end("t", "last", "hello").await);
    drop(client);
    connection.abort();
    wait_until("its connection is gone", async || server.metric("agentwire_connections").await <= before)
        .await;
}
