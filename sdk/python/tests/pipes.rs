//! The pipes and notes between tokio and Python, without Python: every order of the steps of both sides, and real threads.
//!
//! The module itself is linked without libpython and has no tests of its own; these two files of it do not use Python.

#[allow(dead_code)]
#[path = "../rust/calls.rs"]
mod calls;
#[allow(dead_code)]
#[path = "../rust/notes.rs"]
mod notes;

use std::{
    convert::Infallible,
    io::Read,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use calls::{CallError, CallStream, Calls, PIPE, Put};
use futures_util::{Stream, StreamExt};
use notes::{Note, Notes};

/// Counts its wake-ups.
#[derive(Default)]
struct Alarm(AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Alarm {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A call and everything that the reader has seen of it.
struct Reader {
    stream: CallStream,
    alarm: Arc<Alarm>,
    read: Vec<u8>,
    end: Option<Result<(), CallError>>,
    /// The number of wake-ups when the reader began to wait.
    waits_since: Option<usize>,
}

impl Reader {
    fn new(calls: &Arc<Calls>) -> Self {
        let stream = calls.open(calls.next_id());
        Self { stream, alarm: Arc::default(), read: Vec::new(), end: None, waits_since: None }
    }

    fn poll(&mut self) {
        let waker = Waker::from(self.alarm.clone());
        let polled = Pin::new(&mut self.stream).poll_next(&mut Context::from_waker(&waker));
        self.waits_since = polled.is_pending().then(|| self.alarm.count());
        match polled {
            Poll::Ready(Some(Ok(piece))) => self.read.extend_from_slice(&piece),
            Poll::Ready(Some(Err(error))) => self.end = Some(Err(error)),
            Poll::Ready(None) => self.end = Some(self.end.take().unwrap_or(Ok(()))),
            Poll::Pending => {}
        }
    }

    /// True unless the reader waits and was not woken.
    fn knows(&self) -> bool {
        self.waits_since.is_none_or(|count| self.alarm.count() > count)
    }
}

fn put(calls: &Calls, id: u64, bytes: &[u8]) -> Put {
    let written = calls.put(id, |buffer| {
        buffer.extend_from_slice(bytes);
        Ok::<_, Infallible>(())
    });
    written.expect("writing does not fail")
}

fn names(notes: &Notes) -> Vec<String> {
    let name = |note: &Note| format!("{note:?}").split('(').next().unwrap_or_default().to_owned();
    notes.take().0.iter().map(name).collect()
}

/// All orders of `first` steps of one side and `second` steps of the other; true is a step of the first.
fn orders(first: usize, second: usize) -> Vec<Vec<bool>> {
    if first + second == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (is_first, rest) in [
        (true, first.checked_sub(1).map(|first| (first, second))),
        (false, second.checked_sub(1).map(|second| (first, second))),
    ] {
        let Some((first, second)) = rest else { continue };
        all.extend(orders(first, second).into_iter().map(|mut order| {
            order.insert(0, is_first);
            order
        }));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn every_order_of_puts_and_takes_gives_all_bytes() {
    let failure = || Err(CallError { message: "broken".into(), ..CallError::default() });
    for end in [Ok(()), failure()] {
        for order in orders(4, 5) {
            let calls = Calls::new(Arc::default());
            let mut reader = Reader::new(&calls);
            let mut steps = 0;
            for is_write in &order {
                match (is_write, steps) {
                    (false, _) => reader.poll(),
                    (true, 3) => calls.end(reader.stream.id, end.clone()),
                    (true, step) => assert_eq!(put(&calls, reader.stream.id, &[b'a' + step]), Put::More),
                }
                steps += u8::from(*is_write);
                assert!(!is_write || reader.knows(), "{order:?}: nobody woke the reader");
            }
            // Pieces, the failure, the end.
            (0..3).for_each(|_| reader.poll());
            assert_eq!((&*reader.read, reader.end.as_ref()), (&b"abc"[..], Some(&end)), "{order:?}");
            assert_eq!(put(&calls, reader.stream.id, b"late"), Put::Closed);
            drop(reader);
            assert!(names(calls.notes()).is_empty(), "{order:?}: an ended call is not cancelled");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_at_any_moment_cancels_once() {
    for order in orders(3, 3) {
        for leaves in 0..=order.len() {
            let calls = Calls::new(Arc::default());
            let mut reader = Some(Reader::new(&calls));
            let id = reader.as_ref().map_or(0, |reader| reader.stream.id);
            let mut steps = 0;
            let mut is_ended = false;
            for (at, is_write) in order.iter().enumerate() {
                if at == leaves {
                    reader = None;
                }
                match (is_write, &mut reader) {
                    (false, Some(reader)) => reader.poll(),
                    (false, None) => {}
                    (true, reader) if steps < 2 => {
                        let expected = if reader.is_some() { Put::More } else { Put::Closed };
                        assert_eq!(put(&calls, id, b"x"), expected, "{order:?} {leaves}");
                    }
                    (true, reader) => {
                        is_ended |= reader.is_some();
                        calls.end(id, Ok(()));
                    }
                }
                steps += u8::from(*is_write);
            }
            drop(reader);
            let expected: &[&str] = if is_ended { &[] } else { &["Cancel"] };
            assert_eq!(names(calls.notes()), expected, "{order:?} {leaves}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_pipe_asks_for_room_once() {
    let calls = Calls::new(Arc::default());
    let mut reader = Reader::new(&calls);
    let id = reader.stream.id;
    assert_eq!(put(&calls, id, &vec![0; PIPE - 1]), Put::More);
    assert_eq!(put(&calls, id, &[0]), Put::Full);
    assert!(names(calls.notes()).is_empty());
    reader.poll();
    assert_eq!(reader.read.len(), PIPE);
    assert_eq!(names(calls.notes()), ["Room"]);
    assert_eq!(put(&calls, id, &vec![0; PIPE]), Put::Full);
    calls.end(id, Ok(()));
    drop(reader);
    assert_eq!(names(calls.notes()), ["Room"], "a writer that waits goes on");
}

#[tokio::test(start_paused = true)]
async fn a_fast_stream_is_read_with_pauses() {
    /// A reader in a pause, with one byte that it has not taken.
    fn paused(calls: &Arc<Calls>) -> Reader {
        let mut reader = Reader::new(calls);
        for _ in 0..1000 {
            put(calls, reader.stream.id, b"x");
            reader.poll();
            if reader.waits_since.is_some() {
                return reader;
            }
        }
        panic!("a fast stream was never paused");
    }
    let calls = Calls::new(Arc::default());
    let mut reader = paused(&calls);
    put(&calls, reader.stream.id, b"y");
    assert!(!reader.knows(), "a piece does not end the pause");
    tokio::time::advance(Duration::from_millis(2)).await;
    reader.poll();
    assert!(reader.read.ends_with(b"xy"), "both pieces at once");

    let mut reader = paused(&calls);
    calls.end(reader.stream.id, Ok(()));
    assert!(reader.knows(), "the end does");
    (0..2).for_each(|_| reader.poll());
    assert_eq!((reader.read.last(), reader.end), (Some(&b'x'), Some(Ok(()))));

    let mut reader = paused(&calls);
    assert_eq!(put(&calls, reader.stream.id, &vec![b'z'; PIPE]), Put::Full);
    assert!(reader.knows(), "a full pipe does");
    reader.poll();
    assert_eq!(reader.read.last(), Some(&b'z'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_lose_nothing() {
    let calls = Calls::new(Arc::default());
    let mut stream = calls.open(calls.next_id());
    let (id, writer) = (stream.id, calls.clone());
    let (room, has_room) = mpsc::channel();
    let written = std::thread::spawn(move || {
        let mut sum = 0_u64;
        for number in 0..20_000_u32 {
            let piece = vec![(number % 251) as u8; 1 + (number % 97) as usize];
            sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            if put(&writer, id, &piece) == Put::Full {
                has_room.recv().expect("room");
            }
        }
        writer.end(id, Ok(()));
        sum
    });
    let mut read = 0_u64;
    while let Some(piece) = stream.next().await {
        read += piece.expect("a piece").iter().map(|byte| u64::from(*byte)).sum::<u64>();
        for _ in calls.notes().take().0.iter().filter(|note| matches!(note, Note::Room(_))) {
            room.send(()).expect("a writer");
        }
    }
    assert_eq!(read, written.join().expect("the writer"));
}

#[test]
fn notes_wake_once_for_all_that_wait() {
    let notes = Notes::default();
    notes.push(Note::Ready(1));
    let mut socket = notes.connect().expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let mut woken = || socket.read(&mut [0; 16]).unwrap_or(0);
    assert_eq!(woken(), 1, "notes from before the connection");
    notes.push(Note::Ready(2));
    assert_eq!((woken(), notes.take().0.len()), (0, 2), "Python knows already");
    notes.push(Note::Ready(3));
    notes.push(Note::Ready(4));
    assert_eq!((woken(), notes.take().0.len()), (1, 2));
    notes.disconnect();
    notes.push(Note::Ready(5));
    assert_eq!((woken(), notes.take().0.len()), (0, 1));
}

#[test]
fn records_of_the_log_are_bounded_and_other_notes_are_not() {
    let notes = Notes::default();
    let record = || Note::Log { level: 0, target: "test", message: String::new(), fields: String::new() };
    for number in 0..20_000 {
        notes.push(record());
        notes.push(Note::Room(number));
    }
    let (taken, dropped, _) = notes.take();
    assert_eq!((taken.len(), dropped), (30_000, 10_000));
    notes.push(record());
    let (taken, dropped, _) = notes.take();
    assert_eq!((taken.len(), dropped), (1, 0));
}
