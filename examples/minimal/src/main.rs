//! The smallest agent behind the gateway as a library: `cargo run -p minimal [ADDRESS]`, by default at 127.0.0.1:7117.

use std::{env, error::Error};

use agentwire_gateway::{Gateway, agent::agent_fn, serve, settings, store};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = agent_fn(|request, emit| async move {
        emit.text(format!("You said: {}", request.user_text())).await?;
        Ok(())
    });
    let store = store::open("memory:", store::Options::default()).await?;
    let gateway = Gateway::builder(store, settings::Settings::default()).agent("echo", agent).build();
    let listener = TcpListener::bind(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:7117")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let asked_to_end = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    Ok(serve(gateway, listener, asked_to_end).await?)
}
