//! The body of a request to run.

use agentwire_core::{
    Tally,
    event::{RunId, RunInput, ThreadId},
    format::langgraph::input,
};
use serde_json::{Map, Value};

use super::{
    echo::Echo,
    errors::{invalid, not_offered},
};
use crate::{error::ApiError, settings::OnDisconnect};

/// The stream modes that a client may ask for. `checkpoints` and `debug` have no frames here.
const MODES: [&str; 9] =
    ["messages-tuple", "values", "updates", "custom", "tasks", "events", "messages", "checkpoints", "debug"];

/// The modes of a client that asks for none.
pub(super) const DEFAULT_MODES: &str = "values";

/// The modes for a client that cannot ask.
pub(super) const FETCH_MODES: &str = "messages-tuple,values,updates,custom";

/// The policy for a run that has the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multitask {
    Reject,
    Interrupt,
    Rollback,
    Enqueue,
}

/// A request to run.
#[derive(Debug)]
pub(super) struct RunBody {
    pub(super) assistant: Option<String>,
    pub(super) input: RunInput,
    /// The stream modes, separated by commas; `None` if it names none.
    pub(super) modes: Option<String>,
    pub(super) checkpoint: Option<String>,
    /// The options that are shown with the run.
    pub(super) echo: Echo,
    pub(super) multitask: Multitask,
    pub(super) on_disconnect: Option<OnDisconnect>,
    pub(super) creates_thread: bool,
    /// A stateless run keeps its thread.
    pub(super) keeps_thread: bool,
    /// `config.configurable.thread_id`.
    pub(super) configured_thread: Option<String>,
}

impl RunBody {
    pub(super) fn parse(text: &str, thread: ThreadId, run: RunId) -> Result<Self, ApiError> {
        let body: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| invalid(format!("the body: {error}")))?;
        check_refused(&body)?;
        let input = input::from_json(text, thread, run, &mut Tally::default())?;
        let configurable = body.get("config").and_then(|config| config.get("configurable"));
        let configured_thread = configurable.and_then(|it| it.get("thread_id")).and_then(Value::as_str);
        let checkpoint = checkpoint_of(&body)?;
        Ok(Self {
            echo: Echo::of_body(&body, checkpoint.as_deref()),
            assistant: text_of(&body, "assistant_id")?.map(str::to_owned),
            input,
            modes: body.get("stream_mode").map(modes_of).transpose()?.flatten(),
            checkpoint,
            multitask: match text_of(&body, "multitask_strategy")? {
                None | Some("enqueue") => Multitask::Enqueue,
                Some("reject") => Multitask::Reject,
                Some("interrupt") => Multitask::Interrupt,
                Some("rollback") => Multitask::Rollback,
                Some(_) => {
                    return Err(invalid(
                        "`multitask_strategy` must be `reject`, `interrupt`, `rollback` or `enqueue`",
                    ));
                }
            },
            on_disconnect: match text_of(&body, "on_disconnect")? {
                None => None,
                Some("cancel") => Some(OnDisconnect::Cancel),
                Some("continue") => Some(OnDisconnect::Detach),
                Some(_) => return Err(invalid("`on_disconnect` must be `cancel` or `continue`")),
            },
            creates_thread: match text_of(&body, "if_not_exists")? {
                None | Some("reject") => false,
                Some("create") => true,
                Some(_) => return Err(invalid("`if_not_exists` must be `create` or `reject`")),
            },
            keeps_thread: match text_of(&body, "on_completion")? {
                None | Some("delete") => false,
                Some("keep") => true,
                Some(_) => return Err(invalid("`on_completion` must be `delete` or `keep`")),
            },
            configured_thread: configured_thread.map(str::to_owned),
        })
    }

    /// True if it answers questions.
    pub(super) fn is_answer(&self) -> bool {
        agentwire_core::format::ag_ui::input::command_answer(&self.input).is_some()
    }

    /// True if it has neither input nor an answer: the run goes on from what there is.
    pub(super) fn is_empty(&self) -> bool {
        self.input.messages.is_empty() && self.input.state.is_none() && !self.is_answer()
    }
}

/// Refuses what an agent behind this face cannot do, rather than to ignore it.
fn check_refused(body: &Map<String, Value>) -> Result<(), ApiError> {
    let is_given = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => true,
    };
    for option in ["interrupt_before", "interrupt_after", "webhook", "after_seconds", "feedback_keys"] {
        if body.get(option).is_some_and(is_given) {
            return Err(not_offered(option));
        }
    }
    match body.get("command") {
        None | Some(Value::Null) => {}
        Some(Value::Object(command)) => {
            for option in ["update", "goto"] {
                if command.get(option).is_some_and(is_given) {
                    return Err(not_offered(&format!("command.{option}")));
                }
            }
            if !command.contains_key("resume") {
                return Err(invalid("`command` has no `resume`"));
            }
        }
        Some(_) => return Err(invalid("`command` must be an object")),
    }
    Ok(())
}

pub(super) fn text_of<'b>(body: &'b Map<String, Value>, key: &str) -> Result<Option<&'b str>, ApiError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(format!("`{key}` must be a text"))),
    }
}

/// The checkpoint of `checkpoint` or `checkpoint_id`.
pub(super) fn checkpoint_of(body: &Map<String, Value>) -> Result<Option<String>, ApiError> {
    if let Some(id) = text_of(body, "checkpoint_id")? {
        return Ok(Some(id.to_owned()));
    }
    match body.get("checkpoint") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(checkpoint)) => {
            if text_of(checkpoint, "checkpoint_ns")?.is_some_and(|namespace| !namespace.is_empty()) {
                return Err(invalid("there are no nested graphs: `checkpoint.checkpoint_ns` must be empty"));
            }
            Ok(text_of(checkpoint, "checkpoint_id")?.map(str::to_owned))
        }
        Some(_) => Err(invalid("`checkpoint` must be an object")),
    }
}

/// The stream modes of a text or a list.
fn modes_of(value: &Value) -> Result<Option<String>, ApiError> {
    match value {
        Value::Null => Ok(None),
        Value::String(mode) => check_modes([mode.as_str()]).map(Some),
        Value::Array(list) => {
            let modes: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            let modes = modes.ok_or_else(|| invalid("`stream_mode` must be a list of texts"))?;
            check_modes(modes).map(|modes| (!modes.is_empty()).then_some(modes))
        }
        _ => Err(invalid("`stream_mode` must be a text or a list")),
    }
}

/// Known stream modes, separated by commas.
pub(super) fn check_modes<'m>(modes: impl IntoIterator<Item = &'m str>) -> Result<String, ApiError> {
    let mut known: Vec<&str> = Vec::new();
    for mode in modes {
        let found = MODES.into_iter().find(|known| *known == mode).ok_or_else(|| {
            let message = format!("unknown stream mode `{}`", mode.escape_default());
            invalid(message).hint(format!("allowed: `{}`", MODES.join("`, `")))
        })?;
        if !known.contains(&found) {
            known.push(found);
        }
    }
    Ok(known.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    fn parse(text: &str) -> Result<RunBody, ApiError> {
        RunBody::parse(text, "t".into(), "r".into())
    }

    #[test]
    fn the_options_of_the_sdk_are_read() {
        let body = parse(
            r#"{"assistant_id":"a","input":{"messages":[{"type":"human","content":"hi"}]},"stream_mode":["values","messages-tuple","values"],
            "multitask_strategy":"interrupt","on_disconnect":"cancel","if_not_exists":"create","stream_resumable":true,
            "checkpoint":{"checkpoint_id":"c","checkpoint_ns":""},"config":{"configurable":{"thread_id":"x"}},
            "interrupt_before":[],"after_seconds":0,"webhook":null,"feedback_keys":null,"durability":"async"}"#,
        )
        .expect("valid");
        assert_eq!(body.modes.as_deref(), Some("values,messages-tuple"));
        assert_eq!((body.multitask, body.on_disconnect), (Multitask::Interrupt, Some(OnDisconnect::Cancel)));
        assert_eq!((body.checkpoint.as_deref(), body.configured_thread.as_deref()), (Some("c"), Some("x")));
        assert!(body.creates_thread && !body.keeps_thread && !body.is_empty());
        assert!(parse(r#"{"command":{"resume":null}}"#).expect("valid").is_answer());
        assert!(parse(r#"{"input":null}"#).expect("valid").is_empty());
    }

    #[test]
    fn options_without_a_meaning_here_are_refused() {
        for text in [
            "",
            "[]",
            r#"{"assistant_id":1}"#,
            r#"{"stream_mode":"bogus"}"#,
            r#"{"stream_mode":[1]}"#,
            r#"{"stream_mode":7}"#,
            r#"{"multitask_strategy":"x"}"#,
            r#"{"on_disconnect":"x"}"#,
            r#"{"if_not_exists":"x"}"#,
            r#"{"on_completion":"x"}"#,
            r#"{"interrupt_before":"*"}"#,
            r#"{"interrupt_after":["n"]}"#,
            r#"{"webhook":"https://x"}"#,
            r#"{"after_seconds":3}"#,
            r#"{"command":1}"#,
            r#"{"command":{}}"#,
            r#"{"command":{"resume":1,"update":{"a":1}}}"#,
            r#"{"command":{"resume":1,"goto":"n"}}"#,
            r#"{"checkpoint":1}"#,
            r#"{"checkpoint":{"checkpoint_ns":"a:1"}}"#,
            r#"{"input":1}"#,
        ] {
            assert_eq!(parse(text).expect_err(text).code, codes::BAD_REQUEST, "{text}");
        }
    }
}
