//! The listener: connections, their bounds, and how it all ends.

use std::{
    convert::Infallible,
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::{request::Connection, traffic::Traffic, unread::Unread};
use crate::{
    gateway::{AgentRegistry, Gateway},
    ops::lifecycle::LAST_WRITES,
};

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
    gateway.recover().await;
    let registry = gateway.registry();
    let server = Server {
        routes: Arc::new(Mutex::new((gateway.router_of(&registry), registry))),
        seats: Arc::new(Semaphore::new(gateway.settings().limits.connections)),
        closing: CancellationToken::new(),
        connections: TaskTracker::new(),
        gateway,
    };
    let drained = async {
        shutdown.await;
        server.gateway.drain().await;
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

/// The routes of the agents, and the agents that they are of.
type Routes = Mutex<(axum::Router, Arc<AgentRegistry>)>;

/// The routes as they are now: made anew if the agents were replaced.
fn current(routes: &Routes, gateway: &Gateway) -> axum::Router {
    let registry = gateway.registry();
    let mut held = routes.lock().unwrap_or_else(PoisonError::into_inner);
    if !Arc::ptr_eq(&held.1, &registry) {
        *held = (gateway.router_of(&registry), registry);
    }
    held.0.clone()
}

struct Server {
    gateway: Gateway,
    routes: Arc<Routes>,
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
        let (gateway, routes, closing) = (self.gateway.clone(), self.routes.clone(), self.closing.clone());
        async move {
            let _seat = seat;
            // Small events must not wait for each other.
            let _ = stream.set_nodelay(true);
            gateway.metrics().connections.inc();
            let connection = Connection::default();
            let cut = connection.cut.clone();
            let traffic = Traffic::default();
            let noted = traffic.clone();
            let requested = gateway.clone();
            let patience = gateway.settings().limits.request_timeout;
            let service = service_fn(move |mut request: Request<Incoming>| {
                let connection = noted.begin(request.version(), &connection);
                request.extensions_mut().insert(connection);
                let unread = Unread::default();
                let answering = current(&routes, &requested).oneshot(unread.watch(request));
                async move {
                    let response = answering.await?;
                    unread.discard(response.status(), patience).await;
                    Ok::<_, Infallible>(response)
                }
            });
            let limits = &gateway.settings().limits;
            let mut builder = auto::Builder::new(traffic.clone());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.request_timeout)
                .max_buf_size(limits.head.max(8192))
                // An event is small: to copy it behind the size of its chunk costs less than a list of pieces.
                .writev(false);
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX));
            let served = builder.serve_connection(TokioIo::new(stream), service);
            tokio::pin!(served);
            tokio::select! {
                _ = served.as_mut() => {}
                () = cut.cancelled() => {}
                () = traffic.lull(patience) => {
                    served.as_mut().graceful_shutdown();
                    // Whoever said nothing may not hear of it either.
                    let _ = tokio::time::timeout(LAST_WRITES, served).await;
                }
                () = closing.cancelled() => {
                    served.as_mut().graceful_shutdown();
                    tokio::select! {
                        _ = served => {}
                        () = cut.cancelled() => {}
                    }
                }
            }
            gateway.metrics().connections.dec();
        }
    }
}
