//! Reattaching: after a crash, a run whose agent is still running elsewhere continues at the end of its log.

use std::sync::Arc;

use agentwire_gateway::{
    InstanceLock, UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
};

use crate::support::*;

/// An agent that keeps running when the gateway crashes; reattaching delivers its events from the start.
struct RemoteAgent {
    first: Arc<Puppet>,
    reattached: Arc<Puppet>,
}

impl Agent for RemoteAgent {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        self.first.run(request, sink)
    }

    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let reattached = self.reattached.clone();
        Some(Box::pin(async move { reattached.run(request, sink).await }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_run_is_reattached_after_a_crash_at_every_event_without_loss() {
    const WORDS: usize = 6;
    for seen_events in 2..WORDS + 3 {
        let backend = Backend::sqlite().await;
        let agent = Arc::new(RemoteAgent {
            first: Puppet::new(|input| talk(input, WORDS)),
            reattached: Puppet::eager(|input| talk(input, WORDS)),
        });
        let server = plan(agent.clone())
            .instance_lock(InstanceLock::at(&backend.address))
            .killable(&backend.store)
            .await;
        let mut stream = server.run("t", "r", "hello").await;
        agent.first.allow(seen_events - 1);
        let seen = stream.take(seen_events).await;
        server.crash().await;

        let store = backend.reopened().await;
        let server = plan(agent.clone()).instance_lock(InstanceLock::at(&backend.address)).on(&store).await;
        let rest = server.follow(&format!("/runs/r/stream?after=r:{}", seen_events - 1)).await.rest().await;
        let whole: Vec<Frame> = seen.into_iter().chain(rest).collect();
        assert_valid(&whole);
        assert_eq!(types(&whole).last().map(String::as_str), Some("RUN_FINISHED"), "after {seen_events}");
        let log = server.follow("/runs/r/stream").await.rest().await;
        assert_eq!(whole, log);
        assert_eq!((agent.first.calls(), agent.reattached.calls()), (1, 1));
        assert_eq!(server.status("r").await, "finished");
    }
}

/// A drain releases the run of an agent that can be reattached; another gateway goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_a_drain_releases_runs_that_can_be_reattached() {
    let backend = Backend::sqlite().await;
    let second = backend.reopened().await;
    let agent = Arc::new(RemoteAgent {
        first: Puppet::new(|input| talk(input, 6)),
        reattached: Puppet::eager(|input| talk(input, 6)),
    });
    let short = |settings: &mut agentwire_gateway::settings::Settings| {
        settings.drain_grace = std::time::Duration::from_millis(50);
    };
    let one = plan(agent.clone()).set(short).on(&backend.store).await;
    let two = plan(agent.clone()).on(&second).await;
    let mut stream = one.run("t", "r", "hello").await;
    agent.first.allow(3);
    let seen = stream.take(4).await;
    one.drain();
    let more = stream.rest().await;
    assert!(stream.broken, "no regular end without the end of the run");
    one.ended().await;
    let rest =
        two.follow(&format!("/runs/r/stream?after=r:{}", seen.len() + more.len() - 1)).await.rest().await;
    let whole: Vec<Frame> = seen.into_iter().chain(more).chain(rest).collect();
    assert_valid(&whole);
    assert_eq!(types(&whole).last().map(String::as_str), Some("RUN_FINISHED"));
    assert_eq!((agent.first.calls(), agent.reattached.calls()), (1, 1));
}
