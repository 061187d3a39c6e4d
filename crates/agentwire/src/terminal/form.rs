//! Questions of an agent as prompts: yes or no, or one prompt per member of the JSON Schema of the answer.

use agentwire_client::{Answer, Interrupt};
use serde_json::{Map, Value, json};

use super::{
    editor::{Keys, Line, write},
    style::{BOLD, DIM, RED, YELLOW, one_line, styled},
};

/// The front-end tool as which a question is shown.
const CONFIRM: &str = "confirmAction";

/// One prompt of a form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Bool,
    Number { whole: bool },
    Choice(Vec<Value>),
    Text,
    Json,
}

/// The kind of answer that a question expects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// Yes or no, as `{"approved": …}`.
    Approval,
    /// One value.
    Value(Field),
    /// An object: name, field, whether it is required, description.
    Object(Vec<(String, Field, bool, String)>),
}

impl Field {
    fn of(schema: &Value) -> Self {
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return Self::Choice(choices.clone());
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => Self::Bool,
            Some("integer") => Self::Number { whole: true },
            Some("number") => Self::Number { whole: false },
            Some("string") => Self::Text,
            _ => Self::Json,
        }
    }

    /// Parses an input; the error is shown and the prompt repeated.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match self {
            Self::Bool => match text.to_lowercase().as_str() {
                "y" | "yes" | "true" | "j" | "ja" | "是" => Ok(json!(true)),
                "n" | "no" | "false" | "nein" | "否" => Ok(json!(false)),
                _ => Err("expected y or n".into()),
            },
            Self::Number { whole: true } => {
                text.parse::<i64>().map(Value::from).map_err(|_| "expected a whole number".into())
            }
            Self::Number { whole: false } => {
                let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                number.map(Value::Number).ok_or_else(|| "expected a number".into())
            }
            Self::Choice(choices) => {
                let named = choices.iter().find(|choice| shown(choice) == text);
                let numbered = text.parse::<usize>().ok().and_then(|at| choices.get(at.checked_sub(1)?));
                named.or(numbered).cloned().ok_or_else(|| format!("expected 1 to {}", choices.len()))
            }
            Self::Text => Ok(text.into()),
            Self::Json => serde_json::from_str(text).map_err(|error| format!("expected JSON: {error}")),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Form {
    /// The form for a question.
    pub(crate) fn of(interrupt: &Interrupt) -> Self {
        let tool = interrupt.metadata.as_ref().and_then(|metadata| metadata.get_str("toolName"));
        let Some(schema) = interrupt.response_schema.as_ref().map(|schema| schema.to_value()) else {
            return match tool.as_deref() {
                // The result of a call of a declared tool.
                Some(name) if name != CONFIRM => Self::Value(Field::Text),
                _ if interrupt.reason.contains("input") => Self::Value(Field::Text),
                _ => Self::Approval,
            };
        };
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Self::Value(Field::of(&schema));
        };
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|it| it == name));
        let is_flag =
            |(name, schema): (&String, &Value)| name == "approved" && Field::of(schema) == Field::Bool;
        if properties.iter().any(is_flag)
            && properties.keys().all(|name| name == "approved" || !is_required(name))
        {
            return Self::Approval;
        }
        let fields = properties.iter().map(|(name, schema)| {
            let about = schema.get("title").or_else(|| schema.get("description")).and_then(Value::as_str);
            (name.clone(), Field::of(schema), is_required(name), about.unwrap_or_default().to_owned())
        });
        Self::Object(fields.collect())
    }

    /// Asks the person. Ctrl-C and Ctrl-D leave the question open.
    pub(crate) async fn ask(&self, interrupt: &Interrupt, keys: &mut Keys) -> Answer {
        let question = interrupt.message.as_deref().unwrap_or(&interrupt.reason);
        write(&format!("\n{}\n", styled(&format!("{BOLD}{YELLOW}"), format!("? {}", one_line(question)))));
        if let Some(arguments) = interrupt.metadata.as_ref().and_then(|it| it.member("arguments")) {
            write(&format!("  {}\n", styled(DIM, one_line(arguments.get()))));
        }
        match self {
            Self::Approval => match prompt(&Field::Bool, "  approve? [y/n] ", true, keys).await {
                Some(Some(Value::Bool(true))) => Answer::approve(),
                Some(Some(_)) => Answer::deny(),
                _ => Answer::Leave,
            },
            Self::Value(field) => match prompt(field, "  > ", true, keys).await {
                Some(Some(value)) => Answer::Resolve(value),
                _ => Answer::Leave,
            },
            Self::Object(fields) => {
                let mut object = Map::new();
                for (name, field, is_required, about) in fields {
                    let about =
                        if about.is_empty() { String::new() } else { format!(" ({})", one_line(about)) };
                    let mark = if *is_required { "*" } else { "" };
                    let label = format!("  {}{mark}{about}: ", one_line(name));
                    match prompt(field, &label, *is_required, keys).await {
                        None => return Answer::Leave,
                        Some(None) => {}
                        Some(Some(value)) => {
                            object.insert(name.clone(), value);
                        }
                    }
                }
                Answer::Resolve(object.into())
            }
        }
    }
}

/// Asks for one value: `None` if the person leaves, `Some(None)` if an optional value is left out.
async fn prompt(field: &Field, label: &str, is_required: bool, keys: &mut Keys) -> Option<Option<Value>> {
    if let Field::Choice(choices) = field {
        for (at, choice) in choices.iter().enumerate() {
            write(&format!("  {}) {}\n", at + 1, one_line(&shown(choice))));
        }
    }
    let label = if *field == Field::Bool && !label.contains('[') {
        label.replace(": ", " [y/n]: ")
    } else {
        label.to_owned()
    };
    loop {
        let Line::Text(text) = keys.line(&label, "").await else { return None };
        if text.trim().is_empty() && !is_required {
            return Some(None);
        }
        match field.parse(&text) {
            Ok(value) => return Some(Some(value)),
            Err(problem) => write(&format!("  {}\n", styled(RED, problem))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interrupt(schema: Value) -> Interrupt {
        let mut interrupt = Interrupt::new("i", "tool_call");
        interrupt.response_schema = agentwire_core::json::Object::from_value(&schema);
        interrupt
    }

    #[test]
    fn schemas_become_forms() {
        assert_eq!(Form::of(&Interrupt::new("i", "confirmation")), Form::Approval);
        assert_eq!(Form::of(&Interrupt::new("i", "input_required")), Form::Value(Field::Text));
        let approval = json!({"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]});
        assert_eq!(Form::of(&interrupt(approval)), Form::Approval);
        let object = json!({"properties": {
            "city": {"type": "string", "title": "City"}, "days": {"type": "integer"}, "kind": {"enum": ["a", "b"]}
        }, "required": ["city"]});
        let Form::Object(fields) = Form::of(&interrupt(object)) else { panic!("an object") };
        assert_eq!(fields[0], ("city".into(), Field::Text, true, "City".into()));
        assert_eq!((&fields[1].1, fields[1].2), (&Field::Number { whole: true }, false));
    }

    #[test]
    fn inputs_are_checked() {
        assert_eq!(Field::Bool.parse("Yes"), Ok(json!(true)));
        assert!(Field::Bool.parse("maybe").is_err());
        assert!(Field::Number { whole: true }.parse("1.5").is_err());
        assert_eq!(Field::Choice(vec![json!("a"), json!(7)]).parse("2"), Ok(json!(7)));
        assert_eq!(Field::Choice(vec![json!("a")]).parse("a"), Ok(json!("a")));
        assert!(Field::Choice(vec![json!("a")]).parse("0").is_err());
        assert!(Field::Json.parse("{").is_err());
    }
}
