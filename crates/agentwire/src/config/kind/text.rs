//! Strings that are more than strings: each says to people what it is, to editors what it looks like.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use agentwire_core::format::Format;
use serde_json::json;
use toml::de::DeValue;

use super::{
    super::table::{Kind, Shape, Value},
    Fault, cannot_be,
    parse::{address, duration, format, header_name, level, origin, route, show_duration, store, url},
};

/// A string that is more than a string.
pub(in super::super) struct Text<T> {
    /// What it is, with its article.
    words: &'static str,
    /// What it looks like, for JSON Schema.
    pattern: Option<&'static str>,
    parse: fn(&str) -> Result<T, Fault>,
    show: fn(&T) -> String,
}

impl<T> Kind<T> for Text<T> {
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
                value.refuse(cannot_be(&value.path, text, &fault.message), fault.hint);
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

/// `"30s"`.
pub(in super::super) const DURATION: Text<Duration> = Text {
    words: "a duration such as `\"30s\"`",
    pattern: Some(r"^[0-9]+(ms|s|m|h|d)$"),
    parse: |text| match duration(text)? {
        Duration::ZERO => Err(Fault::new("it must be more than nothing")),
        some => Ok(some),
    },
    show: |value| show_duration(*value),
};

/// `"30s"`, or `"0s"`.
pub(in super::super) const DURATION_OR_ZERO: Text<Duration> = Text { parse: duration, ..DURATION };

/// Where to listen.
pub(in super::super) const ADDRESS: Text<SocketAddr> = Text {
    words: "an address such as `\"127.0.0.1:7117\"`",
    pattern: Some(r"^.+:[0-9]{1,5}$"),
    parse: address,
    show: ToString::to_string,
};

/// The address of a store.
pub(in super::super) const STORE: Text<String> = Text {
    words: "a store: `\"sqlite:PATH\"` or `\"memory:\"`",
    pattern: Some(r"^(memory:|sqlite:.+)$"),
    parse: store,
    show: Clone::clone,
};

/// An address on the web.
pub(in super::super) const URL: Text<String> = Text {
    words: "an http:// or https:// address",
    pattern: Some("^https?://.+"),
    parse: url,
    show: Clone::clone,
};

/// Any text but none.
pub(in super::super) const NAME: Text<String> = Text {
    words: "text",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(Fault::new("it must not be empty")),
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// The name of a tool, or a pattern of names. What is a wildcard elsewhere and none here would hold nothing, and nobody
/// would notice.
pub(in super::super) const TOOL_NAMES: Text<String> = Text {
    pattern: Some(r"^[^?\[\]{}]+$"),
    parse: |text| match text.chars().find(|found| "?[]{}".contains(*found)) {
        Some(found) => {
            Err(Fault::new(format!("`{found}` stands in no name of a tool, and the only wildcard is `*`")))
        }
        None => (NAME.parse)(text),
    },
    ..NAME
};

/// Any text.
pub(in super::super) const ANY_TEXT: Text<String> =
    Text { words: "text", pattern: None, parse: |text| Ok(text.to_owned()), show: Clone::clone };

/// A file or folder.
pub(in super::super) const PATH: Text<PathBuf> = Text {
    words: "a path",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(Fault::new("it must not be empty")),
        text => Ok(PathBuf::from(text)),
    },
    show: |path| path.display().to_string(),
};

/// The name of a header, in lower case.
pub(in super::super) const HEADER: Text<String> = Text {
    words: "the name of a header",
    pattern: Some(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
    parse: header_name,
    show: Clone::clone,
};

/// The name of an environment variable.
pub(in super::super) const VARIABLE: Text<String> = Text {
    words: "the name of an environment variable",
    pattern: Some("^[^=\\x00]+$"),
    parse: |text| match text {
        text if text.is_empty() || text.contains(['=', '\0']) => {
            Err(Fault::new("that is no name of an environment variable"))
        }
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// A variable of the environment that is passed on, or set.
pub(in super::super) const ASSIGNMENT: Text<String> = Text {
    words: "the name of an environment variable, or `NAME=value`",
    pattern: Some("^[^=\\x00][^\\x00]*$"),
    parse: |text| match text {
        text if text.is_empty() || text.starts_with('=') || text.contains('\0') => {
            Err(Fault::new("that names no environment variable"))
        }
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// A JSON pointer.
pub(in super::super) const POINTER: Text<String> = Text {
    words: "a JSON pointer such as `\"/threadId\"`",
    pattern: Some("^/"),
    parse: |text| {
        let escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        match text.starts_with('/') && escaped {
            true => Ok(text.to_owned()),
            false if text.starts_with('/') => Err(Fault::new("`~` must be followed by `0` or `1`")),
            false => Err(Fault::new("it must begin with `/`")
                .hint(format!("did you mean `/{}`?", text.replace('.', "/")))),
        }
    },
    show: Clone::clone,
};

/// A web page's origin.
pub(in super::super) const ORIGIN: Text<String> = Text {
    words: "an origin such as `\"https://app.example\"`, or `\"*\"`",
    pattern: Some(r"^(\*|https?://[^/]+)$"),
    parse: origin,
    show: Clone::clone,
};

/// A route of ours.
pub(in super::super) const ROUTE: Text<String> =
    Text { words: "a path such as `\"/agent\"`", pattern: Some("^/"), parse: route, show: Clone::clone };

/// A format that can be read.
pub(in super::super) const FORMAT: Text<&'static Format> = Text {
    words: "a format that `agentwire formats` lists as read",
    pattern: None,
    parse: format,
    show: |format| format.name.to_owned(),
};

/// How much is logged.
pub(in super::super) const LEVEL: Text<String> = Text {
    words: "a level (`\"off\"`, `\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"`, `\"trace\"`), or several as in `\"info,agentwire_gateway=debug\"`",
    pattern: Some("."),
    parse: level,
    show: Clone::clone,
};
