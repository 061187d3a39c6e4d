//! Sends one message to a real server through an upstream and prints the events as AG-UI lines. Used by hand.
//!
//! ```text
//! cargo run -p agentwire-tools --bin ask -- langgraph http://127.0.0.1:2024 tools THREAD "weather"
//! cargo run -p agentwire-tools --bin ask -- adk http://127.0.0.1:8000 demo THREAD "weather"
//! ```
//!
//! `STOP_AFTER=5` stops the run after five events; `RESUME='{"id":…}'` answers the interrupts of the thread.

use std::error::Error;

use agentwire_core::{
    event::{Body, Message, ResumeEntry, ResumeStatus, RunInput, StreamEnd},
    format::{Format, Options, Setup},
    framing::{Frames, Framing},
    json::Json,
    order::Guard,
};
use agentwire_gateway::{
    agent::{Agent, EventSink, Request},
    upstream::{Adk, AdkOptions, AgUi, AgUiOptions, LangGraph, LangGraphOptions},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, name, thread, message] = &arguments[..] else {
        return Err("usage: ask langgraph|adk|ag-ui URL NAME THREAD MESSAGE".into());
    };
    let agent: Box<dyn Agent> = match &**kind {
        "langgraph" => Box::new(LangGraph::new(LangGraphOptions {
            url: url.clone(),
            graph: name.clone(),
            ..LangGraphOptions::default()
        })?),
        "adk" => {
            Box::new(Adk::new(AdkOptions { url: url.clone(), app: name.clone(), ..AdkOptions::default() })?)
        }
        _ => Box::new(AgUi::new(AgUiOptions { url: url.clone(), ..AgUiOptions::default() })?),
    };
    let run = format!("run-{}", std::process::id());
    let mut input = RunInput::new(thread.as_str(), run.as_str());
    match std::env::var("RESUME") {
        Ok(text) => {
            let answers: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text)?;
            let answers = answers.iter().map(|(id, payload)| ResumeEntry {
                interrupt: id.as_str().into(),
                status: ResumeStatus::Resolved,
                payload: Some(Json::from(payload)),
                metadata: None,
            });
            input.resume = Some(answers.collect());
        }
        Err(_) => input.messages.push(Message::user(format!("{run}-m"), &**message)),
    }
    let request = Request::new(input);
    let stop_after = std::env::var("STOP_AFTER").ok().and_then(|count| count.parse::<usize>().ok());
    let (sink, mut events) = EventSink::new(16);
    let task = tokio::spawn(agent.run(request.clone(), sink));
    let format = Format::find("ag-ui").ok_or("the format is known")?;
    let profile = format.profile("").ok_or("the profile is known")?;
    let options = Options::default();
    let setup = Setup { thread: thread.as_str().into(), run: run.as_str().into(), options: &options };
    let mut writer = format.writer.ok_or("the format has a writer")?(profile, &setup);
    let mut guard = Guard::new(thread.as_str(), run.as_str());
    let (mut valid, mut count) = (Vec::new(), 0);
    let mut frames = Frames::new(Framing::Lines);
    while let Some(event) = events.recv().await {
        count += 1;
        if matches!(event.body, Body::RunError(_)) {
            eprintln!("the agent reports an error");
        }
        guard.push(event, &mut valid);
        for event in valid.drain(..) {
            writer.write(&event, &mut frames);
            frames.finish_event(None);
        }
        if stop_after == Some(count) {
            task.abort();
            agent.stop(request.clone()).await;
            eprintln!("stopped");
            break;
        }
    }
    let end = match task.await {
        Ok(Ok(())) => StreamEnd::Closed,
        Ok(Err(failure)) => {
            eprintln!("failure: {failure:?}");
            StreamEnd::Failed { code: failure.code().into(), message: failure.to_string().into() }
        }
        Err(_) => StreamEnd::Failed { code: "STOPPED".into(), message: "stopped".into() },
    };
    guard.end(&end, &mut valid);
    for event in valid {
        writer.write(&event, &mut frames);
        frames.finish_event(None);
    }
    print!("{}", String::from_utf8_lossy(&frames.take()));
    Ok(())
}
