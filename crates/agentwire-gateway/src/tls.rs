//! Encryption of connections: certificates that are read again while the gateway runs.
//!
//! New connections get the newest certificate that could be read; a bad file changes nothing.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use jiff::{civil, tz::TimeZone};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

use crate::settings::{Tls, TlsFiles};

/// Interval at which the files are looked at.
pub(crate) const WATCH: Duration = Duration::from_secs(60);

/// The reason why certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or has no PEM of the expected kind.
    #[error("the file `{0}` cannot be read as {1}: {2}")]
    File(PathBuf, &'static str, String),
    /// Certificate and key do not belong together, or are not supported.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    /// The authorities of client certificates cannot be used.
    #[error("the authorities of clients cannot be used: {0}")]
    ClientAuthorities(String),
}

/// The certificates of the gateway.
pub(crate) struct Certificates {
    files: TlsFiles,
    current: Mutex<Option<Loaded>>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    stamp: Stamp,
}

/// Times and sizes of the files.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificates {
    /// The certificates of the settings; `None` if the gateway does not encrypt.
    pub(crate) fn of(tls: Option<&Tls>) -> Option<Self> {
        match tls {
            Some(Tls::Files(files)) => Some(Self { files: files.clone(), current: Mutex::default() }),
            Some(Tls::Proxy) | None => None,
        }
    }

    /// The configuration for a new connection; `None` before the first successful [`Self::load`].
    pub(crate) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|loaded| loaded.config.clone())
    }

    /// Reads the files. On an error the old certificates stay.
    pub(crate) fn load(&self) -> Result<(), TlsError> {
        let stamp = self.stamp();
        if self.current().is_some() {
            // A pipe can be read at the start, but not again: nobody writes to it any more.
            let pipe = self.paths().find(|path| std::fs::metadata(path).is_ok_and(|about| !about.is_file()));
            if let Some(path) = pipe {
                return Err(TlsError::File(path.clone(), "PEM", "it is no regular file".into()));
            }
        }
        let config = Arc::new(server_config(&self.files)?);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Loaded { config, stamp });
        Ok(())
    }

    /// Reads the files if they have changed.
    pub(crate) fn load_changed(&self) -> Result<bool, TlsError> {
        let stamp = self.stamp();
        let is_same = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            match current.as_mut() {
                Some(loaded) if loaded.stamp == stamp => true,
                Some(loaded) => {
                    // One message per change, not per look.
                    loaded.stamp = stamp;
                    false
                }
                None => false,
            }
        };
        if is_same {
            return Ok(false);
        }
        self.load().map(|()| true)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.files.cert), Some(&self.files.key), self.files.client_ca.as_ref()].into_iter().flatten()
    }

    fn stamp(&self) -> Stamp {
        let about = |path: &PathBuf| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.paths().map(about).collect()
    }
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let failed = |error: rustls::Error| TlsError::Certificate(error.to_string());
    let chain = certificates(&files.cert, "certificates")?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::File(files.key.clone(), "a private key", error.to_string()))?;
    // TLS 1.2 and 1.3.
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path, "certificates")? {
                roots.add(certificate).map_err(|error| TlsError::ClientAuthorities(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.is_client_required {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let verifier =
                verifier.build().map_err(|error| TlsError::ClientAuthorities(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(failed)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error: String| TlsError::File(path.to_owned(), what, error);
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?.collect();
    let read = read.map_err(|error| failed(error.to_string()))?;
    if read.is_empty() { Err(failed("it has none".into())) } else { Ok(read) }
}

/// The URIs and DNS names in a certificate.
pub(crate) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let uris = certificate.valid_uri_names().map(str::to_owned);
    uris.chain(certificate.valid_dns_names().map(str::to_owned)).collect()
}

/// The first moment at which a certificate is not valid any more, in milliseconds since the epoch; `None` if it is malformed.
pub(crate) fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // Version (optional), serial number, algorithm, issuer.
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, not_after) = element(validity)?;
    let (tag, text, _) = element(not_after)?;
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        // RFC 5280: two digits are a year from 1950 to 2049.
        UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let last = civil::DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?.to_zoned(TimeZone::UTC).ok()?;
    // It is valid through that second.
    u64::try_from(last.timestamp().as_millisecond()).ok()?.checked_add(1000)
}

/// The tag of the optional version.
const VERSION: u8 = 0xa0;

/// The tags of times.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The first element of DER: its tag, its content, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_expiry_of_a_certificate_is_read() {
        let expiry_of = |year, month, day| {
            let mut params = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
            params.not_after = date_time_ymd(year, month, day);
            let certificate =
                params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
            expiry(certificate.der())
        };
        // Written with two digits of the year, and with four.
        assert_eq!(expiry_of(2026, 11, 15), Some(1_794_700_801_000));
        assert_eq!(expiry_of(2049, 12, 31), Some(2_524_521_601_000));
        assert_eq!(expiry_of(2100, 1, 1), Some(4_102_444_801_000));
    }

    /// A read of a pipe waits for a writer.
    #[cfg(unix)]
    #[test]
    fn a_pipe_in_place_of_a_certificate_is_not_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let [cert, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let (pair, params) =
            (KeyPair::generate().expect("a key"), CertificateParams::new(vec!["localhost".into()]));
        let certificate = params.expect("parameters").self_signed(&pair).expect("a certificate");
        std::fs::write(&cert, certificate.pem()).expect("a file");
        std::fs::write(&key, pair.serialize_pem()).expect("a file");
        let certificates = Certificates::of(Some(&Tls::Files(TlsFiles::new(&cert, &key)))).expect("files");
        certificates.load().expect("a certificate");
        std::fs::remove_file(&cert).expect("it is there");
        let made = std::process::Command::new("mkfifo").arg(&cert).status().expect("a program of every Unix");
        assert!(made.success());
        assert!(matches!(certificates.load_changed(), Err(TlsError::File(path, ..)) if path == cert));
        assert!(certificates.current().is_some(), "the old one stays");
    }

    #[test]
    fn malformed_certificates_have_no_expiry() {
        let certificate = CertificateParams::new(vec!["localhost".into()]).expect("parameters");
        let certificate =
            certificate.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        let bytes = certificate.der().as_ref();
        for length in 0..bytes.len() {
            assert_eq!(expiry(&CertificateDer::from(&bytes[..length])), None, "{length}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x7f;
            let _ = expiry(&CertificateDer::from(changed));
        }
    }
}
