//! The events of a run as terminal text.

use std::collections::HashMap;

use agentwire_client::Event;
use agentwire_core::{
    event::{Block, Body, File, MediaKind, MessageId, Outcome, PartSource, ToolCallId, Usage},
    patch::{self, Op, Patch},
};
use serde_json::Value;

use super::{
    markdown::Markdown,
    style::{BOLD, CYAN, DIM, GREEN, RED, YELLOW, clipped, one_line, styled, table},
};

/// The number of changes of the state that are shown of one event.
const MAX_CHANGES: usize = 8;

/// The columns of a tool's result.
const RESULT_LINES: usize = 6;

/// Terminals that show images between text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Images {
    No,
    Kitty,
    ITerm,
}

impl Images {
    /// The protocol of this terminal.
    pub(crate) fn of_terminal() -> Self {
        Self::of(|name| std::env::var(name).unwrap_or_default())
    }

    /// The protocol by the variables of the environment.
    fn of(variable: impl Fn(&str) -> String) -> Self {
        let (term, program) = (variable("TERM"), variable("TERM_PROGRAM"));
        // A multiplexer draws the screen itself; it inherits the variables of the terminal in which it was started.
        if !variable("TMUX").is_empty() || term.starts_with("screen") || term.starts_with("tmux") {
            Self::No
        } else if !variable("KITTY_WINDOW_ID").is_empty() || matches!(&*term, "xterm-kitty" | "xterm-ghostty")
        {
            Self::Kitty
        } else if matches!(&*program, "iTerm.app" | "WezTerm") {
            Self::ITerm
        } else {
            Self::No
        }
    }
}

/// Draws one conversation.
pub(crate) struct Screen {
    columns: usize,
    images: Images,
    /// True if only the text of the answer is shown.
    is_quiet: bool,
    /// True if every event is shown as JSON too.
    pub(crate) is_raw: bool,
    markdown: Markdown,
    open_text: Option<MessageId>,
    /// The reasoning so far: its first line is shown, the rest counted.
    thinking: String,
    calls: HashMap<ToolCallId, (Box<str>, String)>,
    state: Value,
    is_at_line_start: bool,
    folds: usize,
    handover: Option<(Box<str>, Box<str>)>,
    citations: usize,
    /// The buttons of the last answer, to be chosen by number.
    pub(crate) choices: Vec<String>,
}

impl Screen {
    pub(crate) fn new(columns: usize, images: Images, is_quiet: bool) -> Self {
        Self {
            columns,
            images,
            is_quiet,
            is_raw: false,
            markdown: Markdown::new(columns),
            open_text: None,
            thinking: String::new(),
            calls: HashMap::new(),
            state: Value::Object(serde_json::Map::new()),
            is_at_line_start: true,
            folds: 0,
            handover: None,
            citations: 0,
            choices: Vec::new(),
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// The text of an event.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        let mut out = String::new();
        match &event.body {
            Body::TextStart { message, name, .. } => {
                self.close_text(&mut out);
                self.open_text = Some(message.clone());
                if let Some(name) = name {
                    self.line(&mut out, styled(BOLD, one_line(name)));
                }
            }
            Body::TextDelta { message, delta } => {
                if self.open_text.as_ref() != Some(message) {
                    self.close_text(&mut out);
                    self.open_text = Some(message.clone());
                }
                let text = self.markdown.push(delta);
                self.text(&mut out, &text);
            }
            Body::TextEnd { .. } => self.close_text(&mut out),
            _ if self.is_quiet => {}
            body => self.other(body, &mut out),
        }
        out
    }

    /// Ends the output of a run.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.close_text(&mut out);
        if !self.is_at_line_start {
            self.text(&mut out, "\n");
        }
        out
    }

    fn other(&mut self, body: &Body, out: &mut String) {
        match body {
            Body::RunStarted(_) => self.choices.clear(),
            Body::RunFinished(finished) => {
                if matches!(finished.outcome, Some(Outcome::Cancelled)) {
                    self.line(out, styled(YELLOW, "■ stopped"));
                }
                if let Some(usage) = usage(&finished.usage) {
                    self.line(out, styled(DIM, usage));
                }
            }
            Body::RunError(error) => {
                let code =
                    error.code.as_deref().map(|code| format!(" ({})", one_line(code))).unwrap_or_default();
                self.line(out, styled(RED, format!("✗ {}{code}", one_line(&error.message))));
            }
            Body::StepStarted { name } => self.line(out, styled(CYAN, format!("▶ {}", one_line(name)))),
            Body::StepFinished { name } => self.line(out, styled(DIM, format!("✓ {}", one_line(name)))),
            Body::ReasoningDelta { delta, .. } => self.thinking.push_str(delta),
            Body::ReasoningMessageEnd { .. } => {
                let thinking = std::mem::take(&mut self.thinking);
                self.thought(out, &thinking);
            }
            Body::ToolStart { call, name, .. } => {
                self.calls.insert(call.clone(), (name.clone(), String::new()));
            }
            Body::ToolArgs { call, delta } => {
                if let Some((_, arguments)) = self.calls.get_mut(call) {
                    arguments.push_str(delta);
                }
            }
            Body::ToolEnd { call } => {
                if let Some((name, arguments)) = self.calls.get(call).cloned() {
                    let arguments =
                        clipped(&one_line(&arguments), self.columns.saturating_sub(name.len() + 6).max(20));
                    self.line(
                        out,
                        format!(
                            "{} {}{}",
                            styled(YELLOW, "⚙"),
                            styled(BOLD, one_line(&name)),
                            styled(DIM, format!("({arguments})"))
                        ),
                    );
                }
            }
            Body::ToolResult(result) => {
                let name = self.calls.remove(&result.call).map(|(name, _)| name).unwrap_or_default();
                let (style, mark) = if result.error.is_some() { (RED, "✗") } else { (GREEN, "✓") };
                let text = result.error.as_deref().map_or_else(|| result.content.text(), str::to_owned);
                let columns = self.columns.saturating_sub(6).max(20);
                let mut lines = text.lines().filter(|line| !line.trim().is_empty());
                let first =
                    clipped(&one_line(lines.next().unwrap_or_default()), columns.saturating_sub(name.len()));
                self.line(
                    out,
                    format!("  {} {} {}", styled(style, mark), one_line(&name), styled(DIM, first)),
                );
                for line in lines.by_ref().take(RESULT_LINES - 1) {
                    self.line(out, styled(DIM, format!("    {}", clipped(&one_line(line), columns))));
                }
                let more = lines.count();
                if more > 0 {
                    self.line(out, styled(DIM, format!("    … {more} more lines")));
                }
            }
            Body::StateSnapshot { snapshot } => {
                let new = snapshot.to_value();
                let changes = patch::diff(&self.state, &new);
                self.changes(out, &changes);
                self.state = new;
            }
            Body::StateDelta { patch } => {
                self.changes(out, patch);
                let _ = patch::apply(&mut self.state, patch, &patch::Limits::default());
            }
            Body::ActivitySnapshot { kind, content, .. } => {
                let text =
                    clipped(&one_line(content.get()), self.columns.saturating_sub(kind.len() + 4).max(20));
                self.line(out, format!("{} {} {}", styled(CYAN, "◆"), one_line(kind), styled(DIM, text)));
            }
            Body::ActivityDelta { kind, patch, .. } => {
                let changes: Vec<_> = patch.0.iter().map(|operation| one_line(&operation.path)).collect();
                self.line(out, styled(DIM, format!("◆ {} changed {}", one_line(kind), changes.join(", "))));
            }
            Body::SubagentStarted(started) => {
                self.line(out, styled(CYAN, format!("⤷ {}", one_line(&started.name))))
            }
            Body::SubagentError { message, .. } => {
                self.line(out, styled(RED, format!("⤷ ✗ {}", one_line(message))));
            }
            Body::Custom { name, value } => self.custom(out, name, value.get()),
            Body::Citation(citation) => {
                self.citations += 1;
                let title = citation.title.as_deref().or(citation.filename.as_deref()).unwrap_or("source");
                let url = citation.url.as_deref().unwrap_or_default();
                let text = format!("[{}] {} {}", self.citations, one_line(title), one_line(url));
                self.line(out, styled(DIM, text));
            }
            Body::File(file) => self.file(out, file),
            Body::Block(block) => self.block(out, block),
            Body::CollaborationStart { from, to, .. } => {
                self.handover = Some((from.clone(), to.clone()));
            }
            Body::CollaborationTask { task, .. } => {
                let (from, to) = self.handover.clone().unwrap_or_default();
                let value = task.to_value();
                let task = value
                    .get("name")
                    .and_then(Value::as_str)
                    .map_or_else(|| task.get().to_owned(), str::to_owned);
                let text = format!("{} → {}: {}", one_line(&from), one_line(&to), one_line(&task));
                self.line(out, styled(CYAN, text));
            }
            _ => {}
        }
    }

    fn custom(&mut self, out: &mut String, name: &str, value: &str) {
        if name == "hai.run_status" {
            let status = if value.contains("paused") { "⏸ paused" } else { "▶ resumed" };
            return self.line(out, styled(YELLOW, status));
        }
        let text = clipped(&one_line(value), self.columns.saturating_sub(name.len() + 4).max(20));
        self.line(out, styled(DIM, format!("· {} {text}", one_line(name))));
    }

    fn thought(&mut self, out: &mut String, text: &str) {
        let words = text.split_whitespace().count();
        let first = one_line(text.trim().lines().next().unwrap_or_default());
        let note = format!(" ({words} words)");
        let shown = clipped(&first, self.columns.saturating_sub(note.len() + 4).max(20));
        self.line(out, styled(DIM, format!("✻ {shown}{note}")));
    }

    fn changes(&mut self, out: &mut String, patch: &Patch) {
        for operation in patch.0.iter().take(MAX_CHANGES) {
            let value = operation.value.as_ref().map(|value| one_line(value.get())).unwrap_or_default();
            let value = clipped(&value, self.columns.saturating_sub(operation.path.len() + 6).max(20));
            let path = one_line(&operation.path);
            let text = match operation.op {
                Op::Add => styled(GREEN, format!("+ {path} {value}")),
                Op::Remove => styled(RED, format!("- {path}")),
                Op::Replace => {
                    let old =
                        self.state.pointer(&operation.path).map(ToString::to_string).unwrap_or_default();
                    let old = clipped(&one_line(&old), 30);
                    styled(YELLOW, format!("~ {path} {old} → {value}"))
                }
                other => styled(YELLOW, format!("~ {} {path}", other.as_str())),
            };
            self.line(out, text);
        }
        if patch.0.len() > MAX_CHANGES {
            self.line(out, styled(DIM, format!("  … {} more changes", patch.0.len() - MAX_CHANGES)));
        }
    }

    fn file(&mut self, out: &mut String, file: &File) {
        let mark = match file.kind {
            MediaKind::Image => "image",
            MediaKind::Audio => "audio",
            MediaKind::Video => "video",
            MediaKind::Document => "file",
        };
        let name = file.name.as_deref().map(one_line).unwrap_or_default();
        let mime = file.source.mime_type().map(one_line).unwrap_or_default();
        let place = match &file.source {
            PartSource::Data { value, .. } => size(value.len() / 4 * 3),
            PartSource::Url { value, .. } | PartSource::File { value, .. } => clipped(&one_line(value), 60),
        };
        if let (MediaKind::Image, PartSource::Data { value, .. }) = (file.kind, &file.source) {
            self.image(out, value);
        }
        self.line(
            out,
            format!(
                "{} {name} {}",
                styled(CYAN, format!("[{mark}]")),
                styled(DIM, format!("{mime}, {place}"))
            ),
        );
    }

    /// Draws an image, where the terminal can.
    fn image(&mut self, out: &mut String, base64: &str) {
        let is_base64 =
            base64.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
        // The protocol of kitty has no other compressed images than PNG.
        let is_drawn = match self.images {
            Images::No => false,
            Images::Kitty => base64.starts_with("iVBORw0KGgo"),
            Images::ITerm => true,
        };
        if !is_base64 || !is_drawn || base64.is_empty() {
            return;
        }
        self.close_text(out);
        match self.images {
            Images::ITerm => out.push_str(&format!("\x1b]1337;File=inline=1:{base64}\x07\n")),
            _ => {
                let pieces: Vec<&[u8]> = base64.as_bytes().chunks(4096).collect();
                for (at, piece) in pieces.iter().enumerate() {
                    // Without replies (`q=2`), which would be read as keys.
                    let head = if at == 0 { "f=100,a=T,q=2," } else { "" };
                    let more = u8::from(at + 1 < pieces.len());
                    out.push_str(&format!("\x1b_G{head}m={more};{}\x1b\\", String::from_utf8_lossy(piece)));
                }
                out.push('\n');
            }
        }
    }

    /// Draws an output of HAI.
    fn block(&mut self, out: &mut String, block: &Block) {
        let output = block.output.to_value();
        let data = output.get("data").unwrap_or(&output);
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.kind().as_str() {
            "table" => self.table(out, data),
            "echarts" => self.chart(out, data.get("option").unwrap_or(data)),
            "button" => {
                self.choices.push(text("name"));
                let number = self.choices.len();
                self.line(
                    out,
                    format!("{} {}", styled(BOLD, format!("[{number}]")), one_line(&text("name"))),
                );
            }
            "fold" if text("position") == "end" => self.folds = self.folds.saturating_sub(1),
            "fold" => {
                let title = format!("{}▾ {}", "  ".repeat(self.folds), one_line(&text("title")));
                self.line(out, styled(BOLD, title));
                self.folds += 1;
            }
            "thinking" | "think" => self.thought(out, &text("content")),
            "icon" => self.line(out, format!("({})", one_line(&text("icon")))),
            "toolCallShow" => {
                self.line(out, styled(BOLD, format!("⚙ {}", one_line(&text("title")))));
                for tool in data.get("tools").and_then(Value::as_array).into_iter().flatten() {
                    let member = |key: &str| {
                        tool.get(key)
                            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                            .unwrap_or_default()
                    };
                    let progress = one_line(&member("progress"));
                    let line = format!(
                        "  {} {} {}",
                        one_line(&member("name")),
                        one_line(&member("description")),
                        styled(DIM, progress)
                    );
                    self.line(out, line);
                    for shown in tool.pointer("/data/data").and_then(Value::as_array).into_iter().flatten() {
                        let output = shown.get("output").unwrap_or(shown);
                        match output.get("type").and_then(Value::as_str) {
                            Some("table") => self.table(out, output.get("data").unwrap_or(output)),
                            Some("echarts") => {
                                self.chart(out, output.pointer("/data/option").unwrap_or(output))
                            }
                            _ => {}
                        }
                    }
                }
            }
            "image" | "audio" | "video" | "file" => {
                if block.kind() == "image" {
                    self.image(out, &text("data"));
                }
                let name = if text("name").is_empty() { text("alt") } else { text("name") };
                let place =
                    if text("data").is_empty() { text("url") } else { size(text("data").len() / 4 * 3) };
                let line =
                    format!("[{}] {} {}", block.kind(), one_line(&name), clipped(&one_line(&place), 60));
                self.line(out, line);
            }
            kind => {
                let line = format!(
                    "[{}] {}",
                    one_line(kind),
                    clipped(&one_line(block.output.get()), self.columns.saturating_sub(10))
                );
                self.line(out, styled(DIM, line));
            }
        }
    }

    fn table(&mut self, out: &mut String, data: &Value) {
        let cell = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            Value::Object(object) => {
                let named = object.get("title").or_else(|| object.get("name")).and_then(Value::as_str);
                named.map_or_else(|| value.to_string(), str::to_owned)
            }
            other => other.to_string(),
        };
        let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let header: Vec<String> = list(data.get("columns")).iter().map(cell).collect();
        let rows: Vec<Vec<String>> = list(data.get("rows"))
            .iter()
            .map(|row| {
                row.as_array().map_or_else(|| vec![cell(row)], |cells| cells.iter().map(cell).collect())
            })
            .collect();
        for line in table(&header, &rows, self.columns) {
            self.line(out, line);
        }
    }

    /// A chart as a table of its series.
    fn chart(&mut self, out: &mut String, option: &Value) {
        let title = option.pointer("/title/text").and_then(Value::as_str).unwrap_or("chart");
        self.line(out, styled(BOLD, format!("[chart] {}", one_line(title))));
        let categories = option.pointer("/xAxis/data").and_then(Value::as_array).cloned().unwrap_or_default();
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut header = vec![String::new()];
        header.extend(categories.iter().map(shown));
        let series = option.get("series").and_then(Value::as_array).cloned().unwrap_or_default();
        let rows: Vec<Vec<String>> = series
            .iter()
            .map(|one| {
                let mut row = vec![one.get("name").map(shown).unwrap_or_default()];
                row.extend(one.get("data").and_then(Value::as_array).into_iter().flatten().map(shown));
                row
            })
            .collect();
        for line in table(&header, &rows, self.columns) {
            self.line(out, line);
        }
    }

    fn close_text(&mut self, out: &mut String) {
        if self.open_text.take().is_some() {
            let rest = self.markdown.finish();
            self.text(out, &rest);
            if !self.is_at_line_start {
                self.text(out, "\n");
            }
        }
    }

    /// Adds a line of its own.
    fn line(&mut self, out: &mut String, line: String) {
        if !self.is_at_line_start {
            self.text(out, "\n");
        }
        self.text(out, &line);
        self.text(out, "\n");
    }

    fn text(&mut self, out: &mut String, text: &str) {
        if let Some(last) = text.chars().last() {
            self.is_at_line_start = last == '\n';
            out.push_str(text);
        }
    }
}

fn usage(usage: &[Usage]) -> Option<String> {
    let sum = |of: fn(&Usage) -> Option<u64>| usage.iter().filter_map(of).sum::<u64>();
    let (input, output) = (sum(|it| it.input), sum(|it| it.output));
    (input + output > 0).then(|| format!("{input} tokens in, {output} out"))
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn drawn(images: Images, base64: &str, is_block: bool) -> String {
        let body = if is_block {
            let output = serde_json::json!({"type": "image", "data": {"data": base64, "mimeType": "image/png", "name": "a"}});
            Body::Block(Box::new(Block {
                id: "b".into(),
                message: "m".into(),
                output: agentwire_core::json::Object::from_value(&output).expect("an object"),
                layout: None,
                block_id: None,
                style: None,
            }))
        } else {
            let source = PartSource::Data { value: base64.into(), mime_type: "image/png".into() };
            Body::File(Box::new(File {
                id: "f".into(),
                message: None,
                kind: MediaKind::Image,
                source,
                name: None,
            }))
        };
        Screen::new(80, images, false).event(&Event::new(body))
    }

    #[test]
    fn images_are_drawn_where_the_terminal_can() {
        for is_block in [false, true] {
            assert!(
                drawn(Images::Kitty, PNG, is_block).contains(&format!("\x1b_Gf=100,a=T,q=2,m=0;{PNG}\x1b\\"))
            );
            assert!(
                drawn(Images::ITerm, PNG, is_block).contains(&format!("\x1b]1337;File=inline=1:{PNG}\x07"))
            );
            for (images, data) in [
                (Images::No, PNG),
                // Not PNG.
                (Images::Kitty, "/9j/4AAQSkZJRg=="),
                // A server must not control the terminal.
                (Images::ITerm, "AAAA\x07\x1b]0;owned"),
                (Images::ITerm, ""),
            ] {
                let text = drawn(images, data, is_block);
                assert!(
                    !text.contains("1337") && !text.contains("\x1b_G") && text.contains("image"),
                    "{text:?}"
                );
            }
        }
        let long = format!("{PNG}{}", "A".repeat(9000));
        let pieces: Vec<_> = drawn(Images::Kitty, &long, false).split("\x1b_G").map(str::len).collect();
        assert_eq!(pieces.len(), 4, "three pieces of 4096 letters at most");
    }

    #[test]
    fn the_protocol_is_that_of_the_terminal() {
        let of = |given: &[(&str, &str)]| {
            Images::of(|name| given.iter().find(|(known, _)| *known == name).map_or("", |it| it.1).to_owned())
        };
        assert_eq!(of(&[("TERM", "xterm-kitty")]), Images::Kitty);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")]), Images::ITerm);
        assert_eq!(of(&[("TERM", "tmux-256color"), ("KITTY_WINDOW_ID", "1")]), Images::No);
        assert_eq!(of(&[("TERM", "xterm-kitty"), ("TMUX", "socket,1,0")]), Images::No);
        assert_eq!(of(&[("TERM", "xterm-256color")]), Images::No);
    }
}
