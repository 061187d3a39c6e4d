//! The listener: accepts connections, applies their limits, and drains on shutdown.

use std::{
    convert::Infallible,
    future::{Future, pending, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use agentwire_store::Time;
use axum::response::{IntoResponse, Response};
use hyper::{
    Request, StatusCode, Version,
    body::{Body as _, Incoming},
    header::{CONNECTION, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{
    either::Either,
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tower::ServiceExt;

use super::{
    connection::ConnectionActivity,
    event_stream::{Eligible, EventStream, Handover, Start, is_event_stream},
    outgoing::{Outgoing, PacedBody, TimedIo},
    request::Connection,
    reserved::{ReservedSeat, ReservedSeats},
    unread_body::UnreadBody,
};
use crate::{
    auth::ClientCertificate,
    codes,
    cpu_work::{self, Expected},
    error::ApiError,
    gateway::{AgentRegistry, Gateway},
    limits::{HeldBytes, Party, Seat},
    ops::lifecycle::LAST_WRITES,
    tls::{self, Certificates, WATCH},
    wake_set::WakeSet,
};

/// Interval between two warnings that no connection can be taken.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Longest handshake of an encrypted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent HTTP/2 streams of one connection: a browser's tabs share one.
const STREAMS: u32 = 128;

/// Bytes of a stream that wait in the HTTP/2 connection.
const SEND_BUFFER: usize = 32 << 10;

/// The size from which a response counts for the budget of bytes.
const LARGE: u64 = 64 << 10;

/// Takes the bytes of a large response from the budget, or replaces it by an error. Streams take theirs event by event.
fn within_budget(
    gateway: &Gateway,
    address: SocketAddr,
    response: Response,
) -> (Response, Option<HeldBytes>) {
    let Some(size) = response.body().size_hint().exact().filter(|size| *size >= LARGE) else {
        return (response, None);
    };
    let mut held = gateway.bytes().hold(Party::peer(Some(address.ip().to_canonical())));
    if held.grow(usize::try_from(size).unwrap_or(usize::MAX)) {
        return (response, Some(held));
    }
    let error = ApiError::new(codes::OVERLOADED, "too many large responses wait for their clients");
    (error.retry_after(5).into_response(), None)
}

/// Time of a connection with a reserved seat: a probe needs far less.
const RESERVED_TIME: Duration = Duration::from_secs(5);

/// Interval at which a full server looks for a free place.
const FULL_POLL: Duration = Duration::from_millis(20);

/// Connections of `admin_listen`.
const ADMIN_CONNECTIONS: usize = 256;

/// Connections of `replicas.listen`: one per followed run and gateway.
const NEIGHBOUR_CONNECTIONS: usize = 4096;

/// Serves a gateway until `shutdown`, then drains it: no new runs; active runs may finish within the grace time, and are
/// ended with a terminal event after it.
///
/// # Errors
/// When the listener fails for good, its certificates cannot be used, or that of `admin_listen` or `replicas.listen` cannot be
/// opened.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let admin = match gateway.settings().admin_listen {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    serve_with_admin(gateway, listener, admin, shutdown).await
}

/// As [`serve`], with the listener of `admin_listen`, which must be set if there is one.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve_with_admin(
    gateway: Gateway,
    listener: TcpListener,
    admin: Option<TcpListener>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    if let Ok(address) = listener.local_addr() {
        gateway.note_listener(address.ip());
    }
    if gateway.certificates().is_some_and(|certificates| certificates.current().is_none()) {
        gateway.load_certificates().map_err(io::Error::other)?;
    }
    let neighbours = match gateway.settings().replicas.listen.filter(|_| gateway.direct().is_some()) {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    let _watch = AbortOnDropHandle::new(tokio::spawn(watch_certificates(gateway.clone())));
    gateway.recover().await;
    let server = |is_public: bool, connections: usize, router: axum::Router| Server {
        routes: Arc::new(Routes { is_public, cached: Mutex::new((router, gateway.registry())) }),
        slots: Arc::new(Semaphore::new(connections)),
        reserved: is_public.then(ReservedSeats::default),
        closing: CancellationToken::new(),
        connections: TaskTracker::new(),
        gateway: gateway.clone(),
    };
    let public = server(true, gateway.settings().limits.connections, gateway.router_of(&gateway.registry()));
    let other = server(false, ADMIN_CONNECTIONS, gateway.admin_router());
    let inner = server(false, NEIGHBOUR_CONNECTIONS, super::neighbours::router(&gateway));
    let drained = async {
        shutdown.await;
        gateway.drain().await;
    };
    let admin = async {
        match &admin {
            Some(listener) => other.accept(listener).await,
            None => std::future::pending().await,
        }
    };
    let neighbours = async {
        match &neighbours {
            Some(listener) => inner.accept(listener).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = public.accept(&listener) => {}
        () = admin => {}
        () = neighbours => {}
        () = drained => {}
    }
    for server in [&public, &other, &inner] {
        server.closing.cancel();
        server.connections.close();
    }
    let _ = tokio::time::timeout(LAST_WRITES, public.connections.wait()).await;
    Ok(())
}

/// Looks at the files of the certificates now and then.
async fn watch_certificates(gateway: Gateway) {
    while gateway.certificates().is_some() {
        tokio::time::sleep(WATCH).await;
        let gateway = gateway.clone();
        // Blocking: a file may be on a disk that does not answer.
        let load = move || gateway.certificates().map_or(Ok(false), Certificates::load_changed);
        let Ok(loaded) = tokio::task::spawn_blocking(load).await else { continue };
        match loaded {
            Ok(true) => tracing::info!("the certificates were read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the new certificates are not used; the old ones stay"),
        }
    }
}

/// A connection with or without encryption.
type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Encrypts a connection if the gateway has certificates; `None` if the client does not finish in time.
async fn encrypt(
    gateway: &Gateway,
    stream: TcpStream,
    peer: IpAddr,
) -> Option<(Transport, Option<Arc<ClientCertificate>>)> {
    let Some(certificates) = gateway.certificates() else { return Some((Either::Left(stream), None)) };
    let accepted = TlsAcceptor::from(certificates.current()?).accept(stream);
    let timeout = gateway.settings().limits.request_timeout.min(HANDSHAKE_TIMEOUT);
    let stream = match tokio::time::timeout(timeout, accepted).await.ok()? {
        Ok(stream) => stream,
        Err(error) => {
            use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
            let reason = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
            if let Some(InvalidCertificate(_) | NoCertificatesPresented) = reason {
                gateway.audit().deny_connection(peer, codes::UNAUTHENTICATED);
            }
            return None;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = shown.and_then(|shown| {
        let expires = Time(tls::expiry(shown)?);
        Some(Arc::new(ClientCertificate { names: tls::names(shown), expires }))
    });
    Some((Either::Right(Box::new(stream)), certificate))
}

/// The code of a connection that ended because the head of a request was refused.
fn refusal_of(error: &hyper::Error) -> Option<&'static str> {
    match (error.is_parse(), error.is_timeout()) {
        (true, _) => Some(codes::BAD_REQUEST),
        (_, true) => Some(codes::REQUEST_TIMEOUT),
        _ => None,
    }
}

/// Waits until a connection has to leave its reserved seat; for ever if it has none.
async fn until_lost(lost: Option<CancellationToken>) {
    match lost {
        Some(lost) => _ = tokio::time::timeout(RESERVED_TIME, lost.cancelled()).await,
        None => pending().await,
    }
}

/// The routes of a listener.
struct Routes {
    /// True for those of the agents, which change with the configuration.
    is_public: bool,
    /// The routes and the agents that they were made for.
    cached: Mutex<(axum::Router, Arc<AgentRegistry>)>,
}

impl Routes {
    /// The current routes; rebuilt if the agents were replaced.
    fn current(&self, gateway: &Gateway) -> axum::Router {
        let registry = gateway.registry();
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_public && !Arc::ptr_eq(&cached.1, &registry) {
            *cached = (gateway.router_of(&registry), registry);
        }
        cached.0.clone()
    }
}

/// A signal that ends a connection.
enum Ending {
    /// It must be dropped.
    Cut,
    /// It had no request for a while.
    Idle,
    /// The server closes.
    Closing,
}

/// The end of the work of hyper on a connection.
enum Watched<C> {
    /// The connection was closed, with the error if there is one.
    Served(Option<hyper::Error>),
    /// Its response is written without hyper.
    HandedOver(Pin<Box<C>>),
    /// It must be dropped.
    Cut,
}

/// The signals that end a connection.
struct Signals {
    next: Pin<Box<dyn Future<Output = Ending> + Send>>,
    cut: CancellationToken,
    /// True if the connection takes no more requests.
    is_closing: bool,
}

impl Signals {
    fn new(
        cut: &CancellationToken,
        closing: &CancellationToken,
        activity: &ConnectionActivity,
        timeout: Duration,
        reserved: Option<&ReservedSeat>,
    ) -> Self {
        let (until_cut, closing, activity) = (cut.clone(), closing.clone(), activity.clone());
        let lost = reserved.map(|seat| seat.lost().clone());
        let next = async move {
            tokio::select! {
                () = until_cut.cancelled() => Ending::Cut,
                () = until_lost(lost) => Ending::Cut,
                () = activity.idle(timeout) => Ending::Idle,
                () = closing.cancelled() => Ending::Closing,
            }
        };
        Self { next: Box::pin(next), cut: cut.clone(), is_closing: false }
    }

    /// Waits for the last response. A client that sends nothing may not read either.
    fn close(&mut self, is_idle: bool) {
        self.is_closing = true;
        let cut = self.cut.clone();
        self.next = Box::pin(async move {
            match is_idle {
                true => tokio::time::sleep(LAST_WRITES).await,
                false => cut.cancelled().await,
            }
            Ending::Cut
        });
    }

    /// Lets hyper serve a connection to its end, or until `is_handed_over`, which is checked after each of its polls.
    async fn watch<C: GracefulConnection<Error = hyper::Error>>(
        &mut self,
        mut served: Pin<Box<C>>,
        is_handed_over: impl Fn() -> bool,
    ) -> Watched<C> {
        let mut wakes = WakeSet::<2>::new();
        loop {
            let ended = poll_fn(|cx| {
                wakes.poll(cx, |wakes| {
                    if let Poll::Ready(ended) = wakes.poll(0, |cx| served.as_mut().poll(cx)) {
                        return Poll::Ready(Ok(ended.err()));
                    }
                    match is_handed_over() {
                        true => Poll::Ready(Err(None)),
                        false => wakes.poll(1, |cx| self.next.as_mut().poll(cx)).map(|end| Err(Some(end))),
                    }
                })
            });
            match ended.await {
                Ok(error) => return Watched::Served(error),
                Err(None) => return Watched::HandedOver(served),
                Err(Some(Ending::Cut)) => return Watched::Cut,
                Err(Some(end)) => {
                    served.as_mut().graceful_shutdown();
                    self.close(matches!(end, Ending::Idle));
                    wakes.mark(0);
                }
            }
        }
    }

    /// Writes a stream of events; whether its end was written.
    async fn is_written(&mut self, events: &mut EventStream<TimedIo<Transport>>) -> bool {
        let mut wakes = WakeSet::<2>::new();
        loop {
            let ended = poll_fn(|cx| {
                wakes.poll(cx, |wakes| {
                    if let Poll::Ready(ended) = wakes.poll(0, |cx| events.poll(cx)) {
                        return Poll::Ready(Ok(ended.is_ok()));
                    }
                    wakes.poll(1, |cx| self.next.as_mut().poll(cx)).map(Err)
                })
            });
            match ended.await {
                Ok(is_whole) => return is_whole,
                Err(Ending::Closing) => self.close(false),
                Err(Ending::Cut | Ending::Idle) => return false,
            }
        }
    }
}

/// Records that the head of a request was refused.
fn note_refusal<C>(gateway: &Gateway, address: SocketAddr, watched: &Watched<C>) {
    if let Watched::Served(Some(error)) = watched
        && let Some(code) = refusal_of(error)
    {
        gateway.audit().deny_connection(address.ip(), code);
    }
}

/// Counts a connection until it is dropped.
struct CountedConnection(Gateway);

impl CountedConnection {
    fn new(gateway: &Gateway) -> Self {
        gateway.metrics().connections.inc();
        Self(gateway.clone())
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.metrics().connections.dec();
    }
}

/// The place of a connection in the limits.
struct Place {
    _slot: Option<OwnedSemaphorePermit>,
    _of_peer: Option<Seat>,
    /// Its seat if it may only be used for probes.
    reserved: Option<Arc<ReservedSeat>>,
}

struct Server {
    gateway: Gateway,
    routes: Arc<Routes>,
    slots: Arc<Semaphore>,
    reserved: Option<ReservedSeats>,
    /// Cancelled when connections have to finish.
    closing: CancellationToken,
    connections: TaskTracker,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        let mut warned: Option<Instant> = None;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => match self.place(address).await {
                    Some(place) => {
                        let connection = self.connection(stream, address, place);
                        self.connections.spawn(cpu_work::watched(Expected::Short, connection));
                    }
                    // The peer has too many: closed at once.
                    None => self.gateway.audit().deny_connection(address.ip(), codes::OVERLOADED),
                },
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

    /// The place of a new connection; `None` if its peer has too many. Waits if there is none at all.
    async fn place(&self, address: SocketAddr) -> Option<Place> {
        let settings = self.gateway.settings();
        let of_peer = match &self.reserved {
            Some(_) => {
                let is_proxy = super::peer::is_in(address.ip(), &settings.proxies);
                Some(self.gateway.quotas().connection(address.ip(), is_proxy)?)
            }
            None => None,
        };
        loop {
            if let Ok(slot) = self.slots.clone().try_acquire_owned() {
                return Some(Place { _slot: Some(slot), _of_peer: of_peer, reserved: None });
            }
            if let Some(reserved) = self.reserved.as_ref().filter(|_| settings.admin_listen.is_none())
                && let Some((seat, loser)) = reserved.take(address.ip())
            {
                if let Some(loser) = loser {
                    self.gateway.audit().deny_connection(loser, codes::OVERLOADED);
                }
                return Some(Place { _slot: None, _of_peer: of_peer, reserved: Some(Arc::new(seat)) });
            }
            // The system's queue keeps the others waiting.
            tokio::time::sleep(FULL_POLL).await;
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        place: Place,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (gateway, routes, closing) = (self.gateway.clone(), self.routes.clone(), self.closing.clone());
        async move {
            let reserved = place.reserved.clone();
            let lost = reserved.as_ref().map(|seat| seat.lost().clone());
            let _place = place;
            // Small events must not wait for more data.
            let _ = stream.set_nodelay(true);
            let _counted = CountedConnection::new(&gateway);
            let accept = async {
                // Probes do not know the certificate of the public address.
                if routes.is_public {
                    encrypt(&gateway, stream, address.ip()).await
                } else {
                    Some((Either::Left(stream), None))
                }
            };
            let accepted = tokio::select! {
                accepted = Box::pin(accept) => accepted,
                () = closing.cancelled() => None,
                () = until_lost(lost) => None,
            };
            let Some((mut stream, certificate)) = accepted else { return };
            let connection = Connection {
                address: Some(address.ip()),
                certificate,
                is_own: true,
                ..Connection::default()
            };
            let cut = connection.cut.clone();
            let limits = &gateway.settings().limits;
            let activity = ConnectionActivity::new(limits.write_timeout);
            let (requests, service_gateway) = (activity.clone(), gateway.clone());
            let timeout = limits.request_timeout;
            let mut signals = Signals::new(&cut, &closing, &activity, timeout, reserved.as_deref());
            let start = tokio::select! {
                start = Start::read(&mut stream) => start,
                _ = &mut signals.next => return,
            };
            let Ok(Start { bytes: start, is_http2 }) = start else { return };
            let outgoing = Arc::new(Outgoing::default());
            let stream = TimedIo::new(stream, outgoing.clone(), limits.write_timeout, cut).with_start(start);
            let handover = Arc::new(Handover::default());
            let (handed_over, flushed) = (handover.clone(), outgoing.clone());
            let service = service_fn(move |mut request: Request<Incoming>| {
                let is_http1 = request.version() != Version::HTTP_2;
                let outgoing = if is_http1 { outgoing.clone() } else { Arc::default() };
                let connection = requests.add_request(request.version(), &connection, &outgoing);
                request.extensions_mut().insert(connection);
                let (mut parts, body) = request.into_parts();
                service_gateway.prepare_request(&mut parts);
                let request = Request::from_parts(parts, body);
                let unread = UnreadBody::default();
                let eligible = Eligible::of(&request);
                let asking = reserved.as_ref().map(|seat| seat.request());
                let is_reserved = asking.is_some();
                let is_refused = is_reserved && !matches!(request.uri().path(), "/livez" | "/readyz");
                let responding = routes.current(&service_gateway).oneshot(unread.watch(request));
                let (gateway, handover) = (service_gateway.clone(), handover.clone());
                async move {
                    let _asking = asking;
                    let mut response = match is_refused {
                        true => {
                            gateway.audit().deny_connection(address.ip(), codes::OVERLOADED);
                            let error = ApiError::new(codes::OVERLOADED, "too many connections at once");
                            error.retry_after(5).into_response()
                        }
                        false => responding.await?,
                    };
                    // Those of the server itself too.
                    let headers = response.headers_mut();
                    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
                    if is_reserved && is_http1 {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    if let Some(eligible) = eligible
                        && unread.is_read()
                        && !is_reserved
                        && is_event_stream(&response)
                    {
                        handover.put(eligible.stream(response));
                        // The connection is taken from hyper, which drops this future.
                        return pending().await;
                    }
                    if response.status() != StatusCode::REQUEST_TIMEOUT {
                        // After a timeout the client was waited for already.
                        unread.discard(timeout);
                    }
                    let (response, held) = within_budget(&gateway, address, response);
                    Ok::<_, Infallible>(response.map(|body| PacedBody::new(body, outgoing, is_http1, held)))
                }
            });
            if is_http2 {
                let mut builder = http2::Builder::new(activity);
                builder
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(STREAMS)
                    // For each stream, whatever window the client has opened.
                    .max_send_buf_size(SEND_BUFFER)
                    .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX));
                let served = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
                note_refusal(&gateway, address, &signals.watch(served, || false).await);
                return;
            }
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(limits.request_timeout)
                .max_buf_size(limits.head.max(8192))
                // Events are small: one buffer costs less than a vectored write of chunk size and data.
                .writev(false);
            let mut next = Some((stream, service));
            while let Some((stream, service)) = next.take() {
                let served = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
                let watched = signals.watch(served, || handed_over.is_there() && flushed.is_flushed()).await;
                note_refusal(&gateway, address, &watched);
                let (Watched::HandedOver(served), Some(response)) = (watched, handed_over.take()) else {
                    return;
                };
                let http1::Parts { io, read_buf, service, .. } = Pin::into_inner(served).into_parts();
                let mut events = EventStream::new(io.into_inner(), read_buf, response);
                if !signals.is_written(&mut events).await {
                    return;
                }
                let (mut stream, ahead, keeps_alive) = events.into_parts();
                if keeps_alive && !signals.is_closing {
                    next = Some((stream.with_start(ahead), service));
                } else {
                    let _ = tokio::time::timeout(LAST_WRITES, stream.shutdown()).await;
                }
            }
        }
    }
}
