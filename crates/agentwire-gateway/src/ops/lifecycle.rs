//! How a gateway begins and ends, whoever serves its routes.

use std::time::Duration;

use crate::gateway::Gateway;

/// How long connections get to write what they have when everything else has ended.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(5);

impl Gateway {
    /// Gives runs that a dead gateway left open their ending, and begins to look after the store. [`serve`](crate::serve)
    /// does this; an app that mounts the routes itself does it once, before it serves.
    pub async fn recover(&self) {
        if let Err(error) = self.repair(self.dead_holder()).await {
            tracing::error!(%error, "runs of a gateway that died could not be ended yet");
        }
        self.tasks().spawn(self.clone().upkeep());
    }

    /// Takes no new runs; those that go on may finish within [`Settings::drain_grace`], then they get a proper ending.
    /// [`serve`](crate::serve) does this; an app that mounts the routes itself does it when it is asked to end.
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
        self.begin_drain();
        let grace = self.settings().drain_grace;
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
    }
}
