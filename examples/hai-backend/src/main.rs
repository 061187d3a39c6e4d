//! Serves the example on 127.0.0.1, port 8000 or the given one.

use std::{env, io, process::ExitCode};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> io::Result<()> {
    let port = match env::args().nth(1) {
        None => 8000,
        Some(port) => port
            .parse::<u16>()
            .map_err(|_| io::Error::other(format!("port `{port}` is not a number from 0 to 65535")))?,
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, hai_backend::router())
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await
}
