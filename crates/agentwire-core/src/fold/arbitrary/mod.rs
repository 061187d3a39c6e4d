//! Generated test streams that follow the order rules and cover every kind of event.
//!
//! [`streams`] plays a script of random choices. Each choice requests an event, and [`World`] makes one that is valid at
//! that point, so a shorter script is again a valid stream and failures shrink well.

mod rules;

use std::collections::{HashMap, HashSet};

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

pub(crate) use self::rules::Rules;
use self::rules::{Bucket, Phase};
use super::Fold;
use crate::{
    event::{
        Block, Body, Citation, Content, ContentPart, EncryptedEntity, Event, File, Interrupt, MediaKind,
        Message, MessageBody, MessageData, MessageId, Outcome, PartSource, Role, RunError, RunFinished,
        RunInput, RunStarted, SubagentId, SubagentOutcome, SubagentStarted, ToolCall, ToolCallId, ToolResult,
    },
    json::{Json, Object},
    patch::{Op, Patch, PatchOp},
};

/// Valid streams of one or several whole runs of one thread: at most `size` events, and those that end the runs.
pub(crate) fn streams(size: usize) -> impl Strategy<Value = Vec<Event>> {
    play(size, false)
}

/// Streams that the official client accepts, though their ends are untidy: runs fail with open items, or after
/// they have finished.
pub(crate) fn untidy_streams(size: usize) -> impl Strategy<Value = Vec<Event>> {
    play(size, true)
}

fn play(size: usize, untidy: bool) -> impl Strategy<Value = Vec<Event>> {
    vec(any::<[u8; 4]>(), 1..=size).prop_map(move |script| {
        let mut world = World::new(untidy);
        for choice in script {
            world.play(choice);
        }
        world.end();
        world.events
    })
}

/// The messages of a client before a stream of [`streams`], with some of the same ids.
pub(crate) fn histories() -> impl Strategy<Value = (Vec<Message>, Value)> {
    let message = any::<[u8; 4]>().prop_map(|[kind, id, b, c]| {
        let text = format!("old{b}");
        let body = match kind % 8 {
            0 => MessageBody::Developer { content: text.into() },
            1 => MessageBody::System { content: text.into() },
            2 => MessageBody::User { content: text.into() },
            3 => MessageBody::User { content: parts() },
            4 => MessageBody::Reasoning { content: text.into() },
            5 => MessageBody::Activity {
                kind: KINDS[usize::from(b) % 3].into(),
                content: object(json!({"n": 0})),
            },
            6 => MessageBody::Tool { call: format!("c{}", b % 4).into(), content: text.into(), error: None },
            _ => MessageBody::Assistant {
                content: one_in(2, b).then(|| text.into()),
                tool_calls: (!one_in(3, c)).then(|| {
                    (0..c % 3).map(|n| ToolCall::new(format!("c{}", (b % 5 + n) % 5), "old", "{")).collect()
                }),
            },
        };
        let id = format!("{}{}", ["m", "m", "a", "t", "c", "r"][usize::from(id) % 6], id / 6 % 4);
        Message::from(MessageData { metadata: metadata(c), ..MessageData::new(id, body) })
    });
    let state = prop_oneof![
        Just(json!({})),
        Just(json!({"a": 1, "list": [1]})),
        Just(json!({"list": {}, "o": {"k": 2}})),
        Just(json!(null)),
        Just(json!([1, 2])),
    ];
    (vec(message, 0..6), state)
}

const KINDS: [&str; 3] = ["plan", "search", "agentwire.source"];
const SUBAGENTS: [&str; 4] = ["s0", "s1", "s2", ""];
const STEPS: [&str; 3] = ["think", "act", "tools"];

/// A thread that is being generated.
struct World {
    untidy: bool,
    events: Vec<Event>,
    rules: Rules,
    fold: Fold,
    /// The number of ids of each kind.
    names: HashMap<char, usize>,
    run: String,
    started: Vec<ToolCallId>,
    answered: HashSet<ToolCallId>,
}

impl World {
    fn new(untidy: bool) -> Self {
        Self {
            untidy,
            events: Vec::new(),
            rules: Rules::default(),
            fold: Fold::new(),
            names: HashMap::new(),
            run: String::new(),
            started: Vec::new(),
            answered: HashSet::new(),
        }
    }

    fn name(&mut self, kind: char) -> String {
        let count = self.names.entry(kind).or_default();
        *count += 1;
        format!("{kind}{}", *count - 1)
    }

    fn emit(&mut self, event: impl Into<Event>) {
        let event = event.into();
        if let Err(violation) = self.rules.accept(&event) {
            panic!("the generator broke a rule: {violation} at {event:?}");
        }
        self.fold.apply(&event);
        self.events.push(event);
    }

    fn play(&mut self, [kind, a, b, c]: [u8; 4]) {
        if self.rules.phase != Phase::Active {
            self.start(a, b);
        }
        match kind % 64 {
            0..=5 => self.text_start(a, b, c),
            6..=15 => self.text_delta(a, b, c),
            16..=18 => self.text_end(a, b, c),
            19..=22 => self.tool_start(a, b, c),
            23..=27 => self.tool_args(a, b, c),
            28..=29 => self.tool_end(a, b, c),
            30..=33 => self.tool_result(a, b, c),
            34..=35 => {
                let snapshot =
                    [json!({"a": c}), json!({"a": 1, "list": []}), json!(null)][usize::from(a) % 3].clone();
                let tag = any_tag(b);
                self.emit(Event::new(Body::StateSnapshot { snapshot: snapshot.into() }).by(tag));
            }
            36..=39 => {
                let event = Event::new(Body::StateDelta { patch: patch(a, c) });
                self.emit(event.by(any_tag(b)).with_metadata(metadata(c)));
            }
            40..=41 => self.messages_snapshot(a, b, c),
            42..=44 => self.activity_snapshot(a, b, c),
            45..=46 => self.activity_delta(a, b, c),
            47 => self.span(a, b),
            48..=50 => self.reasoning_start(a, b, c),
            51..=53 => self.reasoning_more(a, b, c),
            54 => self.encrypted(a, b),
            55 => self.step(a, b),
            56..=57 => self.subagent(a, b, c),
            58 => {
                let body = match a % 3 {
                    0 => Body::Raw { event: json!({"x": b}).into(), source: None },
                    1 => Body::Custom { name: "note".into(), value: json!(b).into() },
                    _ => Body::FinishReason { message: None, reason: "stop".into() },
                };
                self.emit(Event::new(body).by(any_tag(c)));
            }
            59..=61 => self.carried(a, b, c),
            _ => self.finish(a, b),
        }
    }

    fn start(&mut self, a: u8, b: u8) {
        self.run = self.name('R');
        self.started.clear();
        self.answered.clear();
        let input = one_in(3, a).then(|| {
            let mut input = RunInput::new("T", self.run.as_str());
            if one_in(3, b) {
                input.messages = self.fold.messages().to_vec();
            }
            let content = if one_in(2, b) { parts() } else { "hi".into() };
            input.messages.push(Message::user(self.name('u'), content));
            Box::new(input)
        });
        let started = RunStarted { input, ..RunStarted::new("T", self.run.as_str()) };
        self.emit(Body::RunStarted(Box::new(started)));
    }

    /// Ends the current run, if there is one.
    fn end(&mut self) {
        if self.rules.phase == Phase::Active {
            self.finish(5, 0);
        }
    }

    fn finish(&mut self, a: u8, b: u8) {
        let error = Body::RunError(Box::new(RunError::new("broken", Some("E"))));
        if self.untidy && a % 12 == 6 {
            return self.emit(error);
        }
        for message in sorted(&self.rules.texts) {
            self.emit(Event::new(Body::TextEnd { message: message.into() }).with_metadata(metadata(b)));
        }
        for call in sorted(&self.rules.calls) {
            self.emit(Body::ToolEnd { call: call.into() });
        }
        for message in sorted(&self.rules.reasonings) {
            self.emit(Body::ReasoningMessageEnd { message: message.into() });
        }
        for message in sorted(&self.rules.spans) {
            self.emit(Body::ReasoningEnd { message: message.into() });
        }
        for (owner, name) in sorted(&self.rules.steps) {
            self.emit(Event::new(Body::StepFinished { name: name.into() }).by(owner));
        }
        for subagent in sorted(&self.rules.subagents) {
            let event = Event::new(Body::SubagentFinished { result: None, outcome: None });
            self.emit(event.by(Some(subagent)));
        }
        if one_in(6, a) {
            return self.emit(error);
        }
        let unanswered = self.started.iter().filter(|call| !self.answered.contains(*call)).cloned();
        let outcome = match a % 6 {
            1 => Some(Outcome::Cancelled),
            2 => {
                let interrupts = (0..=b % 2).map(|_| Interrupt::new(self.name('i'), "input_required"));
                Some(Outcome::Interrupt { interrupts: interrupts.collect() })
            }
            3 => Some(Outcome::Success { pending: unanswered.collect() }),
            4 => Some(Outcome::Success { pending: Vec::new() }),
            _ => None,
        };
        let finished = RunFinished { outcome, ..RunFinished::new("T", self.run.as_str()) };
        self.emit(Body::RunFinished(Box::new(finished)));
        if self.untidy && b % 16 == 7 {
            self.emit(error);
        }
    }

    /// The owner of a message: as the rules track it, as the message has it, or a random one.
    fn owner(&mut self, bucket: Bucket, id: &str, choice: u8) -> Option<SubagentId> {
        if let Some(owner) = self.rules.owners.get(&(bucket, id.into())) {
            return owner.clone();
        }
        match self.fold.messages().iter().find(|message| &*message.id == id) {
            Some(message) => message.subagent.clone(),
            None => any_tag(choice),
        }
    }

    fn call_owner(&mut self, id: &str, choice: u8) -> Option<SubagentId> {
        if let Some(owner) = self.rules.owners.get(&(Bucket::Call, id.into())) {
            return owner.clone();
        }
        let holds = |message: &&Message| message.tool_calls().iter().any(|call| &*call.id == id);
        match self.fold.messages().iter().find(holds) {
            Some(message) => message.subagent.clone(),
            None => any_tag(choice),
        }
    }

    /// One of the existing messages.
    fn message(&mut self, choice: u8) -> Option<Message> {
        pick(self.fold.messages(), choice).cloned()
    }

    fn text_start(&mut self, a: u8, b: u8, c: u8) {
        let known = if one_in(4, a) { self.message(b).map(|message| message.id.to_string()) } else { None };
        let id = known.unwrap_or_else(|| self.name('m'));
        if self.rules.texts.contains(&id) {
            return;
        }
        let owner = self.owner(Bucket::Message, &id, b);
        let role = [None, Some(Role::Assistant), Some(Role::User), Some(Role::System), Some(Role::Developer)]
            [usize::from(c) % 5];
        let name = one_in(7, c).then(|| "Ada".into());
        let event = Event::new(Body::TextStart { message: id.into(), role, name });
        self.emit(event.by(owner).with_metadata(metadata(c)));
    }

    fn text_delta(&mut self, a: u8, b: u8, c: u8) {
        let Some(id) = pick(&sorted(&self.rules.texts), a).cloned() else {
            return self.text_start(a, b, c);
        };
        let owner = self.owner(Bucket::Message, &id, b);
        let event = Event::new(Body::TextDelta { message: id.into(), delta: word(c) });
        self.emit(event.by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(b)).at(Some(i64::from(c))));
    }

    fn text_end(&mut self, a: u8, b: u8, c: u8) {
        let Some(id) = pick(&sorted(&self.rules.texts), a).cloned() else {
            return;
        };
        let owner = self.owner(Bucket::Message, &id, b);
        let event = Event::new(Body::TextEnd { message: id.into() });
        self.emit(event.by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(c)));
    }

    fn tool_start(&mut self, a: u8, b: u8, c: u8) {
        let calls: Vec<ToolCall> =
            self.fold.messages().iter().flat_map(|message| message.tool_calls().to_vec()).collect();
        let known = if one_in(4, a) { pick(&calls, b).map(|call| call.id.to_string()) } else { None };
        let is_known = known.is_some();
        let id = known.unwrap_or_else(|| self.name('c'));
        if self.rules.calls.contains(&id) {
            return;
        }
        let mut parent = match c % 4 {
            0 => None,
            1 => Some(self.name('p')),
            _ => self.message(c).map(|message| message.id.to_string()),
        };
        let mut owner = self.call_owner(&id, b);
        if let Some(message) = &parent {
            let inherited = self.owner(Bucket::Message, message, b);
            if !is_known {
                owner = inherited;
            } else if owner != inherited {
                parent = None;
            }
        }
        let call = ToolCallId::from(id);
        if !self.started.contains(&call) {
            self.started.push(call.clone());
        }
        let name = ["search", "book"][usize::from(b) % 2].into();
        let event = Event::new(Body::ToolStart { call, name, parent: parent.map(Into::into) });
        self.emit(event.by(owner).with_metadata(metadata(a)));
    }

    fn tool_args(&mut self, a: u8, b: u8, c: u8) {
        let Some(id) = pick(&sorted(&self.rules.calls), a).cloned() else {
            return self.tool_start(a, b, c);
        };
        let owner = self.call_owner(&id, b);
        let event = Event::new(Body::ToolArgs { call: id.into(), delta: word(c) });
        self.emit(event.by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(b)));
    }

    fn tool_end(&mut self, a: u8, b: u8, c: u8) {
        let Some(id) = pick(&sorted(&self.rules.calls), a).cloned() else {
            return;
        };
        let owner = self.call_owner(&id, b);
        let event = Event::new(Body::ToolEnd { call: id.into() });
        self.emit(event.by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(c)));
    }

    fn tool_result(&mut self, a: u8, b: u8, c: u8) {
        let calls: Vec<ToolCallId> = self
            .fold
            .messages()
            .iter()
            .flat_map(|message| message.tool_calls())
            .map(|call| call.id.clone())
            .collect();
        let call = pick(&calls, a).cloned().unwrap_or_else(|| "unknown".into());
        let known = if one_in(8, b) { self.message(c).map(|message| message.id.to_string()) } else { None };
        let message = known.unwrap_or_else(|| self.name('t'));
        let owner = self.owner(Bucket::Message, &message, b);
        self.answered.insert(call.clone());
        let result = ToolResult {
            message: message.into(),
            call,
            content: if one_in(4, c) { parts() } else { "done".into() },
            error: one_in(5, c).then(|| "failed".into()),
            explicit_role: one_in(2, c),
        };
        self.emit(Event::new(Body::ToolResult(Box::new(result))).by(owner).with_metadata(metadata(c)));
    }

    fn messages_snapshot(&mut self, a: u8, b: u8, c: u8) {
        let mut messages = self.fold.messages().to_vec();
        match a % 5 {
            0 => messages.retain(|message| message.role() != Role::Activity),
            1 => messages.retain(|message| message.role() != Role::Reasoning),
            2 => {
                let mut position = 0;
                messages.retain(|_| {
                    position += 1;
                    b & (1 << (position % 8)) == 0
                });
            }
            3 => messages.reverse(),
            _ => {}
        }
        if one_in(2, c) {
            let id = self.name('n');
            messages.push(Message::from(MessageData {
                subagent: any_tag(b),
                ..Message::assistant(id, "restored").into_data()
            }));
        }
        let client =
            |types: Value| Some(object(json!({"@ag-ui/client": {"authoritativeActivityTypes": types}})));
        let metadata = match c % 9 {
            0 => client(json!(null)),
            1 => client(json!(["plan"])),
            2 => client(json!([])),
            3 => client(json!(["plan", 1])),
            4 => Some(object(json!({"@ag-ui/client": []}))),
            5 => Some(object(json!({"@ag-ui/client": {}}))),
            _ => None,
        };
        self.emit(Event::new(Body::MessagesSnapshot { messages }).with_metadata(metadata));
    }

    /// An id for an activity: a new one, one of an activity, or rarely one of another message.
    fn activity_id(&mut self, a: u8, b: u8) -> String {
        let takes_over = a % 16 == 1;
        let candidates: Vec<_> = self
            .fold
            .messages()
            .iter()
            .filter(|message| message.role() == Role::Activity || takes_over)
            .map(|message| message.id.to_string())
            .collect();
        match pick(&candidates, b) {
            Some(id) if a % 2 == 1 => id.clone(),
            _ => self.name('a'),
        }
    }

    fn activity_snapshot(&mut self, a: u8, b: u8, c: u8) {
        let message = self.activity_id(a, b);
        let replace = [None, Some(true), Some(false)][usize::from(c) % 3];
        // Only a replacement of an activity may change its owner, and only where no other message shares its id.
        let known: Vec<_> = self.fold.messages().iter().filter(|known| *known.id == *message).collect();
        let is_free =
            replace != Some(false) && matches!(known[..], [known] if known.role() == Role::Activity);
        let owner = if is_free { any_tag(b) } else { self.owner(Bucket::Activity, &message, b) };
        let kind = KINDS[usize::from(b) % 3].into();
        let content = object(json!({"n": c, "items": []}));
        let event = Event::new(Body::ActivitySnapshot { message: message.into(), kind, content, replace });
        self.emit(event.by(owner).with_metadata(metadata(c)));
    }

    fn activity_delta(&mut self, a: u8, b: u8, c: u8) {
        let message = self.message(a).map_or_else(|| "unknown".into(), |message| message.id.to_string());
        let owner = self.owner(Bucket::Activity, &message, b);
        let op = match c % 5 {
            0 => PatchOp::add("/items/-", json!(c).into()),
            1 => PatchOp::replace("/n", json!(c).into()),
            2 => PatchOp::replace("/missing/deep", json!(c).into()),
            3 => PatchOp::replace("", json!({"n": 0}).into()),
            _ => PatchOp::replace("", json!("no object").into()),
        };
        let kind = KINDS[usize::from(b) % 3].into();
        let event = Event::new(Body::ActivityDelta { message: message.into(), kind, patch: Patch(vec![op]) });
        self.emit(event.by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(a)));
    }

    fn span(&mut self, a: u8, b: u8) {
        if let Some(id) = pick(&sorted(&self.rules.spans), a)
            && one_in(2, a)
        {
            let owner = self.owner(Bucket::Reasoning, id, b);
            return self.emit(Event::new(Body::ReasoningEnd { message: id.as_str().into() }).by(owner));
        }
        let id = self.name('r');
        self.emit(Event::new(Body::ReasoningStart { message: id.into(), title: None }).by(any_tag(b)));
    }

    fn reasoning_start(&mut self, a: u8, b: u8, c: u8) {
        let known = match a % 4 {
            0 => pick(&sorted(&self.rules.spans), b).cloned(),
            1 => self
                .message(b)
                .filter(|message| message.role() == Role::Reasoning || a % 32 == 1)
                .map(|message| message.id.to_string()),
            _ => None,
        };
        let id = known.unwrap_or_else(|| self.name('r'));
        if self.rules.reasonings.contains(&id) {
            return;
        }
        let owner = self.owner(Bucket::Reasoning, &id, b);
        let event = Event::new(Body::ReasoningMessageStart { message: id.into() });
        self.emit(event.by(owner).with_metadata(metadata(c)));
    }

    fn reasoning_more(&mut self, a: u8, b: u8, c: u8) {
        let Some(id) = pick(&sorted(&self.rules.reasonings), a).cloned() else {
            return self.reasoning_start(a, b, c);
        };
        let owner = self.owner(Bucket::Reasoning, &id, b);
        let body = if one_in(4, b) {
            Body::ReasoningMessageEnd { message: id.into() }
        } else {
            Body::ReasoningDelta { message: id.into(), delta: word(c) }
        };
        self.emit(Event::new(body).by(owner.filter(|_| one_in(2, b))).with_metadata(metadata(b)));
    }

    fn encrypted(&mut self, a: u8, b: u8) {
        let Some(message) = self.message(a) else { return };
        let entity = match pick(message.tool_calls(), b) {
            Some(call) => EncryptedEntity::ToolCall(call.id.clone()),
            None => EncryptedEntity::Message(message.id.clone()),
        };
        self.emit(Body::ReasoningEncrypted { entity, value: format!("secret{b}").into() });
    }

    fn step(&mut self, a: u8, b: u8) {
        if let Some((owner, name)) = pick(&sorted(&self.rules.steps), a)
            && one_in(2, a)
        {
            let event = Event::new(Body::StepFinished { name: name.as_str().into() });
            return self.emit(event.by(owner.clone()));
        }
        let (owner, name) = (any_tag(b), STEPS[usize::from(a) % 3]);
        if !self.rules.steps.contains(&(owner.clone(), name.into())) {
            self.emit(Event::new(Body::StepStarted { name: name.into() }).by(owner));
        }
    }

    fn subagent(&mut self, a: u8, b: u8, c: u8) {
        if let Some(subagent) = pick(&sorted(&self.rules.subagents), a)
            && one_in(2, a)
        {
            let body = match b % 3 {
                0 => Body::SubagentFinished { result: Some(json!(c).into()), outcome: None },
                1 => Body::SubagentFinished {
                    result: None,
                    outcome: Some(SubagentOutcome::Suspended { interrupts: vec!["i0".into()] }),
                },
                _ => Body::SubagentError { message: "lost".into(), code: None },
            };
            return self.emit(Event::new(body).by(Some(subagent.clone())));
        }
        let subagent = SubagentId::from(SUBAGENTS[usize::from(b) % 4]);
        if self.rules.known_subagents.contains(&subagent) {
            return;
        }
        let started = SubagentStarted {
            name: "helper".into(),
            description: one_in(2, c).then(|| "helps".into()),
            parent_subagent: pick(&sorted(&self.rules.known_subagents), c).filter(|_| !one_in(3, c)).cloned(),
            parent_call: pick(&self.started, c).cloned(),
            parent_message: None,
        };
        self.emit(Event::new(Body::SubagentStarted(Box::new(started))).by(Some(subagent)));
    }

    /// An event that AG-UI carries as an activity.
    fn carried(&mut self, a: u8, b: u8, c: u8) {
        let id = MessageId::from(self.name('x'));
        let about = self.message(a).map(|message| message.id.clone());
        let open = |message: &&Message| matches!(&message.body, MessageBody::Activity { kind, .. } if &**kind == "hai.agent_collaboration");
        let body = match a % 6 {
            0 => Body::Citation(Box::new(Citation {
                id,
                message: about,
                url: Some("https://example.org".into()),
                title: None,
                media_type: None,
                filename: None,
                detail: one_in(2, c).then(|| object(json!({"score": 0.5}))),
            })),
            1 => Body::File(Box::new(File {
                id,
                message: about,
                kind: MediaKind::Image,
                source: PartSource::Url { value: "https://example.org/x.png".into(), mime_type: None },
                name: Some("x".into()),
            })),
            2 => Body::Block(Box::new(Block {
                id,
                message: about.unwrap_or_else(|| "m".into()),
                output: object(json!({"type": "icon", "data": {"icon": c}})),
                layout: one_in(2, b).then(|| json!({"x": b}).into()),
                block_id: one_in(2, c).then(|| "b1".into()),
                style: None,
            })),
            3 => Body::CollaborationStart { id, message: about, from: "A".into(), to: "B".into() },
            choice => match self.fold.messages().iter().find(open).map(|message| message.id.clone()) {
                Some(id) if choice == 4 => Body::CollaborationTask { id, task: json!({"id": c}).into() },
                Some(id) => Body::CollaborationEnd { id },
                None => return,
            },
        };
        let owner = match &body {
            Body::CollaborationTask { id, .. } | Body::CollaborationEnd { id } => {
                self.owner(Bucket::Activity, id, b)
            }
            _ => any_tag(b),
        };
        self.emit(Event::new(body).by(owner).with_metadata(metadata(c)));
    }
}

fn any_tag(choice: u8) -> Option<SubagentId> {
    SUBAGENTS.get(usize::from(choice) % 8).map(|name| SubagentId::from(*name))
}

/// One patch of several kinds, most of which apply to most states.
pub(super) fn patch(kind: u8, value: u8) -> Patch {
    let value = Json::from(json!(value % 3));
    let other = |op, path: &str, from: Option<&str>| PatchOp {
        op,
        path: path.into(),
        from: from.map(Into::into),
        value: (op == Op::Test).then(|| value.clone()),
        extra: None,
    };
    Patch(match kind % 20 {
        0 => vec![PatchOp::add("/a", value)],
        1 => vec![PatchOp::replace("/a", value)],
        2 => vec![PatchOp::add("/b", value)],
        3 => vec![PatchOp::add("/list", json!([]).into())],
        4 => vec![PatchOp::add("/list/-", value)],
        5 => vec![PatchOp::remove("/a")],
        6 => vec![PatchOp::replace("/missing/deep", value)],
        7 => vec![other(Op::Test, "/a", None)],
        8 => vec![other(Op::Move, "/b", Some("/a"))],
        9 => vec![other(Op::Copy, "/b", Some("/a"))],
        10 => vec![PatchOp::add("/o", json!({"k": 1}).into()), PatchOp::replace("/o/k", value)],
        11 => vec![PatchOp::add("/o/k", value)],
        12 => vec![PatchOp::add("/list/0", value)],
        13 => vec![PatchOp::replace("/list/0", value)],
        14 => vec![PatchOp::remove("/o/k"), PatchOp::add("/o/k", value)],
        15 => vec![PatchOp::replace("", json!({"a": 0}).into())],
        16 => vec![PatchOp::add("/a", value.clone()), PatchOp::add("/list/-", value)],
        17 => vec![PatchOp::add("/list", json!({}).into()), PatchOp::add("/list/-", value)],
        18 => vec![PatchOp::remove("/b"), PatchOp::replace("/a", value)],
        _ => vec![],
    })
}

fn metadata(choice: u8) -> Option<Object> {
    match choice % 8 {
        0 => Some(object(json!({"k": choice}))),
        1 => Some(object(json!({"l": choice, "k": {"n": choice}}))),
        2 if choice > 200 => Some(Object::empty()),
        _ => None,
    }
}

fn word(choice: u8) -> Box<str> {
    ["", "a", "bc", "é", "{\"x\":", "1}", "\n"][usize::from(choice) % 7].into()
}

fn parts() -> Content {
    let url = PartSource::Url { value: "https://example.org/cat.png".into(), mime_type: None };
    Content::Parts(vec![ContentPart::text("look"), ContentPart::media(MediaKind::Image, url)])
}

pub(super) fn object(value: Value) -> Object {
    Object::from_value(&value).unwrap()
}

/// Whether a choice is one of the `n`th part of all choices.
fn one_in(n: u8, choice: u8) -> bool {
    choice.is_multiple_of(n)
}

fn pick<T>(from: &[T], choice: u8) -> Option<&T> {
    from.get(usize::from(choice) % from.len().max(1))
}

fn sorted<T: Ord + Clone>(set: &HashSet<T>) -> Vec<T> {
    let mut items: Vec<T> = set.iter().cloned().collect();
    items.sort();
    items
}
