//! A run whose agent can be listened to again goes on where the log ends.

use std::sync::Arc;

use agentwire_gateway::{
    InstanceLock, UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
};

use crate::support::*;

/// A puppet whose work goes on elsewhere: whoever comes back hears it from the beginning.
struct Elsewhere {
    first: Arc<Puppet>,
    again: Arc<Puppet>,
}

impl Agent for Elsewhere {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        self.first.run(request, sink)
    }

    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let again = self.again.clone();
        Some(Box::pin(async move { again.run(request, sink).await }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_no_re_execution_a_run_that_goes_on_elsewhere_loses_nothing_in_a_crash() {
    const WORDS: usize = 6;
    for seen_events in 2..WORDS + 3 {
        let place = Place::sqlite().await;
        let agent = Arc::new(Elsewhere {
            first: Puppet::new(|input| talk(input, WORDS)),
            again: Puppet::eager(|input| talk(input, WORDS)),
        });
        let server = plan(agent.clone()).process(InstanceLock::at(&place.address)).mortal(&place.store).await;
        let mut stream = server.run("t", "r", "hello").await;
        agent.first.allow(seen_events - 1);
        let seen = stream.take(seen_events).await;
        server.crash().await;

        let store = place.reopened().await;
        let server = plan(agent.clone()).process(InstanceLock::at(&place.address)).on(&store).await;
        let rest = server.follow(&format!("/runs/r/stream?after=r:{}", seen_events - 1)).await.rest().await;
        let whole: Vec<Frame> = seen.into_iter().chain(rest).collect();
        valid(&whole);
        assert_eq!(types(&whole).last().map(String::as_str), Some("RUN_FINISHED"), "after {seen_events}");
        let log = server.follow("/runs/r/stream").await.rest().await;
        assert_eq!(whole, log);
        assert_eq!((agent.first.calls(), agent.again.calls()), (1, 1));
        assert_eq!(server.status("r").await, "finished");
    }
}
