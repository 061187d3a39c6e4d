//! The headers of a queued run, encrypted, so that another gateway can call its agent.
//!
//! Stored only with a configured key (`replicas.key`). AES-256-GCM with a random nonce; the owner and the id of the run are
//! authenticated too, so that the text of one run is useless in another.

use agentwire_store::RunKey;
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom, SystemRandom},
};

/// Name and value of each header.
type Headers = Vec<(String, String)>;

fn key_of(secret: &[u8]) -> Option<LessSafeKey> {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let derived = hmac::sign(&secret, b"agentwire: headers of queued runs");
    UnboundKey::new(&AES_256_GCM, derived.as_ref()).ok().map(LessSafeKey::new)
}

fn context(run: &RunKey) -> Aad<Vec<u8>> {
    let owner = &run.owner;
    let parts = [owner.tenant.as_str(), owner.user.as_str(), owner.agent.as_str(), run.run.as_str()];
    Aad::from(parts.iter().flat_map(|part| format!("{}:{part}", part.len()).into_bytes()).collect())
}

/// The headers as text for the store.
pub(crate) fn seal(secret: &[u8], run: &RunKey, headers: &[(String, String)]) -> Option<String> {
    let mut body = serde_json::to_vec(headers).ok()?;
    let mut nonce = [0; NONCE_LEN];
    SystemRandom::new().fill(&mut nonce).ok()?;
    let mut sealed = nonce.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key_of(secret)?.seal_in_place_append_tag(nonce, context(run), &mut body).ok()?;
    sealed.append(&mut body);
    Some(STANDARD_NO_PAD.encode(sealed))
}

/// The headers of a sealed text; `None` if it was not written with this key for this run.
pub(crate) fn open(secret: &[u8], run: &RunKey, text: &str) -> Option<Headers> {
    let mut sealed = STANDARD_NO_PAD.decode(text).ok()?;
    let mut body = sealed.split_off(NONCE_LEN.min(sealed.len()));
    let nonce = Nonce::try_assume_unique_for_key(&sealed).ok()?;
    let body = key_of(secret)?.open_in_place(nonce, context(run), &mut body).ok()?;
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
mod tests {
    use agentwire_store::Owner;

    use super::*;

    #[test]
    fn sealed_headers_open_with_the_same_key_for_the_same_run_only() {
        let run = |id: &str| RunKey { owner: Owner::new("t", "u", "a"), run: id.into() };
        let headers = vec![("authorization".to_owned(), "Bearer canary".to_owned())];
        let text = seal(b"secret", &run("r"), &headers).expect("a text");
        assert!(!text.contains("canary"));
        assert_ne!(text, seal(b"secret", &run("r"), &headers).expect("a text"), "a new nonce each time");
        assert_eq!(open(b"secret", &run("r"), &text), Some(headers));
        assert_eq!(open(b"other", &run("r"), &text), None);
        assert_eq!(open(b"secret", &run("s"), &text), None);
        for bad in ["", "AAAA", &text[..20], &format!("A{}", &text[1..])] {
            if bad != text {
                assert_eq!(open(b"secret", &run("r"), bad), None, "{bad}");
            }
        }
    }
}
