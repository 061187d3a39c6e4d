//! The AG-UI route: starts, resumes and syncs runs.

use agentwire_core::{Tally, format::ag_ui};
use axum::{http::HeaderMap, response::Response};

use super::{
    request::JsonRequest,
    response,
    start::{has_known_role, run_request, start},
};
use crate::{error::ApiError, human::given::AnswerProtocol, stream::output::OutputFormat};

/// `POST` on the main path.
pub(super) async fn post(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let read = || {
        let mut tally = Tally::default();
        has_known_role(ag_ui::input::from_json(request.text()?, &mut tally)?, &tally)
    };
    let input = request.parsed(read())?;
    let run_request = run_request(&request, input, AnswerProtocol::AgUi)?;
    let output_format = output_format(&request.parts.headers);
    start(&request, run_request, output_format).await
}

/// JSON, or the binary encoding if the client names it and does not prefer JSON.
pub(super) fn output_format(headers: &HeaderMap) -> OutputFormat {
    let proto = &ag_ui::proto::FORMAT;
    if response::prefers(headers, ag_ui::proto::CONTENT_TYPE) {
        return OutputFormat::new(proto, &proto.profiles[0]);
    }
    OutputFormat::new(&ag_ui::FORMAT, &ag_ui::FORMAT.profiles[0])
}
