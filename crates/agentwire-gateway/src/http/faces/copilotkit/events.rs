//! The events of all runs of a thread as one JSON document, in the dialect of CopilotKit's client.

use std::collections::VecDeque;

use agentwire_core::{
    event::{Body, ThreadId},
    format::{Options, Setup, Writer},
    framing::{Frames, Framing},
};
use agentwire_store::StoreError;
use axum::{body, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;

use super::{
    super::super::{
        json,
        request::ApiRequest,
        thread_list::{self, Reading},
    },
    agent::output_format,
};
use crate::{error::ApiError, stream::log_codec::Decoder};

/// The state of a response.
struct Document {
    reading: Option<Reading>,
    thread: ThreadId,
    decoder: Decoder,
    /// A writer per run: after a failed run it would write nothing.
    writer: Box<dyn Writer>,
    frames: Frames,
    is_first: bool,
    queue: VecDeque<Bytes>,
}

fn writer(thread: &ThreadId) -> Box<dyn Writer> {
    let (format, options) = (output_format(), Options::default());
    let setup = Setup { thread: thread.clone(), run: "".into(), options: &options };
    let make = format.format.writer.expect("AG-UI has a writer");
    make(format.profile, &setup)
}

/// `{"events": […]}`.
pub(super) async fn response(request: &ApiRequest, thread: &ThreadId) -> Result<Response, ApiError> {
    let runs = thread_list::all_runs(request, thread).await;
    let runs = request.audited("export", runs, |record| record.thread(thread))?;
    let document = Document {
        reading: Some(Reading::new(request, runs)),
        thread: thread.clone(),
        decoder: Decoder::new(thread, &"".into()),
        writer: writer(thread),
        frames: Frames::new(Framing::Lines),
        is_first: true,
        queue: VecDeque::from([Bytes::from_static(br#"{"events":["#)]),
    };
    let mut response = json("");
    *response.body_mut() = body::Body::from_stream(stream::try_unfold(document, Document::next));
    Ok(response)
}

impl Document {
    /// The next piece. An error cuts the response, so that a client notices that it is incomplete.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StoreError> {
        if let Some(ready) = self.queue.pop_front() {
            return Ok(Some((ready, self)));
        }
        let Some(reading) = self.reading.take() else { return Ok(None) };
        match reading.next().await? {
            Some((lines, rest)) => {
                self.reading = Some(rest);
                let piece = self.convert(&lines);
                Ok(Some((piece, self)))
            }
            None => Ok(Some((Bytes::from_static(b"]}"), self))),
        }
    }

    fn convert(&mut self, lines: &[u8]) -> Bytes {
        let (mut piece, mut events) = (BytesMut::new(), Vec::new());
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.decoder.decode(line, &mut events);
            for event in events.drain(..) {
                if matches!(event.body, Body::RunStarted(_)) {
                    self.writer = writer(&self.thread);
                }
                self.writer.write(&event, &mut self.frames);
                self.frames.finish_event(None);
            }
        }
        self.frames.drain(|written| {
            for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                if !std::mem::take(&mut self.is_first) {
                    piece.put_u8(b',');
                }
                piece.put_slice(line);
            }
        });
        piece.freeze()
    }
}
