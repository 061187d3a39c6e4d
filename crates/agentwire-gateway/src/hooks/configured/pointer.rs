//! JSON pointers with a wildcard, and the actions on their values.

use serde_json::Value;

use super::rule::Action;

/// A JSON pointer (RFC 6901) in which `*` stands for every member or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Key(String),
    Any,
}

impl Pointer {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if !agentwire_core::patch::is_pointer(text) || text.is_empty() {
            return None;
        }
        let token = |part: &str| match part {
            "*" => Token::Any,
            part => Token::Key(part.replace("~1", "/").replace("~0", "~")),
        };
        Some(Self(text.split('/').skip(1).map(token).collect()))
    }

    /// Every member or element.
    pub(super) fn all() -> Self {
        Self(vec![Token::Any])
    }

    /// True if it points to the top-level member of that name.
    pub(super) fn is_member(&self, name: &str) -> bool {
        matches!(&self.0[..], [Token::Any]) || matches!(&self.0[..], [Token::Key(key)] if key == name)
    }

    /// Applies an action to the values; whether there were any.
    pub(super) fn act(&self, action: &Action, value: &mut Value) -> bool {
        act(&self.0, action, value)
    }
}

fn act(tokens: &[Token], action: &Action, value: &mut Value) -> bool {
    match tokens {
        [] => false,
        [last] => act_on_members(last, action, value),
        [first, rest @ ..] => {
            let inner: Vec<&mut Value> = match (first, value) {
                (Token::Any, Value::Object(object)) => object.values_mut().collect(),
                (Token::Any, Value::Array(items)) => items.iter_mut().collect(),
                (Token::Key(key), Value::Object(object)) => object.get_mut(key).into_iter().collect(),
                (Token::Key(key), Value::Array(items)) => {
                    index(key).and_then(|at| items.get_mut(at)).into_iter().collect()
                }
                _ => Vec::new(),
            };
            let changed = inner.into_iter().map(|value| act(rest, action, value));
            changed.filter(|changed| *changed).count() > 0
        }
    }
}

fn act_on_members(token: &Token, action: &Action, value: &mut Value) -> bool {
    match value {
        Value::Object(object) => {
            let hits =
                |key: &str| matches!(token, Token::Any) || matches!(token, Token::Key(name) if name == key);
            if !object.keys().any(|key| hits(key)) {
                return false;
            }
            let members = std::mem::take(object);
            for (key, value) in members {
                match action {
                    _ if !hits(&key) => drop(object.insert(key, value)),
                    Action::Drop => {}
                    Action::Rename { to } => drop(object.insert(to.clone(), value)),
                    Action::Redact { with } => drop(object.insert(key, with.as_str().into())),
                }
            }
            true
        }
        Value::Array(items) => {
            let hits = |at: usize| {
                matches!(token, Token::Any) || matches!(token, Token::Key(key) if index(key) == Some(at))
            };
            match action {
                // Elements have no names.
                Action::Rename { .. } => false,
                Action::Drop => {
                    let before = items.len();
                    let mut at = 0..;
                    items.retain(|_| !at.next().is_some_and(hits));
                    items.len() < before
                }
                Action::Redact { with } => {
                    let found = items.iter_mut().enumerate().filter(|(at, _)| hits(*at));
                    found.map(|(_, item)| *item = with.as_str().into()).count() > 0
                }
            }
        }
        _ => false,
    }
}

fn index(key: &str) -> Option<usize> {
    key.parse().ok().filter(|_| key == "0" || !key.starts_with(['0', '+']))
}

/// Changes JSON text; `None` if the text is not JSON.
pub(super) fn rewritten(text: &str, change: impl FnOnce(&mut Value) -> bool) -> Option<Option<String>> {
    let mut value: Value = serde_json::from_str(text).ok()?;
    Some(change(&mut value).then(|| value.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pointers_lead_to_members_elements_and_all_of_them() {
        let redact = Action::Redact { with: "*".into() };
        let rename = Action::Rename { to: "z".into() };
        for (pointer, action, before, after) in [
            ("/a", &redact, json!({"a": 1, "b": 2}), json!({"a": "*", "b": 2})),
            ("/a/b", &redact, json!({"a": {"b": {"c": 1}}}), json!({"a": {"b": "*"}})),
            ("/a/1", &redact, json!({"a": [1, 2]}), json!({"a": [1, "*"]})),
            ("/a/01", &redact, json!({"a": [1, 2]}), json!({"a": [1, 2]})),
            (
                "/*/b",
                &redact,
                json!({"x": {"b": 1}, "y": {"b": 2}, "z": 3}),
                json!({"x": {"b": "*"}, "y": {"b": "*"}, "z": 3}),
            ),
            ("/a/*", &redact, json!({"a": [1, {"b": 1}]}), json!({"a": ["*", "*"]})),
            ("/a~1b/m~0n", &redact, json!({"a/b": {"m~n": 1}}), json!({"a/b": {"m~n": "*"}})),
            ("/nobody", &redact, json!({"a": 1}), json!({"a": 1})),
            ("/a/b", &redact, json!({"a": "text"}), json!({"a": "text"})),
            ("/a", &Action::Drop, json!({"a": 1, "b": 2}), json!({"b": 2})),
            ("/a/0", &Action::Drop, json!({"a": [1, 2]}), json!({"a": [2]})),
            ("/a/*", &Action::Drop, json!({"a": [1, 2]}), json!({"a": []})),
            ("/a", &rename, json!({"a": 1, "b": 2}), json!({"z": 1, "b": 2})),
            ("/0", &rename, json!([1]), json!([1])),
        ] {
            let mut value = before.clone();
            let changed = Pointer::parse(pointer).expect("a pointer").act(action, &mut value);
            // As text, so that members keep their order.
            assert_eq!(value.to_string(), after.to_string(), "{pointer} {action:?}");
            assert_eq!(changed, before != after, "{pointer} {action:?}");
        }
        assert_eq!(Pointer::parse("a"), None);
        assert_eq!(Pointer::parse(""), None);
        assert_eq!(Pointer::parse("/a~2"), None);
    }
}
