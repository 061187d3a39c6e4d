//! The built-in agent: shows everything that the wire can carry, without a model and without a network.
//!
//! It is deterministic: what it says depends on the request alone, ids derive from the run id. Words in the last
//! user message choose what is shown; [`Demo`]'s greeting lists them.

use std::time::Duration;

use agentwire_core::{
    event::{
        Body, Content, EncryptedEntity, Event, File, Interrupt, MediaKind, Message, MessageBody, MessageId,
        Outcome, PartSource, ResumeStatus, RunError, RunFinished, RunInput, RunStarted, Source, SubagentId,
        SubagentStarted, ToolCallId, ToolResult, Usage,
    },
    json::{Json, Object},
    patch::{Patch, PatchOp},
};
use serde_json::json;

use super::{Agent, BoxFuture, Failure, Outlet, Request};

/// How long a word takes: quick enough not to bore, slow enough to be seen streaming.
const WORD: Duration = Duration::from_millis(20);

/// How long a word takes in a slow run.
const SLOW_WORD: Duration = Duration::from_millis(1000);

/// The longest answer that `long N` gives.
const LONGEST: usize = 100_000;

/// What can be asked for: the word, and what it shows.
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
    fn run(&self, request: Request, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>> {
        let (word, slow_word) = (self.word, self.slow_word);
        Box::pin(async move {
            for Line { event, pause } in script(&request.input) {
                outlet.send(event).await?;
                let pause = match pause {
                    Pause::None => Duration::ZERO,
                    Pause::Word => word,
                    Pause::Slow => slow_word,
                };
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            Ok(())
        })
    }
}

/// One event and the pause after it.
struct Line {
    event: Event,
    pause: Pause,
}

#[derive(Clone, Copy, PartialEq)]
enum Pause {
    None,
    Word,
    Slow,
}

/// Writes the script of one run.
struct Script<'i> {
    input: &'i RunInput,
    lines: Vec<Line>,
    made: usize,
}

/// Everything that the run says, in order.
fn script(input: &RunInput) -> Vec<Line> {
    let mut script = Script { input, lines: Vec::new(), made: 0 };
    script.push(Body::RunStarted(Box::new(RunStarted::new(input.thread.clone(), input.run.clone()))));
    let ending = script.scenes();
    script.push(ending);
    script.lines
}

impl Script<'_> {
    fn push(&mut self, body: Body) {
        self.say(Event::new(body), Pause::None);
    }

    fn say(&mut self, event: Event, pause: Pause) {
        self.lines.push(Line { event, pause });
    }

    /// An id that nothing else in the thread has.
    fn id(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{}:{what}{}", self.input.run, self.made)
    }

    fn scenes(&mut self) -> Body {
        if let Some(answer) = self.answered() {
            self.text(&answer, Pause::Word, None);
            return self.finish(None);
        }
        let asked = last_user_text(&self.input.messages);
        let wants = |word: &str| asked.contains(word);
        let mut shown = false;
        if wants("think") {
            self.think();
            shown = true;
        }
        if wants("steps") {
            self.steps();
            shown = true;
        }
        if wants("tool error") {
            self.tool_error();
            shown = true;
        } else if wants("tools") {
            self.tools();
            shown = true;
        }
        if wants("state") {
            self.state();
            shown = true;
        }
        if wants("subagent") {
            self.subagents();
            shown = true;
        }
        if wants("plan") {
            self.plan();
            shown = true;
        }
        if wants("media") {
            self.media();
            shown = true;
        }
        if let Some(words) = number_after(&asked, "long") {
            let words = words.min(LONGEST);
            let text: Vec<_> = (1..=words).map(|n| format!("word{n}")).collect();
            self.text(&text.join(" "), Pause::None, None);
            return self.finish(None);
        }
        if wants("slow") {
            self.text("This answer takes its time: ten words in ten seconds.", Pause::Slow, None);
            return self.finish(None);
        }
        if wants("fail") {
            self.text("Something is about to go", Pause::Word, None);
            let error = RunError::new("the demo agent failed, as it was asked to", Some("DEMO_FAILURE"));
            return Body::RunError(Box::new(error));
        }
        if wants("confirm") {
            return self.confirm();
        }
        if wants("approve") {
            return self.approve();
        }
        let answer = if shown { "That was it.".to_owned() } else { greeting() };
        self.text(&answer, Pause::Word, None);
        self.finish(None)
    }

    /// What to say when the request answers something that an earlier run left open.
    fn answered(&self) -> Option<String> {
        if let Some(entry) = self.input.resume.iter().flatten().next() {
            let answer = match (entry.status, &entry.payload) {
                (ResumeStatus::Cancelled, _) => "You left the question open, so nothing was done.".to_owned(),
                (ResumeStatus::Resolved, Some(payload)) => format!("Your answer was {}.", payload.get()),
                (ResumeStatus::Resolved, None) => "You agreed.".to_owned(),
            };
            return Some(answer);
        }
        match &self.input.messages.last()?.body {
            MessageBody::Tool { content, error: None, .. } => {
                Some(format!("Your front end answered {}.", content.text()))
            }
            MessageBody::Tool { error: Some(error), .. } => Some(format!("Your front end failed: {error}.")),
            _ => None,
        }
    }

    /// Streams a text, word by word.
    fn text(&mut self, text: &str, pause: Pause, subagent: Option<&SubagentId>) -> MessageId {
        let message = MessageId::from(self.id("m"));
        let by = |body| Event::new(body).by(subagent.cloned());
        let start = Body::TextStart { message: message.clone(), role: None, name: None };
        self.say(by(start), Pause::None);
        for delta in text.split_inclusive(' ') {
            let delta = Body::TextDelta { message: message.clone(), delta: delta.into() };
            self.say(by(delta), pause);
        }
        self.say(by(Body::TextEnd { message: message.clone() }), Pause::None);
        message
    }

    fn think(&mut self) {
        let message = MessageId::from(self.id("z"));
        self.push(Body::ReasoningStart { message: message.clone(), title: Some("Thinking".into()) });
        self.push(Body::ReasoningMessageStart { message: message.clone() });
        for delta in "First I look at the question, then I decide what to say.".split_inclusive(' ') {
            let event = Event::new(Body::ReasoningDelta { message: message.clone(), delta: delta.into() });
            self.say(event, Pause::Word);
        }
        self.push(Body::ReasoningMessageEnd { message: message.clone() });
        self.push(Body::ReasoningEncrypted {
            entity: EncryptedEntity::Message(message.clone()),
            value: "c2lnbmF0dXJl".into(),
        });
        self.push(Body::ReasoningEnd { message });
    }

    fn steps(&mut self) {
        for name in ["look", "decide"] {
            self.push(Body::StepStarted { name: name.into() });
            self.text(&format!("This is the step {name}."), Pause::Word, None);
            self.push(Body::StepFinished { name: name.into() });
        }
    }

    /// Announces a call and streams its arguments in two pieces.
    fn call(&mut self, name: &str, parent: &MessageId, arguments: &serde_json::Value) -> ToolCallId {
        let call = ToolCallId::from(self.id("c"));
        let text = arguments.to_string();
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.push(Body::ToolStart { call: call.clone(), name: name.into(), parent: Some(parent.clone()) });
        for delta in [&text[..middle], &text[middle..]] {
            let event = Event::new(Body::ToolArgs { call: call.clone(), delta: delta.into() });
            self.say(event, Pause::Word);
        }
        call
    }

    fn result(&mut self, call: &ToolCallId, content: &str, error: Option<&str>) {
        let message = MessageId::from(self.id("t"));
        self.push(Body::ToolResult(Box::new(ToolResult {
            message,
            call: call.clone(),
            content: Content::from(content),
            error: error.map(Into::into),
            explicit_role: false,
        })));
    }

    fn tools(&mut self) {
        let parent = self.text("I ask two tools at once.", Pause::Word, None);
        let weather = self.call("weather", &parent, &json!({"city": "Bern"}));
        let clock = self.call("clock", &parent, &json!({"zone": "Europe/Zurich"}));
        self.push(Body::ToolEnd { call: weather.clone() });
        self.push(Body::ToolEnd { call: clock.clone() });
        self.result(&clock, "12:00", None);
        self.result(&weather, "7 degrees, rain", None);
    }

    fn tool_error(&mut self) {
        let parent = self.text("I ask a tool that fails.", Pause::Word, None);
        let call = self.call("broken", &parent, &json!({}));
        self.push(Body::ToolEnd { call: call.clone() });
        self.result(&call, "no answer", Some("the tool is broken"));
    }

    fn state(&mut self) {
        let base = self.input.state.as_ref().map(Json::to_value).filter(serde_json::Value::is_object);
        let mut state = base.unwrap_or_else(|| json!({}));
        state["demo"] = json!({"progress": 0, "log": []});
        self.push(Body::StateSnapshot { snapshot: Json::from(&state) });
        for percent in [25, 50, 75, 100] {
            let patch = Patch(vec![
                PatchOp::replace("/demo/progress", Json::from(json!(percent))),
                PatchOp::add("/demo/log/-", Json::from(json!(format!("{percent} %")))),
            ]);
            self.say(Event::new(Body::StateDelta { patch }), Pause::Word);
        }
    }

    fn subagents(&mut self) {
        let (outer, inner) = (SubagentId::from(self.id("s")), SubagentId::from(self.id("s")));
        let start = |name: &str, parent: Option<&SubagentId>| {
            Body::SubagentStarted(Box::new(SubagentStarted {
                name: name.into(),
                description: Some(format!("the {name} of the demo").into()),
                parent_subagent: parent.cloned(),
                parent_call: None,
                parent_message: None,
            }))
        };
        let by = |body, subagent: &SubagentId| Event::new(body).by(Some(subagent.clone()));
        let done = || Body::SubagentFinished { result: None, outcome: None };
        self.say(by(start("researcher", None), &outer), Pause::None);
        self.text("The researcher reads.", Pause::Word, Some(&outer));
        self.say(by(start("summariser", Some(&outer)), &inner), Pause::None);
        self.text("The summariser writes.", Pause::Word, Some(&inner));
        self.say(by(done(), &inner), Pause::None);
        self.say(by(done(), &outer), Pause::None);
    }

    fn plan(&mut self) {
        let message = MessageId::from(self.id("a"));
        let items: Vec<_> =
            ["read", "think", "write"].iter().map(|name| json!({"name": name, "done": false})).collect();
        let content = Object::from_value(&json!({"items": items})).expect("the content is an object");
        let kind = "demo.plan";
        self.push(Body::ActivitySnapshot {
            message: message.clone(),
            kind: kind.into(),
            content,
            replace: None,
        });
        for index in 0..3 {
            let done = PatchOp::replace(format!("/items/{index}/done"), Json::from(json!(true)));
            let event = Event::new(Body::ActivityDelta {
                message: message.clone(),
                kind: kind.into(),
                patch: Patch(vec![done]),
            });
            self.say(event, Pause::Word);
        }
    }

    fn media(&mut self) {
        let message = self.text("Here is a red dot, and where it comes from.", Pause::Word, None);
        let (file, source) = (MessageId::from(self.id("f")), MessageId::from(self.id("q")));
        self.push(Body::File(Box::new(File {
            id: file,
            message: Some(message.clone()),
            kind: MediaKind::Image,
            source: PartSource::Data { value: RED_DOT.into(), mime_type: "image/png".into() },
            name: Some("red-dot.png".into()),
        })));
        self.push(Body::Source(Box::new(Source {
            id: source,
            message: Some(message),
            url: Some("https://www.rfc-editor.org/rfc/rfc2397".into()),
            title: Some("The \"data\" URL scheme".into()),
            media_type: None,
            filename: None,
            detail: None,
        })));
    }

    fn confirm(&mut self) -> Body {
        let offered = self.input.tools.first().map_or("confirmAction", |tool| &tool.name).to_owned();
        let parent = self.text("Your front end shall decide.", Pause::Word, None);
        let call = self.call(&offered, &parent, &json!({"action": "Show a demo", "importance": "low"}));
        self.push(Body::ToolEnd { call: call.clone() });
        self.finish(Some(Outcome::Success { pending: vec![call] }))
    }

    fn approve(&mut self) -> Body {
        let parent = self.text("I would like to pay 40 EUR.", Pause::Word, None);
        let call = self.call("pay", &parent, &json!({"amount": 40, "currency": "EUR"}));
        self.push(Body::ToolEnd { call: call.clone() });
        let mut interrupt = Interrupt::new(self.id("i"), "tool_call");
        interrupt.message = Some("Pay 40 EUR?".into());
        interrupt.tool_call = Some(call);
        interrupt.response_schema = Object::from_value(&json!({
            "type": "object",
            "properties": {"approved": {"type": "boolean"}},
            "required": ["approved"],
        }));
        self.finish(Some(Outcome::Interrupt { interrupts: vec![interrupt] }))
    }

    fn finish(&mut self, outcome: Option<Outcome>) -> Body {
        let words =
            self.lines.iter().filter(|line| matches!(line.event.body, Body::TextDelta { .. })).count();
        let (input, output) = (last_user_text(&self.input.messages).split_whitespace().count(), words);
        let (input, output) = (input as u64, output as u64);
        let usage = Usage {
            provider: Some("agentwire".into()),
            model: Some("demo".into()),
            input: Some(input),
            output: Some(output),
            total: Some(input + output),
            ..Usage::default()
        };
        let mut finished = RunFinished::new(self.input.thread.clone(), self.input.run.clone());
        (finished.outcome, finished.usage) = (outcome, vec![usage]);
        Body::RunFinished(Box::new(finished))
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

fn last_user_text(messages: &[Message]) -> String {
    let text = messages.iter().rev().find_map(|message| match &message.body {
        MessageBody::User { content } => Some(content.text()),
        _ => None,
    });
    text.unwrap_or_default().to_lowercase()
}

/// The number that follows `word`.
fn number_after(text: &str, word: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use agentwire_core::order::Checker;

    use super::*;

    fn events(text: &str) -> Vec<Event> {
        let mut input = RunInput::new("t", "r");
        input.messages.push(Message::user("u", text));
        script(&input).into_iter().map(|line| line.event).collect()
    }

    #[test]
    fn every_keyword_gives_a_valid_run() {
        let all: Vec<_> = KEYWORDS.iter().map(|(word, _)| word.replace('N', "50")).collect();
        for text in all.iter().chain([&"hello".to_owned(), &all.join(" ")]) {
            let mut checker = Checker::new();
            for event in events(text) {
                assert_eq!(checker.check(&event), None, "{text}");
            }
            assert_eq!(checker.end(), None, "{text}");
        }
    }

    #[test]
    fn every_keyword_shows_something_of_its_own() {
        let plain: Vec<_> = events("hello").iter().map(Event::kind).collect();
        for (word, _) in KEYWORDS {
            let shown: Vec<_> = events(&word.replace('N', "5")).iter().map(Event::kind).collect();
            assert_ne!(shown, plain, "{word}");
        }
    }

    #[test]
    fn the_greeting_lists_every_keyword() {
        let text: String = events("hello")
            .iter()
            .filter_map(|event| match &event.body {
                Body::TextDelta { delta, .. } => Some(&**delta),
                _ => None,
            })
            .collect();
        assert!(KEYWORDS.iter().all(|(word, _)| text.contains(word)), "{text}");
    }

    #[test]
    fn the_same_request_gives_the_same_events() {
        assert_eq!(events("think tools state"), events("think tools state"));
    }

    #[test]
    fn answers_are_taken_up() {
        let mut input = RunInput::new("t", "r");
        input.resume = Some(vec![agentwire_core::event::ResumeEntry {
            interrupt: "i".into(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(json!({"approved": true}))),
            metadata: None,
        }]);
        let said = script(&input).into_iter().any(
            |line| matches!(&line.event.body, Body::TextDelta { delta, .. } if delta.contains("approved")),
        );
        assert!(said);
    }
}
