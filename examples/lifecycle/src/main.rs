//! All hooks of a run, each of which reports its call: `cargo run -p lifecycle [ADDRESS]`, by default at 127.0.0.1:7117.

use std::{env, error::Error, path::Path, sync::Arc};

use agentwire_core::event::{Event, RunInput};
use agentwire_gateway::{
    AgentConfig, Gateway,
    agent::{BoxFuture, NativeEvent, Translation},
    hooks::{Hooked, Hooks, RunContext, SessionLock},
    serve,
    settings::Settings,
    upstream::{Replay, ReplayOptions},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Created for each run.
struct Talkative;

impl Hooks for Talkative {
    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        println!("input_record   {} message(s)", input.messages.len());
        Box::pin(async { Ok(()) })
    }

    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        println!("input          may change or refuse it");
        Box::pin(async { Ok(input) })
    }

    fn native<'h>(&'h self, native: NativeEvent, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        println!("native         {}", kind(&native));
        Box::pin(async {
            out.push(native);
            Ok(())
        })
    }

    fn translate<'h>(&'h self, native: &'h NativeEvent, _: &'h mut Vec<Event>) -> Hooked<'h, Translation> {
        println!("translate      {}", kind(native));
        Box::pin(async { Ok(Translation::Default) })
    }

    fn event<'h>(&'h self, event: Event, out: &'h mut Vec<Event>) -> Hooked<'h> {
        println!("event          {}", event.kind());
        Box::pin(async {
            out.push(event);
            Ok(())
        })
    }

    fn state(&self, mut state: Value) -> Hooked<'_, Value> {
        println!("state          {state}");
        state["seen"] = json!(true);
        Box::pin(async { Ok(state) })
    }

    fn output_record<'h>(&'h self, event: &'h Event) -> Hooked<'h> {
        println!("output_record  {}", event.kind());
        Box::pin(async { Ok(()) })
    }

    fn output(&self, event: Event) -> Hooked<'_, Event> {
        println!("output         {}", event.kind());
        Box::pin(async { Ok(event) })
    }
}

/// The type of a native event.
fn kind(native: &NativeEvent) -> String {
    native.to_json().and_then(|value| Some(value["type"].as_str()?.to_owned())).unwrap_or_default()
}

/// Created once.
struct Polite;

impl SessionLock for Polite {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        println!("lock           {} {}", run.thread, run.run);
        Box::pin(async { Ok(()) })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        println!("unlock         {} {}", run.thread, run.run);
        Box::pin(async {})
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // An agent with native events: a recording, replayed for every run.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("recording.jsonl");
    let agent =
        Replay::new(ReplayOptions { file, format: Some("ag-ui".into()), ..ReplayOptions::default() })?;
    let store = agentwire_store::open("memory:", agentwire_store::Options::default()).await?;
    let gateway = Gateway::builder(store, Settings::default())
        .agent("recorded", AgentConfig::new(agent).hooks(|_| Talkative).lock(Arc::new(Polite)))
        .build();
    let listener = TcpListener::bind(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:7117")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let asked_to_end = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    Ok(serve(gateway, listener, asked_to_end).await?)
}
