//! Responses with events: output format selection, headers, bodies.

use std::convert::Infallible;

use agentwire_core::{
    event::{self, Event, RunId, RunInput, ThreadId},
    format::{FORMATS, Format, Options, Profile, Setup, ag_ui, ai_sdk, hai},
    framing::Frames,
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;

use super::{credential_end::CredentialEnd, event_stream::LiveEvents, request::ApiRequest};
use crate::{
    codes, cpu_work,
    error::ApiError,
    settings::Sse,
    stream::{
        live::ReaderGuard,
        output::OutputFormat,
        reader::{FollowRequest, ResumePoint, RunReader, Verdict},
    },
};

/// True if the client prefers this media type to `text/event-stream`: it names the type itself, with a weight above zero
/// and not below that of SSE. Wildcards count for SSE only.
pub(super) fn prefers(headers: &HeaderMap, media_type: &str) -> bool {
    let weight = |names: &[&str]| names.iter().find_map(|name| accept_weight(headers, name));
    let own = weight(&[media_type]).unwrap_or(0.0);
    let sse = weight(&["text/event-stream", "text/*", "*/*"]).unwrap_or(0.0);
    own > 0.0 && own >= sse
}

/// The weight of a media range in `Accept`; `None` if it is not listed. A malformed weight is zero.
fn accept_weight(headers: &HeaderMap, name: &str) -> Option<f32> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        parts.next().filter(|found| found.eq_ignore_ascii_case(name))?;
        let weight = parts.filter_map(|part| part.split_once('=')).find(|(key, _)| {
            let key = key.trim_end();
            key.eq_ignore_ascii_case("q")
        });
        Some(weight.map_or(1.0, |(_, weight)| {
            let weight = weight.trim().parse().ok();
            weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0)
        }))
    });
    ranges.reduce(f32::max)
}

/// An output format with a profile and options: `UNKNOWN_FORMAT`, `BAD_REQUEST`.
pub(super) fn output_format<'o>(
    format: &'static Format,
    profile: &str,
    options: impl IntoIterator<Item = &'o str>,
) -> Result<OutputFormat, ApiError> {
    let Some(known) = format.profile(profile).filter(|_| format.writer.is_some()) else {
        let names: Vec<_> = format.profiles.iter().map(|profile| format!("`{}`", profile.name)).collect();
        let message = format!("`{}` has no profile `{}`", format.name, profile.escape_default());
        return Err(
            ApiError::new(codes::UNKNOWN_FORMAT, message).hint(format!("allowed: {}", names.join(", ")))
        );
    };
    let mut output_format = OutputFormat::new(format, known);
    output_format.options = Options::parse(options, format.options)
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, error.to_string()))?;
    Ok(output_format)
}

/// The format name and profile of the query: `?format=ai-sdk@5` or `?format=ai-sdk&profile=5`.
pub(super) fn requested_format(request: &ApiRequest) -> Option<(String, String)> {
    let format = request.query("format")?;
    Some(match format.split_once('@') {
        Some((name, profile)) => (name.to_owned(), profile.to_owned()),
        None => (format, request.query("profile").unwrap_or_default()),
    })
}

/// The output format of a route that follows a run: the requested one, or AG-UI.
pub(super) fn requested_output_format(request: &ApiRequest) -> Result<OutputFormat, ApiError> {
    let settings = &request.state.agent.settings;
    let Some((name, profile)) = requested_format(request) else {
        return super::ag_ui::following_format(request, &request.query("profile").unwrap_or_default());
    };
    if name == ag_ui::FORMAT.name {
        return super::ag_ui::following_format(request, &profile);
    }
    let profile = &*profile;
    let writable = FORMATS.iter().filter(|format| format.writer.is_some());
    let Some(format) = writable.clone().find(|format| format.name == name) else {
        let names: Vec<_> = writable.map(|format| format!("`{}`", format.name)).collect();
        let message = format!("unknown format `{}`", name.escape_default());
        return Err(
            ApiError::new(codes::UNKNOWN_FORMAT, message).hint(format!("allowed: {}", names.join(", ")))
        );
    };
    if std::ptr::eq(*format, &raw const ai_sdk::FORMAT) {
        return super::ai_sdk::output_format((!profile.is_empty()).then_some(profile), settings);
    }
    let is_hai = std::ptr::eq(*format, &raw const hai::FORMAT);
    let profile = if is_hai && profile.is_empty() { &settings.hai_profile } else { profile };
    let options = if is_hai { &settings.hai_options[..] } else { &[] };
    output_format(format, profile, options.iter().map(String::as_str))
}

/// The run that a client follows, and the part of it that the client wants.
pub(super) struct Following<'a> {
    pub(super) run: &'a RunId,
    /// The last frame that the client has.
    pub(super) after: Option<ResumePoint>,
    /// True if a client without a cursor gets the conversation too: that before a live run, or the whole one.
    pub(super) with_history: bool,
    /// The run input of a client that has just started or joined the run by it.
    pub(super) input: Option<&'a RunInput>,
}

/// A response that streams the events of a run. 204 if the client has all events of a run that has ended: an `EventSource`
/// would reconnect for ever after an empty stream.
pub(super) async fn follow(
    request: &ApiRequest,
    following: Following<'_>,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    let Following { run, after, with_history, input } = following;
    let gateway = &request.state.gateway;
    let profile = output_format.profile;
    // Counts as a reader until the follower exists: a run with `on_disconnect = cancel` must notice a client that leaves
    // at once.
    let _guard = gateway.live_run(&request.owner, run).map(ReaderGuard::new);
    let seats = request.reader_seats()?;
    let (owner, disconnect) = (&request.owner, request.cut.clone());
    let sse = request.sse();
    let follow_request = FollowRequest { owner, run, after, with_history, input, sse, disconnect };
    let mut opened = RunReader::open(gateway, follow_request, output_format).await;
    if input.is_none() {
        // The start of a run is on record already.
        opened = request.audited("read", opened, |record| record.run(run));
    }
    let (follow, verdict) = opened?;
    let thread = follow.thread().clone();
    if follow.is_complete() {
        let mut nothing = response(Body::empty(), profile, &thread, run, verdict);
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        nothing.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(nothing);
    }
    let chunks = stream::unfold((Box::new(follow), seats), |(mut follow, seats)| async move {
        let chunk = follow.next_chunk().await?;
        Some((chunk, (follow, seats)))
    });
    let body = match CredentialEnd::of(&request.principal, gateway.store().now()) {
        Some(end) => Body::from_stream(end.cut(chunks, profile.framing, request.cut.clone())),
        None => Body::from_stream(chunks),
    };
    let mut response = response(body, profile, &thread, run, verdict);
    response.extensions_mut().insert(LiveEvents);
    Ok(response)
}

/// A response with events that are not in the log: a sync, or a run that was refused.
pub(super) async fn events(
    request: &ApiRequest,
    thread: &ThreadId,
    run: &RunId,
    events: Vec<Event>,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    let (profile, close_delay) = (output_format.profile, output_format.close_delay);
    let is_named = request.sse() == Sse::Standard;
    let is_short = |event: &Event| match &event.body {
        event::Body::MessagesSnapshot { messages } => messages.is_empty(),
        event::Body::StateSnapshot { snapshot } => snapshot.get().len() <= cpu_work::SHORT_TEXT,
        _ => true,
    };
    let (is_short, names) = (events.iter().all(is_short), (thread.clone(), run.clone()));
    let write = move || {
        let mut frames = Frames::new(profile.framing).named(is_named);
        if let Some(make) = output_format.format.writer {
            let setup = Setup { thread: names.0, run: names.1, options: &output_format.options };
            let mut writer = make(profile, &setup);
            for event in &events {
                writer.write(event, &mut frames);
                frames.finish_event(None);
            }
            writer.end(&mut frames);
        }
        frames.take()
    };
    // The length of a conversation is known when it is written.
    let body = if is_short { write() } else { cpu_work::spawn(&request.owner, write).await? };
    let body = match close_delay.is_zero() {
        true => Body::from(body),
        false => Body::from_stream(stream::unfold(Some(body), move |body| async move {
            match body {
                Some(body) => Some((Ok::<Bytes, Infallible>(body), None)),
                None => {
                    tokio::time::sleep(close_delay).await;
                    None
                }
            }
        })),
    };
    Ok(response(body, profile, thread, run, Verdict::Whole))
}

fn response(
    body: Body,
    profile: &'static Profile,
    thread: &ThreadId,
    run: &RunId,
    verdict: Verdict,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    for (name, value) in profile.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(profile.content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert("agentwire-recovery", HeaderValue::from_static(verdict.as_str()));
    // Ids beyond ASCII are no header values; the stream contains them too.
    for (name, id) in [("x-thread-id", thread.as_str()), ("x-run-id", run.as_str())] {
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use agentwire_core::format::ag_ui;

    use super::*;

    fn is_accepted(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().expect("a header"));
        prefers(&headers, ag_ui::proto::CONTENT_TYPE)
    }

    #[test]
    fn wildcards_do_not_select_the_binary_encoding() {
        assert!(is_accepted("application/vnd.ag-ui.event+proto"));
        for other in
            ["*/*", "application/*", "text/event-stream", "", "application/vnd.ag-ui.event+proto;q=0"]
        {
            assert!(!is_accepted(other), "{other}");
        }
    }

    #[test]
    fn the_larger_weight_decides_between_the_encodings() {
        for (rest, expected) in [
            ("", true),
            (", text/event-stream", true),
            (", text/event-stream;q=0.9", true),
            (", text/event-stream;q=0, */*;q=1", true),
            (";q=0.1", true),
            (";q=0.1, application/json", true),
            (";q=0.5, text/event-stream;q=0.4, */*;q=1", true),
            (";Q=0.2 , text/event-stream; charset=utf-8 ; q=0.1", true),
            (";v=1;q=0.3, text/*;q=0.2", true),
            (";q=0.1, text/event-stream", false),
            (";q=0.5, text/event-stream;q=0.9", false),
            (";q=0.5, */*;q=0.8", false),
            (";q=0.5, text/*;q=0.8", false),
            (";q=nan", false),
            (";q=2", false),
            (";q=", false),
        ] {
            let accept = format!("application/vnd.ag-ui.event+proto{rest}");
            assert_eq!(is_accepted(&accept), expected, "{accept}");
        }
        assert!(!is_accepted("text/event-stream, application/vnd.ag-ui.event+proto;q=0.1"));
    }
}
