//! The built-in agent: demonstrates all types of events, without a model and without a network.
//!
//! It is deterministic: its events depend on the request alone, and ids derive from the run id. Keywords in the last
//! user message choose the events; [`Demo`]'s greeting lists them.

use std::time::Duration;

use agentwire_core::{
    event::{MessageBody, PartSource, ResumeStatus, Usage},
    json::Json,
    patch::{Patch, PatchOp},
};
use serde_json::{Value, json};

use super::{
    Agent, BoxError, BoxFuture, EmitError, Emitter, EventSink, Question, Request, TextMessage,
    ToolCallEmitter, emitting,
};
use crate::error::UpstreamError;

/// The delay of a word: short, but long enough to see the streaming.
const WORD: Duration = Duration::from_millis(20);

/// The delay of a word in a slow run.
const SLOW_WORD: Duration = Duration::from_millis(1000);

/// The largest N of `long N`.
const LONGEST: usize = 100_000;

/// The keywords and their descriptions.
const KEYWORDS: &[(&str, &str)] = &[
    ("think", "reasoning before the answer"),
    ("tools", "two tool calls at once"),
    ("tool error", "a tool that fails"),
    ("state", "shared state, first whole and then as changes"),
    ("steps", "named steps"),
    ("subagent", "work handed to subagents"),
    ("plan", "an activity that changes while it is shown"),
    ("media", "an image and a source"),
    ("confirm", "a tool that your front end runs (declare `confirmAction`)"),
    ("approve", "a question that interrupts the run"),
    ("long N", "an answer of N words"),
    ("slow", "an answer that takes ten seconds"),
    ("fail", "a run that fails"),
];

/// The built-in agent.
#[derive(Clone, Copy, Debug)]
pub struct Demo {
    word: Duration,
    slow_word: Duration,
}

impl Default for Demo {
    fn default() -> Self {
        Self { word: WORD, slow_word: SLOW_WORD }
    }
}

impl Demo {
    /// The same agent without pauses, for tests and benchmarks.
    #[must_use]
    pub fn without_pauses() -> Self {
        Self { word: Duration::ZERO, slow_word: Duration::ZERO }
    }
}

impl Agent for Demo {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let demo = *self;
        emitting(request, sink, move |request, emit| async move {
            let asked = request.user_text().to_lowercase();
            let mut show = Show { demo, emit, request, asked, words: 0 };
            show.scenes().await?;
            show.count();
            Ok(())
        })
    }
}

/// One run of the demo agent.
struct Show {
    demo: Demo,
    emit: Emitter,
    request: Request,
    /// The user's message in lower case.
    asked: String,
    /// The number of messages so far.
    words: u64,
}

impl Show {
    async fn pause(&self) {
        pause(self.demo.word).await;
    }

    async fn scenes(&mut self) -> Result<(), BoxError> {
        if let Some(answer) = self.answered() {
            self.text(&answer).await?;
            return Ok(());
        }
        let asked = self.asked.clone();
        let wants = |word: &str| asked.contains(word);
        let mut shown = false;
        if wants("think") {
            self.think().await?;
            shown = true;
        }
        if wants("steps") {
            self.steps().await?;
            shown = true;
        }
        if wants("tool error") {
            self.tool_error().await?;
            shown = true;
        } else if wants("tools") {
            self.tools().await?;
            shown = true;
        }
        if wants("state") {
            self.state().await?;
            shown = true;
        }
        if wants("subagent") {
            self.subagents().await?;
            shown = true;
        }
        if wants("plan") {
            self.plan().await?;
            shown = true;
        }
        if wants("media") {
            self.media().await?;
            shown = true;
        }
        if let Some(words) = number_after(&asked, "long") {
            let text: Vec<_> = (1..=words.min(LONGEST)).map(|n| format!("word{n}")).collect();
            self.say(&text.join(" "), Duration::ZERO).await?;
        } else if wants("slow") {
            self.say("This answer takes its time: ten words in ten seconds.", self.demo.slow_word).await?;
        } else if wants("fail") {
            self.text("Something is about to go").await?;
            return Err(
                UpstreamError::new("DEMO_FAILURE", "the demo agent failed, as it was asked to").into()
            );
        } else if wants("confirm") {
            self.confirm().await?;
        } else if wants("approve") {
            self.approve().await?;
        } else {
            self.text(&if shown { "That was it.".to_owned() } else { greeting() }).await?;
        }
        Ok(())
    }

    /// The text for a request that answers an open item of an earlier run.
    fn answered(&self) -> Option<String> {
        let input = &self.request.input;
        if let Some(entry) = input.resume.iter().flatten().next() {
            let answer = match (entry.status, &entry.payload) {
                (ResumeStatus::Cancelled, _) => "You left the question open, so nothing was done.".to_owned(),
                (ResumeStatus::Resolved, Some(payload)) => format!("Your answer was {}.", payload.get()),
                (ResumeStatus::Resolved, None) => "You agreed.".to_owned(),
            };
            return Some(answer);
        }
        match &input.messages.last()?.body {
            MessageBody::Tool { content, error: None, .. } => {
                Some(format!("Your front end answered {}.", content.text()))
            }
            MessageBody::Tool { error: Some(error), .. } => Some(format!("Your front end failed: {error}.")),
            _ => None,
        }
    }

    /// Streams a text word by word. Tool calls, sources and files can be added to the returned message.
    async fn text(&mut self, text: &str) -> Result<TextMessage, EmitError> {
        self.say(text, self.demo.word).await
    }

    async fn say(&mut self, text: &str, after_each: Duration) -> Result<TextMessage, EmitError> {
        let emit = self.emit.clone();
        self.say_by(&emit, text, after_each).await
    }

    async fn say_by(
        &mut self,
        by: &Emitter,
        text: &str,
        after_each: Duration,
    ) -> Result<TextMessage, EmitError> {
        let mut message = by.message();
        // `long 0` still has a message.
        message.push("").await?;
        for word in text.split_inclusive(' ') {
            message.push(word).await?;
            self.words += 1;
            pause(after_each).await;
        }
        message.close().await?;
        Ok(message)
    }

    async fn think(&mut self) -> Result<(), EmitError> {
        let mut thought = self.emit.thought().titled("Thinking").encrypted("c2lnbmF0dXJl");
        for word in "First I look at the question, then I decide what to say.".split_inclusive(' ') {
            thought.push(word).await?;
            self.pause().await;
        }
        Ok(())
    }

    async fn steps(&mut self) -> Result<(), EmitError> {
        for name in ["look", "decide"] {
            let _step = self.emit.step(name).await?;
            self.text(&format!("This is the step {name}.")).await?;
        }
        Ok(())
    }

    /// Starts a tool call and streams its arguments in two pieces.
    async fn call(
        &self,
        name: &str,
        parent: &TextMessage,
        arguments: &Value,
    ) -> Result<ToolCallEmitter, EmitError> {
        let mut call = parent.open_call(name).await?;
        let text = arguments.to_string();
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        for piece in [&text[..middle], &text[middle..]] {
            call.push(piece).await?;
            self.pause().await;
        }
        Ok(call)
    }

    async fn tools(&mut self) -> Result<(), EmitError> {
        let parent = self.text("I ask two tools at once.").await?;
        let mut weather = self.call("weather", &parent, &json!({"city": "Bern"})).await?;
        let mut clock = self.call("clock", &parent, &json!({"zone": "Europe/Zurich"})).await?;
        weather.close().await?;
        clock.close().await?;
        clock.result("12:00").await?;
        weather.result("7 degrees, rain").await?;
        Ok(())
    }

    async fn tool_error(&mut self) -> Result<(), EmitError> {
        let parent = self.text("I ask a tool that fails.").await?;
        let call = self.call("broken", &parent, &json!({})).await?;
        call.fail("no answer", "the tool is broken").await?;
        Ok(())
    }

    async fn state(&mut self) -> Result<(), EmitError> {
        let state = self.emit.state();
        let mut whole = state.get("").filter(Value::is_object).unwrap_or_else(|| json!({}));
        whole["demo"] = json!({"progress": 0, "log": []});
        state.replace(whole).await?;
        for percent in [25, 50, 75, 100] {
            let patch = Patch(vec![
                PatchOp::replace("/demo/progress", Json::from(json!(percent))),
                PatchOp::add("/demo/log/-", Json::from(json!(format!("{percent} %")))),
            ]);
            state.patch(patch).await?;
            self.pause().await;
        }
        Ok(())
    }

    async fn subagents(&mut self) -> Result<(), EmitError> {
        let emit = self.emit.clone();
        let new = |name: &str| emit.subagent(name).described(format!("the {name} of the demo"));
        let (outer, inner) = (new("researcher"), new("summariser"));
        let outer = outer.start().await?;
        self.say_by(&outer, "The researcher reads.", self.demo.word).await?;
        let inner = inner.within(&outer).start().await?;
        self.say_by(&inner, "The summariser writes.", self.demo.word).await?;
        Ok(())
    }

    async fn plan(&mut self) -> Result<(), EmitError> {
        let items: Vec<_> =
            ["read", "think", "write"].iter().map(|name| json!({"name": name, "done": false})).collect();
        let mut plan = self.emit.activity("demo.plan", json!({"items": items})).await?;
        for index in 0..items.len() {
            let done = PatchOp::replace(format!("/items/{index}/done"), Json::from(json!(true)));
            plan.patch(Patch(vec![done])).await?;
            self.pause().await;
        }
        Ok(())
    }

    async fn media(&mut self) -> Result<(), EmitError> {
        let message = self.text("Here is a red dot, and where it comes from.").await?;
        let dot = PartSource::Data { value: RED_DOT.into(), mime_type: "image/png".into() };
        message.file(dot, Some("red-dot.png")).await?;
        message.source("https://www.rfc-editor.org/rfc/rfc2397", "The \"data\" URL scheme").await?;
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), EmitError> {
        let offered = self.request.input.tools.first().map_or("confirmAction", |tool| &tool.name).to_owned();
        let parent = self.text("Your front end shall decide.").await?;
        let arguments = json!({"action": "Show a demo", "importance": "low"});
        self.call(&offered, &parent, &arguments).await?.leave_open();
        Ok(())
    }

    async fn approve(&mut self) -> Result<(), EmitError> {
        let parent = self.text("I would like to pay 40 EUR.").await?;
        let call = self.call("pay", &parent, &json!({"amount": 40, "currency": "EUR"})).await?;
        let schema = json!({
            "type": "object",
            "properties": {"approved": {"type": "boolean"}},
            "required": ["approved"],
        });
        self.emit.interrupt(Question::new("Pay 40 EUR?").about(call.id()).schema(schema));
        Ok(())
    }

    fn count(&self) {
        let input = self.asked.split_whitespace().count() as u64;
        self.emit.usage(Usage {
            provider: Some("agentwire".into()),
            model: Some("demo".into()),
            input: Some(input),
            output: Some(self.words),
            total: Some(input + self.words),
            ..Usage::default()
        });
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// A 5 × 5 red dot.
const RED_DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==";

fn greeting() -> String {
    let mut text =
        String::from("Hello, I am the demo agent of agentwire. Say one of these words and I show it:\n");
    for (word, what) in KEYWORDS {
        text.push_str(&format!("- {word}: {what}\n"));
    }
    text
}

/// The number after `word`.
fn number_after(text: &str, word: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use agentwire_core::{
        event::{Body, Event, Message, ResumeEntry, RunError, RunInput, RunStarted},
        format::{Options, Setup, ag_ui},
        framing::{Frames, Framing},
        order::Checker,
    };

    use super::*;

    /// The events of a run.
    async fn events_of(input: RunInput) -> Vec<Event> {
        let (sink, mut receiver) = EventSink::new(1000);
        let end = Demo::without_pauses().run(Request::new(input), sink).await;
        let mut events = Vec::new();
        receiver.recv_many(&mut events, 1000).await;
        events.extend(end.err().map(|failure| {
            Event::new(Body::RunError(Box::new(RunError::new(failure.to_string(), Some(failure.code())))))
        }));
        events.retain(|event| !matches!(event.body, Body::RunStarted(_)));
        events
    }

    async fn events(text: &str) -> Vec<Event> {
        let mut input = RunInput::new("t", "r");
        input.messages.push(Message::user("u", text));
        events_of(input).await
    }

    #[tokio::test]
    async fn events_match_the_snapshot() {
        let mut text_of_all = String::new();
        let words = KEYWORDS.iter().map(|(word, _)| word.replace('N', "3"));
        for text in words.chain(["long 0".into(), "think tools state approve".into(), "hello".into()]) {
            text_of_all.push_str(&format!("{text}:\n"));
            let options = Options::default();
            let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
            let writer = ag_ui::FORMAT.writer.expect("AG-UI has a writer");
            let mut writer = writer(&ag_ui::FORMAT.profiles[0], &setup);
            let mut frames = Frames::new(Framing::Lines);
            for event in events(&text).await {
                writer.write(&event, &mut frames);
                frames.drain(|line| text_of_all.push_str(&format!("  {}", String::from_utf8_lossy(line))));
            }
        }
        insta::assert_snapshot!(text_of_all);
    }

    #[tokio::test]
    async fn every_keyword_gives_a_valid_run() {
        let all: Vec<_> = KEYWORDS.iter().map(|(word, _)| word.replace('N', "50")).collect();
        for text in all.iter().chain([&"hello".to_owned(), &all.join(" ")]) {
            let mut checker = Checker::new();
            let started = RunStarted::new("t", "r");
            assert_eq!(checker.check(&Event::new(Body::RunStarted(Box::new(started)))), None);
            for event in events(text).await {
                assert_eq!(checker.check(&event), None, "{text}");
            }
            assert_eq!(checker.end(), None, "{text}");
        }
    }

    #[tokio::test]
    async fn every_keyword_has_its_own_events() {
        let plain: Vec<_> = events("hello").await.iter().map(Event::kind).collect();
        for (word, _) in KEYWORDS {
            let shown: Vec<_> = events(&word.replace('N', "5")).await.iter().map(Event::kind).collect();
            assert_ne!(shown, plain, "{word}");
        }
    }

    #[tokio::test]
    async fn the_greeting_lists_every_keyword() {
        let text: String = events("hello")
            .await
            .iter()
            .filter_map(|event| match &event.body {
                Body::TextDelta { delta, .. } => Some(&**delta),
                _ => None,
            })
            .collect();
        assert!(KEYWORDS.iter().all(|(word, _)| text.contains(word)), "{text}");
    }

    #[tokio::test]
    async fn the_same_request_gives_the_same_events() {
        assert_eq!(events("think tools state").await, events("think tools state").await);
    }

    #[tokio::test]
    async fn answers_are_part_of_the_text() {
        let mut input = RunInput::new("t", "r");
        input.resume = Some(vec![ResumeEntry {
            interrupt: "i".into(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(json!({"approved": true}))),
            metadata: None,
        }]);
        let is_mentioned = events_of(input)
            .await
            .into_iter()
            .any(|event| matches!(&event.body, Body::TextDelta { delta, .. } if delta.contains("approved")));
        assert!(is_mentioned);
    }
}
