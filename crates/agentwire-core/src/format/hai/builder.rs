//! What a backend builds its stream with, after the standard's own sample.
//!
//! Names, parameters and defaults are those of the sample's `BaseChatOutput`, so that a backend written after it
//! has its counterpart here, line by line. What is a keyword argument there is a method on the result here:
//!
//! ```
//! use agentwire_core::format::hai::Builder;
//!
//! // The time is the caller's: SystemTime in a server, a fixed number in a test.
//! let outputer = Builder::new(|| 1_620_000_000_500);
//! let frame = outputer.build_sse_data(
//!     outputer
//!         .build_business_data_content(outputer.build_text_output("你好"), "msg-2")
//!         .block_id("block-1"),
//! );
//! assert_eq!(
//!     frame,
//!     concat!(
//!         r#"data: {"type":"BUSINESS_DATA_CONTENT","messageId":"msg-2","#,
//!         r#""delta":"{\"output\":{\"type\":\"text\",\"content\":\"你好\"},\"blockId\":\"block-1\"}","#,
//!         r#""timestamp":1620000000500,"blockId":"block-1"}"#,
//!         "\n\n",
//!     )
//! );
//! ```

use serde_json::{Map, Value, json};

use super::{delta::without_hazard, wire::ASSISTANT};
use crate::{event::Message, json::ArrayWriter};

/// Builds HAI events.
///
/// Every event gets the default fields that were set once for the builder, unless it has a field of that name.
pub struct Builder {
    clock: Box<dyn Fn() -> i64 + Send + Sync>,
    defaults: Map<String, Value>,
    objects: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("defaults", &self.defaults).finish_non_exhaustive()
    }
}

/// An event that was built. Keyword arguments of the sample are its methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Built(Map<String, Value>);

/// What [`Builder::build_sse_data`] frames: a string as it is, or an event.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatInfo {
    /// Text that is framed as it is.
    Text(String),
    /// An event.
    Event(Built),
}

impl From<Built> for ChatInfo {
    fn from(event: Built) -> Self {
        Self::Event(event)
    }
}

impl From<&str> for ChatInfo {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for ChatInfo {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Built {
    fn new(event_type: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let own = [("type", Value::from(event_type))].into_iter().chain(fields);
        Self(own.map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Sets any field; the sample's builders ignore keyword arguments that they do not know, this one keeps them.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Who speaks, instead of `assistant`.
    #[must_use]
    pub fn role(self, role: &str) -> Self {
        self.field("role", role)
    }

    /// Milliseconds since the epoch, instead of now.
    #[must_use]
    pub fn timestamp(self, timestamp: i64) -> Self {
        self.field("timestamp", timestamp)
    }

    /// Where the output goes: `{x, y}`. Nothing happens if it is empty, as in the sample.
    #[must_use]
    pub fn layout(self, layout: Value) -> Self {
        self.placed("layout", layout, false)
    }

    /// The block that the output belongs to. Nothing happens if it is empty.
    #[must_use]
    pub fn block_id(self, block_id: &str) -> Self {
        self.placed("blockId", block_id.into(), true)
    }

    /// How the output is drawn. Nothing happens if it is empty.
    #[must_use]
    pub fn style(self, style: Value) -> Self {
        self.placed("style", style, true)
    }

    /// The value before a change of state, or the source of a `move` or `copy`.
    #[must_use]
    pub fn from_value(mut self, from: &str) -> Self {
        if let Some(Value::Array(operations)) = self.0.get_mut("delta") {
            for operation in operations {
                operation["from"] = from.into();
            }
        }
        self
    }

    /// Puts a member into the delta, where the reference client looks for it, and beside it if the sample does.
    fn placed(mut self, key: &str, value: Value, beside: bool) -> Self {
        let empty = match &value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Array(elements) => elements.is_empty(),
            _ => false,
        };
        if empty {
            return self;
        }
        if let Some(Value::Object(delta)) = self.0.get_mut("delta") {
            delta.insert(key.to_owned(), value.clone());
        }
        if beside {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    /// The event as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

impl Builder {
    /// A builder that asks `clock` for the time, in milliseconds since the epoch.
    #[must_use]
    pub fn new(clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), defaults: Map::new(), objects: false }
    }

    /// Sets a field that every event gets unless it has one of that name.
    #[must_use]
    pub fn default_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.defaults.insert(name.to_owned(), value.into());
        self
    }

    /// Leaves deltas as the objects that they are, as the standard's builder does. Otherwise they are framed
    /// as strings, as its reference server does and its client needs.
    #[must_use]
    pub fn object_deltas(mut self) -> Self {
        self.objects = true;
        self
    }

    fn now(&self) -> Value {
        (self.clock)().into()
    }

    fn built(&self, event_type: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Built {
        let mut built = Built::new(event_type, fields);
        for (key, value) in &self.defaults {
            if !built.0.contains_key(key) {
                built.0.insert(key.clone(), value.clone());
            }
        }
        built
    }

    /// `data: …` and a blank line. Fields that are null are dropped; nothing is escaped to ASCII.
    #[must_use]
    pub fn build_sse_data(&self, chat_info: impl Into<ChatInfo>) -> String {
        let text = match chat_info.into() {
            ChatInfo::Text(text) => text,
            ChatInfo::Event(Built(mut event)) => {
                event.retain(|_, value| !value.is_null());
                let is_patch = event.get("type").is_some_and(|name| name == "STATE_DELTA");
                if let Some(delta) = event.get_mut("delta") {
                    let is_args = matches!(delta, Value::Object(_)) && !is_patch && !self.objects;
                    if is_args {
                        *delta = without_hazard(&delta.to_string()).into_owned().into();
                    }
                }
                Value::Object(event).to_string()
            }
        };
        format!("data: {text}\n\n")
    }

    /// RUN_STARTED.
    #[must_use]
    pub fn build_run_started(&self, message_id: &str) -> Built {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.built("RUN_STARTED", fields)
    }

    /// RUN_FINISHED.
    #[must_use]
    pub fn build_run_finished(&self, message_id: &str) -> Built {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.built("RUN_FINISHED", fields)
    }

    /// RUN_ERROR.
    #[must_use]
    pub fn build_run_error(&self, message: &str, code: Option<&str>) -> Built {
        let fields = [("message", message.into()), ("code", code.into()), ("timestamp", self.now())];
        self.built("RUN_ERROR", fields)
    }

    /// STEP_STARTED.
    #[must_use]
    pub fn build_step_started(&self, step_name: &str) -> Built {
        self.built("STEP_STARTED", [("stepName", step_name.into())])
    }

    /// STEP_FINISHED.
    #[must_use]
    pub fn build_step_finished(&self, step_name: &str) -> Built {
        self.built("STEP_FINISHED", [("stepName", step_name.into())])
    }

    /// BUSINESS_DATA_START.
    #[must_use]
    pub fn build_business_data_start(&self, message_id: &str) -> Built {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.built("BUSINESS_DATA_START", fields)
    }

    /// BUSINESS_DATA_CONTENT; see [`Built::layout`], [`Built::block_id`] and [`Built::style`].
    #[must_use]
    pub fn build_business_data_content(&self, output: impl Into<Value>, message_id: &str) -> Built {
        let delta = json!({ "output": output.into() });
        let fields = [("messageId", message_id.into()), ("delta", delta), ("timestamp", self.now())];
        self.built("BUSINESS_DATA_CONTENT", fields)
    }

    /// BUSINESS_DATA_END.
    #[must_use]
    pub fn build_business_data_end(&self, message_id: &str) -> Built {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.built("BUSINESS_DATA_END", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_START.
    #[must_use]
    pub fn build_agent_collaborative_message_start(
        &self,
        from_agent: &str,
        to_agent: &str,
        message_id: &str,
    ) -> Built {
        let fields = [
            ("from", from_agent.into()),
            ("to", to_agent.into()),
            ("messageId", message_id.into()),
            ("timestamp", self.now()),
        ];
        self.built("AGENT_COLLABORATIVE_MESSAGE_START", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_CONTENT; a task has an `id` and a `name`.
    #[must_use]
    pub fn build_agent_collaborative_message_content(&self, task: Value, message_id: &str) -> Built {
        let delta = json!({ "task": task });
        let fields = [("delta", delta), ("messageId", message_id.into()), ("timestamp", self.now())];
        self.built("AGENT_COLLABORATIVE_MESSAGE_CONTENT", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_END.
    #[must_use]
    pub fn build_agent_collaborative_message_end(&self, message_id: &str) -> Built {
        let fields = [("messageId", message_id.into()), ("timestamp", self.now())];
        self.built("AGENT_COLLABORATIVE_MESSAGE_END", fields)
    }

    /// STATE_DELTA with one operation; see [`Built::from_value`].
    #[must_use]
    pub fn build_state_delta(&self, op: &str, path: &str, value: impl Into<Value>) -> Built {
        let delta = json!([{ "op": op, "path": path, "value": value.into(), "from": "" }]);
        self.built("STATE_DELTA", [("delta", delta), ("timestamp", self.now())])
    }

    /// STATE_SNAPSHOT.
    #[must_use]
    pub fn build_state_snapshot(&self, snapshot: Value) -> Built {
        self.built("STATE_SNAPSHOT", [("snapshot", snapshot), ("timestamp", self.now())])
    }

    /// MESSAGE_SNAPSHOT. Messages for developers are left out: they are not for end users.
    #[must_use]
    pub fn build_message_snapshot(&self, messages: &[Message]) -> Built {
        let mut out = bytes::BytesMut::new();
        let mut list = ArrayWriter::new(&mut out);
        let writing =
            super::writer::messages::Writing { wrapped: !self.objects, developer: false, activity: true };
        super::writer::messages::write(&mut list, messages, writing);
        list.end();
        let messages: Value = serde_json::from_slice(&out).unwrap_or_default();
        self.built("MESSAGE_SNAPSHOT", [("messages", messages), ("timestamp", self.now())])
    }

    /// TOOL_CALL_START. The parent is the message that the call belongs to; an empty one is left out.
    #[must_use]
    pub fn build_tool_call_start(
        &self,
        tool_call_id: &str,
        tool_call_name: &str,
        parent_message_id: &str,
    ) -> Built {
        let parent = Some(parent_message_id).filter(|parent| !parent.is_empty());
        let fields = [
            ("toolCallId", tool_call_id.into()),
            ("toolCallName", tool_call_name.into()),
            ("parentMessageId", parent.into()),
        ];
        self.built("TOOL_CALL_START", fields)
    }

    /// TOOL_CALL_ARGS. An object is framed as a string; a string is a piece of one.
    #[must_use]
    pub fn build_tool_call_args(&self, tool_call_id: &str, delta: impl Into<Value>) -> Built {
        let delta = match delta.into() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.built("TOOL_CALL_ARGS", [("toolCallId", tool_call_id.into()), ("delta", delta.into())])
    }

    /// TOOL_CALL_END.
    #[must_use]
    pub fn build_tool_call_end(&self, tool_call_id: &str) -> Built {
        self.built("TOOL_CALL_END", [("toolCallId", tool_call_id.into())])
    }

    /// TOOL_CALL_RESULT.
    #[must_use]
    pub fn build_tool_call_result(&self, message_id: &str, tool_call_id: &str, content: &str) -> Built {
        let fields = [
            ("messageId", message_id.into()),
            ("toolCallId", tool_call_id.into()),
            ("content", content.into()),
            ("role", "tool".into()),
        ];
        self.built("TOOL_CALL_RESULT", fields)
    }

    /// CUSTOM.
    #[must_use]
    pub fn build_custom(&self, name: &str, value: Value) -> Built {
        self.built("CUSTOM", [("name", name.into()), ("value", value), ("timestamp", self.now())])
    }

    /// RAW.
    #[must_use]
    pub fn build_raw(&self, event: Value, source: Option<&str>) -> Built {
        self.built("RAW", [("event", event), ("source", source.into()), ("timestamp", self.now())])
    }

    /// A text output.
    #[must_use]
    pub fn build_text_output(&self, content: &str) -> Value {
        json!({ "type": "text", "content": content })
    }

    /// The same; the standard's sample calls it so.
    #[must_use]
    pub fn build_text(&self, content: &str) -> Value {
        self.build_text_output(content)
    }

    /// A thinking output: 10 seconds, still thinking, collapsed. [`Thinking`] changes that.
    #[must_use]
    pub fn build_thinking_output(&self, content: &str) -> Thinking {
        Thinking { content: content.into(), elapsed: 10, thinking: true, collapse: true }
    }

    /// A fold output: the start of a section that is not folded. [`Fold`] changes that.
    #[must_use]
    pub fn build_fold_output(&self, title: &str) -> Fold {
        Fold { title: title.into(), fold: false, position: "start".into() }
    }

    /// An image output. [`Media`] says where it is.
    #[must_use]
    pub fn build_image_output(&self, mime_type: &str) -> Media {
        Media::new("image", mime_type)
    }

    /// An audio output.
    #[must_use]
    pub fn build_audio_output(&self, mime_type: &str) -> Media {
        Media::new("audio", mime_type)
    }

    /// A video output.
    #[must_use]
    pub fn build_video_output(&self, mime_type: &str) -> Media {
        Media::new("video", mime_type)
    }

    /// A file output.
    #[must_use]
    pub fn build_file_output(&self, mime_type: &str) -> Media {
        Media::new("file", mime_type)
    }

    /// A button output: a click is sent as a user message of that name.
    #[must_use]
    pub fn build_button_output(&self, name: &str) -> Value {
        json!({ "type": "button", "data": { "name": name } })
    }

    /// An icon output.
    #[must_use]
    pub fn build_icon_output(&self, icon: &str, color: &str) -> Value {
        json!({ "type": "icon", "data": { "icon": icon, "color": color } })
    }

    /// A list of tool calls; one of the same id is added to, tool by tool.
    #[must_use]
    pub fn build_tool_call_show_output(&self, id: &str, title: &str, icon: &str, tools: Vec<Value>) -> Value {
        json!({ "type": "toolCallShow", "id": id, "data": { "title": title, "icon": icon, "tools": tools } })
    }
}

/// A thinking output in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thinking {
    content: String,
    elapsed: i64,
    thinking: bool,
    collapse: bool,
}

impl Thinking {
    /// Whole seconds since the thinking began.
    #[must_use]
    pub fn elapsed(mut self, seconds: i64) -> Self {
        self.elapsed = seconds;
        self
    }

    /// Whether it goes on.
    #[must_use]
    pub fn thinking(mut self, thinking: bool) -> Self {
        self.thinking = thinking;
        self
    }

    /// Whether the box is drawn closed.
    #[must_use]
    pub fn collapse(mut self, collapse: bool) -> Self {
        self.collapse = collapse;
        self
    }
}

impl From<Thinking> for Value {
    fn from(output: Thinking) -> Self {
        let Thinking { content, elapsed, thinking, collapse } = output;
        json!({ "type": "thinking", "data": { "content": content, "elapsed": elapsed, "thinking": thinking, "collapse": collapse } })
    }
}

/// A fold output in the making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    title: String,
    fold: bool,
    position: String,
}

impl Fold {
    /// Whether the section is drawn closed.
    #[must_use]
    pub fn fold(mut self, fold: bool) -> Self {
        self.fold = fold;
        self
    }

    /// `start` or `end` of the section.
    #[must_use]
    pub fn position(mut self, position: &str) -> Self {
        self.position = position.into();
        self
    }
}

impl From<Fold> for Value {
    fn from(output: Fold) -> Self {
        let Fold { title, fold, position } = output;
        json!({ "type": "fold", "data": { "title": title, "fold": fold, "position": position } })
    }
}

/// An image, audio, video or file output in the making.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    kind: &'static str,
    data: Map<String, Value>,
}

impl Media {
    fn new(kind: &'static str, mime_type: &str) -> Self {
        Self { kind, data: Map::from_iter([("mimeType".to_owned(), mime_type.into())]) }
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }

    /// Where it is.
    #[must_use]
    pub fn url(self, url: &str) -> Self {
        self.with("url", url)
    }

    /// What it is, in base64.
    #[must_use]
    pub fn data(self, base64: &str) -> Self {
        self.with("data", base64)
    }

    /// What to call it.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// What to say where it cannot be shown.
    #[must_use]
    pub fn alt(self, alt: &str) -> Self {
        self.with("alt", alt)
    }
}

impl From<Media> for Value {
    fn from(output: Media) -> Self {
        json!({ "type": output.kind, "data": output.data })
    }
}
