//! The gateway's log for Python's `logging`: records are notes, so no foreign thread calls Python.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    layer::{Context, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::notes::{Note, Notes};

/// The gateway that was started last gets the records.
static SINK: Mutex<Weak<Notes>> = Mutex::new(Weak::new());

struct ToPython;

/// Sends the log to `notes`, from the first gateway of the process on; levels as in `info,agentwire_gateway=debug`.
pub(crate) fn start(notes: &Arc<Notes>, levels: &str) {
    *SINK.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(notes);
    let levels: Targets = levels.parse().unwrap_or_default();
    // A program may have a subscriber already.
    let _ = tracing_subscriber::registry().with(ToPython.with_filter(levels)).try_init();
}

/// Writes the log to stderr, as `agentwire serve` does.
pub(crate) fn start_stderr(levels: &str) {
    let levels: Targets = levels.parse().unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let _ = tracing_subscriber::registry().with(lines.with_filter(levels)).try_init();
}

impl<S: Subscriber> Layer<S> for ToPython {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(notes) = SINK.lock().unwrap_or_else(PoisonError::into_inner).upgrade() else { return };
        let mut record = Record::default();
        event.record(&mut record);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        };
        let fields = Value::Object(record.fields).to_string();
        notes.push(Note::Log { level, target: event.metadata().target(), message: record.message, fields });
    }
}

#[derive(Default)]
struct Record {
    message: String,
    fields: Map<String, Value>,
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.fields.insert(field.name().into(), format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.insert(field.name().into(), value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.insert(field.name().into(), value.into());
    }
}
