//! Recovery and drain: the start and the graceful stop of a gateway.

use std::{sync::Arc, time::Duration};

use agentwire_store::MoveReport;
use tokio::sync::oneshot;

use crate::gateway::{AgentEntry, Gateway};

/// Time for connections to flush their output after all runs have ended.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(5);

/// The longest wait for a store that was not reached yet, before the gateway serves without it.
const OPENING: Duration = Duration::from_millis(300);

/// The longest wait for the store, and for the end of the recovery, before the gateway serves.
const RECOVERY: Duration = Duration::from_millis(400);

impl Gateway {
    /// Ends or reattaches the runs that a crashed gateway left open, and starts the background maintenance. With a store that
    /// is slow or hangs it returns before that is done.
    /// [`serve`](crate::serve) calls it; an app that mounts the routes itself calls it before it serves. Further calls do
    /// nothing.
    pub async fn recover(&self) {
        if !self.begin_recovery() {
            return;
        }
        if let Some(tracer) = self.tracer() {
            tracer.start();
        }
        let (responded, has_responded) = oneshot::channel();
        let (recovered, is_recovered) = oneshot::channel();
        let gateway = self.clone();
        self.tasks().spawn(async move {
            gateway.recover_store(responded).await;
            let _ = recovered.send(());
            gateway.maintain().await;
        });
        match tokio::time::timeout(RECOVERY, has_responded).await {
            // A new thread would be beside the one of its name that is about to be moved.
            Ok(_) if !self.moved_agents().is_empty() => _ = is_recovered.await,
            Ok(_) => _ = tokio::time::timeout(RECOVERY, is_recovered).await,
            // It goes on beside the requests: a probe of the process must not wait for the store.
            Err(_) => self.note_store_failure(),
        }
        if self.store().may_sleep() {
            self.tasks().spawn(self.clone().watch_store());
        }
    }

    /// Settles what the gateways before have left in the store.
    async fn recover_store(&self, responded: oneshot::Sender<()>) {
        if let Some(dead) = self.dead_holder()
            && let Err(error) = self.store().retire(dead).await
        {
            tracing::error!(%error, "the runs of a crashed gateway wait until its lease expires");
        }
        if !tokio::time::timeout(OPENING, self.store().opened()).await.is_ok_and(|opened| opened.is_ok()) {
            // The maintenance does it when the store was reached; until then every request is refused.
            return self.note_store_failure();
        }
        match self.store().probe().await {
            Ok(()) => self.note_store_check(),
            Err(_) => self.note_store_failure(),
        }
        let _ = responded.send(());
        if let Err(error) = self.end_orphans().await {
            self.note_store_failure();
            tracing::error!(%error, "the runs of a crashed gateway could not be ended yet");
        }
        self.adopt_threads().await;
        self.measure_store().await;
    }

    /// Moves the threads of agents that now share theirs (`threads = "NAME"`) to their group. [`Gateway::recover`] and the
    /// background maintenance call it; threads with a live run are moved once that has ended.
    pub async fn adopt_threads(&self) {
        for agent in self.moved_agents() {
            let (name, group) = (&*agent.name, agent.owner_agent());
            match self.store().move_threads(&name.into(), &group.into()).await {
                Ok(MoveReport { moved: 0, .. }) => {}
                Ok(MoveReport { moved, left }) => {
                    tracing::info!(agent = name, group, moved, left, "threads were moved to their group");
                }
                Err(error) => tracing::warn!(agent = name, group, %error, "threads could not be moved"),
            }
        }
    }

    /// The agents whose threads are stored under another name. Those under the agent's name belong to other agents if one
    /// names it as its group.
    fn moved_agents(&self) -> Vec<Arc<AgentEntry>> {
        let registry = self.registry();
        let is_moved = |agent: &&Arc<AgentEntry>| registry.agents_of(&agent.name).next().is_none();
        registry.agents.values().filter(is_moved).cloned().collect()
    }

    /// Drains: accepts no new runs and waits for the live ones. Runs that only wait for their thread are released, and the next
    /// process continues them. Those that have not ended within [`Settings::drain_grace`] are released too if their agent can
    /// be reattached, and end with RUN_ERROR otherwise. [`serve`](crate::serve) calls it; an app that mounts the routes itself
    /// calls it on shutdown.
    ///
    /// ```no_run
    /// # use {agentwire_gateway::Gateway, axum::Router, tokio::net::TcpListener};
    /// # async fn serve(gateway: Gateway, listener: TcpListener, app: Router, asked_to_end: impl Future + Send + 'static) -> std::io::Result<()> {
    /// axum::serve(listener, app)
    ///     .with_graceful_shutdown(async move {
    ///         asked_to_end.await;
    ///         gateway.drain().await;
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// [`Settings::drain_grace`]: crate::settings::Settings::drain_grace
    pub async fn drain(&self) {
        self.drain_within(self.settings().drain_grace).await;
    }

    /// As [`Gateway::drain`], with another grace time.
    pub async fn drain_within(&self, grace: Duration) {
        self.begin_drain();
        tracing::info!(runs = self.live_run_count(), ?grace, "draining");
        let finished = async {
            while self.live_run_count() > 0 {
                let freed = self.run_ended().notified();
                let _ = tokio::time::timeout(Duration::from_millis(100), freed).await;
            }
        };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!(runs = self.live_run_count(), "the grace time is over");
        }
        self.shutdown().cancel();
        self.tasks().close();
        let _ = tokio::time::timeout(self.settings().store_patience + LAST_WRITES, self.tasks().wait()).await;
        if let Err(error) = self.store().retire(self.holder()).await {
            tracing::warn!(%error, "the lease of this gateway ends by itself");
        }
        let _ = tokio::time::timeout(LAST_WRITES, self.audit().flush()).await;
        if let Some(tracer) = self.tracer() {
            let _ = tokio::time::timeout(LAST_WRITES, tracer.flush()).await;
        }
    }
}
