//! The listener: connections, their bounds, and how it all ends.

use std::{future::Future, io, sync::Arc, time::Duration};

use axum::body::Body;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::call::Connection;
use crate::gateway::Gateway;

/// How long connections get to write what they have when everything else has ended.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Serves a gateway until `shutdown`, then drains it: no new runs, those that go on may finish within the grace
/// time, then they get a proper ending.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    if let Err(error) = gateway.repair(gateway.dead()).await {
        tracing::error!(%error, "runs of a gateway that died could not be ended yet");
    }
    gateway.tasks.spawn(gateway.clone().upkeep());
    let server = Server {
        router: gateway.router(),
        seats: Arc::new(Semaphore::new(gateway.settings.limits.connections)),
        closing: CancellationToken::new(),
        connections: TaskTracker::new(),
        gateway,
    };
    let drained = async {
        shutdown.await;
        server.drain().await;
    };
    tokio::select! {
        () = server.accept(&listener) => {}
        () = drained => {}
    }
    server.closing.cancel();
    server.connections.close();
    let _ = tokio::time::timeout(LAST_WRITES, server.connections.wait()).await;
    Ok(())
}

struct Server {
    gateway: Gateway,
    router: axum::Router,
    seats: Arc<Semaphore>,
    /// Told when connections shall finish.
    closing: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(seat) = self.seats.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.connections.spawn(self.connection(stream, seat));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: those who are here go on, the others wait.
                    tracing::warn!(%error, "no more connections can be taken for now");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        seat: tokio::sync::OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (gateway, router, closing) = (self.gateway.clone(), self.router.clone(), self.closing.clone());
        async move {
            let _seat = seat;
            // Small events must not wait for each other.
            let _ = stream.set_nodelay(true);
            gateway.metrics.connections.inc();
            let connection = Connection::default();
            let cut = connection.cut.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(connection.clone());
                router.clone().oneshot(request.map(Body::new))
            });
            let limits = &gateway.settings.limits;
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.request_timeout)
                .max_buf_size(limits.head.max(8192));
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX));
            let served = builder.serve_connection(TokioIo::new(stream), service);
            tokio::pin!(served);
            tokio::select! {
                _ = served.as_mut() => {}
                () = cut.cancelled() => {}
                () = closing.cancelled() => {
                    served.as_mut().graceful_shutdown();
                    tokio::select! {
                        _ = served => {}
                        () = cut.cancelled() => {}
                    }
                }
            }
            gateway.metrics.connections.dec();
        }
    }

    /// No new runs; those that go on get their time, then their ending.
    async fn drain(&self) {
        let gateway = &self.gateway;
        gateway.begin_drain();
        let grace = gateway.settings.drain_grace;
        tracing::info!(runs = gateway.live_runs(), ?grace, "draining");
        let finished = async {
            while gateway.live_runs() > 0 {
                let freed = gateway.freed.notified();
                let _ = tokio::time::timeout(Duration::from_millis(100), freed).await;
            }
        };
        if tokio::time::timeout(grace, finished).await.is_err() {
            tracing::warn!(runs = gateway.live_runs(), "the grace time is over");
        }
        gateway.shutdown.cancel();
        gateway.tasks.close();
        let _ =
            tokio::time::timeout(gateway.settings.store_patience + LAST_WRITES, gateway.tasks.wait()).await;
    }
}
