//! Signatures of tokens (JWS), and the public keys (JWK) that verify them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
        RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
        UnparsedPublicKey, VerificationAlgorithm,
    },
};
use serde::Deserialize;

use super::settings::JwtAlgorithm;

/// Smallest modulus of an RSA key in bytes.
const MIN_RSA_BYTES: usize = 256;

/// A public key of a kind that can verify tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A usable member of a key set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Jwk {
    pub(super) id: Option<String>,
    /// The only algorithm that it is for, if it names one.
    pub(super) algorithm: Option<String>,
    pub(super) key: PublicKey,
}

/// The members of a JWK that count.
#[derive(Deserialize)]
struct Members {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// Reads a key; `None` for one that cannot verify tokens: of another kind, for encryption, a secret, or too weak.
    pub(super) fn read(key: serde_json::Value) -> Option<Self> {
        let members: Members = serde_json::from_value(key).ok()?;
        let is_for_signatures = members.purpose.as_ref().is_none_or(|it| it == "sig")
            && members.key_ops.as_ref().is_none_or(|all| all.iter().any(|operation| operation == "verify"));
        if !is_for_signatures {
            return None;
        }
        let bytes = |text: Option<&String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let number = |text: Option<&String>| -> Option<Vec<u8>> {
            Some(bytes(text)?.into_iter().skip_while(|byte| *byte == 0).collect())
        };
        let point = |length: usize| {
            let (x, y) = (bytes(members.x.as_ref())?, bytes(members.y.as_ref())?);
            (x.len() == length && y.len() == length).then(|| [&[4], &x[..], &y[..]].concat())
        };
        let key = match (members.kty.as_str(), members.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (number(members.n.as_ref())?, number(members.e.as_ref())?);
                (n.len() >= MIN_RSA_BYTES).then_some(PublicKey::Rsa { n, e })?
            }
            ("EC", Some("P-256")) => PublicKey::P256(point(32)?),
            ("EC", Some("P-384")) => PublicKey::P384(point(48)?),
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes(members.x.as_ref())?),
            _ => return None,
        };
        Some(Self { id: members.kid, algorithm: members.alg, key })
    }
}

impl PublicKey {
    /// True if a signature of this algorithm was made with this key; false if the key is not for the algorithm.
    pub(super) fn verifies(&self, algorithm: JwtAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let is_by = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (Self::P256(point), JwtAlgorithm::ES256) => is_by(&ECDSA_P256_SHA256_FIXED, point),
            (Self::P384(point), JwtAlgorithm::ES384) => is_by(&ECDSA_P384_SHA384_FIXED, point),
            (Self::Ed25519(key), JwtAlgorithm::EdDSA) => is_by(&ED25519, key),
            (Self::Rsa { n, e }, algorithm) => rsa_parameters(algorithm).is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }),
            _ => false,
        }
    }
}

fn rsa_parameters(algorithm: JwtAlgorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        JwtAlgorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        JwtAlgorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        JwtAlgorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        JwtAlgorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        JwtAlgorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        JwtAlgorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// True if a signature of this algorithm was made with this secret; false if the algorithm uses no secret.
pub(super) fn is_signed_with(
    secret: &[u8],
    algorithm: JwtAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let algorithm = match algorithm {
        JwtAlgorithm::HS256 => hmac::HMAC_SHA256,
        JwtAlgorithm::HS384 => hmac::HMAC_SHA384,
        JwtAlgorithm::HS512 => hmac::HMAC_SHA512,
        _ => return false,
    };
    hmac::verify(&hmac::Key::new(algorithm, secret), message, signature).is_ok()
}
