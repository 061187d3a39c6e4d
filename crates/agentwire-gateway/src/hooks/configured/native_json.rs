//! Native events in the JSON of a hook server: `{"event", "id", "data"}`.
//!
//! A payload that is JSON is `data`, other text is `text`, and bytes are `base64`.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::agent::{NativeData, NativeEvent};

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Wire {
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A member that may be `null` and is present then.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

pub(super) fn write(native: &NativeEvent) -> String {
    let mut wire = Wire { event: native.event.clone(), id: native.id.clone(), ..Wire::default() };
    match &native.data {
        NativeData::Text(text) => match RawValue::from_string(text.clone()) {
            Ok(json) => wire.data = Some(json),
            Err(_) => wire.text = Some(text.clone()),
        },
        NativeData::Bytes(bytes) => wire.base64 = Some(BASE64_STANDARD.encode(bytes)),
    }
    serde_json::to_string(&wire).unwrap_or_default()
}

pub(super) fn read(text: &str) -> Result<NativeEvent, String> {
    let wire: Wire = serde_json::from_str(text).map_err(|error| format!("is no native event: {error}"))?;
    let data = match (wire.data, wire.text, wire.base64) {
        (Some(json), None, None) => NativeData::Text(json.get().to_owned()),
        (None, Some(text), None) => NativeData::Text(text),
        (None, None, Some(base64)) => {
            let bytes = BASE64_STANDARD.decode(base64);
            NativeData::Bytes(bytes.map_err(|error| format!("has invalid base64: {error}"))?)
        }
        _ => return Err("needs one of `data`, `text` and `base64`".to_owned()),
    };
    Ok(NativeEvent { event: wire.event, id: wire.id, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_event_survives_the_way_there_and_back() {
        for data in [
            NativeData::Text(r#"{"a":1.50,"n":null}"#.into()),
            NativeData::Text("null".into()),
            NativeData::Text("[DONE]".into()),
            NativeData::Text(String::new()),
            NativeData::Bytes(vec![0, 255, 7]),
        ] {
            for (event, id) in [(None, None), (Some("updates".into()), Some("7".into()))] {
                let native = NativeEvent { event, id, data: data.clone() };
                assert_eq!(read(&write(&native)), Ok(native));
            }
        }
    }

    #[test]
    fn a_malformed_native_event_is_refused() {
        for text in ["3", "{}", r#"{"data":1,"text":"x"}"#, r#"{"base64":"%"}"#, r#"{"daten":1}"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
