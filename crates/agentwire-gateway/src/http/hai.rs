//! The HAI routes: start, resume and sync runs.

use agentwire_core::{Tally, event::RunInput, format::hai};
use axum::response::Response;

use super::{
    request::{ApiRequest, JsonRequest},
    response,
    start::{has_known_role, run_request, start},
};
use crate::{error::ApiError, human::given::AnswerProtocol, stream::output::OutputFormat};

/// `POST /awp` and `POST /chat`, or the configured paths.
pub(super) async fn post(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let gateway = &request.state.gateway;
    let (thread, run) = (gateway.new_id("thread").into(), gateway.new_id("run").into());
    let read = move |text: &str| {
        let mut tally = Tally::default();
        has_known_role(hai::input::from_json(text, &thread, &run, &mut tally)?, &tally)
    };
    let input = request.parse(read).await?;
    let mut run_request = run_request(&request, input, AnswerProtocol::Hai)?;
    // Before the start: a request that contains nothing but answers has no messages left and must not look like a sync.
    gateway.collect_answers(&mut run_request).await?;
    let output_format = output_format(&request, &run_request.input)?;
    start(&request, run_request, output_format).await
}

/// The profile and options of the request, as far as the settings allow.
fn output_format(request: &ApiRequest, input: &RunInput) -> Result<OutputFormat, ApiError> {
    let settings = &request.state.agent.settings;
    let preferences = hai::input::output_preferences(input, &mut Tally::default());
    let is_binary = response::prefers(&request.parts.headers, hai::proto::CONTENT_TYPE);
    let format = if is_binary { &hai::proto::FORMAT } else { &hai::FORMAT };
    let profile = match format.profiles.len() {
        1 => "",
        _ => preferences.profile.unwrap_or(&settings.hai_profile),
    };
    let options = settings.hai_options.iter().chain(&preferences.options).map(String::as_str);
    let mut output_format = response::output_format(format, profile, options)?;
    output_format.close_delay = settings.hai_close_delay;
    Ok(output_format)
}
