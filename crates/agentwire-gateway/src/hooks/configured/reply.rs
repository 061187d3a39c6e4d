//! The response of a hook server.

use std::collections::BTreeMap;

use agentwire_core::{
    event::{Event, RunId, ThreadId},
    json::Json,
};
use serde_json::value::RawValue;

use super::native_json;
use crate::{
    agent::{NativeEvent, Translated, Translation},
    stream::log_codec::Decoder,
};

/// The key of a refusal, in the response of every hook.
const REFUSE: &str = "refuse";

/// The reason why a response has no effect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The server refuses the run; for the client.
    Refused(String),
    /// The server failed; for the log.
    Failed(String),
}

/// A response that is an object with known keys.
#[derive(Debug)]
pub(super) struct Reply(BTreeMap<String, Box<RawValue>>);

impl Reply {
    /// Reads a body; `None` if it changes nothing.
    pub(super) fn parse(body: &[u8], keys: &[&str]) -> Result<Option<Self>, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let failed = |problem: String| Err(Problem::Failed(problem));
        // Frameworks serialize a function without a return value as `null`.
        let reply = match serde_json::from_slice::<Option<BTreeMap<String, Box<RawValue>>>>(body) {
            Ok(None) => return Ok(None),
            Ok(Some(reply)) if reply.is_empty() => return Ok(None),
            Ok(Some(reply)) => reply,
            Err(error) => return failed(format!("answered with something that is no JSON object: {error}")),
        };
        if let Some(why) = reply.get(REFUSE).filter(|why| why.get() != "null") {
            return Err(match serde_json::from_str(why.get()) {
                Ok(why) => Problem::Refused(why),
                Err(_) => Problem::Failed(format!("`{REFUSE}` is no text")),
            });
        }
        match keys.iter().any(|key| reply.contains_key(*key)) {
            true => Ok(Some(Self(reply))),
            false => failed(format!("answered with none of the keys {}", keys.join(", "))),
        }
    }

    /// The value of a key as JSON text.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| value.get())
    }

    /// The list of a key; `None` if it is absent.
    fn list(&self, key: &str) -> Result<Option<Vec<&RawValue>>, Problem> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let list = serde_json::from_str(text).map_err(|_| Problem::Failed(format!("`{key}` is no list")))?;
        Ok(Some(list))
    }

    /// The AG-UI events of a key; `None` if it is absent.
    pub(super) fn events(&self, key: &str, codec: &mut EventReader) -> Result<Option<Vec<Event>>, Problem> {
        self.list(key)?.map(|list| codec.read_all(key, &list)).transpose()
    }

    /// The native events of a key; `None` if it is absent.
    pub(super) fn natives(&self, key: &str) -> Result<Option<Vec<NativeEvent>>, Problem> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        let read = |(index, item): (usize, &&RawValue)| {
            native_json::read(item.get())
                .map_err(|problem| Problem::Failed(format!("`{key}[{index}]` {problem}")))
        };
        list.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }

    /// The decisions on `count` native events; `None` if there are none.
    pub(super) fn translations(
        &self,
        count: usize,
        codec: &mut EventReader,
    ) -> Result<Option<Vec<Translated>>, Problem> {
        const KEY: &str = "translations";
        let Some(list) = self.list(KEY)? else { return Ok(None) };
        if list.len() != count {
            let problem = format!("answered with {} translations for {count} events", list.len());
            return Err(Problem::Failed(problem));
        }
        let read = |(index, item): (usize, &&RawValue)| {
            let invalid = |problem: &str| Problem::Failed(format!("`{KEY}[{index}]` {problem}"));
            let members: BTreeMap<String, Box<RawValue>> = match item.get() {
                "null" | r#""default""# => return Ok(Translated::default()),
                r#""skip""# => {
                    return Ok(Translated { translation: Translation::Skip, ..Translated::default() });
                }
                text => serde_json::from_str(text)
                    .map_err(|_| invalid("is neither `default`, `skip` nor an object"))?,
            };
            let before = match members.get("before") {
                None => Vec::new(),
                Some(list) => {
                    let list: Vec<&RawValue> = serde_json::from_str(list.get())
                        .map_err(|_| invalid("has `before` that is no list"))?;
                    codec.read_all("before", &list)?
                }
            };
            let translation = match (members.get("translation").map(|word| word.get()), members.get("event"))
            {
                (None | Some(r#""default""#), None) => Translation::Default,
                (Some(r#""skip""#), None) => Translation::Skip,
                (Some(r#""replace""#), Some(event)) => {
                    Translation::Replace(native_json::read(event.get()).map_err(|problem| invalid(&problem))?)
                }
                _ => {
                    return Err(invalid("needs `translation`: `default`, `skip`, or `replace` with `event`"));
                }
            };
            Ok(Translated { before, translation })
        };
        list.iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }

    /// The state of the response; `None` if there is none.
    pub(super) fn state(&self) -> Result<Option<serde_json::Value>, Problem> {
        let Some(state) = self.get("state") else { return Ok(None) };
        match Json::parse(state) {
            Ok(state) => Ok(Some(state.to_value())),
            Err(error) => Err(Problem::Failed(format!("answered with a state that cannot be told: {error}"))),
        }
    }
}

/// Reads the AG-UI events of one hook in one run.
pub(super) struct EventReader(Decoder);

impl EventReader {
    pub(super) fn new(thread: &ThreadId, run: &RunId) -> Self {
        Self(Decoder::new(thread, run))
    }

    fn read_all(&mut self, key: &str, list: &[&RawValue]) -> Result<Vec<Event>, Problem> {
        let mut events = Vec::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            self.0
                .try_decode(item.get(), &mut events)
                .map_err(|problem| Problem::Failed(format!("`{key}[{index}]` is no event: {problem}")))?;
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str, keys: &[&str]) -> Result<Option<Reply>, Problem> {
        Reply::parse(body.as_bytes(), keys)
    }

    fn reader() -> EventReader {
        EventReader::new(&"t".into(), &"r".into())
    }

    #[test]
    fn an_empty_response_changes_nothing() {
        for body in ["", " \n", "null", "{}"] {
            assert!(parse(body, &["events"]).expect("valid").is_none(), "{body:?}");
        }
    }

    #[test]
    fn a_refusal_wins_over_every_key() {
        let refused = parse(r#"{"events":[],"refuse":"no"}"#, &["events"]).expect_err("refused");
        assert_eq!(refused, Problem::Refused("no".into()));
        assert!(parse(r#"{"events":[],"refuse":null}"#, &["events"]).expect("valid").is_some());
    }

    #[test]
    fn garbage_is_a_failure_that_names_its_place() {
        for body in ["<html>", "[1]", "3", r#""text""#, r#"{"other":1}"#, r#"{"refuse":3}"#, "{", "{} {}"] {
            assert!(matches!(parse(body, &["events"]), Err(Problem::Failed(_))), "{body}");
        }
        for body in [
            r#"{"events":3}"#,
            r#"{"events":[3]}"#,
            r#"{"events":[{"type":"NO_SUCH_TYPE"}]}"#,
            r#"{"events":[{"type":"TEXT_MESSAGE_CONTENT"}]}"#,
            r#"{"events":[{"delta":"x"}]}"#,
        ] {
            let reply = parse(body, &["events"]).expect("an object").expect("a key");
            let problem = reply.events("events", &mut reader()).expect_err(body);
            assert!(matches!(problem, Problem::Failed(text) if text.contains("events")), "{body}");
        }
    }

    #[test]
    fn translations_have_three_forms() {
        let body = r#"{"translations":[null,"default","skip",
            {"before":[{"type":"CUSTOM","name":"n","value":1}]},
            {"translation":"skip","before":[]},
            {"translation":"replace","event":{"event":"e","data":{"a":1}}}]}"#;
        let reply = parse(body, &["translations"]).expect("valid").expect("a key");
        let translated = reply.translations(6, &mut reader()).expect("valid").expect("a list");
        let kinds: Vec<_> = translated.iter().map(|it| (it.before.len(), &it.translation)).collect();
        let other = NativeEvent::text(Some("e"), r#"{"a":1}"#);
        let (default, skip, replace) = (Translation::Default, Translation::Skip, Translation::Replace(other));
        let expected = [(0, &default), (0, &default), (0, &skip), (1, &default), (0, &skip), (0, &replace)];
        assert_eq!(kinds, expected);
        assert!(reply.translations(5, &mut reader()).is_err(), "one for each event");
        for body in [
            r#"{"translations":["later"]}"#,
            r#"{"translations":[{"translation":"replace"}]}"#,
            r#"{"translations":[{"event":{"text":"x"}}]}"#,
            r#"{"translations":[{"before":{}}]}"#,
        ] {
            let reply = parse(body, &["translations"]).expect("valid").expect("a key");
            assert!(reply.translations(1, &mut reader()).is_err(), "{body}");
        }
    }
}
