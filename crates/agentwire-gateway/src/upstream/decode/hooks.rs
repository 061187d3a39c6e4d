//! Where a run's hooks meet the agent's own events: between the frame and the reader.
//!
//! Without hooks, everything here is one look at an `Option` and then the plain way; what is done with them is boxed, so
//! that it takes no room either. With them, each frame is copied out of its decoder, filtered, offered for translation,
//! and what is left is read.

use agentwire_core::event::Event;
use tokio::time::{Duration, Instant, sleep_until};

use super::{
    Close, Flow, Phase, UpstreamDecoder, cut_behind_terminal, is_repeated, malformed, not_a_frame,
    says_something,
};
use crate::{
    agent::{NativeEvent, NativeHooks, Translation},
    error::{UpstreamError, UpstreamErrorKind as Kind, UpstreamTimeout},
};

/// How far the hooks of a run are with a stream.
pub(super) struct Progress {
    /// Since when the next event is waited for.
    since: Instant,
    /// How many frames there were then.
    frames: u64,
    fell_back: bool,
}

impl Progress {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), frames: 0, fell_back: false }
    }
}

impl UpstreamDecoder {
    /// Takes in bytes; what they say is added to `out`, also when they fail.
    pub(in crate::upstream) async fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let Some(hooks) = self.request.native_hooks.clone() else { return self.push(bytes, out) };
        if self.feed(bytes)? { Box::pin(self.drain_through(&*hooks, out)).await } else { Ok(Flow::More) }
    }

    /// The stream has ended, in good order or not: what that means for the run.
    pub(in crate::upstream) async fn wind_up(
        &mut self,
        close: Close,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let Some(hooks) = self.request.native_hooks.clone() else { return self.end(close, out) };
        let Some(ended) = self.last_bytes(close)? else { return Ok(()) };
        let last = Box::pin(self.drain_through(&*hooks, out)).await;
        self.conclude(ended, last, out)
    }

    /// Reads a frame that was not in the stream.
    pub(in crate::upstream) async fn tell(
        &mut self,
        event: &str,
        data: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let native = NativeEvent::text(Some(event), data);
        let mut natives = Vec::new();
        let hooks = self.request.native_hooks.clone();
        match &hooks {
            Some(hooks) => hooks.filter(native, None, &mut natives).await.map(|_| ())?,
            None => natives.push(native),
        }
        for native in natives {
            let read = self.read(hooks.as_deref(), native, (self.frames, 0), out).await;
            let malformed = |failure: UpstreamError| match failure.kind() {
                Kind::MalformedFrame { .. } => {
                    failure.with_kind(Kind::MalformedBody(format!("the agent's `{event}`").into()))
                }
                _ => failure,
            };
            if read.map_err(malformed)? == Flow::Over {
                // Whoever told it decides what follows.
                return Ok(());
            }
        }
        Ok(())
    }

    async fn drain_through(
        &mut self,
        hooks: &dyn NativeHooks,
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let failure = loop {
            let Phase::Reading(decoder, _) = &mut self.phase else { return Ok(Flow::Over) };
            let (native, place) = match decoder.next_frame() {
                None => return Ok(Flow::More),
                Some(Err(error)) => break not_a_frame(&error),
                Some(Ok(frame)) => {
                    self.frames += 1;
                    if is_repeated(&frame, &mut self.joined, &mut self.last_id) {
                        continue;
                    }
                    (NativeEvent::from_frame(&frame), (frame.index, frame.offset))
                }
            };
            match self.offer(hooks, native, place, out).await {
                Ok(Flow::More) => self.hooked.since = Instant::now(),
                Ok(Flow::Over) => {
                    self.phase = Phase::Over;
                    return Ok(Flow::Over);
                }
                Err(failure) => break failure,
            }
        };
        Err(self.fail(failure, out))
    }

    /// Lets the hooks filter a frame, and reads what they let through.
    async fn offer(
        &mut self,
        hooks: &dyn NativeHooks,
        native: NativeEvent,
        place: (u64, u64),
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let mut natives = Vec::new();
        // From now: it came in time, whoever was slow to look.
        let deadline = self.timeouts().map(|time| Instant::now() + time.min(super::FOR_EVER));
        if hooks.filter(native, deadline, &mut natives).await?.is_none() {
            return self.fall_back(out).await.map(|()| Flow::Over);
        }
        for native in natives {
            if self.read(Some(hooks), native, place, out).await? == Flow::Over {
                return Ok(Flow::Over);
            }
        }
        Ok(Flow::More)
    }

    /// Translates a frame, with or without the reader.
    async fn read(
        &mut self,
        hooks: Option<&dyn NativeHooks>,
        mut native: NativeEvent,
        (index, offset): (u64, u64),
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let before = out.len();
        let translation = match hooks {
            Some(hooks) => hooks.translate(&native, out).await?,
            None => Translation::Default,
        };
        let is_skipped = translation == Translation::Skip;
        if let Translation::Replace(other) = translation {
            native = other;
        }
        let mut read = Ok(());
        if let (Phase::Reading(_, reader), false) = (&mut self.phase, is_skipped) {
            let frame = native.to_frame(index, offset);
            read = reader.read(&frame, out).map_err(|error| malformed(&frame, &error, self.ended));
        }
        if cut_behind_terminal(out, before) {
            return self.said_last(out, before).map(|()| Flow::Over);
        }
        self.said |= says_something(&out[before..]);
        read.map(|()| Flow::More)
    }

    /// Whether the hooks give the agent's next event so much time and no more.
    pub(super) fn has_deadline(&self) -> bool {
        self.request.native_hooks.as_ref().is_some_and(|hooks| hooks.timeout().is_some())
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeouts().map(|time| self.hooked.since + time.min(super::FOR_EVER))
    }

    fn timeouts(&self) -> Option<Duration> {
        self.request.native_hooks.as_ref()?.timeout()
    }

    /// Returns when that time is over.
    pub(super) fn overdue(&self) -> impl Future<Output = ()> + use<> {
        let deadline = self.deadline();
        async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
    }

    /// What was read is passed on: the time of the next event begins. Bytes that hold none do not count.
    pub(super) fn wait_again(&mut self) {
        if self.hooked.frames != self.frames && self.has_deadline() {
            (self.hooked.frames, self.hooked.since) = (self.frames, Instant::now());
        }
    }

    /// Whether the hooks had the last word, because the agent took too long.
    pub(in crate::upstream) fn fell_back(&self) -> bool {
        self.hooked.fell_back
    }

    /// Says what the hooks say instead of what did not come in time. Nothing more is read after that.
    pub(super) async fn fall_back(&mut self, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        let Some(hooks) = self.request.native_hooks.clone() else { return Ok(()) };
        self.hooked.fell_back = true;
        let before = out.len();
        let natives = hooks.fallback(out).await?;
        if out.len() == before && natives.is_empty() {
            let time = self.timeouts().unwrap_or_default();
            self.phase = Phase::Over;
            return Err(UpstreamTimeout::NativeEvent(time).into());
        }
        if let (Phase::Starting(_), false) = (&self.phase, natives.is_empty()) {
            let reader = self.language.format.and_then(|format| self.reader(format));
            let unknown = || {
                let detail = "the fallback cannot be decoded: the agent's stream has not shown its format";
                UpstreamError::from(Kind::Hook).with_detail(detail)
            };
            let decoder = agentwire_core::framing::Decoder::new(super::Framing::Sse, 1);
            self.phase = Phase::Reading(Box::new(decoder), reader.ok_or_else(unknown)?);
        }
        for native in natives {
            if self.read(Some(&*hooks), native, (self.frames, 0), out).await? == Flow::Over {
                break;
            }
        }
        self.phase = Phase::Over;
        Ok(())
    }
}
