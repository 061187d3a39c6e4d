//! The end of a credential cuts the streams that it opened; the runs go on.
//!
//! The client gets `retry:` and then no regular end, so that it comes back, with a new credential.

use std::{io, sync::Arc, time::Duration};

use agentwire_core::framing::Framing;
use agentwire_store::Time;
use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::auth::{AuthMethod, Principal};

/// Time for a client to read what is left before its connection is cut.
const LAST_READ: Duration = Duration::from_secs(2);

/// Time to write `retry:` before the cut.
const LAST_WRITE: Duration = Duration::from_millis(100);

/// Longest sleep at once: timers have a limit, and the clock of the store may be another one.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// The end of the credential of a stream.
pub(super) struct CredentialEnd {
    principal: Arc<Principal>,
    left: Option<Duration>,
}

impl CredentialEnd {
    /// `None` for a credential that never ends.
    pub(super) fn of(principal: &Arc<Principal>, now: Time) -> Option<Self> {
        let ends =
            principal.expires.is_some() || matches!(principal.method, AuthMethod::Key | AuthMethod::Ticket);
        let left = principal.expires.map(|expires| Duration::from_millis(expires.0.saturating_sub(now.0)));
        ends.then(|| Self { principal: principal.clone(), left })
    }

    async fn wait(self) {
        let expired = async {
            let Some(mut left) = self.left else { return std::future::pending().await };
            while !left.is_zero() {
                let step = left.min(LONGEST_SLEEP);
                tokio::time::sleep(step).await;
                left -= step;
            }
        };
        tokio::select! {
            () = expired => {}
            () = self.principal.revoked.cancelled() => {}
        }
    }

    /// The stream up to the end of the credential.
    pub(super) fn cut(
        self,
        chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        framing: Framing,
        connection: CancellationToken,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let ended = CancellationToken::new();
        let signal = ended.clone();
        // A task of its own: the body is not polled while the client does not read.
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            self.wait().await;
            signal.cancel();
            tokio::time::sleep(LAST_READ).await;
            connection.cancel();
        }));
        let state = (Box::pin(chunks), ended, task, false);
        stream::unfold(state, move |(mut chunks, ended, task, is_over)| async move {
            use futures_util::StreamExt;
            if is_over {
                // The last bytes are written while the body is pending.
                tokio::time::sleep(LAST_WRITE).await;
                return Some((
                    Err(io::Error::other("the credential has ended")),
                    (chunks, ended, task, true),
                ));
            }
            tokio::select! {
                biased;
                () = ended.cancelled() => {
                    let last = match framing {
                        Framing::Sse => Bytes::from_static(b"retry: 1000\n\n"),
                        _ => Bytes::new(),
                    };
                    Some((Ok(last), (chunks, ended, task, true)))
                }
                chunk = chunks.next() => Some((chunk?, (chunks, ended, task, false))),
            }
        })
    }
}
