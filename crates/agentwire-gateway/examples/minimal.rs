//! The smallest gateway in a Rust program: the demo agent, everything in memory.
//!
//! ```sh
//! cargo run -p agentwire-gateway --example minimal
//! ```

use agentwire_gateway::{AgentConfig, Gateway, agent::Demo, serve, settings::Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = agentwire_store::open("memory:", agentwire_store::Options::default()).await?;
    let settings = Settings::default();
    let listener = tokio::net::TcpListener::bind(settings.listen).await?;
    println!("http://{}", listener.local_addr()?);
    let gateway = Gateway::builder(store, settings).agent("demo", AgentConfig::new(Demo::default())).build();
    serve(gateway, listener, std::future::pending()).await?;
    Ok(())
}
