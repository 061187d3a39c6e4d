//! Scripted agents that the test advances event by event, and agents from functions.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use agentwire_core::event::{Body, Event, RunError, RunFinished, RunInput};
use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
};
use tokio::sync::Semaphore;

type Script = dyn Fn(&RunInput) -> Vec<Event> + Send + Sync;

/// An agent that emits the events of its script, one per permit.
pub(crate) struct Puppet {
    script: Box<Script>,
    permits: Arc<Semaphore>,
    received: Arc<Calls>,
}

/// The calls that a puppet received.
#[derive(Default)]
struct Calls {
    calls: AtomicUsize,
    /// Number of runs whose future was dropped before it completed.
    dropped: AtomicUsize,
    stops: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

impl Puppet {
    /// Emits events as [`Self::allow`] permits them.
    pub(crate) fn new(script: impl Fn(&RunInput) -> Vec<Event> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            permits: Arc::new(Semaphore::new(0)),
            received: Arc::default(),
        })
    }

    /// Emits all events immediately.
    pub(crate) fn eager(script: impl Fn(&RunInput) -> Vec<Event> + Send + Sync + 'static) -> Arc<Self> {
        let puppet = Self::new(script);
        puppet.allow(Semaphore::MAX_PERMITS / 2);
        puppet
    }

    /// Permits `events` more events.
    pub(crate) fn allow(&self, events: usize) {
        self.permits.add_permits(events);
    }

    /// Takes back all permits.
    pub(crate) fn forbid(&self) {
        self.permits.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn calls(&self) -> usize {
        self.received.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.received.dropped.load(Ordering::SeqCst)
    }

    pub(crate) fn stops(&self) -> usize {
        self.received.stops.load(Ordering::SeqCst)
    }

    /// The last request.
    pub(crate) fn last_request(&self) -> Request {
        self.received.requests.lock().expect("no panic").last().expect("a request").clone()
    }

    /// The ids of the requested runs, in order.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.received
            .requests
            .lock()
            .expect("no panic")
            .iter()
            .map(|request| request.input.run.to_string())
            .collect()
    }
}

struct DropCounter(Arc<Calls>, bool);

impl DropCounter {
    fn done(&mut self) {
        self.1 = true;
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Agent for Puppet {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        self.received.calls.fetch_add(1, Ordering::SeqCst);
        self.received.requests.lock().expect("no panic").push(request.clone());
        let script = (self.script)(&request.input);
        let permits = self.permits.clone();
        let mut counter = DropCounter(self.received.clone(), false);
        Box::pin(async move {
            for event in script {
                permits.acquire().await.expect("it is never closed").forget();
                sink.send(event).await?;
            }
            counter.done();
            Ok(())
        })
    }

    fn stop(&self, _: Request) -> BoxFuture<'static, ()> {
        self.received.stops.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

/// An agent from a function.
struct Play<F>(F);

impl<F, A> Agent for Play<F>
where
    F: Fn(Request, EventSink) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), UpstreamError>> + Send + 'static,
{
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        Box::pin((self.0)(request, sink))
    }
}

pub(crate) fn play<F, A>(function: F) -> Arc<dyn Agent>
where
    F: Fn(Request, EventSink) -> A + Send + Sync + 'static,
    A: Future<Output = Result<(), UpstreamError>> + Send + 'static,
{
    Arc::new(Play(function))
}

pub(crate) fn start(message: &str) -> Event {
    Event::new(Body::TextStart { message: message.into(), role: None, name: None })
}

pub(crate) fn delta(message: &str, text: &str) -> Event {
    Event::new(Body::TextDelta { message: message.into(), delta: text.into() })
}

pub(crate) fn end(message: &str) -> Event {
    Event::new(Body::TextEnd { message: message.into() })
}

pub(crate) fn error(code: &str) -> Event {
    Event::new(Body::RunError(Box::new(RunError::new("it went wrong", Some(code)))))
}

pub(crate) fn finished(input: &RunInput) -> Event {
    Event::new(Body::RunFinished(Box::new(RunFinished::new(input.thread.clone(), input.run.clone()))))
}

/// One message of `words` words, without a terminal event.
pub(crate) fn talk(input: &RunInput, words: usize) -> Vec<Event> {
    let message = format!("{}-answer", input.run);
    let mut events = vec![start(&message)];
    events.extend((0..words).map(|word| delta(&message, &format!("w{word} "))));
    events.push(end(&message));
    events
}
