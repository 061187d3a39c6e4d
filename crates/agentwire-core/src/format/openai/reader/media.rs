//! Images and audio of a response.

use serde_json::value::RawValue;

use crate::{
    event::PartSource,
    format::model_api::fields::string,
    json::{Fields, Path, ReadResult, text},
    tally::Tally,
};

/// An image: `{"type": "image_url", "image_url": {"url": …}}`, or the URL in place of the inner object.
pub(super) fn read_image(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<Option<PartSource>> {
    let mut fields = Fields::of(raw, path)?;
    let inner = Path::Key(&path, "image_url");
    let url = match fields.take_unless_null("image_url") {
        Some(raw) if raw.get().starts_with('"') => Some(text(raw, inner, tally)?),
        Some(raw) => string(&mut Fields::of(raw, inner)?, "url", tally)?,
        None => None,
    };
    Ok(url.filter(|url| !url.is_empty()).map(|url| url_source(&url, "image")))
}

/// The source of a URL: inline data of a `data:` URL, or the address.
fn url_source(url: &str, kind: &str) -> PartSource {
    let inline = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    match inline {
        Some((mime, data)) => {
            let mime = mime.split(';').next().unwrap_or_default();
            let mime_type = if mime.is_empty() { format!("{kind}/*") } else { mime.to_owned() };
            PartSource::Data { value: data.into(), mime_type: mime_type.into() }
        }
        None => PartSource::Url { value: url.into(), mime_type: None },
    }
}

/// The source of audio in base64. A response does not contain the media type, so the first bytes of the file decide.
/// Data without a known file header is raw 16-bit samples, the only format of streamed audio.
pub(super) fn audio_source(data: String) -> PartSource {
    let mime_type = match data.as_bytes() {
        [b'U', b'k', b'l', b'G', ..] => "audio/wav",
        [b'S', b'U', b'Q', b'z', ..] | [b'/', b'/', ..] => "audio/mpeg",
        [b'T', b'2', b'd', b'n', ..] => "audio/ogg",
        [b'Z', b'k', b'x', b'h', ..] => "audio/flac",
        _ => "audio/pcm",
    };
    PartSource::Data { value: data.into(), mime_type: mime_type.into() }
}
