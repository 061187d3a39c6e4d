//! Strings with a syntax: durations, addresses, URLs, names, patterns.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use agentwire_core::format::Format;
use agentwire_gateway::settings::Rate;
use ipnet::IpNet;
use serde_json::json;
use toml::de::DeValue;

use super::{
    super::table::{Shape, Table, Value, ValueType},
    ValueError, cannot_be,
    parse::{
        address, duration, format, header_name, host, level, network, origin, rate, route, show_duration,
        store, url,
    },
};

/// A string with a syntax.
pub(in super::super) struct TextType<T> {
    /// Description with its article, for error messages.
    words: &'static str,
    /// Pattern for JSON Schema.
    pattern: Option<&'static str>,
    parse: fn(&str) -> Result<T, ValueError>,
    show: fn(&T) -> String,
}

impl<T> ValueType<T> for TextType<T> {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        if let (true, DeValue::Integer(number)) =
            (self.words.starts_with("a duration"), value.inner.get_ref())
        {
            value.wrong_type(self.words, Some(format!("a duration has a unit: `\"{number}s\"`")));
            return None;
        }
        let text = value.text(self.words)?;
        match (self.parse)(text) {
            Ok(read) => Some(read),
            Err(fault) => {
                value.reject(cannot_be(&value.path, text, &fault.message), fault.hint);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let mut schema = json!({ "type": "string" });
        if let Some(pattern) = self.pattern {
            schema["pattern"] = pattern.into();
        }
        Shape::Value(self.words.to_owned(), schema)
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(format!("{:?}", (self.show)(value)))
    }
}

/// A duration above zero such as `"30s"`.
pub(in super::super) const DURATION: TextType<Duration> = TextType {
    words: "a duration such as `\"30s\"`",
    pattern: Some(r"^[0-9]+(ms|s|m|h|d)$"),
    parse: |text| match duration(text)? {
        Duration::ZERO => Err(ValueError::new("it must be more than nothing")),
        some => Ok(some),
    },
    show: |value| show_duration(*value),
};

/// A duration such as `"30s"`, or `"0s"`.
pub(in super::super) const DURATION_OR_ZERO: TextType<Duration> = TextType { parse: duration, ..DURATION };

/// A number within a period, such as `"120/1m"`.
pub(in super::super) const RATE: TextType<Rate> = TextType {
    words: "a rate such as `\"120/1m\"`",
    pattern: Some(r"^[0-9]+/[0-9]+(ms|s|m|h|d)$"),
    parse: rate,
    show: |rate| format!("{}/{}", rate.count, show_duration(rate.period)),
};

/// A name that the gateway answers to.
pub(in super::super) const HOST: TextType<String> = TextType {
    words: "a host name such as `\"agents.example.com\"`",
    pattern: Some(r"^(\*|(\*\.)?[A-Za-z0-9._-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?)$"),
    parse: host,
    show: Clone::clone,
};

/// An address to listen on.
pub(in super::super) const ADDRESS: TextType<SocketAddr> = TextType {
    words: "an address such as `\"127.0.0.1:7117\"`",
    pattern: Some(r"^.+:[0-9]{1,5}$"),
    parse: address,
    show: ToString::to_string,
};

/// A network of addresses.
pub(in super::super) const NETWORK: TextType<IpNet> = TextType {
    words: "a network such as `\"10.0.0.0/8\"`",
    pattern: Some("^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$"),
    parse: network,
    show: ToString::to_string,
};

/// The address of a store: text, or the environment variable that holds it.
pub(in super::super) struct StoreAddress;

impl ValueType<String> for StoreAddress {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        if !matches!(value.inner.get_ref(), DeValue::Table(_)) {
            let text = value.text(STORE.words)?;
            return match store(text) {
                Ok(address) => Some(address),
                Err(fault) => {
                    // A malformed address may hold a password all the same.
                    let shown = if text.starts_with("postgres") { "postgres…" } else { text };
                    value.reject(cannot_be(&value.path, shown, &fault.message), fault.hint);
                    None
                }
            };
        }
        let read = |table: &mut Table<'_>| {
            table.required("env", &VARIABLE, "The environment variable that holds the address.")
        };
        let name = value.table("a store, or `{ env = \"NAME\" }`", read)?.0?;
        Some(format!("env:{name}"))
    }

    fn shape(&self) -> Shape {
        let variable = json!({ "type": "string", "pattern": "^[^=\\x00]+$" });
        let from_environment = json!({
            "type": "object",
            "properties": { "env": variable },
            "required": ["env"],
            "additionalProperties": false,
        });
        let Shape::Value(words, text) = STORE.shape() else { unreachable!("a text is a value") };
        Shape::Value(words, json!({ "anyOf": [text, from_environment] }))
    }

    fn show(&self, value: &String) -> Option<String> {
        STORE.show(value)
    }
}

const STORE: TextType<String> = TextType {
    words: "a store: `\"sqlite:PATH\"`, `\"postgres://…\"`, `{ env = \"NAME\" }` or `\"memory:\"`",
    pattern: Some(r"^(memory:|sqlite:.+|postgres(ql)?://.+|env:.+)$"),
    parse: store,
    show: |address| agentwire_store::redact_address(address),
};

/// An HTTP URL.
pub(in super::super) const URL: TextType<String> = TextType {
    words: "an http:// or https:// address",
    pattern: Some("^https?://.+"),
    parse: url,
    show: Clone::clone,
};

/// Non-empty text.
pub(in super::super) const NAME: TextType<String> = TextType {
    words: "text",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(ValueError::new("it must not be empty")),
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// The name of a tool, or a pattern with `*`. Wildcards of other pattern languages are rejected: they would match
/// nothing, without notice.
pub(in super::super) const TOOL_PATTERN: TextType<String> = TextType {
    pattern: Some(r"^[^?\[\]{}]+$"),
    parse: |text| match text.chars().find(|found| "?[]{}".contains(*found)) {
        Some(found) => Err(ValueError::new(format!(
            "`{found}` stands in no name of a tool, and the only wildcard is `*`"
        ))),
        None => (NAME.parse)(text),
    },
    ..NAME
};

/// Any text.
pub(in super::super) const ANY_TEXT: TextType<String> =
    TextType { words: "text", pattern: None, parse: |text| Ok(text.to_owned()), show: Clone::clone };

/// A file or folder.
pub(in super::super) const PATH: TextType<PathBuf> = TextType {
    words: "a path",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(ValueError::new("it must not be empty")),
        text => Ok(PathBuf::from(text)),
    },
    show: |path| path.display().to_string(),
};

/// The name of a header, in lower case.
pub(in super::super) const HEADER: TextType<String> = TextType {
    words: "the name of a header",
    pattern: Some(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
    parse: header_name,
    show: Clone::clone,
};

/// The name of an environment variable.
pub(in super::super) const VARIABLE: TextType<String> = TextType {
    words: "the name of an environment variable",
    pattern: Some("^[^=\\x00]+$"),
    parse: |text| match text {
        text if text.is_empty() || text.contains(['=', '\0']) => {
            Err(ValueError::new("that is no name of an environment variable"))
        }
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// An environment variable to pass on, or an assignment.
pub(in super::super) const ASSIGNMENT: TextType<String> = TextType {
    words: "the name of an environment variable, or `NAME=value`",
    pattern: Some("^[^=\\x00][^\\x00]*$"),
    parse: |text| match text {
        text if text.is_empty() || text.starts_with('=') || text.contains('\0') => {
            Err(ValueError::new("that names no environment variable"))
        }
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// A JSON pointer.
pub(in super::super) const POINTER: TextType<String> = TextType {
    words: "a JSON pointer such as `\"/threadId\"`",
    pattern: Some("^/"),
    parse: |text| {
        let escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        match text.starts_with('/') && escaped {
            true => Ok(text.to_owned()),
            false if text.starts_with('/') => Err(ValueError::new("`~` must be followed by `0` or `1`")),
            false => Err(ValueError::new("it must begin with `/`")
                .hint(format!("did you mean `/{}`?", text.replace('.', "/")))),
        }
    },
    show: Clone::clone,
};

/// The origin of a web page.
pub(in super::super) const ORIGIN: TextType<String> = TextType {
    words: "an origin such as `\"https://app.example\"`, or `\"*\"`",
    pattern: Some(r"^(\*|https?://[^/]+)$"),
    parse: origin,
    show: Clone::clone,
};

/// A route of the gateway.
pub(in super::super) const ROUTE: TextType<String> =
    TextType { words: "a path such as `\"/agent\"`", pattern: Some("^/"), parse: route, show: Clone::clone };

/// A format with a reader.
pub(in super::super) const FORMAT: TextType<&'static Format> = TextType {
    words: "a format that `agentwire formats` lists as read",
    pattern: None,
    parse: format,
    show: |format| format.name.to_owned(),
};

/// A log level, or levels per target.
pub(in super::super) const LEVEL: TextType<String> = TextType {
    words: "a level (`\"off\"`, `\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"`, `\"trace\"`), or several as in `\"info,agentwire_gateway=debug\"`",
    pattern: Some("."),
    parse: level,
    show: Clone::clone,
};
