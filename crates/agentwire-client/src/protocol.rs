//! The protocols: request bodies, `Accept` headers, and the format of a response by its content type.

use std::borrow::Cow;

use agentwire_core::{
    event::{Role, RunInput},
    format::{Format, ag_ui, ai_sdk, hai},
    framing::Framing,
    json::Json,
};
use reqwest::Url;

/// The protocol of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// From the path: `/awp` and `/chat` are HAI, `/api/chat` is the AI SDK, everything else is AG-UI.
    #[default]
    Auto,
    /// AG-UI.
    AgUi,
    /// HAI.
    Hai,
    /// The AI SDK.
    AiSdk(Profile),
}

/// The version of the AI SDK that a server writes for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are sufficient")]
pub enum Profile {
    V4,
    V5,
    V6,
    #[default]
    V7,
}

impl Profile {
    /// The number of the version.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V5 => 5,
            Self::V6 => 6,
            Self::V7 => 7,
        }
    }
}

/// The format and framing of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFormat {
    /// The format.
    pub format: &'static Format,
    /// The framing.
    pub framing: Framing,
}

impl Protocol {
    /// The protocol of that name: `auto`, `ag-ui`, `hai`, `ai-sdk`, or `ai-sdk@5`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "ag-ui" => Self::AgUi,
            "hai" => Self::Hai,
            "ai-sdk" | "ai-sdk@7" => Self::AiSdk(Profile::V7),
            "ai-sdk@6" => Self::AiSdk(Profile::V6),
            "ai-sdk@5" => Self::AiSdk(Profile::V5),
            "ai-sdk@4" => Self::AiSdk(Profile::V4),
            _ => return None,
        })
    }

    /// The protocol itself, or for [`Protocol::Auto`] the one that the path of a URL suggests.
    #[must_use]
    pub fn for_url(self, url: &Url) -> Self {
        if self != Self::Auto {
            return self;
        }
        let path = url.path().trim_end_matches('/');
        if path.ends_with("/api/chat") {
            Self::AiSdk(Profile::default())
        } else if path.ends_with("/awp") || path.ends_with("/chat") {
            Self::Hai
        } else {
            Self::AgUi
        }
    }

    /// The name of its format in `--from`, and in `?format=` of a gateway.
    #[must_use]
    pub fn format_name(self) -> &'static str {
        match self {
            Self::Auto | Self::AgUi => "ag-ui@1",
            Self::Hai => "hai",
            Self::AiSdk(Profile::V4) => "ai-sdk@4",
            Self::AiSdk(Profile::V5) => "ai-sdk@5",
            Self::AiSdk(Profile::V6) => "ai-sdk@6",
            Self::AiSdk(Profile::V7) => "ai-sdk@7",
        }
    }

    /// The `Accept` header of a request.
    #[must_use]
    pub fn accept(self, is_binary: bool) -> &'static str {
        match self {
            Self::AiSdk(_) => "text/event-stream, text/plain;q=0.9",
            _ if !is_binary => "text/event-stream",
            Self::Auto | Self::AgUi => "application/vnd.ag-ui.event+proto, text/event-stream;q=0.5",
            Self::Hai => "application/vnd.hai.event+proto, text/event-stream;q=0.5",
        }
    }

    /// The body of a request.
    #[must_use]
    pub fn body(self, input: &RunInput) -> String {
        match self {
            Self::Auto | Self::AgUi => {
                let input = ag_ui::command_for_answers(input).map_or(Cow::Borrowed(input), Cow::Owned);
                ag_ui::input::to_json(&with_required_members(without_activities(input)))
            }
            Self::Hai => hai::input::to_json(input),
            Self::AiSdk(profile) => ai_sdk::input::to_json(input, profile.number()),
        }
    }

    /// The format of a response with a content type; `None` if it is no event stream.
    #[must_use]
    pub fn response_format(self, content_type: Option<&str>) -> Option<ResponseFormat> {
        let format: &'static Format = match self {
            Self::Auto | Self::AgUi => &ag_ui::FORMAT,
            Self::Hai => &hai::FORMAT,
            Self::AiSdk(_) => &ai_sdk::FORMAT,
        };
        let mime =
            content_type.map(|it| it.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        let (format, framing) = match mime.as_deref() {
            Some("text/event-stream") => (format, Framing::Sse),
            Some(found) if Some(found) == mime_of(ag_ui::proto::CONTENT_TYPE) => {
                (&ag_ui::proto::FORMAT, Framing::Prefixed)
            }
            Some(found) if Some(found) == mime_of(hai::proto::CONTENT_TYPE) => {
                (&hai::proto::FORMAT, Framing::Prefixed)
            }
            Some("application/x-ndjson" | "application/jsonl" | "application/json-lines")
                if format.reads.contains(&Framing::Lines) =>
            {
                (format, Framing::Lines)
            }
            Some("text/plain") if matches!(self, Self::AiSdk(_)) => (format, Framing::Coded),
            // Small servers send none.
            None if !matches!(self, Self::AiSdk(Profile::V4)) => (format, Framing::Sse),
            _ => return None,
        };
        Some(ResponseFormat { format, framing })
    }
}

fn mime_of(content_type: &'static str) -> Option<&'static str> {
    content_type.split(';').next()
}

/// AG-UI's own client does not send activities: they are for people, and a server may not know the role.
fn without_activities(mut input: Cow<'_, RunInput>) -> Cow<'_, RunInput> {
    if input.messages.iter().any(|message| message.role() == Role::Activity) {
        input.to_mut().messages.retain(|message| message.role() != Role::Activity);
    }
    input
}

/// AG-UI's own client always sends the state and the forwarded properties: servers with the Python package before 1.0 refuse a
/// request without them.
fn with_required_members(mut input: Cow<'_, RunInput>) -> Cow<'_, RunInput> {
    if input.state.is_none() || input.forwarded.is_none() {
        let input = input.to_mut();
        input.state.get_or_insert_with(|| Json::from(&serde_json::json!({})));
        input.forwarded.get_or_insert_with(|| Json::from(&serde_json::json!({})));
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Protocol {
        Protocol::Auto.for_url(&Url::parse(url).expect("a URL"))
    }

    #[test]
    fn the_path_suggests_the_protocol() {
        assert_eq!(of("http://h/awp"), Protocol::Hai);
        assert_eq!(of("http://h/agents/a/chat/"), Protocol::Hai);
        assert_eq!(of("http://h/agents/a/api/chat?profile=5"), Protocol::AiSdk(Profile::V7));
        assert_eq!(of("http://h/"), Protocol::AgUi);
        assert_eq!(of("http://h/mychat"), Protocol::AgUi);
    }

    #[test]
    fn a_binary_response_is_preferred_by_its_type() {
        let first = |protocol: Protocol| protocol.accept(true).split(',').next();
        assert_eq!(first(Protocol::AgUi), Some(ag_ui::proto::CONTENT_TYPE));
        assert_eq!(first(Protocol::Hai), Some(hai::proto::CONTENT_TYPE));
    }

    #[test]
    fn an_ag_ui_server_gets_no_activities() {
        let messages = r#"[{"id":"u","role":"user","content":"go"},
            {"id":"a","role":"activity","activityType":"a2ui-surface","content":{"a2ui_operations":[]}},
            {"id":"m","role":"assistant","content":"There."}]"#;
        let body = format!(r#"{{"threadId":"t","runId":"r","messages":{messages},"tools":[],"context":[]}}"#);
        let input = ag_ui::input::from_json(&body, &mut agentwire_core::Tally::default()).expect("an input");
        assert_eq!(input.messages.len(), 3);
        let sent = Protocol::AgUi.body(&input);
        assert!(sent.contains(r#""id":"u""#) && sent.contains(r#""id":"m""#), "{sent}");
        assert!(!sent.contains("activity"), "{sent}");
    }

    #[test]
    fn an_ag_ui_server_gets_every_required_member() {
        for protocol in [Protocol::Auto, Protocol::AgUi] {
            let sent: serde_json::Value =
                serde_json::from_str(&protocol.body(&RunInput::new("t", "r"))).expect("JSON");
            for member in ["threadId", "runId", "state", "messages", "tools", "context", "forwardedProps"] {
                assert!(sent.get(member).is_some(), "{member} in {sent}");
            }
            let mut input = RunInput::new("t", "r");
            input.state = Some(Json::from(&serde_json::json!([1])));
            input.forwarded = Some(Json::from(&serde_json::json!("x")));
            let sent: serde_json::Value = serde_json::from_str(&protocol.body(&input)).expect("JSON");
            assert_eq!((&sent["state"], &sent["forwardedProps"]), (&serde_json::json!([1]), &"x".into()));
        }
    }

    #[test]
    fn a_page_is_no_event_stream() {
        for protocol in [Protocol::AgUi, Protocol::Hai, Protocol::AiSdk(Profile::V7)] {
            assert!(protocol.response_format(Some("text/html; charset=utf-8")).is_none());
            assert!(protocol.response_format(Some("application/json")).is_none());
            let sse = protocol.response_format(Some("Text/Event-Stream;charset=utf-8"));
            assert_eq!(sse.map(|it| it.framing), Some(Framing::Sse));
        }
        assert!(Protocol::AgUi.response_format(Some("text/plain")).is_none());
    }
}
