//! Token counts of a response.

use serde_json::value::RawValue;

use crate::{
    event::Usage,
    format::model_api::fields::count,
    json::{Fields, Path, ReadResult},
};

pub(super) fn read_usage(raw: &RawValue, path: Path<'_>) -> ReadResult<Usage> {
    let mut fields = Fields::of(raw, path)?;
    let mut usage = Usage {
        input: count(&mut fields, "input_tokens")?,
        output: count(&mut fields, "output_tokens")?,
        total: count(&mut fields, "total_tokens")?,
        ..Usage::default()
    };
    if let Some(raw) = fields.take_unless_null("input_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "input_tokens_details"))?;
        usage.cached_input = count(&mut details, "cached_tokens")?;
        usage.cache_write_input = count(&mut details, "cache_write_tokens")?;
    }
    if let Some(raw) = fields.take_unless_null("output_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "output_tokens_details"))?;
        usage.reasoning = count(&mut details, "reasoning_tokens")?;
    }
    Ok(usage)
}
