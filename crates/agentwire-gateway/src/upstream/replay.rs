//! Plays a recording: an agent without an agent, for tests, demonstrations and measurements.

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

/// The longest recording, unpacked: it is held in memory. Hours of a fast agent.
const MAX_RECORDING: u64 = 256 << 20;

/// How much is read at once: a few dozen events.
const CHUNK: usize = 8 << 10;

/// What to play.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The recording, gzip or not, in any framing.
    pub file: PathBuf,
    /// Its format; told by its beginning if absent.
    pub format: Option<String>,
    /// Plays by the recorded times, so many times as fast. As fast as it is taken if absent, and where the
    /// recording has no times.
    pub speed: Option<f64>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// A recording as an agent: every run gets it from its beginning.
#[derive(Clone, Debug)]
pub struct Replay {
    recording: Bytes,
    language: ExpectedFormat,
    speed: Option<f64>,
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or the format, its options or the speed make no sense.
    pub fn new(options: ReplayOptions) -> Result<Self, BuildError> {
        let ReplayOptions { file, format, speed, options } = options;
        if let Some(speed) = speed
            && !(speed.is_finite() && speed > 0.0)
        {
            return Err(BuildError(format!("speed `{speed}` is not above 0")));
        }
        let language = ExpectedFormat::named(format.as_deref(), &options)?;
        let fail = |problem: String| BuildError(format!("`{}` {problem}", file.display()));
        let recording = read(&file).map_err(|error| fail(format!("could not be read: {error}")))?;
        if recording.len() as u64 > MAX_RECORDING {
            return Err(fail(format!("is over {MAX_RECORDING} bytes long")));
        }
        Ok(Self { recording: recording.into(), language, speed })
    }
}

/// One byte more than allowed, so that too much can be told.
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
    /// What is silent in a recording is silent on purpose.
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let Self { recording, language, speed } = self.clone();
        Box::pin(async move {
            let mut intake = UpstreamDecoder::new(&language, &request, None);
            let mut pace = speed.map(|speed| Pace { speed, begun: Instant::now(), first: None });
            let mut events = Vec::new();
            let mut chunks = recording.chunks(CHUNK);
            loop {
                let flow = match chunks.next() {
                    Some(chunk) => intake.take(chunk, &mut events).await,
                    None => intake.wind_up(Close::Eof, &mut events).await.map(|()| Flow::Over),
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
                if flow? == Flow::Over {
                    return Ok(());
                }
            }
        })
    }
}

/// Keeps the recorded times.
struct Pace {
    speed: f64,
    begun: Instant,
    first: Option<i64>,
}

impl Pace {
    async fn wait(&mut self, event: &Event) {
        let Some(time) = event.timestamp else { return };
        let first = *self.first.get_or_insert(time);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds between two events fit")]
        let seconds = time.saturating_sub(first).max(0) as f64 / 1000.0 / self.speed;
        // A recording of nonsense times is not a reason to wait for ever, nor to panic.
        let offset =
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO).min(Duration::from_secs(3600));
        sleep_until(self.begun + offset).await;
    }
}
