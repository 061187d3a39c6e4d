//! The direct way between gateways: events and commands without the database.
//!
//! With `replicas.advertise`, the name under which a gateway claims runs ends with its address, so that whoever reads a run knows
//! where its owner listens. Everything here may fail at any moment: the caller goes on with the database.

use std::{fmt, time::Duration};

use agentwire_client::transport;
use agentwire_store::{Holder, RunKey};
use bytes::{Buf, Bytes, BytesMut};
use reqwest::{Client, Response, Url};
use ring::hmac;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::settings::Replicas;

/// Time to connect to another gateway; they are in one network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time without a frame after which a connection is given up. The other side sends one each [`FRAME_INTERVAL`].
const SILENCE: Duration = Duration::from_secs(5);

/// Interval of empty frames.
pub(crate) const FRAME_INTERVAL: Duration = Duration::from_secs(1);

/// The longest event of a frame: more than any log accepts.
const MAX_FRAME: usize = 64 << 20;

/// The text between a holder's name and its address.
const SEPARATOR: char = '@';

/// The name of a gateway that listens for others at `address`.
pub(crate) fn with_address(holder: &Holder, address: &Url) -> Holder {
    Holder::from(format!("{}{SEPARATOR}{address}", holder.as_str()))
}

fn address_of(holder: &Holder) -> Option<Url> {
    holder.as_str().split_once(SEPARATOR)?.1.parse().ok()
}

/// The token of the gateways that share a key. Not the key itself, which also encrypts.
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    pub(crate) fn new(key: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&key, b"agentwire: requests between gateways");
        Self(tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// True for the header of a gateway with the same key.
    pub(crate) fn accepts(&self, header: Option<&[u8]>) -> bool {
        let expected = format!("Bearer {}", self.0);
        header.is_some_and(|given| given.ct_eq(expected.as_bytes()).into())
    }
}

/// A client for other gateways.
#[derive(Debug)]
pub(crate) struct Direct {
    client: Client,
    pub(crate) token: Token,
}

impl Direct {
    /// `None` if there is no key.
    pub(crate) fn of(settings: &Replicas) -> Option<Self> {
        let key = match settings.key.as_ref()?.read() {
            Ok(key) => key,
            Err(error) => {
                tracing::error!(%error, "replicas.key: gateways reach each other through the database only");
                return None;
            }
        };
        // Never by a proxy: the address is that of a neighbour.
        let client = transport::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.connect_timeout(CONNECT_TIMEOUT).build().ok()?;
        Some(Self { client, token: Token::new(&key) })
    }

    async fn post(
        &self,
        holder: &Holder,
        path: &str,
        body: Value,
        limit: Option<Duration>,
    ) -> Option<Response> {
        let url = address_of(holder)?.join(path).ok()?;
        let mut request = self.client.post(url).bearer_auth(&self.token.0).json(&body);
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let response = tokio::time::timeout(limit.unwrap_or(SILENCE), request.send()).await.ok()?.ok()?;
        response.status().is_success().then_some(response)
    }

    /// The events of a run from `next` on, from its owner.
    pub(crate) async fn tail(&self, holder: &Holder, key: &RunKey, next: u64) -> Option<Frames> {
        let mut body = run_to_json(key);
        body["next"] = next.into();
        let response = self.post(holder, "tail", body, None).await?;
        Some(Frames { response, buffer: BytesMut::new() })
    }

    /// Sends a command to the owner of a run; its reply. `None` if it is not known whether it was executed.
    pub(crate) async fn command(
        &self,
        holder: &Holder,
        key: &RunKey,
        command: &str,
        limit: Duration,
    ) -> Option<String> {
        let mut body = run_to_json(key);
        body["command"] = command.into();
        self.post(holder, "command", body, Some(limit)).await?.text().await.ok()
    }
}

fn run_to_json(key: &RunKey) -> Value {
    let owner = &key.owner;
    json!({
        "tenant": owner.tenant.as_str(),
        "user": owner.user.as_str(),
        "agent": owner.agent.as_str(),
        "run": key.run.as_str(),
    })
}

/// The run of a request of another gateway.
pub(crate) fn run_from_json(body: &Value) -> Option<RunKey> {
    let text = |name: &str| body[name].as_str();
    let owner = agentwire_store::Owner::new(text("tenant")?, text("user")?, text("agent")?);
    Some(RunKey { owner, run: text("run")?.into() })
}

/// A frame: the length and the epoch, four bytes each, little end first, and the event. An empty one says that the owner lives.
pub(crate) fn write_frame(out: &mut BytesMut, epoch: u32, event: &[u8]) {
    out.extend_from_slice(&u32::try_from(event.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(event);
}

/// Takes the first whole frame; `Err` for one that cannot be.
fn read_frame(buffer: &mut BytesMut) -> Result<Option<(u32, Bytes)>, ()> {
    let (Some(length), Some(epoch)) = (buffer.first_chunk::<4>(), buffer.get(4..8)) else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    let epoch = u32::from_le_bytes(epoch.try_into().map_err(|_| ())?);
    if length > MAX_FRAME {
        return Err(());
    }
    if buffer.len() < 8 + length {
        return Ok(None);
    }
    buffer.advance(8);
    Ok(Some((epoch, buffer.split_to(length).freeze())))
}

/// The frames of a tail.
pub(crate) struct Frames {
    response: Response,
    buffer: BytesMut,
}

impl Frames {
    /// The next events of one epoch, perhaps none; `None` if the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<(u32, Vec<Bytes>)> {
        loop {
            let (mut found, mut events) = (None, Vec::new());
            while let Some((epoch, event)) = read_frame(&mut self.buffer).ok()? {
                found = Some(epoch);
                if !event.is_empty() {
                    // Copied, so that an event does not keep the whole buffer alive.
                    events.push(Bytes::copy_from_slice(&event));
                }
            }
            if let Some(epoch) = found {
                return Some((epoch, events));
            }
            let chunk = tokio::time::timeout(SILENCE, self.response.chunk()).await.ok()?.ok()??;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_any_split() {
        let mut whole = BytesMut::new();
        for (epoch, event) in [(0, &b"one"[..]), (0, b""), (3, b"three")] {
            write_frame(&mut whole, epoch, event);
        }
        for size in 1..=whole.len() {
            let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
            for part in whole.chunks(size) {
                buffer.extend_from_slice(part);
                while let Some(frame) = read_frame(&mut buffer).unwrap() {
                    seen.push(frame);
                }
            }
            let expected =
                [(0, "one"), (0, ""), (3, "three")].map(|(epoch, text)| (epoch, Bytes::from(text)));
            assert_eq!(seen, expected);
        }
        let mut long = BytesMut::from(&[255; 8][..]);
        assert_eq!(read_frame(&mut long), Err(()));
    }

    #[test]
    fn a_holder_names_its_address() {
        let holder = Holder::from("host-1-00ff");
        assert_eq!(address_of(&holder), None);
        let url: Url = "http://10.0.0.5:7118/".parse().unwrap();
        assert_eq!(address_of(&with_address(&holder, &url)), Some(url));
    }

    #[test]
    fn a_token_needs_the_same_key() {
        let (one, other) = (Token::new(b"a key of the cluster"), Token::new(b"another key"));
        let header = format!("Bearer {}", one.0);
        assert!(one.accepts(Some(header.as_bytes())));
        assert!(
            !other.accepts(Some(header.as_bytes())) && !one.accepts(None) && !one.accepts(Some(b"Bearer "))
        );
        assert_eq!(format!("{one:?}"), "***");
    }
}
