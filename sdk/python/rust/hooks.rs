//! Hooks and session locks in Python. An object of the hooks is made per run, with the first call; Python keeps it until
//! the run is over here.

use std::{
    borrow::Cow,
    fmt::Write as _,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agentwire_core::{
    Tally,
    event::{Event, RunId, RunInput, ThreadId},
    format::{Options, Setup, ag_ui},
    framing::{Frame, Frames, Framing, Payload},
};
use agentwire_gateway::{
    UpstreamError,
    agent::{BoxFuture, NativeEvent, Translated, Translation},
    codes,
    hooks::{Hooked, Hooks, Points, RunContext, SessionLock, failed, refused},
};
use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use crate::{
    calls::{CallError, Calls},
    notes::Note,
};

/// Events in one call: as many as one append has.
const BATCH: usize = 256;

/// The description of hooks, as Python gives it.
#[derive(Clone, Debug)]
pub(crate) struct HooksPlan {
    points: Points,
    timeout: Duration,
    native_timeout: Option<Duration>,
}

impl HooksPlan {
    /// From `{"points": [...], "timeout": seconds, "native_timeout": seconds}`.
    pub(crate) fn of(about: &Value) -> Option<Self> {
        let names = about["points"].as_array()?;
        let points =
            names.iter().filter_map(|name| point(name.as_str()?)).fold(Points::NONE, |all, it| all | it);
        let timeout = seconds(about, "timeout").unwrap_or(Duration::from_secs(10));
        Some(Self { points, timeout, native_timeout: seconds(about, "native_timeout") })
    }

    /// The hooks of a run of the agent `target`.
    pub(crate) fn for_run(&self, calls: &Arc<Calls>, target: &str, run: &RunContext) -> PythonHooks {
        PythonHooks {
            calls: calls.clone(),
            target: target.into(),
            id: calls.next_id(),
            about: about(run).to_string(),
            is_known: AtomicBool::new(false),
            run: run.clone(),
            plan: self.clone(),
            own: OnceLock::new(),
        }
    }
}

/// A number of seconds.
fn seconds(about: &Value, key: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(about[key].as_f64()?).ok()
}

/// The time limits that the object of the hooks has.
#[derive(Debug)]
struct Limits {
    timeout: Option<Duration>,
    native_timeout: Option<Duration>,
}

fn point(name: &str) -> Option<Points> {
    Some(match name {
        "input_record" => Points::INPUT_RECORD,
        "input" => Points::INPUT,
        "native" => Points::NATIVE,
        "native_fallback" => Points::NATIVE_FALLBACK,
        "translate" => Points::TRANSLATE,
        "event" => Points::EVENT,
        "state" => Points::STATE,
        "output_record" => Points::OUTPUT_RECORD,
        "output" => Points::OUTPUT,
        _ => return None,
    })
}

/// The run, for Python.
fn about(run: &RunContext) -> Value {
    json!({
        "agent": &*run.agent,
        "tenant": run.owner.tenant.as_str(),
        "user": run.owner.user.as_str(),
        "thread": run.thread.as_str(),
        "run": run.run.as_str(),
        "headers": &*run.headers,
        "input": ag_ui::input::to_json(&run.input),
    })
}

/// The failure of a hook: one that Python names, or `HOOK_FAILED`.
fn of_hook(error: CallError) -> UpstreamError {
    let failure = match error.code.as_deref() {
        Some(codes::HOOK_REFUSED) => refused(error.message),
        Some(code) => UpstreamError::new(code, error.message),
        None => return failed(error.detail),
    };
    if error.detail.is_empty() { failure } else { failure.with_detail(error.detail) }
}

/// The hooks of one run.
#[derive(Debug)]
pub(crate) struct PythonHooks {
    calls: Arc<Calls>,
    target: Box<str>,
    id: u64,
    /// The run as JSON, which Python needs for the first call.
    about: String,
    /// True if Python has made the object.
    is_known: AtomicBool,
    run: RunContext,
    plan: HooksPlan,
    /// The limits of the object, which are known after `input_record`: a function may give any object, and an object may
    /// set its own.
    own: OnceLock<Limits>,
}

impl Drop for PythonHooks {
    fn drop(&mut self) {
        self.calls.notes().push(Note::Release(self.id));
    }
}

impl PythonHooks {
    async fn ask(&self, hook: &'static str, data: Value) -> Result<Value, UpstreamError> {
        let answer = self.ask_text(hook, &data.to_string()).await?;
        serde_json::from_slice(&answer).map_err(|error| failed(format!("the hook `{hook}`: {error}")))
    }

    /// As `ask`, with JSON text in both directions.
    async fn ask_text(&self, hook: &'static str, data: &str) -> Result<Bytes, UpstreamError> {
        let mut payload = format!("{{\"hook\":\"{hook}\",\"id\":{}", self.id);
        if !self.is_known.load(Ordering::Relaxed) {
            // Writing to a string does not fail.
            let _ = write!(payload, ",\"run\":{}", self.about);
        }
        let _ = write!(payload, ",\"data\":{data}}}");
        let answer = self.calls.ask(&self.target, "hook", payload, self.run.context.as_ref()).await;
        let answer = answer.map_err(of_hook)?;
        self.is_known.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Events in, events out.
    async fn ask_events(
        &self,
        hook: &'static str,
        events: &[Event],
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let answer = self.ask_text(hook, &self.encoded(events)).await?;
        let made: Vec<&RawValue> =
            serde_json::from_slice(&answer).map_err(|error| failed(format!("the hook `{hook}`: {error}")))?;
        self.decoded(hook, made.into_iter().map(|event| event.get().into()), out)
    }

    /// Events as a JSON array.
    fn encoded(&self, events: &[Event]) -> String {
        encode(&self.run.thread, &self.run.run, events)
    }

    fn decoded<'e>(
        &self,
        hook: &str,
        events: impl Iterator<Item = Cow<'e, str>>,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        decode(&self.run.thread, &self.run.run, events, out).map_err(|problem| {
            failed(format!("the hook `{hook}` gave an event that is not valid: {problem}"))
        })
    }
}

/// The elements of an array as JSON.
fn texts(events: &Value) -> impl Iterator<Item = Cow<'_, str>> {
    events.as_array().into_iter().flatten().map(|event| event.to_string().into())
}

fn encode(thread: &ThreadId, run: &RunId, events: &[Event]) -> String {
    let options = Options::default();
    let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
    let Some(make) = ag_ui::FORMAT.writer else { return "[]".to_owned() };
    let mut writer = make(&ag_ui::FORMAT.profiles[0], &setup);
    let mut frames = Frames::new(Framing::Lines);
    let mut text = String::with_capacity(256 * events.len() + 2);
    text.push('[');
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        writer.write(event, &mut frames);
        frames.drain(|line| match std::str::from_utf8(line.trim_ascii()) {
            // One line: the event and nothing else.
            Ok(line) if !line.is_empty() && !line.contains('\n') => text.push_str(line),
            _ => text.push_str("null"),
        });
    }
    text.push(']');
    text
}

fn decode<'e>(
    thread: &ThreadId,
    run: &RunId,
    events: impl Iterator<Item = Cow<'e, str>>,
    out: &mut Vec<Event>,
) -> Result<(), String> {
    let options = Options::parse(["on_interrupt=custom", "langgraph_custom=keep"], ag_ui::FORMAT.options);
    let options = options.map_err(|error| error.to_string())?;
    let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
    let Some(make) = ag_ui::FORMAT.reader else { return Ok(()) };
    let mut reader = make(&setup);
    for (index, text) in events.enumerate() {
        let before = out.len();
        let index = u64::try_from(index).unwrap_or_default();
        let frame = Frame { index, offset: 0, event: None, id: None, data: Payload::Text(&text) };
        reader.read(&frame, out).map_err(|error| error.to_string())?;
        if out.len() == before {
            return Err(format!("`{}` is no event", text.chars().take(200).collect::<String>()));
        }
    }
    Ok(())
}

fn natives(batch: &[NativeEvent]) -> Value {
    let each = batch.iter().map(|native| json!({ "event": native.event, "data": native.to_json() }));
    each.collect::<Vec<_>>().into()
}

fn native(value: &Value) -> NativeEvent {
    NativeEvent::json(value["event"].as_str(), &value["data"])
}

impl Hooks for PythonHooks {
    fn points(&self) -> Points {
        self.plan.points
    }

    fn timeout(&self) -> Duration {
        self.own.get().and_then(|own| own.timeout).unwrap_or(self.plan.timeout)
    }

    fn native_timeout(&self) -> Option<Duration> {
        self.own.get().map_or(self.plan.native_timeout, |own| own.native_timeout)
    }

    fn batch_size(&self) -> usize {
        BATCH
    }

    fn input_record<'h>(&'h self, input: &'h RunInput) -> Hooked<'h> {
        Box::pin(async move {
            let own = self.ask("input_record", ag_ui::input::to_json(input).into()).await?;
            if own.is_object() {
                let (timeout, native_timeout) = (seconds(&own, "timeout"), seconds(&own, "native_timeout"));
                let _ = self.own.set(Limits { timeout, native_timeout });
            }
            Ok(())
        })
    }

    fn input(&self, input: RunInput) -> Hooked<'_, RunInput> {
        Box::pin(async move {
            let changed = self.ask("input", ag_ui::input::to_json(&input).into()).await?;
            ag_ui::input::from_json(&changed.to_string(), &mut Tally::default())
                .map_err(|error| failed(format!("the hook `input` gave an input that is not valid: {error}")))
        })
    }

    fn natives<'h>(&'h self, batch: Vec<NativeEvent>, out: &'h mut Vec<NativeEvent>) -> Hooked<'h> {
        Box::pin(async move {
            let kept = self.ask("native", natives(&batch)).await?;
            for entry in kept.as_array().into_iter().flatten() {
                // An event that is as it was need not be written again.
                let same = entry["keep"].as_u64().and_then(|at| batch.get(usize::try_from(at).ok()?));
                out.push(same.cloned().unwrap_or_else(|| native(entry)));
            }
            Ok(())
        })
    }

    fn native_fallback<'h>(&'h self, out: &'h mut Vec<Event>) -> Hooked<'h, Vec<NativeEvent>> {
        Box::pin(async move {
            let given = self.ask("native_fallback", Value::Null).await?;
            self.decoded("native_fallback", texts(&given["events"]), out)?;
            Ok(given["natives"].as_array().into_iter().flatten().map(native).collect())
        })
    }

    fn translations<'h>(&'h self, batch: &'h [NativeEvent], out: &'h mut Vec<Translated>) -> Hooked<'h> {
        Box::pin(async move {
            let decided = self.ask("translate", natives(batch)).await?;
            for decision in decided.as_array().into_iter().flatten() {
                let mut before = Vec::new();
                self.decoded("translate", texts(&decision["before"]), &mut before)?;
                let translation = match decision["translation"].as_str() {
                    Some("skip") => Translation::Skip,
                    Some("replace") => Translation::Replace(native(&decision["native"])),
                    _ => Translation::Default,
                };
                out.push(Translated { before, translation });
            }
            Ok(())
        })
    }

    fn events<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        Box::pin(async move { self.ask_events("event", &batch, out).await })
    }

    fn state(&self, state: Value) -> Hooked<'_, Value> {
        Box::pin(async move { self.ask("state", state).await })
    }

    fn output_records<'h>(&'h self, batch: &'h [Event]) -> Hooked<'h> {
        Box::pin(async move {
            self.ask_text("output_record", &self.encoded(batch)).await?;
            Ok(())
        })
    }

    fn outputs<'h>(&'h self, batch: Vec<Event>, out: &'h mut Vec<Event>) -> Hooked<'h> {
        Box::pin(async move { self.ask_events("output", &batch, out).await })
    }
}

/// A session lock in Python.
#[derive(Debug)]
pub(crate) struct PythonLock {
    pub(crate) calls: Arc<Calls>,
    /// The agent; empty for that of the gateway.
    pub(crate) target: Box<str>,
    pub(crate) timeout: Duration,
}

impl SessionLock for PythonLock {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        Box::pin(async move {
            let asked = self.calls.ask(&self.target, "lock", about(run).to_string(), run.context.as_ref());
            let answer = asked.await.map_err(|error| match error.code.is_some() {
                true => UpstreamError::new(codes::THREAD_IS_LOCKED, error.message),
                false => failed(error.detail),
            })?;
            match &*answer {
                b"false" => Err(UpstreamError::new(codes::THREAD_IS_LOCKED, "another run has the thread")),
                _ => Ok(()),
            }
        })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        Box::pin(async move {
            let asked = self.calls.ask(&self.target, "unlock", about(run).to_string(), run.context.as_ref());
            if let Err(error) = asked.await {
                tracing::error!(run = %run.run, detail = error.detail, "the session lock failed to unlock");
            }
        })
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}
