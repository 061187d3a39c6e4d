//! The authorities that TLS connections trust.

use std::{
    env,
    sync::{Arc, OnceLock},
};

use reqwest::{Certificate, ClientBuilder};
use rustls::crypto::CryptoProvider;

/// Gives a client the roots of Mozilla if the system has none, as in an empty image; without any, no client could be built.
/// A bundle that the environment names is never replaced: it may be there to trust fewer.
pub(super) fn with_roots(builder: ClientBuilder) -> ClientBuilder {
    static HAS_OWN: OnceLock<bool> = OnceLock::new();
    let has_own = || {
        let is_named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().any(|name| env::var_os(name).is_some());
        let provider = CryptoProvider::get_default()
            .map_or_else(|| Arc::new(rustls::crypto::ring::default_provider()), Arc::clone);
        is_named || rustls_platform_verifier::Verifier::new(provider).is_ok()
    };
    if *HAS_OWN.get_or_init(has_own) {
        return builder;
    }
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    builder.tls_certs_only(roots.filter_map(|root| Certificate::from_der(root).ok()))
}
