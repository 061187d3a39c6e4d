//! An agent in Rust in a custom axum app: `cargo run -p rust-agent [ADDRESS]`, by default at 127.0.0.1:8080.

mod agent;

use std::{env, error::Error};

use agentwire_gateway::{Gateway, settings, store};
use axum::{Router, response::Html, routing::get};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = store::open("memory:", store::Options::default()).await?;
    let gateway =
        Gateway::builder(store, settings::Settings::default()).agent("weather", agent::agent()).build();
    gateway.recover().await;

    // An ordinary app: its own pages, the agent under one prefix, its stored threads under another.
    let app = Router::new()
        .route("/", get(|| async { Html("<h1>Weather</h1><p>Ask me at <code>POST /ai</code>.") }))
        .nest("/ai", gateway.main_routes())
        .nest("/archive", gateway.history_routes().merge(gateway.state_routes()));

    let listener = TcpListener::bind(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            tokio::signal::ctrl_c().await.unwrap_or_default();
            gateway.drain().await;
        })
        .await?;
    Ok(())
}
