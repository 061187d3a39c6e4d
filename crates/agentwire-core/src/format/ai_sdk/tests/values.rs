//! Round trips of single values: `writer/encode.rs` and `reader/decode.rs` are inverse.

use super::super::{reader::decode, writer::encode};
use crate::{
    event::{Content, ContentPart, MediaKind, PartSource},
    json::Json,
};

#[test]
fn custom_event_names_round_trip() {
    for (name, part_name) in [
        ("progress", "progress"),
        ("my event!", "my-event"),
        ("state", "custom-state"),
        ("custom-state", "custom-state"),
        ("进度", "custom"),
        ("", "custom"),
        ("a/b.c", "a-b-c"),
        (" state ", "custom--state-"),
    ] {
        assert_eq!(encode::data_part_name(name), part_name, "{name}");
        let value = Json::parse(r#"{"value":1}"#).unwrap();
        let data = encode::custom_event_data(name, part_name, &value);
        assert_eq!(decode::custom_event(part_name, data), (name.into(), value), "{name}");
    }
}

#[test]
fn application_data_shaped_like_a_renamed_event_is_kept() {
    let data = Json::parse(r#"{"name":"x","value":1}"#).unwrap();
    assert_eq!(decode::custom_event("weather", data.clone()), ("weather".into(), data));
}

#[test]
fn tool_arguments_round_trip() {
    for text in [r#"{"a":1}"#, "[1]", "not json", r#""quoted""#, "{\"a\":", "5", "null"] {
        assert_eq!(decode::argument_text(&encode::tool_input(text)), text);
    }
    assert_eq!(encode::tool_input(" ").get(), "{}");
}

#[test]
fn tool_result_parts_round_trip() {
    let content = Content::Parts(vec![
        ContentPart::text("see"),
        ContentPart::Media {
            kind: MediaKind::Image,
            source: PartSource::Data { value: "aGk=".into(), mime_type: "image/png".into() },
            id: None,
            metadata: None,
        },
    ]);
    assert_eq!(decode::tool_result_content(&encode::tool_output(&content)), content);
}
