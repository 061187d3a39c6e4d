//! Documents that change during a run: the shared state, and activities.

use agentwire_core::{
    event::{Body, MessageId, RunInput},
    json::Json,
    patch::{self, Limits, Op, Patch, PatchOp},
};
use serde_json::{Map, Value, json};

use super::{EmitError, Emitter, checked_json};

/// The state that the agent shares with the client: the state at the start of the run with all changes of this agent.
///
/// A change that does not apply fails and changes nothing. Changes by clients during the run (`PATCH /state/{id}`) are not
/// visible here; on a conflict, the gateway sends clients a snapshot of the resulting state.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// # use serde_json::json;
/// agent_fn(|_, emit| async move {
///     let state = emit.state();
///     state.set("/search/hits", 3).await?;
///     state.append("/search/log", "found 3").await?;
///     state.update(|state| state["search"]["hits"] = json!(4)).await?;
///     assert_eq!(state.get("/search/hits"), Some(json!(4)));
///     state.remove("/search/log").await?;
///     Ok(())
/// });
/// ```
#[derive(Clone, Debug)]
pub struct State {
    emit: Emitter,
}

impl State {
    pub(super) fn new(emit: &Emitter) -> Self {
        Self { emit: emit.clone() }
    }

    /// The value at a JSON pointer; the empty one is the whole state.
    #[must_use]
    pub fn get(&self, pointer: &str) -> Option<Value> {
        self.with(|state| state.pointer(pointer).cloned())
    }

    /// Sets the value at a JSON pointer. Missing objects on the path are created.
    ///
    /// # Errors
    /// When the run was stopped, a value on the path has no members, or the value is nested too deeply.
    pub async fn set(&self, pointer: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = value.into();
        self.change(|state| set(state, pointer, value)).await
    }

    /// Appends a value to the array at a JSON pointer; a missing array is created.
    ///
    /// # Errors
    /// When the run was stopped, the value there is not an array, or the value is nested too deeply.
    pub async fn append(&self, pointer: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = value.into();
        self.change(|state| append(state, pointer, value)).await
    }

    /// Removes the value at a JSON pointer.
    ///
    /// # Errors
    /// When the run was stopped or there is no value.
    pub async fn remove(&self, pointer: &str) -> Result<(), EmitError> {
        self.patch(Patch(vec![PatchOp::remove(pointer)])).await
    }

    /// Applies a JSON Patch, all or nothing.
    ///
    /// # Errors
    /// When the run was stopped or an operation does not apply.
    pub async fn patch(&self, patch: Patch) -> Result<(), EmitError> {
        self.change(|_| Ok(patch)).await
    }

    /// Changes the state in place and sends the difference, if any.
    ///
    /// # Errors
    /// When the run was stopped or the state is nested too deeply.
    pub async fn update(&self, change: impl FnOnce(&mut Value)) -> Result<(), EmitError> {
        let before = self.with(|state| state.clone());
        let mut after = before.clone();
        // Without the lock: the closure may use the emitter.
        change(&mut after);
        let patch = difference(&before, &after)?;
        self.patch(patch).await
    }

    /// Replaces the whole state.
    ///
    /// # Errors
    /// When the run was stopped or the value is nested too deeply.
    pub async fn replace(&self, state: impl Into<Value>) -> Result<(), EmitError> {
        let state = state.into();
        let snapshot = checked_json(&state)?;
        {
            let mut emitter = self.emit.state_mut();
            emitter.shared = Some(state);
            emitter.queue.push_back(self.emit.event(Body::StateSnapshot { snapshot }));
        }
        Ok(self.emit.flush().await?)
    }

    fn with<T>(&self, read: impl FnOnce(&Value) -> T) -> T {
        read(current(&mut self.emit.state_mut().shared, &self.emit.run.input))
    }

    async fn change(&self, change: impl FnOnce(&Value) -> Result<Patch, EmitError>) -> Result<(), EmitError> {
        {
            // Changed and queued under one lock: a change must not overtake the one before it.
            let mut emitter = self.emit.state_mut();
            let state = current(&mut emitter.shared, &self.emit.run.input);
            let patch = change(state)?;
            patch::apply(state, &patch, &Limits::default())?;
            let body = match whole(&patch) {
                Some(snapshot) => Some(Body::StateSnapshot { snapshot }),
                None if patch.0.is_empty() => None,
                None => Some(Body::StateDelta { patch }),
            };
            emitter.queue.extend(body.map(|body| self.emit.event(body)));
        }
        Ok(self.emit.flush().await?)
    }
}

/// The state as the run has it; `{}` if none was ever set.
fn current<'s>(state: &'s mut Option<Value>, input: &RunInput) -> &'s mut Value {
    state.get_or_insert_with(|| input.state.as_ref().map_or_else(|| json!({}), Json::to_value))
}

/// Structured content among the messages that changes during the run, such as a plan.
///
/// ```
/// # use agentwire_gateway::agent::agent_fn;
/// # use serde_json::json;
/// agent_fn(|_, emit| async move {
///     let mut plan = emit.activity("plan", json!({"items": [{"name": "read", "done": false}]})).await?;
///     plan.set("/items/0/done", true).await?;
///     plan.append("/items", json!({"name": "write", "done": false})).await?;
///     Ok(())
/// });
/// ```
#[derive(Debug)]
pub struct Activity {
    emit: Emitter,
    id: MessageId,
    kind: Box<str>,
    content: Value,
}

impl Activity {
    pub(super) async fn show(emit: &Emitter, kind: &str, content: Value) -> Result<Self, EmitError> {
        let activity = Self { emit: emit.clone(), id: emit.id("a").into(), kind: kind.into(), content };
        let snapshot = activity.snapshot(&activity.content)?;
        emit.emit(snapshot).await?;
        Ok(activity)
    }

    /// The id of its message.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The current content.
    #[must_use]
    pub fn content(&self) -> &Value {
        &self.content
    }

    /// Sets the value at a JSON pointer. Missing objects on the path are created.
    ///
    /// # Errors
    /// When the run was stopped, a value on the path has no members, or the value is nested too deeply.
    pub async fn set(&mut self, pointer: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let patch = set(&self.content, pointer, value.into())?;
        self.patch(patch).await
    }

    /// Appends a value to the array at a JSON pointer; a missing array is created.
    ///
    /// # Errors
    /// When the run was stopped, the value there is not an array, or the value is nested too deeply.
    pub async fn append(&mut self, pointer: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let patch = append(&self.content, pointer, value.into())?;
        self.patch(patch).await
    }

    /// Removes the value at a JSON pointer.
    ///
    /// # Errors
    /// When the run was stopped or there is no value.
    pub async fn remove(&mut self, pointer: &str) -> Result<(), EmitError> {
        self.patch(Patch(vec![PatchOp::remove(pointer)])).await
    }

    /// Applies a JSON Patch, all or nothing.
    ///
    /// # Errors
    /// When the run was stopped, an operation does not apply, or the result is not an object.
    pub async fn patch(&mut self, patch: Patch) -> Result<(), EmitError> {
        let mut content = self.content.clone();
        patch::apply(&mut content, &patch, &Limits::default())?;
        let body = match whole(&patch) {
            _ if !content.is_object() => return Err(EmitError::NotAnObject(self.kind.clone())),
            Some(_) => self.snapshot(&content)?,
            None => Body::ActivityDelta { message: self.id.clone(), kind: self.kind.clone(), patch },
        };
        self.content = content;
        self.emit.emit(body).await
    }

    /// Changes the content in place and sends the difference, if any.
    ///
    /// # Errors
    /// When the run was stopped, or the result is not an object or nested too deeply.
    pub async fn update(&mut self, change: impl FnOnce(&mut Value)) -> Result<(), EmitError> {
        let mut after = self.content.clone();
        change(&mut after);
        let patch = difference(&self.content, &after)?;
        if patch.0.is_empty() { Ok(()) } else { self.patch(patch).await }
    }

    fn snapshot(&self, content: &Value) -> Result<Body, EmitError> {
        let content =
            checked_json(content)?.into_object().ok_or_else(|| EmitError::NotAnObject(self.kind.clone()))?;
        Ok(Body::ActivitySnapshot {
            message: self.id.clone(),
            kind: self.kind.clone(),
            content,
            replace: None,
        })
    }
}

/// The new document, if a patch replaces all of it.
fn whole(patch: &Patch) -> Option<Json> {
    match &patch.0[..] {
        [PatchOp { op: Op::Add | Op::Replace, path, value: Some(value), .. }] if path.is_empty() => {
            Some(value.clone())
        }
        _ => None,
    }
}

fn difference(before: &Value, after: &Value) -> Result<Patch, EmitError> {
    checked_json(after)?;
    Ok(patch::diff(before, after))
}

/// The patch that sets `pointer` to `value`. [`patch::apply`] decides whether it applies.
fn set(document: &Value, pointer: &str, value: Value) -> Result<Patch, EmitError> {
    let one = |operation| Ok(Patch(vec![operation]));
    let Some(tokens) = pointer.strip_prefix('/') else {
        return one(PatchOp::replace(pointer, checked_json(&value)?));
    };
    let (mut at, mut end) = (document, 0);
    let mut tokens = tokens.split('/');
    while let Some(token) = tokens.next() {
        let parent = &pointer[..end];
        end += 1 + token.len();
        let found = at.pointer(&pointer[parent.len()..end]);
        let rest: Vec<&str> = tokens.clone().collect();
        match found {
            Some(found) if !rest.is_empty() => at = found,
            // An `add` would insert an element.
            Some(_) if at.is_array() => return one(PatchOp::replace(pointer, checked_json(&value)?)),
            Some(_) => return one(PatchOp::add(pointer, checked_json(&value)?)),
            None => {
                let made = rest.iter().rev().fold(value, |inner, token| {
                    let key = token.replace("~1", "/").replace("~0", "~");
                    Value::Object(Map::from_iter([(key, inner)]))
                });
                return one(PatchOp::add(&pointer[..end], checked_json(&made)?));
            }
        }
    }
    one(PatchOp::add(pointer, checked_json(&value)?))
}

fn append(document: &Value, pointer: &str, value: Value) -> Result<Patch, EmitError> {
    match document.pointer(pointer) {
        Some(Value::Array(_)) => Ok(Patch(vec![PatchOp::add(format!("{pointer}/-"), checked_json(&value)?)])),
        Some(_) => Err(EmitError::NotAnArray(pointer.into())),
        None => set(document, pointer, json!([value])),
    }
}
