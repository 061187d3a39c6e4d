//! The encrypted listener: reload under load (T11), protocols, and services with a certificate.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{
    Gateway,
    agent::{Agent, Demo},
    serve,
    settings::{Auth, AuthMode, MtlsEntry, Settings, Tls, TlsFiles},
};
use rcgen::SanType;
use reqwest::{Client, Identity};
use tokio_util::sync::CancellationToken;

use crate::support::{
    certificates::{Authority, authority, certificate, certificate_until, client, root, server_names, write},
    *,
};

struct Secure {
    gateway: Gateway,
    base: String,
    stop: CancellationToken,
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn secure(settings: Settings) -> Secure {
    secure_agent(settings, Arc::new(Demo::without_pauses())).await
}

async fn secure_agent(settings: Settings, agent: Arc<dyn Agent>) -> Secure {
    let store = Backend::memory().await.store;
    let agent = agentwire_gateway::AgentConfig::shared(agent);
    let gateway = Gateway::builder(store, settings).agent("demo", agent).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("https://localhost:{}", listener.local_addr().expect("it is bound").port());
    let stop = CancellationToken::new();
    gateway.load_certificates().expect("good certificates");
    tokio::spawn(serve(gateway.clone(), listener, stop.clone().cancelled_owned()));
    Secure { gateway, base, stop }
}

#[tokio::test]
async fn t11_certificates_are_replaced_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (authority("old"), authority("new"));
    write(folder.path(), &certificate(&old, server_names()));
    let files = TlsFiles::new(folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let server = secure(Settings::default().tls(Some(Tls::Files(files)))).await;
    let stop = CancellationToken::new();
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (url, stop, roots) =
                (format!("{}/livez", server.base), stop.clone(), [root(&old), root(&new)]);
            tokio::spawn(async move {
                let mut done = 0;
                while !stop.is_cancelled() {
                    // A new connection each time.
                    let client =
                        agentwire_client::transport::builder().no_proxy().tls_certs_only(roots.clone());
                    let response =
                        client.build().expect("a client").get(&url).send().await.expect("a response");
                    assert_eq!(response.status(), 200);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let reaches = async |authority: &Authority| {
        let client = client(authority).build().expect("a client");
        client.get(format!("{}/livez", server.base)).send().await.is_ok()
    };
    assert!(reaches(&old).await && !reaches(&new).await);
    // Bad files change nothing.
    let (one, other) = (certificate(&new, server_names()), certificate(&new, server_names()));
    for (cert, key) in [("", ""), ("nonsense", "nonsense"), (&*one.0, &*other.1)] {
        write(folder.path(), &(cert.to_owned(), key.to_owned()));
        assert!(server.gateway.load_certificates().is_err());
        assert!(reaches(&old).await);
    }
    write(folder.path(), &one);
    server.gateway.load_certificates().expect("good certificates");
    assert!(reaches(&new).await && !reaches(&old).await);
    stop.cancel();
    for load in load {
        assert!(with_timeout("the load", load).await.expect("no failed request") > 0);
    }
}

/// The protocol that a client with one version of TLS gets.
async fn negotiated(
    authority: &Authority,
    port: u16,
    version: &'static rustls::SupportedProtocolVersion,
    protocol: &str,
) -> String {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a certificate"))
        .expect("a root");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    let mut config = config.expect("a version").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let name = "localhost".try_into().expect("a name");
    let stream = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await;
    let stream = stream.expect("a handshake");
    let chosen = stream.get_ref().1.alpn_protocol().expect("a protocol").to_vec();
    String::from_utf8(chosen).expect("ASCII")
}

#[tokio::test]
async fn both_protocols_are_negotiated_and_a_silent_client_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = authority("ca");
    write(folder.path(), &certificate(&authority, server_names()));
    let files = TlsFiles::new(folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let mut settings = Settings::default().tls(Some(Tls::Files(files)));
    settings.limits.request_timeout = Duration::from_secs(2);
    let server = secure(settings).await;
    let url = format!("{}/livez", server.base);
    let port: u16 = server.base.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for protocol in ["h2", "http/1.1"] {
            assert_eq!(negotiated(&authority, port, version, protocol).await, protocol);
        }
    }
    let one = client(&authority)
        .http1_only()
        .build()
        .expect("a client")
        .get(&url)
        .send()
        .await
        .expect("a response");
    assert_eq!(one.version(), reqwest::Version::HTTP_11);
    let mut silent = tokio::net::TcpStream::connect(format!("127.0.0.1:{port}")).await.expect("a connection");
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut silent, &mut byte);
    assert_eq!(with_timeout("the cut of a silent client", read).await.unwrap_or(0), 0);
    let plain = agentwire_client::transport::builder().no_proxy().build().expect("a client");
    assert!(plain.get(url.replace("https", "http")).send().await.is_err());
}

#[tokio::test]
async fn a_service_is_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, clients, strangers) = (authority("ca"), authority("clients"), authority("strangers"));
    write(folder.path(), &certificate(&authority, server_names()));
    std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
    let mut files = TlsFiles::new(folder.path().join("cert.pem"), folder.path().join("key.pem"));
    files.client_ca = Some(folder.path().join("clients.pem"));
    let mut auth = Auth::default();
    auth.mode = AuthMode::Required;
    let mut billing = MtlsEntry::new("spiffe://example.org/billing/*");
    billing.tenant = Some("acme".into());
    billing.scopes = vec!["agents:*:*".parse().expect("a scope")];
    let mut dns = MtlsEntry::new("batch.example.org");
    dns.scopes = vec!["agents:*:read".parse().expect("a scope")];
    auth.mtls = vec![billing, dns];
    let settings = Settings::default().auth(auth).tls(Some(Tls::Files(files.clone())));
    let server = secure(settings.clone()).await;
    let list = async |server: &Secure, signer: Option<(&Authority, SanType)>, bearer: Option<&str>| {
        let mut builder = client(&authority);
        if let Some((signer, name)) = signer {
            let (cert, key) = certificate(signer, vec![name]);
            builder =
                builder.identity(Identity::from_pem(format!("{cert}{key}").as_bytes()).expect("an identity"));
        }
        let mut request = builder.build().expect("a client").get(format!("{}/thread/list", server.base));
        if let Some(bearer) = bearer {
            request = request.bearer_auth(bearer);
        }
        request.send().await.map(|response| response.status().as_u16()).map_err(|_| "no connection")
    };
    let uri = |text: &str| SanType::URI(text.try_into().expect("a URI"));
    let name = |text: &str| SanType::DnsName(text.try_into().expect("a name"));
    assert_eq!(list(&server, Some((&clients, uri("spiffe://example.org/billing/1"))), None).await, Ok(200));
    assert_eq!(list(&server, Some((&clients, name("batch.example.org"))), None).await, Ok(200));
    assert_eq!(list(&server, Some((&clients, uri("spiffe://example.org/other"))), None).await, Ok(401));
    let two = list(&server, Some((&clients, uri("spiffe://example.org/billing/1"))), Some("x")).await;
    assert_eq!(two, Ok(401), "two credentials");
    let stranger = list(&server, Some((&strangers, uri("spiffe://example.org/billing/1"))), None).await;
    assert_eq!(stranger, Err("no connection"));
    assert_eq!(list(&server, None, None).await, Ok(401));
    // With `client = "required"` nobody comes without a certificate.
    files.is_client_required = true;
    let strict = secure(settings.tls(Some(Tls::Files(files)))).await;
    assert_eq!(list(&strict, None, None).await, Err("no connection"));
    assert_eq!(list(&strict, Some((&clients, name("batch.example.org"))), None).await, Ok(200));
}

/// A stream ends with the certificate that opened it, the run goes on, and a connection that is still open is worth nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_cut_at_the_end_of_the_certificate_and_the_run_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, clients) = (authority("ca"), authority("clients"));
    write(folder.path(), &certificate(&authority, server_names()));
    std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
    let mut files = TlsFiles::new(folder.path().join("cert.pem"), folder.path().join("key.pem"));
    files.client_ca = Some(folder.path().join("clients.pem"));
    let mut auth = Auth::default();
    auth.mode = AuthMode::Required;
    let mut service = MtlsEntry::new("spiffe://example.org/*");
    service.scopes = vec!["*".parse().expect("a scope")];
    auth.mtls = vec![service];
    let puppet = Puppet::new(|input| talk(input, 3));
    let settings = Settings::default().auth(auth).tls(Some(Tls::Files(files)));
    let server = secure_agent(settings, puppet.clone()).await;
    let client_until = |ends: Option<u64>| {
        let name = SanType::URI("spiffe://example.org/billing".try_into().expect("a URI"));
        let (cert, key) = match ends {
            Some(ends) => certificate_until(&clients, vec![name], ends),
            None => certificate(&clients, vec![name]),
        };
        let identity = Identity::from_pem(format!("{cert}{key}").as_bytes()).expect("an identity");
        client(&authority).identity(identity).build().expect("a client")
    };
    let (short, long) = (client_until(Some(now() + 8)), client_until(None));
    let post =
        |client: &Client| client.post(format!("{}/", server.base)).json(&Server::input("t", "r", "hello"));
    let mut stream = Stream::of(post(&short)).await;
    assert_eq!(stream.status(), 200);
    let first = stream.take(1).await;
    // A second connection, which stays open.
    let list = || short.get(format!("{}/thread/list", server.base));
    assert_eq!(answer(list()).await.0, 200);
    let rest = stream.rest().await;
    assert!(stream.broken, "a regular end would look like the end of the run");
    assert!(stream.asides.iter().any(|line| line.starts_with("retry:")), "{:?}", stream.asides);
    assert!(rest.iter().all(|frame| !["RUN_ERROR", "RUN_FINISHED"].contains(&&*frame.kind())));
    let after = answer(list()).await;
    assert_eq!((after.0.as_u16(), &after.1["error"]["code"]), (401, &"TOKEN_EXPIRED".into()));
    let again = client_until(Some(now() - 5)).get(format!("{}/thread/list", server.base)).send().await;
    assert!(again.is_err(), "no connection begins with it");
    puppet.allow(100);
    let cursor = first.last().and_then(|frame| frame.id.clone()).expect("an id");
    let follow = long.get(format!("{}/runs/r/stream", server.base)).header("last-event-id", cursor);
    let frames: Vec<Frame> = first.into_iter().chain(Stream::of(follow).await.rest().await).collect();
    assert_valid(&frames);
}
