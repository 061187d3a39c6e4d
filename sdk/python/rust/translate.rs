//! `Translator`: a converter of `agentwire-core` for bytes or for Python objects.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use agentwire::conversion::{self, Argument, Conversion};
use agentwire_core::{
    Tally, codes,
    convert::{Converter, Loss, Report},
    event::{RunId, StreamEnd, ThreadId},
    format::{Setup, ag_ui},
    framing::{Framing, recognize},
    source::{GuardedSource, InputError, InputProblem, SourceOptions},
};
use pyo3::{
    exceptions::{PyException, PyTypeError},
    prelude::*,
    types::{PyByteArray, PyBytes, PyDict, PyString},
};

use crate::{
    errors,
    walk::{self, Models},
};

/// Bytes from this size on are converted without the GIL.
const DETACH_BYTES: usize = 64 << 10;

/// The length of the quoted part of an unknown event.
const QUOTED: usize = 500;

/// The kind of news about an event that was skipped.
const MALFORMED: &str = "malformed event";

/// The reason why an event was given as a custom one.
const CUSTOM: &str = "given as CUSTOM: the installed ag_ui.core does not have it";

/// Text of the first line that decides about the framing, at most.
const PEEK_BYTES: usize = 64 << 10;

/// The native half of `agentwire.Translator`.
#[pyclass(module = "agentwire._native", frozen)]
pub(crate) struct Stream {
    state: Mutex<State>,
    content_type: &'static str,
    headers: &'static [(&'static str, &'static str)],
    /// Called with kind, name and excerpt of every new kind of unknown event.
    on_unknown: Option<Py<PyAny>>,
    strict: bool,
    format: &'static str,
}

struct State {
    conversion: Conversion,
    thread: ThreadId,
    run: RunId,
    has_request: bool,
    framing: Option<Framing>,
    output: Option<Framing>,
    max_frame: usize,
    strict: bool,
    input: Input,
    /// Objects that could not be written as JSON.
    unreadable: u64,
    unknown: u64,
    /// Unknown events that were told.
    told: Vec<(String, String)>,
    is_ended: bool,
}

/// The input so far. The first push decides between objects and bytes.
enum Input {
    None,
    Objects(Box<Converter>),
    /// Bytes whose framing is not known yet.
    Start(Vec<u8>),
    Bytes(Box<Converter>),
}

/// The reason why a push failed.
enum Failure {
    Input(InputError),
    Unknown(Unknown),
    /// An object whose own code fails.
    Unreadable {
        index: u64,
        problem: String,
    },
    Mixed(&'static str),
    NoObjects,
}

/// News for the log.
#[derive(Clone)]
struct Unknown {
    kind: String,
    name: String,
    /// The number of its first event.
    index: u64,
}

impl State {
    fn converter(&self, framing: Framing) -> Box<Converter> {
        let Conversion { from, to, profile, reading, writing } = &self.conversion;
        let source = SourceOptions {
            thread: self.thread.clone(),
            run: self.run.clone(),
            options: reading.clone().for_profile(from, profile),
            max_frame: self.max_frame,
            lenient: !self.strict,
        };
        let source = GuardedSource::new(from, framing, &source).expect("the format has a reader");
        let setup = Setup { thread: self.thread.clone(), run: self.run.clone(), options: writing };
        let mut converter =
            Converter::new(source, to, profile, self.output, &setup).expect("the format has a writer");
        if self.has_request {
            converter.set_ids(self.thread.clone(), self.run.clone());
        }
        Box::new(converter)
    }

    fn push_object(&mut self, line: &[u8]) -> Result<(), Failure> {
        if matches!(self.input, Input::None) {
            if self.conversion.from.reads == [Framing::Prefixed] {
                return Err(Failure::NoObjects);
            }
            self.input = Input::Objects(self.converter(Framing::Lines));
        }
        match &mut self.input {
            Input::Objects(converter) => converter.push(line).map_err(Failure::Input),
            _ => Err(Failure::Mixed("bytes")),
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if matches!(self.input, Input::None) {
            self.input = match self.framing {
                Some(framing) => Input::Bytes(self.converter(framing)),
                None => Input::Start(Vec::new()),
            };
        }
        match &mut self.input {
            Input::Bytes(converter) => converter.push(bytes).map_err(Failure::Input),
            Input::Start(start) => {
                start.extend_from_slice(bytes);
                let text = start.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(start.len());
                let is_binary = self.conversion.from.reads == [Framing::Prefixed];
                let is_enough = start[text..].contains(&b'\n') || start.len() >= PEEK_BYTES;
                if is_enough || is_binary && start.len() >= 4 { self.recognize() } else { Ok(()) }
            }
            _ => Err(Failure::Mixed("objects")),
        }
    }

    /// Finds the framing of the bytes so far and reads them.
    fn recognize(&mut self) -> Result<(), Failure> {
        let Input::Start(start) = &mut self.input else { return Ok(()) };
        let start = std::mem::take(start);
        let from = self.conversion.from;
        let first = from.reads.first().copied().unwrap_or(Framing::Lines);
        let (framing, foreign) = match recognize(&start, from.reads) {
            Ok(framing) => (framing, None),
            Err(foreign) => {
                (first, Some(foreign).filter(|foreign| !(foreign.is_empty() && from.can_be_empty)))
            }
        };
        let mut converter = self.converter(framing);
        let result = match foreign {
            Some(foreign) => Err(converter.refuse(foreign)),
            None => converter.push(&start),
        };
        self.input = Input::Bytes(converter);
        result.map_err(Failure::Input)
    }

    fn current(&mut self) -> Option<&mut Converter> {
        match &mut self.input {
            Input::Objects(converter) | Input::Bytes(converter) => Some(converter),
            Input::None | Input::Start(_) => None,
        }
    }

    /// The unknown events since the last call, each kind once.
    fn news(&mut self) -> Vec<Unknown> {
        let (seen, unreadable, told) = (self.unknown, self.unreadable, std::mem::take(&mut self.told));
        let Some(converter) = self.current() else { return Vec::new() };
        let count = converter.tally().unknown_event_count();
        let mut news = Vec::new();
        // Told once; the report counts them.
        if count > seen {
            for (kind, name, count) in converter.tally().unknown_events() {
                if !told.iter().any(|(k, n)| k == kind && n == name) {
                    let (kind, name) = (kind.to_owned(), name.to_owned());
                    // The tally counts frames from 1.
                    news.push(Unknown {
                        kind,
                        name,
                        index: count.first_frame.saturating_sub(1) + unreadable,
                    });
                }
            }
        }
        if converter.skipped() > 0 && !told.iter().any(|(kind, _)| kind == MALFORMED) {
            news.push(Unknown { kind: MALFORMED.to_owned(), name: String::new(), index: 0 });
        }
        self.told = told;
        self.told.extend(news.iter().map(|unknown| (unknown.kind.clone(), unknown.name.clone())));
        self.unknown = count;
        news
    }

    /// Ends the run because an event is unknown.
    fn refuse_unknown(&mut self, unknown: &Unknown) -> Failure {
        let Unknown { kind, name, .. } = unknown;
        self.refuse(&format!("{kind} `{name}`"));
        Failure::Unknown(unknown.clone())
    }

    /// Ends the run because an object cannot be read.
    fn refuse_unreadable(&mut self, problem: String) -> Failure {
        if matches!(self.input, Input::None) {
            self.input = Input::Objects(self.converter(Framing::Lines));
        }
        let frames = self.current().map_or(0, |converter| converter.report().frames);
        self.refuse(&problem);
        Failure::Unreadable { index: frames + self.unreadable - 1, problem }
    }

    /// Ends the run with `BAD_INPUT`.
    fn refuse(&mut self, message: &str) {
        if let Some(converter) = self.current() {
            let end = StreamEnd::Failed { code: codes::BAD_INPUT.into(), message: message.into() };
            let _ = converter.end(&end);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        self.current().map(|converter| converter.output().take().to_vec()).unwrap_or_default()
    }

    fn end(&mut self, end: &StreamEnd) -> Result<(), Failure> {
        let result = match &self.input {
            Input::None => {
                let mut converter =
                    self.converter(self.conversion.from.reads.first().copied().unwrap_or(Framing::Lines));
                let result = converter.end(end);
                self.input = Input::Bytes(converter);
                result.map_err(Failure::Input)
            }
            Input::Start(_) => self.recognize(),
            _ => Ok(()),
        };
        let ended = self.current().map_or(Ok(()), |converter| converter.end(end)).map_err(Failure::Input);
        self.is_ended = true;
        result.and(ended)
    }
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (from_, to, thread, run, request, options, framing, strict, max_frame, now, on_unknown))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of the Python class")]
    fn new(
        py: Python<'_>,
        from_: &str,
        to: &str,
        thread: &str,
        run: &str,
        request: Option<&str>,
        options: Vec<String>,
        framing: Option<&str>,
        strict: bool,
        max_frame: usize,
        now: Option<i64>,
        on_unknown: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let now = now.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        });
        let mut conversion = conversion::resolve(from_, to, &options, now)
            .map_err(|bad| errors::config(py, &key_of(&bad.argument), &bad.message, bad.hint.as_deref()))?;
        let framing_of = |name: &str| match name {
            "sse" => Ok(Framing::Sse),
            "lines" => Ok(Framing::Lines),
            "array" => Ok(Framing::Array),
            _ => {
                let message = format!("unknown framing `{name}`");
                Err(errors::config(
                    py,
                    "framing",
                    &message,
                    Some("framings: sse, lines, array; out:lines for the output"),
                ))
            }
        };
        let (mut input, mut output) = (None, None);
        for name in framing.into_iter().flat_map(|names| names.split(',')) {
            match name.trim() {
                // Only events that are JSON can be lines.
                "out:lines" if conversion.profile.framing == Framing::Sse => output = Some(Framing::Lines),
                "out:lines" => {
                    let message = format!("`{to}` cannot be written as lines");
                    return Err(errors::config(py, "framing", &message, None));
                }
                name => input = Some(framing_of(name)?),
            }
        }
        let (mut thread, mut run) = (ThreadId::from(thread), RunId::from(run));
        if let Some(request) = request {
            let request = ag_ui::input::from_json(request, &mut Tally::default()).map_err(|error| {
                errors::config(py, "request", &format!("the request is not valid: {error}"), None)
            })?;
            (thread, run) = (request.thread.clone(), request.run.clone());
            conversion.reading = conversion.reading.for_request(request.clone());
            conversion.writing = conversion.writing.for_request(request);
        }
        let (content_type, headers) = (conversion.profile.content_type, conversion.profile.headers);
        let format = conversion.from.name;
        let state = State {
            conversion,
            thread,
            run,
            has_request: request.is_some(),
            framing: input,
            output,
            max_frame,
            strict,
            input: Input::None,
            unreadable: 0,
            unknown: 0,
            told: Vec::new(),
            is_ended: false,
        };
        Ok(Self { state: Mutex::new(state), content_type, headers, on_unknown, strict, format })
    }

    /// Converts one object, or a piece of bytes.
    fn push<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        errors::guarded(py, || {
            let bytes: Vec<u8>;
            if let Ok(text) = data.cast_exact::<PyString>() {
                bytes = text.to_string_lossy().as_bytes().to_vec();
            } else if let Ok(data) = data.cast_exact::<PyBytes>() {
                if data.as_bytes().len() < DETACH_BYTES {
                    return self.push_bytes(py, data.as_bytes());
                }
                let data = data.as_bytes();
                return self.push_detached(py, data);
            } else if let Ok(data) = data.cast::<PyByteArray>() {
                bytes = data.to_vec();
            } else if data.get_type().name()?.to_string_lossy() == "memoryview" {
                let copy = data.call_method0("tobytes")?;
                bytes = copy.cast::<PyBytes>()?.as_bytes().to_vec();
            } else {
                return self.push_object(py, data);
            }
            if bytes.len() < DETACH_BYTES {
                self.push_bytes(py, &bytes)
            } else {
                self.push_detached(py, &bytes)
            }
        })
    }

    /// Ends the stream. `code` and `message` describe the failure that ended it.
    #[pyo3(signature = (code=None, message=None, frame=None))]
    fn finish<'py>(
        &self,
        py: Python<'py>,
        code: Option<&str>,
        message: Option<&str>,
        frame: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        errors::guarded(py, || {
            let mut line = Vec::new();
            if let Some(frame) = frame {
                walk::write(&mut line, frame, Models::Lean)?;
                line.push(b'\n');
            }
            let mut state = self.lock();
            if state.is_ended {
                let rest = state.take();
                return Ok(PyBytes::new(py, &rest));
            }
            if !line.is_empty() {
                // Only a stream of objects can hold it.
                let _ = state.push_object(&line);
            }
            let end = match (code, message) {
                (Some(code), message) => {
                    StreamEnd::Failed { code: code.into(), message: message.unwrap_or_default().into() }
                }
                _ => StreamEnd::Closed,
            };
            let result = state.end(&end);
            let news = state.news();
            let out = state.take();
            drop(state);
            self.tell(py, &news, "")?;
            match result {
                Err(failure) if self.strict => {
                    // The ending was written, and is the result of the next call.
                    let error = self.error(py, &failure, "");
                    self.keep(&out);
                    Err(error)
                }
                _ => Ok(PyBytes::new(py, &out)),
            }
        })
    }

    /// The report as JSON, and as `convert --report` prints it. `customs` are the kinds that the caller had to give as
    /// custom events, and their counts.
    fn report(&self, py: Python<'_>, customs: Vec<(String, u64)>) -> PyResult<(String, String)> {
        errors::guarded(py, || {
            let mut state = self.lock();
            let unreadable = state.unreadable;
            let mut report = state.current().map(|converter| converter.report()).unwrap_or_default();
            report.skipped += unreadable;
            report.frames += unreadable;
            for (kind, times) in customs {
                add_custom(&mut report, &kind, times);
            }
            Ok((conversion::report_json(&report).to_string(), conversion::report_text(&report)))
        })
    }

    #[getter]
    fn content_type(&self) -> &'static str {
        self.content_type
    }

    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let headers = PyDict::new(py);
        headers.set_item("content-type", self.content_type)?;
        for (name, value) in self.headers {
            headers.set_item(name, value)?;
        }
        Ok(headers)
    }
}

impl Stream {
    /// The state. Nothing of Python's runs while it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_object<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut line = Vec::with_capacity(1024);
        if let Err(error) = walk::write(&mut line, data, Models::Lean) {
            if !error.is_instance_of::<PyException>(py) {
                return Err(error);
            }
            let mut state = self.lock();
            let is_first = state.unreadable == 0;
            state.unreadable += 1;
            if self.strict && !state.is_ended && !matches!(state.input, Input::Start(_) | Input::Bytes(_)) {
                let failure = state.refuse_unreadable(format!("the object cannot be read: {error}"));
                drop(state);
                return Err(self.error(py, &failure, ""));
            }
            drop(state);
            if is_first {
                let (kind, name) = ("unreadable object".to_owned(), error.to_string());
                self.tell(py, &[Unknown { kind, name, index: 0 }], "")?;
            }
            return Ok(PyBytes::new(py, b""));
        }
        line.push(b'\n');
        let mut state = self.lock();
        if state.is_ended {
            return Ok(PyBytes::new(py, b""));
        }
        let result = state.push_object(&line);
        self.pushed(py, state, result, &line)
    }

    fn push_bytes<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.lock();
        if state.is_ended {
            return Ok(PyBytes::new(py, b""));
        }
        let result = state.push_bytes(bytes);
        self.pushed(py, state, result, bytes)
    }

    fn push_detached<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let result = py.detach(|| {
            let mut state = self.lock();
            if state.is_ended { Ok(()) } else { state.push_bytes(bytes) }
        });
        self.pushed(py, self.lock(), result, bytes)
    }

    /// The output of a push, and its errors.
    fn pushed<'py>(
        &self,
        py: Python<'py>,
        mut state: MutexGuard<'_, State>,
        mut result: Result<(), Failure>,
        given: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let news = state.news();
        if let (true, true, Some(unknown)) = (self.strict, result.is_ok(), news.first()) {
            result = Err(state.refuse_unknown(unknown));
        }
        if let Err(failure) = result {
            drop(state);
            return Err(self.error(py, &failure, &excerpt(given)));
        }
        let out = match state.current() {
            Some(converter) => PyBytes::new(py, &converter.output().take()),
            None => PyBytes::new(py, b""),
        };
        drop(state);
        if !news.is_empty() {
            self.tell(py, &news, &excerpt(given))?;
        }
        Ok(out)
    }

    /// Puts output back, for the next `finish`.
    fn keep(&self, out: &[u8]) {
        if let Some(converter) = self.lock().current() {
            converter.output().put_back(out);
        }
    }

    fn tell(&self, py: Python<'_>, news: &[Unknown], excerpt: &str) -> PyResult<()> {
        let Some(callback) = &self.on_unknown else { return Ok(()) };
        for Unknown { kind, name, .. } in news {
            callback.call1(py, (kind, name, excerpt))?;
        }
        Ok(())
    }

    fn error(&self, py: Python<'_>, failure: &Failure, event: &str) -> PyErr {
        match failure {
            Failure::Input(error) => {
                let path = match &error.problem {
                    InputProblem::Event(problem) | InputProblem::Incomplete(problem) => {
                        problem.path().to_owned()
                    }
                    _ => String::new(),
                };
                errors::translation(py, error.index, &path, &error.to_string(), event)
            }
            Failure::Unknown(Unknown { kind, name, index }) => errors::unknown(py, *index, kind, name, event),
            Failure::Unreadable { index, problem } => errors::translation(py, *index, "", problem, event),
            Failure::Mixed(first) => {
                PyTypeError::new_err(format!("this translator was given {first} first, and takes no others"))
            }
            Failure::NoObjects => PyTypeError::new_err(format!("`{}` is binary: push bytes", self.format)),
        }
    }
}

/// The argument of the Python class, and the option in it.
fn key_of(argument: &Argument) -> String {
    match argument {
        Argument::From => "from_".to_owned(),
        Argument::To => "to".to_owned(),
        Argument::Option(key) => match (key.strip_prefix("from."), key.strip_prefix("to.")) {
            (Some(key), _) => format!("reader.{key}"),
            (_, Some(key)) => format!("writer.{key}"),
            _ => format!("options.{key}"),
        },
    }
}

/// The start of an event, for a log or an error.
fn excerpt(given: &[u8]) -> String {
    let given = given.trim_ascii_end();
    String::from_utf8_lossy(&given[..given.len().min(4 * QUOTED)]).chars().take(QUOTED).collect()
}

/// Counts events that were written exactly, and then given as custom events.
fn add_custom(report: &mut Report, kind: &str, times: u64) {
    // Profile `0` has the old names of reasoning.
    let kind = kind.replace("THINKING_TEXT_", "REASONING_").replace("THINKING_", "REASONING_");
    let mut kinds =
        report.exact.iter().map(|(kind, _)| *kind).chain(report.approximated.iter().map(|loss| loss.kind));
    let kind = kinds.find(|known| *known == kind).unwrap_or("CUSTOM");
    for (exact, count) in &mut report.exact {
        if *exact == kind {
            *count = count.saturating_sub(times);
        }
    }
    report.exact.retain(|(_, count)| *count > 0);
    report.approximated.push(Loss { kind, why: CUSTOM, times });
}
