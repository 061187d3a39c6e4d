//! One HTTP exchange: the request goes to the gateway's own router, the response waits in a buffer that is bounded in
//! bytes until Python takes it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};
use bytes::BytesMut;
use http_body_util::BodyExt;
use tokio::{sync::Notify, task::AbortHandle};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    calls::PIPE,
    notes::{Note, Notes},
};

/// The end of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// More follows.
    #[default]
    Open = 0,
    Whole = 1,
    /// The connection must be closed without a regular end.
    Cut = 2,
}

/// Status and headers.
pub(crate) type Head = (u16, Vec<(Vec<u8>, Vec<u8>)>);

/// A piece of a response.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) head: Option<Head>,
    pub(crate) bytes: BytesMut,
    pub(crate) end: End,
}

#[derive(Debug, Default)]
struct Waiting {
    piece: Piece,
    /// True if Python knows of the piece.
    is_noted: bool,
}

/// An exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    id: u64,
    notes: Arc<Notes>,
    waiting: Mutex<Waiting>,
    room: Notify,
    pub(crate) cut: CancellationToken,
    task: Mutex<Option<AbortHandle>>,
}

impl Exchange {
    pub(crate) fn new(id: u64, notes: Arc<Notes>) -> Arc<Self> {
        Arc::new(Self {
            id,
            notes,
            waiting: Mutex::default(),
            room: Notify::new(),
            cut: CancellationToken::new(),
            task: Mutex::new(None),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the piece that waits, and tells Python about it.
    fn change(&self, change: impl FnOnce(&mut Piece)) -> usize {
        let mut waiting = self.waiting();
        change(&mut waiting.piece);
        if !std::mem::replace(&mut waiting.is_noted, true) {
            self.notes.push(Note::Ready(self.id));
        }
        waiting.piece.bytes.len()
    }

    /// Everything that waits.
    pub(crate) fn take(&self) -> Piece {
        let piece = {
            let mut waiting = self.waiting();
            waiting.is_noted = false;
            let end = waiting.piece.end;
            let mut piece = std::mem::take(&mut waiting.piece);
            waiting.piece.end = end;
            piece.end = end;
            piece
        };
        if piece.bytes.len() >= PIPE {
            self.room.notify_one();
        }
        piece
    }

    /// Starts the request.
    pub(crate) fn start(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Handle,
        router: Router,
        request: Request,
        write_timeout: Duration,
    ) {
        let exchange = self.clone();
        let task = runtime.spawn(async move {
            let end = tokio::select! {
                end = exchange.respond(router, request, write_timeout) => end,
                () = exchange.cut.cancelled() => End::Cut,
            };
            exchange.change(|piece| piece.end = end);
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    }

    async fn respond(&self, router: Router, request: Request, write_timeout: Duration) -> End {
        let response = match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let headers = parts.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str().into(), value.as_bytes().into())).collect();
        self.change(|piece| piece.head = Some((parts.status.as_u16(), headers)));
        self.pass_on(body, write_timeout).await
    }

    async fn pass_on(&self, mut body: Body, write_timeout: Duration) -> End {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return End::Cut };
            let Ok(bytes) = frame.into_data() else { continue };
            let mut length = self.change(|piece| piece.bytes.extend_from_slice(&bytes));
            while length >= PIPE {
                // A client that takes nothing for this long is not there.
                if tokio::time::timeout(write_timeout, self.room.notified()).await.is_err() {
                    return End::Cut;
                }
                length = self.waiting().piece.bytes.len();
            }
        }
        End::Whole
    }

    /// Ends the request: its client has left.
    pub(crate) fn close(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.close();
    }
}
