//! The channels and namespaces that a client asks for.

use super::super::super::wire::ProtocolMethod;
use crate::format::Options;

/// The channels of a client that names none.
const DEFAULT: &str = "values,updates,messages,tools,lifecycle,input,custom,tasks,checkpoints";

/// A filter of events.
#[derive(Debug)]
pub(super) struct Filter {
    channels: Vec<Box<str>>,
    /// Prefixes of namespaces; empty for all.
    namespaces: Vec<Vec<Box<str>>>,
    /// Levels below a prefix.
    depth: Option<usize>,
}

impl Filter {
    /// That of the options `channels`, `namespaces` (a JSON list of lists) and `depth`.
    pub(super) fn of(options: &Options) -> Self {
        let channels = options.get("channels").unwrap_or(DEFAULT).split(',');
        let namespaces = options.get("namespaces").and_then(|text| serde_json::from_str(text).ok());
        Self {
            channels: channels.map(|channel| channel.trim().into()).collect(),
            namespaces: namespaces.unwrap_or_default(),
            depth: options.get("depth").and_then(|text| text.parse().ok()),
        }
    }

    /// True if events of a method are wanted.
    pub(super) fn has(&self, method: ProtocolMethod) -> bool {
        let name = match method {
            ProtocolMethod::InputRequested => "input",
            method => method.as_str(),
        };
        self.channels.iter().any(|channel| **channel == *name)
    }

    /// True if custom events with this name are wanted.
    pub(super) fn has_custom(&self, name: &str) -> bool {
        let is_named = |channel: &str| channel.strip_prefix("custom:") == Some(name);
        self.has(ProtocolMethod::Custom) || self.channels.iter().any(|channel| is_named(channel))
    }

    /// True if events of a namespace are wanted. A segment of a prefix without `:` stands for all with this name.
    pub(super) fn reaches(&self, namespace: &[Box<str>]) -> bool {
        let is_under = |prefix: &Vec<Box<str>>| {
            prefix.len() <= namespace.len()
                && self.depth.is_none_or(|depth| namespace.len() - prefix.len() <= depth)
                && prefix.iter().zip(namespace).all(|(wanted, found)| {
                    **wanted == **found
                        || (!wanted.contains(':') && found.split(':').next() == Some(&**wanted))
                })
        };
        self.namespaces.is_empty() || self.namespaces.iter().any(is_under)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::langgraph::FORMAT;

    fn filter(options: &[&str]) -> Filter {
        Filter::of(&Options::parse(options.iter().copied(), FORMAT.options).expect("known"))
    }

    fn namespace(path: &str) -> Vec<Box<str>> {
        path.split('/').filter(|segment| !segment.is_empty()).map(Into::into).collect()
    }

    #[test]
    fn a_namespace_is_matched_by_prefix_and_depth() {
        for (options, path, expected) in [
            (&[][..], "a:1/b:2", true),
            (&["namespaces=[[]]"], "a:1/b:2", true),
            (&["namespaces=[[]]", "depth=1"], "", true),
            (&["namespaces=[[]]", "depth=1"], "a:1", true),
            (&["namespaces=[[]]", "depth=1"], "a:1/b:2", false),
            (&[r#"namespaces=[["a"]]"#], "a:1", true),
            (&[r#"namespaces=[["a:1"]]"#], "a:1/b:2", true),
            (&[r#"namespaces=[["a:1"]]"#], "a:2", false),
            (&[r#"namespaces=[["a"],["b"]]"#, "depth=0"], "b:7", true),
            (&[r#"namespaces=[["a"],["b"]]"#, "depth=0"], "b:7/c:1", false),
            (&[r#"namespaces=[["a"]]"#], "", false),
        ] {
            assert_eq!(filter(options).reaches(&namespace(path)), expected, "{options:?} {path}");
        }
    }

    #[test]
    fn a_channel_may_be_one_name_of_custom_events() {
        let named = filter(&["channels=custom:a2a,values"]);
        assert!(named.has_custom("a2a") && !named.has_custom("other") && named.has(ProtocolMethod::Values));
        assert!(!named.has(ProtocolMethod::InputRequested));
        assert!(filter(&["channels=custom,input"]).has_custom("any"));
        assert!(filter(&["channels=input"]).has(ProtocolMethod::InputRequested));
    }
}
