//! Builds HAI events in a backend, after the sample of the standard.
//!
//! Names, parameters and defaults are those of the sample's `BaseChatOutput`, so a backend can be ported line by
//! line. Keyword arguments of the sample are methods of the built event:
//!
//! ```
//! use agentwire_core::format::hai::Builder;
//!
//! // The caller provides the clock: SystemTime in a server, a fixed number in a test.
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

use super::{delta::escape_brace_pairs, wire::ASSISTANT};
use crate::{event::Message, json::ArrayWriter};

/// Builds HAI events.
///
/// Every event gets the default fields of the builder, unless it has a field of the same name.
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

/// A built event. Its methods are the keyword arguments of the sample.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltEvent(Map<String, Value>);

/// The input of [`Builder::build_sse_data`].
#[derive(Clone, Debug, PartialEq)]
pub enum ChatInfo {
    /// Text, framed unchanged.
    Text(String),
    /// An event.
    Event(BuiltEvent),
}

impl From<BuiltEvent> for ChatInfo {
    fn from(event: BuiltEvent) -> Self {
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

impl BuiltEvent {
    fn new(event_type: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let members = [("type", Value::from(event_type))].into_iter().chain(fields);
        Self(members.map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Sets any field. Unlike the sample, which ignores unknown keyword arguments, this keeps unknown fields.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The role; `assistant` by default.
    #[must_use]
    pub fn role(self, role: &str) -> Self {
        self.field("role", role)
    }

    /// The timestamp in milliseconds since the epoch; now by default.
    #[must_use]
    pub fn timestamp(self, timestamp: i64) -> Self {
        self.field("timestamp", timestamp)
    }

    /// The position of the output: `{x, y}`. An empty value is ignored, as in the sample.
    #[must_use]
    pub fn layout(self, layout: Value) -> Self {
        self.place("layout", layout, false)
    }

    /// The block of the output. An empty value is ignored.
    #[must_use]
    pub fn block_id(self, block_id: &str) -> Self {
        self.place("blockId", block_id.into(), true)
    }

    /// The style of the output. An empty value is ignored.
    #[must_use]
    pub fn style(self, style: Value) -> Self {
        self.place("style", style, true)
    }

    /// The previous value of a state change, or the source of a `move` or `copy`.
    #[must_use]
    pub fn from_value(mut self, from: &str) -> Self {
        if let Some(Value::Array(operations)) = self.0.get_mut("delta") {
            for operation in operations {
                operation["from"] = from.into();
            }
        }
        self
    }

    /// Sets a member of the delta, where the reference client expects it, and of the event if the sample does.
    fn place(mut self, key: &str, value: Value, beside: bool) -> Self {
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
    /// A builder with a clock in milliseconds since the epoch.
    #[must_use]
    pub fn new(clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), defaults: Map::new(), objects: false }
    }

    /// Sets a default field of every event.
    #[must_use]
    pub fn default_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.defaults.insert(name.to_owned(), value.into());
        self
    }

    /// Writes deltas as objects, like the standard's builder. By default they are written as strings, like the
    /// reference server, which the reference client requires.
    #[must_use]
    pub fn object_deltas(mut self) -> Self {
        self.objects = true;
        self
    }

    fn now(&self) -> Value {
        (self.clock)().into()
    }

    fn build(&self, event_type: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> BuiltEvent {
        let mut built = BuiltEvent::new(event_type, fields);
        for (key, value) in &self.defaults {
            if !built.0.contains_key(key) {
                built.0.insert(key.clone(), value.clone());
            }
        }
        built
    }

    /// Frames an event: `data: …` and a blank line. Null fields are dropped; text is not escaped to ASCII.
    #[must_use]
    pub fn build_sse_data(&self, chat_info: impl Into<ChatInfo>) -> String {
        let text = match chat_info.into() {
            ChatInfo::Text(text) => text,
            ChatInfo::Event(BuiltEvent(mut event)) => {
                event.retain(|_, value| !value.is_null());
                let is_patch = event.get("type").is_some_and(|name| name == "STATE_DELTA");
                if let Some(delta) = event.get_mut("delta") {
                    let is_args = matches!(delta, Value::Object(_)) && !is_patch && !self.objects;
                    if is_args {
                        *delta = escape_brace_pairs(&delta.to_string()).into_owned().into();
                    }
                }
                Value::Object(event).to_string()
            }
        };
        format!("data: {text}\n\n")
    }

    /// RUN_STARTED.
    #[must_use]
    pub fn build_run_started(&self, message_id: &str) -> BuiltEvent {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.build("RUN_STARTED", fields)
    }

    /// RUN_FINISHED.
    #[must_use]
    pub fn build_run_finished(&self, message_id: &str) -> BuiltEvent {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.build("RUN_FINISHED", fields)
    }

    /// RUN_ERROR.
    #[must_use]
    pub fn build_run_error(&self, message: &str, code: Option<&str>) -> BuiltEvent {
        let fields = [("message", message.into()), ("code", code.into()), ("timestamp", self.now())];
        self.build("RUN_ERROR", fields)
    }

    /// STEP_STARTED.
    #[must_use]
    pub fn build_step_started(&self, step_name: &str) -> BuiltEvent {
        self.build("STEP_STARTED", [("stepName", step_name.into())])
    }

    /// STEP_FINISHED.
    #[must_use]
    pub fn build_step_finished(&self, step_name: &str) -> BuiltEvent {
        self.build("STEP_FINISHED", [("stepName", step_name.into())])
    }

    /// BUSINESS_DATA_START.
    #[must_use]
    pub fn build_business_data_start(&self, message_id: &str) -> BuiltEvent {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.build("BUSINESS_DATA_START", fields)
    }

    /// BUSINESS_DATA_CONTENT; see [`BuiltEvent::layout`], [`BuiltEvent::block_id`] and [`BuiltEvent::style`].
    #[must_use]
    pub fn build_business_data_content(&self, output: impl Into<Value>, message_id: &str) -> BuiltEvent {
        let delta = json!({ "output": output.into() });
        let fields = [("messageId", message_id.into()), ("delta", delta), ("timestamp", self.now())];
        self.build("BUSINESS_DATA_CONTENT", fields)
    }

    /// BUSINESS_DATA_END.
    #[must_use]
    pub fn build_business_data_end(&self, message_id: &str) -> BuiltEvent {
        let fields =
            [("messageId", message_id.into()), ("role", ASSISTANT.into()), ("timestamp", self.now())];
        self.build("BUSINESS_DATA_END", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_START.
    #[must_use]
    pub fn build_agent_collaborative_message_start(
        &self,
        from_agent: &str,
        to_agent: &str,
        message_id: &str,
    ) -> BuiltEvent {
        let fields = [
            ("from", from_agent.into()),
            ("to", to_agent.into()),
            ("messageId", message_id.into()),
            ("timestamp", self.now()),
        ];
        self.build("AGENT_COLLABORATIVE_MESSAGE_START", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_CONTENT; a task has an `id` and a `name`.
    #[must_use]
    pub fn build_agent_collaborative_message_content(&self, task: Value, message_id: &str) -> BuiltEvent {
        let delta = json!({ "task": task });
        let fields = [("delta", delta), ("messageId", message_id.into()), ("timestamp", self.now())];
        self.build("AGENT_COLLABORATIVE_MESSAGE_CONTENT", fields)
    }

    /// AGENT_COLLABORATIVE_MESSAGE_END.
    #[must_use]
    pub fn build_agent_collaborative_message_end(&self, message_id: &str) -> BuiltEvent {
        let fields = [("messageId", message_id.into()), ("timestamp", self.now())];
        self.build("AGENT_COLLABORATIVE_MESSAGE_END", fields)
    }

    /// STATE_DELTA with one operation; see [`BuiltEvent::from_value`].
    #[must_use]
    pub fn build_state_delta(&self, op: &str, path: &str, value: impl Into<Value>) -> BuiltEvent {
        let delta = json!([{ "op": op, "path": path, "value": value.into(), "from": "" }]);
        self.build("STATE_DELTA", [("delta", delta), ("timestamp", self.now())])
    }

    /// STATE_SNAPSHOT.
    #[must_use]
    pub fn build_state_snapshot(&self, snapshot: Value) -> BuiltEvent {
        self.build("STATE_SNAPSHOT", [("snapshot", snapshot), ("timestamp", self.now())])
    }

    /// MESSAGE_SNAPSHOT, without developer messages, which are not for end users.
    #[must_use]
    pub fn build_message_snapshot(&self, messages: &[Message]) -> BuiltEvent {
        let mut out = bytes::BytesMut::new();
        let mut list = ArrayWriter::new(&mut out);
        let options = super::writer::messages::MessageOptions {
            wrapped: !self.objects,
            developer: false,
            is_request: false,
        };
        super::writer::messages::write_list(&mut list, messages, options);
        list.end();
        let messages: Value = serde_json::from_slice(&out).unwrap_or_default();
        self.build("MESSAGE_SNAPSHOT", [("messages", messages), ("timestamp", self.now())])
    }

    /// TOOL_CALL_START. The parent is the message of the call; an empty one is left out.
    #[must_use]
    pub fn build_tool_call_start(
        &self,
        tool_call_id: &str,
        tool_call_name: &str,
        parent_message_id: &str,
    ) -> BuiltEvent {
        let parent = Some(parent_message_id).filter(|parent| !parent.is_empty());
        let fields = [
            ("toolCallId", tool_call_id.into()),
            ("toolCallName", tool_call_name.into()),
            ("parentMessageId", parent.into()),
        ];
        self.build("TOOL_CALL_START", fields)
    }

    /// TOOL_CALL_ARGS. An object is serialized to a string; a string is a part of the arguments.
    #[must_use]
    pub fn build_tool_call_args(&self, tool_call_id: &str, delta: impl Into<Value>) -> BuiltEvent {
        let delta = match delta.into() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.build("TOOL_CALL_ARGS", [("toolCallId", tool_call_id.into()), ("delta", delta.into())])
    }

    /// TOOL_CALL_END.
    #[must_use]
    pub fn build_tool_call_end(&self, tool_call_id: &str) -> BuiltEvent {
        self.build("TOOL_CALL_END", [("toolCallId", tool_call_id.into())])
    }

    /// TOOL_CALL_RESULT.
    #[must_use]
    pub fn build_tool_call_result(&self, message_id: &str, tool_call_id: &str, content: &str) -> BuiltEvent {
        let fields = [
            ("messageId", message_id.into()),
            ("toolCallId", tool_call_id.into()),
            ("content", content.into()),
            ("role", "tool".into()),
        ];
        self.build("TOOL_CALL_RESULT", fields)
    }

    /// CUSTOM.
    #[must_use]
    pub fn build_custom(&self, name: &str, value: Value) -> BuiltEvent {
        self.build("CUSTOM", [("name", name.into()), ("value", value), ("timestamp", self.now())])
    }

    /// RAW.
    #[must_use]
    pub fn build_raw(&self, event: Value, source: Option<&str>) -> BuiltEvent {
        self.build("RAW", [("event", event), ("source", source.into()), ("timestamp", self.now())])
    }

    /// A text output.
    #[must_use]
    pub fn build_text_output(&self, content: &str) -> Value {
        json!({ "type": "text", "content": content })
    }

    /// The same, under its name in the standard's sample.
    #[must_use]
    pub fn build_text(&self, content: &str) -> Value {
        self.build_text_output(content)
    }

    /// A thinking output; by default 10 seconds, not finished, collapsed.
    #[must_use]
    pub fn build_thinking_output(&self, content: &str) -> ThinkingOutput {
        ThinkingOutput { content: content.into(), elapsed: 10, thinking: true, collapse: true }
    }

    /// A fold output; by default the start of an expanded section.
    #[must_use]
    pub fn build_fold_output(&self, title: &str) -> FoldOutput {
        FoldOutput { title: title.into(), fold: false, position: "start".into() }
    }

    /// An image output.
    #[must_use]
    pub fn build_image_output(&self, mime_type: &str) -> MediaOutput {
        MediaOutput::new("image", mime_type)
    }

    /// An audio output.
    #[must_use]
    pub fn build_audio_output(&self, mime_type: &str) -> MediaOutput {
        MediaOutput::new("audio", mime_type)
    }

    /// A video output.
    #[must_use]
    pub fn build_video_output(&self, mime_type: &str) -> MediaOutput {
        MediaOutput::new("video", mime_type)
    }

    /// A file output.
    #[must_use]
    pub fn build_file_output(&self, mime_type: &str) -> MediaOutput {
        MediaOutput::new("file", mime_type)
    }

    /// A button output; a click sends its name as a user message.
    #[must_use]
    pub fn build_button_output(&self, name: &str) -> Value {
        json!({ "type": "button", "data": { "name": name } })
    }

    /// An icon output.
    #[must_use]
    pub fn build_icon_output(&self, icon: &str, color: &str) -> Value {
        json!({ "type": "icon", "data": { "icon": icon, "color": color } })
    }

    /// A list of tool calls; updates the list of the same id tool by tool.
    #[must_use]
    pub fn build_tool_call_show_output(&self, id: &str, title: &str, icon: &str, tools: Vec<Value>) -> Value {
        json!({ "type": "toolCallShow", "id": id, "data": { "title": title, "icon": icon, "tools": tools } })
    }
}

/// A thinking output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinkingOutput {
    content: String,
    elapsed: i64,
    thinking: bool,
    collapse: bool,
}

impl ThinkingOutput {
    /// Whole seconds since the start of the thinking.
    #[must_use]
    pub fn elapsed(mut self, seconds: i64) -> Self {
        self.elapsed = seconds;
        self
    }

    /// Whether the thinking continues.
    #[must_use]
    pub fn thinking(mut self, thinking: bool) -> Self {
        self.thinking = thinking;
        self
    }

    /// Whether the box is collapsed.
    #[must_use]
    pub fn collapse(mut self, collapse: bool) -> Self {
        self.collapse = collapse;
        self
    }
}

impl From<ThinkingOutput> for Value {
    fn from(output: ThinkingOutput) -> Self {
        let ThinkingOutput { content, elapsed, thinking, collapse } = output;
        json!({ "type": "thinking", "data": { "content": content, "elapsed": elapsed, "thinking": thinking, "collapse": collapse } })
    }
}

/// A fold output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldOutput {
    title: String,
    fold: bool,
    position: String,
}

impl FoldOutput {
    /// Whether the section is collapsed.
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

impl From<FoldOutput> for Value {
    fn from(output: FoldOutput) -> Self {
        let FoldOutput { title, fold, position } = output;
        json!({ "type": "fold", "data": { "title": title, "fold": fold, "position": position } })
    }
}

/// An image, audio, video or file output.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaOutput {
    kind: &'static str,
    data: Map<String, Value>,
}

impl MediaOutput {
    fn new(kind: &'static str, mime_type: &str) -> Self {
        Self { kind, data: Map::from_iter([("mimeType".to_owned(), mime_type.into())]) }
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }

    /// The URL.
    #[must_use]
    pub fn url(self, url: &str) -> Self {
        self.with("url", url)
    }

    /// The data in base64.
    #[must_use]
    pub fn data(self, base64: &str) -> Self {
        self.with("data", base64)
    }

    /// The display name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with("name", name)
    }

    /// The alternative text.
    #[must_use]
    pub fn alt(self, alt: &str) -> Self {
        self.with("alt", alt)
    }
}

impl From<MediaOutput> for Value {
    fn from(output: MediaOutput) -> Self {
        json!({ "type": output.kind, "data": output.data })
    }
}
