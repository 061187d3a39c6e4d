//! The AG-UI route: starts, resumes and syncs runs.

use agentwire_core::{
    Tally,
    format::{Profile, ag_ui},
};
use axum::response::Response;

use super::{
    request::{ApiRequest, JsonRequest},
    response,
    start::{has_known_role, run_request, start},
};
use crate::{codes, error::ApiError, human::given::AnswerProtocol, stream::output::OutputFormat};

/// `POST` on the main path.
pub(super) async fn post(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let read = |text: &str| {
        let mut tally = Tally::default();
        has_known_role(ag_ui::input::from_json(text, &mut tally)?, &tally)
    };
    let input = request.parse(read).await?;
    let named = named_profile(&request)?;
    let profile = named.unwrap_or_else(|| ag_ui::profile_of_version(input.protocol_version.as_deref()));
    let output_format = match binary_format(&request, named) {
        Some(binary) => binary,
        None => OutputFormat::new(&ag_ui::FORMAT, profile),
    };
    let mut run_request = run_request(&request, input, AnswerProtocol::AgUi)?;
    run_request.output_format = Some(output_format.name());
    start(&request, run_request, output_format).await
}

/// The name of the profile that is chosen by the client's protocol version.
const AUTO: &str = "auto";

/// The profile of the query or of the agent's settings; `None` if it depends on the client. `UNKNOWN_FORMAT`.
fn named_profile(request: &ApiRequest) -> Result<Option<&'static Profile>, ApiError> {
    let asked = request.query("profile").filter(|name| !name.is_empty());
    let name = asked.as_deref().unwrap_or(&request.state.agent.settings.ag_ui_profile);
    profile_of_name(name)
}

/// The profile of a name; `None` for `auto`. `UNKNOWN_FORMAT`.
fn profile_of_name(name: &str) -> Result<Option<&'static Profile>, ApiError> {
    let profiles = ag_ui::FORMAT.profiles;
    if name == AUTO {
        return Ok(None);
    }
    let known = profiles.iter().find(|profile| profile.name == name);
    known.map(Some).ok_or_else(|| {
        let names = std::iter::once(AUTO).chain(profiles.iter().map(|profile| profile.name));
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        let message = format!("`ag-ui` has no profile `{}`", name.escape_default());
        ApiError::new(codes::UNKNOWN_FORMAT, message).hint(format!("allowed: {}", names.join(", ")))
    })
}

/// The binary encoding, if the client names it, does not prefer JSON, and it has the profile.
fn binary_format(request: &ApiRequest, named: Option<&Profile>) -> Option<OutputFormat> {
    let proto = &ag_ui::proto::FORMAT;
    let profile = proto.profile(named.map_or("", |profile| profile.name))?;
    response::prefers(&request.parts.headers, ag_ui::proto::CONTENT_TYPE)
        .then(|| OutputFormat::new(proto, profile))
}

/// The output format of a route that follows a run in AG-UI. `profile` is that of the query. Without one it is the
/// profile in which the run was started.
pub(super) fn following_format(request: &ApiRequest, profile: &str) -> Result<OutputFormat, ApiError> {
    let asked = match profile {
        "" => None,
        name => profile_of_name(name)?,
    };
    if let Some(binary) = binary_format(request, asked) {
        return Ok(binary);
    }
    if let Some(asked) = asked {
        return Ok(OutputFormat::new(&ag_ui::FORMAT, asked));
    }
    let configured = profile_of_name(&request.state.agent.settings.ag_ui_profile)?;
    Ok(OutputFormat::of_starter(configured.unwrap_or_else(|| ag_ui::profile_of_version(None))))
}
