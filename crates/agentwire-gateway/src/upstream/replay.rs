//! Upstream `replay`: plays a recording, for tests, demonstrations and benchmarks.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use agentwire_core::event::Event;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tokio::time::{Duration, Instant, sleep_until};

use super::decode::{Close, ExpectedFormat, Flow, UpstreamDecoder};
use crate::agent::{Agent, BoxFuture, BuildError, EventSink, Request};
use crate::error::UpstreamError;

/// The largest recording, decompressed: it is held in memory. Enough for hours of a fast agent.
const MAX_RECORDING: u64 = 256 << 20;

/// The number of bytes decoded at once: a few dozen events.
const CHUNK: usize = 8 << 10;

/// Options of the upstream `replay`.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The recording, gzip or not, in any framing.
    pub file: PathBuf,
    /// Its format; detected if absent.
    pub format: Option<String>,
    /// Plays at the recorded times, accelerated by this factor. Without it, and for events without a time, plays as
    /// fast as possible.
    pub speed: Option<f64>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that plays a recording from its start in every run.
#[derive(Clone, Debug)]
pub struct Replay {
    recording: Bytes,
    format: ExpectedFormat,
    speed: Option<f64>,
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the file cannot be read or is too large, or the format, an option or the speed is invalid.
    pub fn new(options: ReplayOptions) -> Result<Self, BuildError> {
        let ReplayOptions { file, format, speed, options } = options;
        if let Some(speed) = speed
            && !(speed.is_finite() && speed > 0.0)
        {
            return Err(BuildError(format!("speed `{speed}` is not above 0")));
        }
        let format = ExpectedFormat::named(format.as_deref(), &options)?;
        let fail = |problem: String| BuildError(format!("`{}` {problem}", file.display()));
        let recording = read(&file).map_err(|error| fail(format!("could not be read: {error}")))?;
        if recording.len() as u64 > MAX_RECORDING {
            return Err(fail(format!("is over {MAX_RECORDING} bytes long")));
        }
        Ok(Self { recording: recording.into(), format, speed })
    }
}

/// Reads one byte more than allowed, so that an excess is detected.
fn read(file: &PathBuf) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_RECORDING + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let packed = std::mem::take(&mut bytes);
        MultiGzDecoder::new(&*packed).take(MAX_RECORDING + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Agent for Replay {
    /// A recording contains its pauses on purpose.
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn speaks_hai(&self) -> bool {
        self.format.is_hai()
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let Self { recording, format, speed } = self.clone();
        Box::pin(async move {
            let mut decoder = UpstreamDecoder::new(&format, &request, None);
            let mut pace = speed.map(|speed| Pace { speed, started: Instant::now(), first: None });
            let mut events = Vec::new();
            let mut chunks = recording.chunks(CHUNK);
            loop {
                let flow = match chunks.next() {
                    Some(chunk) => decoder.push(chunk, &mut events).await,
                    None => decoder.finish(Close::Eof, &mut events).await.map(|()| Flow::Done),
                };
                match &mut pace {
                    None => sink.send_all(&mut events).await?,
                    Some(pace) => {
                        for event in events.drain(..) {
                            pace.wait(&event).await;
                            sink.send(event).await?;
                        }
                    }
                }
                if flow? == Flow::Done {
                    return Ok(());
                }
            }
        })
    }
}

/// Delays events by their recorded times.
struct Pace {
    speed: f64,
    started: Instant,
    first: Option<i64>,
}

impl Pace {
    async fn wait(&mut self, event: &Event) {
        let Some(time) = event.timestamp else { return };
        let first = *self.first.get_or_insert(time);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds between two events fit")]
        let seconds = time.saturating_sub(first).max(0) as f64 / 1000.0 / self.speed;
        // Invalid times in a recording must cause neither an endless wait nor a panic.
        let offset =
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO).min(Duration::from_secs(3600));
        sleep_until(self.started + offset).await;
    }
}
