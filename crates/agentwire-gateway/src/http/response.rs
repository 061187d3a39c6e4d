//! How a run is answered: which format, which headers, which bytes.

use agentwire_core::{
    event::{Event, RunId, RunInput, ThreadId},
    format::{FORMATS, Format, Options, Setup, ag_ui, ai_sdk, hai},
    framing::Frames,
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::stream;

use super::{Mount, request::Call};
use crate::{
    codes,
    error::ApiError,
    ops::audit::Record,
    settings::{AgentSettings, Sse},
    stream::{
        live::ReaderGuard,
        reader::{Follow, FollowRequest, OutputFormat, Verdict},
    },
};

/// Whether the client named this media type itself, with a weight above zero.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media_type));
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            named && weight.is_none_or(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0))
        })
    })
}

/// AG-UI, as the client wants it.
pub(crate) fn ag_ui_face(headers: &HeaderMap) -> OutputFormat {
    let proto = &ag_ui::proto::FORMAT;
    if accepts(headers, ag_ui::proto::CONTENT_TYPE) {
        return OutputFormat::new(proto, &proto.profiles[0]);
    }
    OutputFormat::new(&ag_ui::FORMAT, &ag_ui::FORMAT.profiles[0])
}

/// HAI, as the client wants it and the settings allow.
pub(crate) fn hai_face(
    headers: &HeaderMap,
    settings: &AgentSettings,
    input: Option<&RunInput>,
) -> Result<OutputFormat, ApiError> {
    let mut tally = agentwire_core::Tally::default();
    let wishes = input.map(|input| hai::input::output_preferences(input, &mut tally)).unwrap_or_default();
    let format = if accepts(headers, hai::proto::CONTENT_TYPE) { &hai::proto::FORMAT } else { &hai::FORMAT };
    let name = match format.profiles.len() {
        1 => "",
        _ => wishes.profile.unwrap_or(&settings.hai_profile),
    };
    let options = settings.hai_options.iter().chain(&wishes.options).map(String::as_str);
    let mut face = face(format, name, options)?;
    face.close_delay = settings.hai_close_delay;
    Ok(face)
}

/// AI SDK, in the profile of the query or the settings.
pub(crate) fn ai_sdk_face(profile: Option<&str>, settings: &AgentSettings) -> Result<OutputFormat, ApiError> {
    let profile = profile.unwrap_or(&settings.ai_sdk_profile);
    face(&ai_sdk::FORMAT, profile, settings.ai_sdk_options.iter().map(String::as_str))
}

fn face<'o>(
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
    let mut face = OutputFormat::new(format, known);
    face.options = Options::parse(options, format.options)
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, error.to_string()))?;
    Ok(face)
}

/// The format that a client asks for, `?format=ai-sdk@5` or `?format=ai-sdk&profile=5`, and its profile.
pub(crate) fn wanted_format(call: &Call) -> Option<(String, String)> {
    let wanted = call.query("format")?;
    Some(match wanted.split_once('@') {
        Some((name, profile)) => (name.to_owned(), profile.to_owned()),
        None => (wanted, call.query("profile").unwrap_or_default()),
    })
}

/// The format of a follow route, or AG-UI.
pub(crate) fn face_of(call: &Call, mount: &Mount) -> Result<OutputFormat, ApiError> {
    let settings = &mount.agent.settings;
    let Some((name, profile)) = wanted_format(call) else {
        return Ok(ag_ui_face(&call.parts.headers));
    };
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
        return ai_sdk_face((!profile.is_empty()).then_some(profile), settings);
    }
    let is_hai = std::ptr::eq(*format, &raw const hai::FORMAT);
    let profile = if is_hai && profile.is_empty() { &settings.hai_profile } else { profile };
    let options = if is_hai { &settings.hai_options[..] } else { &[] };
    face(format, profile, options.iter().map(String::as_str))
}

/// Answers with the events of a run.
pub(crate) async fn follow(
    mount: &Mount,
    call: &Call,
    run: &RunId,
    after: Option<u64>,
    input: Option<&RunInput>,
    face: OutputFormat,
) -> Result<Response, ApiError> {
    let (content_type, extra) = (face.profile.content_type, face.profile.headers);
    // Counts as a reader until there is one, so that a run that ends with its last reader hears of one that left at once.
    let _waiting = mount.gateway.live_run(&call.owner, run).map(ReaderGuard::new);
    let follow_request = FollowRequest { owner: &call.owner, run, after, input, cut: call.cut.clone() };
    let opened = Follow::open(&mount.gateway, follow_request, face).await;
    if input.is_none() {
        // Whoever starts a run reads it; that is said already.
        mount.gateway.audit().note(Record::new(&call.owner, "read").run(run).outcome(&opened));
    }
    let (follow, verdict) = opened?;
    let thread = follow.thread().clone();
    let body = stream::unfold(Box::new(follow), |mut follow| async move {
        let chunk = follow.chunk().await?;
        Some((chunk, follow))
    });
    Ok(response(Body::from_stream(body), content_type, extra, &thread, run, verdict))
}

/// Answers with events that are not in the log: a sync, or a run that was refused.
pub(crate) fn once(
    mount: &Mount,
    thread: &ThreadId,
    run: &RunId,
    events: &[Event],
    face: &OutputFormat,
) -> Response {
    let setup = Setup { thread: thread.clone(), run: run.clone(), options: &face.options };
    let standard = mount.gateway.settings().sse == Sse::Standard;
    let mut frames = Frames::new(face.profile.framing).named(standard);
    if let Some(make) = face.format.writer {
        let mut writer = make(face.profile, &setup);
        for event in events {
            writer.write(event, &mut frames);
            frames.finish_event(None);
        }
        writer.end(&mut frames);
    }
    let body: Bytes = frames.take();
    response(Body::from(body), face.profile.content_type, face.profile.headers, thread, run, Verdict::Whole)
}

fn response(
    body: Body,
    content_type: &'static str,
    extra: &'static [(&'static str, &'static str)],
    thread: &ThreadId,
    run: &RunId,
    verdict: Verdict,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    for (name, value) in extra {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert("agentwire-recovery", HeaderValue::from_static(verdict.as_str()));
    // Ids beyond ASCII do not fit into a header; the stream has them too.
    for (name, id) in [("x-thread-id", thread.as_str()), ("x-run-id", run.as_str())] {
        if let Ok(value) = HeaderValue::from_str(id) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().expect("a header"));
        accepts(&headers, ag_ui::proto::CONTENT_TYPE)
    }

    #[test]
    fn binary_only_for_those_who_name_it() {
        assert!(chosen("application/vnd.ag-ui.event+proto"));
        assert!(chosen("text/event-stream, application/vnd.ag-ui.event+proto;q=0.1"));
        for other in
            ["*/*", "application/*", "text/event-stream", "", "application/vnd.ag-ui.event+proto;q=0"]
        {
            assert!(!chosen(other), "{other}");
        }
    }
}
