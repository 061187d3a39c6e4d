//! Tools and questions: the calls and interrupts that a run leaves open, and the request with their results.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};

use agentwire_core::{
    event::{
        Body, Content, Event, Interrupt, Message, MessageBody, Outcome, ResumeEntry, ResumeStatus,
        RunFinished, ToolCall, ToolCallId,
    },
    fold::Fold,
    format::ag_ui,
    json::{Json, Object},
};
use serde_json::{Value, json};

use crate::{
    Tool, ids,
    protocol::{Profile, Protocol},
    run::Pending,
};

/// The error of a tool's handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
pub(crate) type Handler = Arc<dyn Fn(Value) -> BoxFuture<Result<Value, BoxError>> + Send + Sync>;
pub(crate) type Asker = Arc<dyn Fn(Interrupt) -> BoxFuture<Answer> + Send + Sync>;

/// The front-end tool as which HAI servers and the gateway show a question.
const CONFIRM: &str = "confirmAction";

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// The answer itself.
    Resolve(Value),
    /// The question is refused.
    Cancel,
    /// The question stays open, and the run ends.
    Leave,
}

impl Answer {
    /// Permission.
    #[must_use]
    pub fn approve() -> Self {
        Self::Resolve(json!({"approved": true}))
    }

    /// A denied permission.
    #[must_use]
    pub fn deny() -> Self {
        Self::Resolve(json!({"approved": false}))
    }
}

/// The tools and the answerer of an agent.
#[derive(Clone, Default)]
pub(crate) struct Responders {
    pub(crate) tools: HashMap<String, (Tool, Handler)>,
    pub(crate) asker: Option<Asker>,
}

/// The parts of the next request.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) messages: Vec<Message>,
    pub(crate) resume: Vec<ResumeEntry>,
}

/// Everything that a finished run left open.
pub(crate) fn pending(fold: &mut Fold, finished: &RunFinished, known_tools: &[&str]) -> Vec<Pending> {
    if matches!(finished.outcome, Some(Outcome::Cancelled)) {
        return Vec::new();
    }
    let interrupts = fold.interrupts().to_vec();
    let listed: &[ToolCallId] = match &finished.outcome {
        Some(Outcome::Success { pending }) => pending,
        _ => &[],
    };
    let open = fold.pending_tool_calls();
    let calls = fold.messages().iter().flat_map(|message| message.tool_calls());
    let calls: Vec<ToolCall> = calls.filter(|call| open.contains(&call.id)).cloned().collect();
    let mut pending = Vec::new();
    for call in calls {
        let is_asked_about = interrupts
            .iter()
            .any(|interrupt| interrupt.tool_call.as_ref() == Some(&call.id) || *interrupt.id == *call.id);
        // A call without a result may also be one that the server runs without telling.
        let is_ours =
            listed.contains(&call.id) || known_tools.contains(&&*call.name) || &*call.name == CONFIRM;
        if !is_asked_about && is_ours {
            pending.push(Pending::Call(call));
        }
    }
    pending.extend(interrupts.into_iter().map(Pending::Interrupt));
    pending
}

impl Responders {
    /// Runs the tools and asks the questions. `None` if something stays open: a server takes all answers at once.
    pub(crate) async fn reply(&self, pending: &[Pending], protocol: Protocol) -> Option<Reply> {
        let can_answer = |item: &Pending| match item {
            Pending::Call(call) => self.tools.contains_key(&*call.name) || self.asker.is_some(),
            Pending::Interrupt(_) => self.asker.is_some(),
        };
        if pending.is_empty() || !pending.iter().all(can_answer) {
            return None;
        }
        let mut reply = Reply::default();
        for item in pending {
            match item {
                Pending::Call(call) => match self.tools.get(&*call.name) {
                    Some((_, handler)) => reply.messages.push(run_tool(call, handler).await),
                    None => {
                        let answer = self.ask(question(call)).await;
                        reply.messages.push(answered_call(call, answer)?);
                    }
                },
                Pending::Interrupt(interrupt) => {
                    let answer = self.ask(interrupt.clone()).await;
                    match protocol {
                        Protocol::AiSdk(profile) => answer_part(interrupt, answer, profile, &mut reply)?,
                        _ => reply.resume.push(resume_entry(interrupt, answer, protocol)?),
                    }
                }
            }
        }
        Some(reply)
    }

    async fn ask(&self, interrupt: Interrupt) -> Answer {
        match &self.asker {
            Some(asker) => asker(interrupt).await,
            None => Answer::Leave,
        }
    }
}

/// A question for a call without a handler. HAI and the AI SDK before 6 have no other form of question.
fn question(call: &ToolCall) -> Interrupt {
    let arguments = Json::parse(&call.arguments).ok();
    let text = |key: &str| arguments.clone()?.into_object()?.get_str(key);
    let asked = text("action").or_else(|| text("message")).or_else(|| text("question"));
    let mut interrupt = Interrupt::new(&*call.id, "tool_call");
    interrupt.message =
        Some(asked.map_or_else(|| format!("{}({})", call.name, call.arguments), Into::into).into());
    interrupt.tool_call = Some(call.id.clone());
    let members = [("toolName", Some(Json::string(&call.name))), ("arguments", arguments)];
    interrupt.metadata =
        Some(Object::from_entries(members.into_iter().filter_map(|(key, value)| Some((key, value?)))));
    interrupt
}

fn answered_call(call: &ToolCall, answer: Answer) -> Option<Message> {
    match answer {
        Answer::Resolve(value) => {
            // The standard's answer to `confirmAction` is a plain yes or no.
            let plain = match (&*call.name, value.get("approved")) {
                (CONFIRM, Some(approved)) if value.as_object().is_some_and(|it| it.len() == 1) => {
                    approved.clone()
                }
                _ => value,
            };
            Some(tool_message(call, &plain, None))
        }
        Answer::Cancel => Some(tool_message(call, &json!("cancelled"), Some("cancelled by the user"))),
        Answer::Leave => None,
    }
}

fn resume_entry(interrupt: &Interrupt, answer: Answer, protocol: Protocol) -> Option<ResumeEntry> {
    let (status, payload) = match answer {
        Answer::Resolve(value) => (ResumeStatus::Resolved, Some(Json::from(&value))),
        Answer::Cancel => (ResumeStatus::Cancelled, None),
        Answer::Leave => return None,
    };
    let entry = ResumeEntry {
        interrupt: interrupt.id.clone(),
        status,
        payload: payload.filter(|payload| !payload.is_null()),
        metadata: None,
    };
    let is_legacy = ag_ui::is_reported_by_custom_event(interrupt.metadata.as_ref());
    let is_ag_ui = matches!(protocol, Protocol::AgUi | Protocol::Auto);
    Some(if is_ag_ui && is_legacy { ag_ui::marked_for_command(entry) } else { entry })
}

/// An answer in the form of the AI SDK: an approval of the tool part in question, or, where yes and no are not sufficient
/// and before version 6, the output of the call.
fn answer_part(interrupt: &Interrupt, answer: Answer, profile: Profile, reply: &mut Reply) -> Option<()> {
    let payload = match answer {
        Answer::Resolve(value) => value,
        Answer::Cancel => json!({"approved": false}),
        Answer::Leave => return None,
    };
    let is_decision = payload.as_object().is_some_and(|members| {
        members.contains_key("approved") && members.keys().all(|key| key == "approved" || key == "reason")
    });
    let call = interrupt.tool_call.clone().unwrap_or_else(|| interrupt.id.as_str().into());
    if is_decision && profile.number() >= 6 {
        reply.resume.push(ResumeEntry {
            interrupt: interrupt.id.clone(),
            status: ResumeStatus::Resolved,
            payload: Some(Json::from(&payload)),
            metadata: Some(Object::from_entries([("toolCallId", Json::string(&call))])),
        });
    } else {
        reply.messages.push(tool_message(&ToolCall::new(&*call, "", ""), &payload, None));
    }
    Some(())
}

async fn run_tool(call: &ToolCall, handler: &Handler) -> Message {
    let text = if call.arguments.trim().is_empty() { "{}" } else { &*call.arguments };
    let result = match serde_json::from_str(text) {
        Ok(arguments) => handler(arguments).await.map_err(|error| error.to_string()),
        Err(error) => Err(format!("the arguments are not JSON: {error}")),
    };
    match result {
        Ok(value) => tool_message(call, &value, None),
        Err(error) => tool_message(call, &json!({"error": error}), Some(&error)),
    }
}

fn tool_message(call: &ToolCall, value: &Value, error: Option<&str>) -> Message {
    let content = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let body = MessageBody::Tool {
        call: call.id.clone(),
        content: Content::Text(content.into()),
        error: error.map(Into::into),
    };
    Message::new(ids::uuid(), body)
}

/// The end of a run, if the event is one that did not fail.
pub(crate) fn finished(event: &Event) -> Option<&RunFinished> {
    match &event.body {
        Body::RunFinished(finished) => Some(finished),
        _ => None,
    }
}
