//! Notes: everything that tokio wants of Python. They wait in a queue, and one byte on a socket wakes Python's loop.
//!
//! No thread of Rust's takes the GIL, and Rust holds no Python object: objects stay in Python under a number.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

#[cfg(unix)]
type Socket = std::os::unix::net::UnixStream;
#[cfg(not(unix))]
type Socket = std::net::TcpStream;

/// Records of the log that may wait; more are counted and dropped.
const MAX_RECORDS: usize = 10_000;

/// A note for Python.
#[derive(Debug)]
pub(crate) enum Note {
    /// An exchange has something to take.
    Ready(u64),
    /// Python is asked for something; it answers with a stream of bytes under the same number.
    Call {
        id: u64,
        /// The agent.
        target: Box<str>,
        kind: &'static str,
        payload: String,
        context: Option<u64>,
    },
    /// A request that the gateway's own server has accepted; `Release` follows.
    Request(Box<RequestHead>),
    /// Nobody listens to a stream any more.
    Cancel(u64),
    /// A stream that was full has room.
    Room(u64),
    /// The data of a request is not needed any more.
    Release(u64),
    /// The gateway has started or was drained; with the reason if that failed.
    Done { id: u64, error: Option<String> },
    /// A record of the log.
    Log { level: u8, target: &'static str, message: String, fields: String },
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) id: u64,
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) client: Option<String>,
}

#[derive(Default)]
struct Queue {
    notes: VecDeque<Note>,
    records: usize,
    dropped: usize,
    /// The moment at which Python was woken for the notes in the queue.
    signalled: Option<Instant>,
    waker: Option<Socket>,
}

/// The notes of one gateway.
#[derive(Default)]
pub(crate) struct Notes(Mutex<Queue>);

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notes")
    }
}

impl Notes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, note: Note) {
        let mut queue = self.queue();
        if matches!(note, Note::Log { .. }) {
            if queue.records >= MAX_RECORDS {
                queue.dropped += 1;
                return;
            }
            queue.records += 1;
        }
        queue.notes.push_back(note);
        queue.signal();
    }

    /// All notes, the number of log records that were lost, and the time since Python was woken for them.
    pub(crate) fn take(&self) -> (VecDeque<Note>, usize, Duration) {
        let mut queue = self.queue();
        let late = queue.signalled.take().map(|at| at.elapsed()).unwrap_or_default();
        queue.records = 0;
        let dropped = std::mem::take(&mut queue.dropped);
        (std::mem::take(&mut queue.notes), dropped, late)
    }

    /// Connects Python's loop: the returned socket becomes readable when there are notes.
    pub(crate) fn connect(&self) -> io::Result<Socket> {
        let (own, other) = pair()?;
        own.set_nonblocking(true)?;
        let mut queue = self.queue();
        queue.waker = Some(own);
        queue.signalled = None;
        if !queue.notes.is_empty() {
            queue.signal();
        }
        Ok(other)
    }

    /// Wakes nobody any more.
    pub(crate) fn disconnect(&self) {
        self.queue().waker = None;
    }
}

impl Queue {
    fn signal(&mut self) {
        if self.signalled.is_none()
            && let Some(waker) = &mut self.waker
        {
            // A full socket wakes as well.
            let _ = waker.write(&[0]);
            self.signalled = Some(Instant::now());
        }
    }
}

#[cfg(unix)]
fn pair() -> io::Result<(Socket, Socket)> {
    Socket::pair()
}

#[cfg(not(unix))]
fn pair() -> io::Result<(Socket, Socket)> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let own = Socket::connect(listener.local_addr()?)?;
    Ok((own, listener.accept()?.0))
}
