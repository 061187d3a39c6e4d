//! Activity messages that carry sources, files, blocks and hand-overs, for which AG-UI has no event.
//!
//! They have canonical events of their own. AG-UI carries them as activity messages, so a client holds them as such and
//! the fold must build the same. These functions define that shape, for writing and for reading.

use crate::{
    event::{Block, Citation, File, MediaKind, MessageId, PartSource},
    json::{Json, Object},
    patch::{Patch, PatchOp},
};

/// The activity type of a [`Citation`].
pub(crate) const SOURCE: &str = "agentwire.source";
/// The activity type of a [`File`].
pub(crate) const FILE: &str = "agentwire.file";
/// The activity type of a hand-over between agents.
pub(crate) const COLLABORATION: &str = "hai.agent_collaboration";
/// The prefix of a [`Block`]'s activity type; its output's `type` follows.
const BLOCK_PREFIX: &str = "hai.";
/// The metadata key of HAI's own ids.
const HAI: &str = "hai";

/// A [`Citation`] as the content of an activity.
pub(crate) fn source_content(source: &Citation) -> Object {
    let Citation { id: _, message, url, title, media_type, filename, detail } = source;
    members([
        ("messageId", message.as_deref().map(Json::string)),
        ("url", url.as_deref().map(Json::string)),
        ("title", title.as_deref().map(Json::string)),
        ("mediaType", media_type.as_deref().map(Json::string)),
        ("filename", filename.as_deref().map(Json::string)),
        ("detail", detail.clone().map(Json::from)),
    ])
}

/// The [`Citation`] that an activity carries.
pub(crate) fn source_from(id: &MessageId, content: &Object) -> Option<Citation> {
    Some(Citation {
        id: id.clone(),
        message: optional_text(content, "messageId")?.map(|text| MessageId::from(&*text)),
        url: optional_text(content, "url")?,
        title: optional_text(content, "title")?,
        media_type: optional_text(content, "mediaType")?,
        filename: optional_text(content, "filename")?,
        detail: match content.member("detail") {
            Some(detail) => Some(detail.into_object()?),
            None => None,
        },
    })
}

/// A [`File`] as the content of an activity.
pub(crate) fn file_content(file: &File) -> Object {
    let File { id: _, message, kind, source, name } = file;
    members([
        ("messageId", message.as_deref().map(Json::string)),
        ("kind", Some(Json::string(kind.as_str()))),
        ("source", Some(part_source(source).into())),
        ("name", name.as_deref().map(Json::string)),
    ])
}

/// The [`File`] that an activity carries.
pub(crate) fn file_from(id: &MessageId, content: &Object) -> Option<File> {
    Some(File {
        id: id.clone(),
        message: optional_text(content, "messageId")?.map(|text| MessageId::from(&*text)),
        kind: MediaKind::parse(&content.get_str("kind")?)?,
        source: part_source_from(&content.member("source")?.into_object()?)?,
        name: optional_text(content, "name")?,
    })
}

/// A [`Block`] as an activity: its type, its content, and its metadata.
///
/// `layout` and `style` of the block follow the members of its output. An output that has a member of one of these names
/// is also stored whole in the metadata, so that the two can be distinguished.
pub(crate) fn block_content(block: &Block) -> (String, Object, Object) {
    let Block { id: _, message, output, layout, block_id, style } = block;
    let entries = output.entries();
    let plain: Vec<_> = entries
        .iter()
        .filter(|(key, _)| key != "layout" && key != "style")
        .map(|(key, value)| (&**key, value))
        .collect();
    let ambiguous = plain.len() < entries.len();
    let placed = [("layout", layout.as_ref()), ("style", style.as_ref())];
    let placed = placed.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let content =
        Object::from_entries(plain.into_iter().chain(placed).map(|(key, value)| (key, value.clone())));
    let ids = members([
        ("messageId", Some(Json::string(message))),
        ("blockId", block_id.as_deref().map(Json::string)),
        ("output", ambiguous.then(|| output.clone().into())),
    ]);
    let metadata = Object::from_entries([(HAI, ids.into())]);
    (format!("{BLOCK_PREFIX}{}", block.kind()), content, metadata)
}

/// The [`Block`] that an activity carries. `None` also for a hand-over, whose type looks alike.
pub(crate) fn block_from(id: &MessageId, kind: &str, content: &Object, metadata: &Object) -> Option<Block> {
    if kind.strip_prefix(BLOCK_PREFIX)? != content.get_str("type").unwrap_or_default() {
        return None;
    }
    let hai = metadata.member(HAI)?.into_object()?;
    let output = match hai.member("output") {
        Some(output) => output.into_object()?,
        None => content.without("layout").without("style"),
    };
    Some(Block {
        id: id.clone(),
        message: hai.get_str("messageId")?.into(),
        output,
        layout: content.member("layout"),
        block_id: optional_text(&hai, "blockId")?,
        style: content.member("style"),
    })
}

/// A new hand-over as the content of an activity, and its metadata.
pub(crate) fn collaboration_content(
    from: &str,
    to: &str,
    message: Option<&MessageId>,
) -> (Object, Option<Object>) {
    let content = Object::from_entries([
        ("from", Json::string(from)),
        ("to", Json::string(to)),
        ("tasks", Json::from(serde_json::json!([]))),
        ("status", Json::string("open")),
    ]);
    let metadata = message.map(|message| {
        let ids = Object::from_entries([("messageId", Json::string(message))]);
        Object::from_entries([(HAI, ids.into())])
    });
    (content, metadata)
}

/// The patch of a hand-over for a task.
pub(crate) fn collaboration_task(task: &Json) -> Patch {
    Patch(vec![PatchOp::add("/tasks/-", task.clone())])
}

/// The patch of a hand-over for its end.
pub(crate) fn collaboration_end() -> Patch {
    Patch(vec![PatchOp::replace("/status", Json::string("done"))])
}

/// An AG-UI part source.
fn part_source(source: &PartSource) -> Object {
    let (kind, value, provider, mime_type) = match source {
        PartSource::Data { value, mime_type } => ("data", value, None, Some(mime_type)),
        PartSource::Url { value, mime_type } => ("url", value, None, mime_type.as_ref()),
        PartSource::File { value, provider, mime_type } => {
            ("file", value, provider.as_ref(), mime_type.as_ref())
        }
    };
    members([
        ("type", Some(Json::string(kind))),
        ("value", Some(Json::string(value))),
        ("provider", provider.map(|text| Json::string(text))),
        ("mimeType", mime_type.map(|text| Json::string(text))),
    ])
}

fn part_source_from(object: &Object) -> Option<PartSource> {
    let value = object.get_str("value")?.into();
    let mime_type = optional_text(object, "mimeType")?;
    Some(match &*object.get_str("type")? {
        "data" => PartSource::Data { value, mime_type: mime_type? },
        "url" => PartSource::Url { value, mime_type },
        "file" => PartSource::File { value, provider: optional_text(object, "provider")?, mime_type },
        _ => return None,
    })
}

/// An object of the present members.
fn members<'k>(entries: impl IntoIterator<Item = (&'k str, Option<Json>)>) -> Object {
    Object::from_entries(entries.into_iter().filter_map(|(key, value)| Some((key, value?))))
}

/// A member that is absent or a string; `None` when it has another type.
fn optional_text(object: &Object, key: &str) -> Option<Option<Box<str>>> {
    match object.member(key) {
        None => Some(None),
        Some(value) => Some(Some(value.as_str()?.into())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*};
    use serde_json::json;

    use super::*;

    fn text() -> impl Strategy<Value = Box<str>> {
        "[a-zé\"\\\\]{0,4}".prop_map(Into::into)
    }

    fn object() -> impl Strategy<Value = Object> {
        prop_oneof![
            Just(json!({})),
            Just(json!({"score": 0.5, "spans": [1, null]})),
            Just(json!({"type": "icon", "data": {"icon": "x"}})),
            Just(json!({"type": "agent_collaboration", "layout": 1})),
            Just(json!({"style": {}, "type": 7, "layout": null, "more": 1})),
        ]
        .prop_map(|value| Object::from_value(&value).unwrap())
    }

    fn part_sources() -> impl Strategy<Value = PartSource> {
        prop_oneof![
            (text(), text()).prop_map(|(value, mime_type)| PartSource::Data { value, mime_type }),
            (text(), option::of(text())).prop_map(|(value, mime_type)| PartSource::Url { value, mime_type }),
            (text(), option::of(text()), option::of(text()))
                .prop_map(|(value, provider, mime_type)| { PartSource::File { value, provider, mime_type } }),
        ]
    }

    proptest! {
        #[test]
        fn a_source_comes_back(
            texts in [option::of(text()), option::of(text()), option::of(text()), option::of(text())],
            message in option::of(text()),
            detail in option::of(object()),
        ) {
            let [url, title, media_type, filename] = texts;
            let message = message.map(|id| MessageId::from(&*id));
            let source = Citation { id: "x".into(), message, url, title, media_type, filename, detail };
            prop_assert_eq!(source_from(&source.id, &source_content(&source)), Some(source));
        }

        #[test]
        fn a_file_comes_back(
            source in part_sources(),
            message in option::of(text()),
            name in option::of(text()),
            kind in prop::sample::select(vec![
                MediaKind::Image, MediaKind::Audio, MediaKind::Video, MediaKind::Document,
            ]),
        ) {
            let message = message.map(|id| MessageId::from(&*id));
            let file = File { id: "x".into(), message, kind, source, name };
            prop_assert_eq!(file_from(&file.id, &file_content(&file)), Some(file));
        }

        #[test]
        fn a_block_comes_back(
            message in text(),
            output in object(),
            layout in option::of(object()),
            style in option::of(object()),
            block_id in option::of(text()),
        ) {
            let block = Block {
                id: "x".into(),
                message: MessageId::from(&*message),
                output,
                layout: layout.map(Json::from),
                block_id,
                style: style.map(Json::from),
            };
            let (kind, content, metadata) = block_content(&block);
            prop_assert_eq!(block_from(&block.id, &kind, &content, &metadata), Some(block));
        }
    }

    fn parse(text: &str) -> Object {
        Json::parse(text).unwrap().into_object().unwrap()
    }

    #[test]
    fn members_stand_in_their_order() {
        let file = File {
            id: "x".into(),
            message: Some("m".into()),
            kind: MediaKind::Video,
            source: PartSource::File {
                value: "h".into(),
                provider: Some("p".into()),
                mime_type: Some("t".into()),
            },
            name: Some("n".into()),
        };
        let expected = concat!(
            r#"{"messageId":"m","kind":"video","source":"#,
            r#"{"type":"file","value":"h","provider":"p","mimeType":"t"},"name":"n"}"#,
        );
        assert_eq!(file_content(&file).get(), expected);
        let source = Citation {
            id: "x".into(),
            message: Some("m".into()),
            url: Some("u".into()),
            title: Some("t".into()),
            media_type: Some("a/b".into()),
            filename: Some("f".into()),
            detail: Some(parse("{}")),
        };
        let expected =
            r#"{"messageId":"m","url":"u","title":"t","mediaType":"a/b","filename":"f","detail":{}}"#;
        assert_eq!(source_content(&source).get(), expected);
        let block = Block {
            id: "x".into(),
            message: "m".into(),
            output: parse(r#"{"type":"icon","data":{}}"#),
            layout: Some(Json::null()),
            block_id: Some("b".into()),
            style: Some(Json::null()),
        };
        let (kind, content, metadata) = block_content(&block);
        assert_eq!(kind, "hai.icon");
        assert_eq!(content.get(), r#"{"type":"icon","data":{},"layout":null,"style":null}"#);
        assert_eq!(metadata.get(), r#"{"hai":{"messageId":"m","blockId":"b"}}"#);
    }

    #[test]
    fn activities_of_another_shape_are_not_decoded() {
        let id = MessageId::from("x");
        assert_eq!(source_from(&id, &parse(r#"{"url":7}"#)), None);
        assert_eq!(source_from(&id, &parse(r#"{"detail":[]}"#)), None);
        let file = |source: &str| file_from(&id, &parse(&format!(r#"{{"kind":"image","source":{source}}}"#)));
        assert_eq!(file(r#"{"type":"data","value":"x"}"#), None);
        assert_eq!(file(r#"{"type":"ftp","value":"x"}"#), None);
        assert_eq!(file_from(&id, &parse(r#"{"kind":"smell","source":{"type":"url","value":"x"}}"#)), None);
        let ids = parse(r#"{"hai":{"messageId":"m"}}"#);
        let icon = parse(r#"{"type":"icon"}"#);
        assert!(block_from(&id, "hai.icon", &icon, &ids).is_some());
        assert_eq!(block_from(&id, "hai.button", &icon, &ids), None);
        assert_eq!(block_from(&id, "icon", &icon, &ids), None);
        assert_eq!(block_from(&id, "hai.icon", &icon, &Object::empty()), None);
        let (content, metadata) = collaboration_content("a", "b", Some(&id));
        assert_eq!(block_from(&id, COLLABORATION, &content, &metadata.unwrap()), None);
    }
}
