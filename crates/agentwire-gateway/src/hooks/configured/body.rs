//! The body of a request to a hook server.

use serde_json::{Value, json};

use super::super::RunContext;

/// The members of a run that every request has, as JSON.
#[derive(Clone, Debug)]
pub(super) struct RunDescription(String);

impl RunDescription {
    pub(super) fn new(run: &RunContext) -> Self {
        let about = json!({
            "agent": &*run.agent, "tenant": run.owner.tenant.as_str(), "user": run.owner.user.as_str(),
            "threadId": run.thread.as_str(), "runId": run.run.as_str(),
        });
        Self(about.to_string().trim_matches(['{', '}']).to_owned())
    }

    /// The body of a request; the values of `members` are JSON texts.
    pub(super) fn body(&self, hook: &str, members: &[(&str, &str)]) -> String {
        let size = members.iter().map(|(key, value)| key.len() + value.len() + 4).sum::<usize>();
        let mut body = String::with_capacity(self.0.len() + size + 32);
        body.push_str(r#"{"hook":"#);
        body.push_str(&Value::from(hook).to_string());
        body.push(',');
        body.push_str(&self.0);
        for (key, value) in members {
            body.push_str(",\"");
            body.push_str(key);
            body.push_str("\":");
            body.push_str(value);
        }
        body.push('}');
        body
    }
}

/// A JSON list of JSON texts.
pub(super) fn list(items: &[impl AsRef<str>]) -> String {
    let mut list = String::from("[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            list.push(',');
        }
        list.push_str(item.as_ref());
    }
    list.push(']');
    list
}
