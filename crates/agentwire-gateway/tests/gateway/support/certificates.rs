//! Authorities and certificates of a test.

use std::{path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use reqwest::Certificate;

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A certificate and its key, PEM.
pub(crate) fn certificate(authority: &Authority, names: Vec<SanType>) -> (String, String) {
    signed(authority, names, CertificateParams::new(Vec::new()).expect("parameters"))
}

/// The same, valid until a time in seconds since the epoch.
pub(crate) fn certificate_until(authority: &Authority, names: Vec<SanType>, ends: u64) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
    signed(authority, names, params)
}

fn signed(authority: &Authority, names: Vec<SanType>, mut params: CertificateParams) -> (String, String) {
    params.subject_alt_names = names;
    let key = KeyPair::generate().expect("a key");
    let signed = params.signed_by(&key, authority).expect("a certificate");
    (signed.pem(), key.serialize_pem())
}

pub(crate) fn server_names() -> Vec<SanType> {
    vec![SanType::DnsName("localhost".try_into().expect("a name")), SanType::IpAddress([127, 0, 0, 1].into())]
}

pub(crate) fn write(folder: &Path, (cert, key): &(String, String)) {
    std::fs::write(folder.join("key.pem"), key).expect("a file");
    std::fs::write(folder.join("cert.pem"), cert).expect("a file");
}

pub(crate) fn root(authority: &Authority) -> Certificate {
    Certificate::from_pem(authority.pem().as_bytes()).expect("a certificate")
}

pub(crate) fn client(authority: &Authority) -> reqwest::ClientBuilder {
    agentwire_client::transport::builder().no_proxy().tls_certs_only([root(authority)])
}
