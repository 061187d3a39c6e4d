//! The configured hooks of one run.
//!
//! A server gets the events that gathered while its last request was in flight, in order and within bounds. Each request
//! has the timeout of its server.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agentwire_core::{
    Tally,
    event::{Event, RunInput},
    format::ag_ui,
};
use serde_json::Value;

use super::{
    super::{Hooked, Hooks, Points, RunContext, nothing},
    ConfiguredServers,
    body::{RunDescription, list},
    http::{HookServer, OnFailure},
    native_json,
    record::Recorder,
    reply::{EventReader, Problem, Reply},
    rewrite::Rewrite,
    server_failed,
};
use crate::{
    agent::{NativeEvent, Translated},
    error::UpstreamError,
    stream::log_codec::Encoder,
};

/// The largest number of events in one request.
const MAX_BATCH: usize = 256;

/// The size of the events above which they are sent in several requests.
const MAX_REQUEST: usize = 1 << 20;

/// The timeout of a call, which may be several requests; each has a timeout of its own.
const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The hooks of one run.
pub(super) struct ConfiguredRun {
    servers: Arc<ConfiguredServers>,
    about: RunDescription,
    context: RunContext,
    rewrite: Mutex<Rewrite>,
    recorder: Option<Recorder>,
    /// The codecs of the events for `event` and `output`.
    event: Mutex<EventCodec>,
    output: Mutex<EventCodec>,
}

/// Events to and from the JSON of one server.
struct EventCodec {
    encoder: Encoder,
    reader: EventReader,
}

impl EventCodec {
    fn new(run: &RunContext) -> Self {
        let (encoder, reader) =
            (Encoder::new(&run.thread, &run.run), EventReader::new(&run.thread, &run.run));
        Self { encoder, reader }
    }

    /// Events as JSON.
    fn encode(&mut self, events: &[Event]) -> Vec<String> {
        let encode = |event: &Event| {
            let encoded = self.encoder.encode(event).unwrap_or_default();
            String::from_utf8(encoded.to_vec()).unwrap_or_default()
        };
        events.iter().map(encode).collect()
    }
}

impl ConfiguredRun {
    pub(super) fn new(servers: Arc<ConfiguredServers>, run: &RunContext) -> Self {
        Self {
            about: RunDescription::new(run),
            rewrite: Mutex::new(Rewrite::new(Arc::clone(&servers.rules), run)),
            recorder: servers.output_record.as_ref().map(|server| Recorder::new(Arc::clone(server), run)),
            event: Mutex::new(EventCodec::new(run)),
            output: Mutex::new(EventCodec::new(run)),
            context: run.clone(),
            servers,
        }
    }

    fn reader(&self) -> EventReader {
        EventReader::new(&self.context.thread, &self.context.run)
    }

    /// Calls a server with one member, and reads its response; `None` if the response changes nothing, or if the run
    /// continues after a failure.
    async fn ask<T>(
        &self,
        server: &HookServer,
        hook: &str,
        members: &[(&str, &str)],
        keys: &[&str],
        read: impl FnOnce(&Reply) -> Result<Option<T>, Problem>,
    ) -> Result<Option<T>, UpstreamError> {
        let answer = server.call(&self.context.owner, hook, self.about.body(hook, members), keys).await;
        let read = |reply: Option<Reply>| reply.as_ref().map_or(Ok(None), read);
        Ok(server.resolve(hook, answer.and_then(read))?.flatten())
    }

    /// The events that a server gives in the place of `batch`.
    async fn ask_events(
        &self,
        (hook, server): (&str, &HookServer),
        codec: &Mutex<EventCodec>,
        batch: Vec<Event>,
        is_one_to_one: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let texts = locked(codec).encode(&batch);
        let mut batch = batch.into_iter();
        for texts in split(&texts) {
            let read = |reply: &Reply| {
                let events = reply.events("events", &mut locked(codec).reader)?;
                let count = events.as_ref().map_or(texts.len(), Vec::len);
                match is_one_to_one && count != texts.len() {
                    false => Ok(events),
                    true => {
                        let problem = format!("answered with {count} events for {}", texts.len());
                        Err(Problem::Failed(problem))
                    }
                }
            };
            let answer = self.ask(server, hook, &[("events", &list(texts))], &["events"], read).await?;
            let kept = batch.by_ref().take(texts.len());
            match answer {
                // Dropped: the answer replaces them.
                Some(events) => {
                    kept.for_each(drop);
                    out.extend(events);
                }
                None => out.extend(kept),
            }
        }
        Ok(())
    }
}

impl Hooks for ConfiguredRun {
    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        const HOOK: &str = "input_record";
        let Some(server) = &self.servers.input_record else { return nothing() };
        let body = self.about.body(HOOK, &[("input", &ag_ui::input::to_json(input))]);
        if server.on_failure == OnFailure::Closed {
            return Box::pin(async move {
                let recorded = server.post(body, false).await;
                recorded.map(drop).map_err(|problem| server_failed(HOOK, &problem))
            });
        }
        let (server, run) = (Arc::clone(server), self.context.run.clone());
        self.context.tasks.spawn(async move {
            if let Err(problem) = server.post(body, false).await {
                tracing::warn!(%run, problem, "an input was not recorded by the server of a hook");
            }
        });
        nothing()
    }

    fn input(&self, mut input: RunInput) -> Hooked<'_, RunInput> {
        Box::pin(async move {
            if let Some(server) = &self.servers.input {
                let read = |reply: &Reply| {
                    let Some(changed) = reply.get("input") else { return Ok(None) };
                    let changed = ag_ui::input::from_json(changed, &mut Tally::default());
                    let invalid = |error| Problem::Failed(format!("`input` is no run input: {error}"));
                    changed.map(Some).map_err(invalid)
                };
                let sent = ag_ui::input::to_json(&input);
                if let Some(changed) =
                    self.ask(server, "input", &[("input", &sent)], &["input"], read).await?
                {
                    input = changed;
                }
            }
            locked(&self.rewrite).begin(&mut input);
            Ok(input)
        })
    }

    fn natives<'h>(&'h self, batch: Vec<NativeEvent>, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        Box::pin(async move {
            let Some(server) = &self.servers.native else {
                out.extend(batch);
                return Ok(());
            };
            let texts: Vec<_> = batch.iter().map(native_json::write).collect();
            let mut batch = batch.into_iter();
            for texts in split(&texts) {
                let members = [("events", &*list(texts))];
                let answer = self
                    .ask(server, "native", &members, &["events"], |reply| reply.natives("events"))
                    .await?;
                let kept = batch.by_ref().take(texts.len());
                match answer {
                    Some(natives) => {
                        kept.for_each(drop);
                        out.extend(natives);
                    }
                    None => out.extend(kept),
                }
            }
            Ok(())
        })
    }

    fn native_timeout(&self) -> Option<Duration> {
        self.servers.native_fallback.as_ref().map(|(after, _)| *after)
    }

    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        Box::pin(async move {
            let Some((_, server)) = &self.servers.native_fallback else { return Ok(Vec::new()) };
            let read = |reply: &Reply| {
                let before = reply.events("before", &mut self.reader())?.unwrap_or_default();
                Ok(Some((before, reply.natives("events")?.unwrap_or_default())))
            };
            let answer = self.ask(server, "native_fallback", &[], &["before", "events"], read).await?;
            let (before, natives) = answer.unwrap_or_default();
            out.extend(before);
            Ok(natives)
        })
    }

    fn translations<'h>(&'h self, batch: &'h [NativeEvent], out: &'h mut Vec<Translated>) -> Hooked<'h> {
        Box::pin(async move {
            let Some(server) = &self.servers.translate else {
                out.extend(batch.iter().map(|_| Translated::default()));
                return Ok(());
            };
            let texts: Vec<_> = batch.iter().map(native_json::write).collect();
            for texts in split(&texts) {
                let members = [("events", &*list(texts))];
                let read = |reply: &Reply| reply.translations(texts.len(), &mut self.reader());
                match self.ask(server, "translate", &members, &["translations"], read).await? {
                    Some(translations) => out.extend(translations),
                    None => out.extend(texts.iter().map(|_| Translated::default())),
                }
            }
            Ok(())
        })
    }

    fn events<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        let mut ruled = Vec::with_capacity(batch.len());
        let result = {
            let mut rewrite = locked(&self.rewrite);
            batch.into_iter().try_for_each(|event| rewrite.event(event, &mut ruled))
        };
        Box::pin(async move {
            match &self.servers.event {
                None => out.append(&mut ruled),
                Some(server) => {
                    self.ask_events(("event", server), &self.event, mem::take(&mut ruled), false, out)
                        .await?;
                }
            }
            // Events before a failure are passed on.
            result
        })
    }

    fn state(&self, state: Value) -> Hooked<'_, Value> {
        Box::pin(async move {
            let Some(server) = &self.servers.state else { return Ok(state) };
            let members = [("state", &*state.to_string())];
            let answer = self.ask(server, "state", &members, &["state"], Reply::state).await?;
            Ok(answer.unwrap_or(state))
        })
    }

    fn output_records<'h>(&'h self, batch: &'h [Event]) -> Hooked<'h> {
        let Some(recorder) = &self.recorder else { return nothing() };
        Box::pin(async move {
            for event in batch {
                recorder.record(event, &self.about).await?;
            }
            Ok(())
        })
    }

    fn outputs<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        Box::pin(async move {
            match &self.servers.output {
                None => out.extend(batch),
                Some(server) => {
                    self.ask_events(("output", server), &self.output, batch, true, out).await?;
                }
            }
            Ok(())
        })
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn points(&self) -> Points {
        self.servers.points()
    }

    fn batch_size(&self) -> usize {
        MAX_BATCH
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits the texts of a batch, so that each part is one request. A part has at least one text.
fn split(texts: &[String]) -> Vec<&[String]> {
    let (mut parts, mut start, mut size) = (Vec::new(), 0, 0);
    for (index, text) in texts.iter().enumerate() {
        if index > start && size + text.len() > MAX_REQUEST {
            parts.push(&texts[start..index]);
            (start, size) = (index, 0);
        }
        size += text.len();
    }
    if start < texts.len() {
        parts.push(&texts[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_split_in_order_and_within_their_bound() {
        let text = |size: usize| "x".repeat(size);
        for sizes in
            [vec![], vec![1], vec![MAX_REQUEST * 2], vec![MAX_REQUEST, 1, 2], vec![MAX_REQUEST / 2; 5]]
        {
            let texts: Vec<_> = sizes.iter().map(|size| text(*size)).collect();
            let parts = split(&texts);
            assert!(parts.concat() == texts, "{sizes:?}");
            for part in parts {
                let size = part.iter().map(String::len).sum::<usize>();
                assert!(!part.is_empty() && (size <= MAX_REQUEST || part.len() == 1), "{sizes:?}");
            }
        }
    }
}
