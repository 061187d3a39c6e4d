//! The listener: accepts connections, applies their limits, and drains on shutdown.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{Request, StatusCode, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{
    either::Either,
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tower::ServiceExt;

use super::{connection::ConnectionActivity, request::Connection, unread_body::UnreadBody};
use crate::{
    auth::CertificateNames,
    gateway::{AgentRegistry, Gateway},
    ops::lifecycle::LAST_WRITES,
    tls::{self, WATCH},
};

/// Interval between two warnings that no connection can be taken.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Longest handshake of an encrypted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a gateway until `shutdown`, then drains it: no new runs; active runs may finish within the grace time, and are
/// ended with a terminal event after it.
///
/// # Errors
/// When the listener fails for good, or its certificates cannot be used.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    if let Ok(address) = listener.local_addr() {
        gateway.note_listener(address.ip());
    }
    if gateway.certificates().is_some_and(|certificates| certificates.current().is_none()) {
        gateway.load_certificates().map_err(io::Error::other)?;
    }
    let _watch = AbortOnDropHandle::new(tokio::spawn(watch_certificates(gateway.clone())));
    gateway.recover().await;
    let registry = gateway.registry();
    let server = Server {
        routes: Arc::new(Mutex::new((gateway.router_of(&registry), registry))),
        slots: Arc::new(Semaphore::new(gateway.settings().limits.connections)),
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

/// Looks at the files of the certificates now and then.
async fn watch_certificates(gateway: Gateway) {
    let Some(certificates) = gateway.certificates() else { return };
    loop {
        tokio::time::sleep(WATCH).await;
        match certificates.load_changed() {
            Ok(true) => tracing::info!("the certificates were read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the new certificates are not used; the old ones stay"),
        }
    }
}

/// A connection with or without encryption.
type Transport = Either<TcpStream, TlsStream<TcpStream>>;

/// Encrypts a connection if the gateway has certificates; `None` if the client does not finish in time.
async fn encrypt(gateway: &Gateway, stream: TcpStream) -> Option<(Transport, Option<Arc<CertificateNames>>)> {
    let Some(certificates) = gateway.certificates() else { return Some((Either::Left(stream), None)) };
    let accepted = TlsAcceptor::from(certificates.current()?).accept(stream);
    let timeout = gateway.settings().limits.request_timeout.min(HANDSHAKE_TIMEOUT);
    let stream = tokio::time::timeout(timeout, accepted).await.ok()?.ok()?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let names = shown.map(|certificate| Arc::new(CertificateNames(tls::names(certificate))));
    Some((Either::Right(stream), names))
}

/// The routes and the agents that they were made for.
type CachedRoutes = Mutex<(axum::Router, Arc<AgentRegistry>)>;

/// The current routes; rebuilt if the agents were replaced.
fn current_routes(routes: &CachedRoutes, gateway: &Gateway) -> axum::Router {
    let registry = gateway.registry();
    let mut cached = routes.lock().unwrap_or_else(PoisonError::into_inner);
    if !Arc::ptr_eq(&cached.1, &registry) {
        *cached = (gateway.router_of(&registry), registry);
    }
    cached.0.clone()
}

struct Server {
    gateway: Gateway,
    routes: Arc<CachedRoutes>,
    slots: Arc<Semaphore>,
    /// Cancelled when connections have to finish.
    closing: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        let mut warned: Option<Instant> = None;
        loop {
            let Ok(slot) = self.slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, address)) => {
                    self.connections.spawn(self.connection(stream, address, slot));
                }
                Err(error) => {
                    // Most likely out of file descriptors: open connections continue, new ones wait.
                    if warned.is_none_or(|last| last.elapsed() >= WARNING_INTERVAL) {
                        warned = Some(Instant::now());
                        tracing::warn!(%error, "no more connections can be taken for now");
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        slot: tokio::sync::OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (gateway, routes, closing) = (self.gateway.clone(), self.routes.clone(), self.closing.clone());
        async move {
            let _slot = slot;
            // Small events must not wait for more data.
            let _ = stream.set_nodelay(true);
            gateway.metrics().connections.inc();
            let accepted = tokio::select! {
                accepted = encrypt(&gateway, stream) => accepted,
                () = closing.cancelled() => None,
            };
            let Some((stream, certificate)) = accepted else {
                gateway.metrics().connections.dec();
                return;
            };
            let connection = Connection { address: Some(address.ip()), certificate, ..Connection::default() };
            let cut = connection.cut.clone();
            let activity = ConnectionActivity::default();
            let (requests, service_gateway) = (activity.clone(), gateway.clone());
            let timeout = gateway.settings().limits.request_timeout;
            let service = service_fn(move |mut request: Request<Incoming>| {
                let connection = requests.add_request(request.version(), &connection);
                request.extensions_mut().insert(connection);
                let unread = UnreadBody::default();
                let responding = current_routes(&routes, &service_gateway).oneshot(unread.watch(request));
                async move {
                    let response = responding.await?;
                    if response.status() != StatusCode::REQUEST_TIMEOUT {
                        // After a timeout the client was waited for already.
                        unread.discard(timeout);
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            let limits = &gateway.settings().limits;
            let mut builder = auto::Builder::new(activity.clone());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(limits.request_timeout)
                .max_buf_size(limits.head.max(8192))
                // Events are small: one buffer costs less than a vectored write of chunk size and data.
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
                () = activity.idle(timeout) => {
                    served.as_mut().graceful_shutdown();
                    // A client that sends nothing may not read either.
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
