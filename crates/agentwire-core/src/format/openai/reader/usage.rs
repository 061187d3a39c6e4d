//! Token counts of a response.

use serde_json::value::RawValue;

use crate::{
    event::Usage,
    format::model_api::fields::count,
    json::{Fields, Path, ReadResult},
};

/// Decodes the token counts of `parent`'s member `usage`.
pub(super) fn read_usage(raw: &RawValue, parent: Path<'_>) -> ReadResult<Usage> {
    let path = Path::Key(&parent, "usage");
    let mut fields = Fields::of(raw, path)?;
    let input = count(&mut fields, "prompt_tokens")?;
    let output = count(&mut fields, "completion_tokens")?;
    let total = count(&mut fields, "total_tokens")?;
    let cache_hits = count(&mut fields, "prompt_cache_hit_tokens")?;
    let cached = count(&mut fields, "cached_tokens")?;
    let reasoning = count(&mut fields, "reasoning_tokens")?;
    let mut usage =
        Usage { input, output, total, cached_input: cache_hits.or(cached), reasoning, ..Usage::default() };
    if let Some(raw) = fields.take_unless_null("prompt_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "prompt_tokens_details"))?;
        usage.cached_input = count(&mut details, "cached_tokens")?.or(usage.cached_input);
        let cache_write = count(&mut details, "cache_write_tokens")?;
        usage.cache_write_input = cache_write.or(count(&mut details, "cache_creation_tokens")?);
    }
    if let Some(raw) = fields.take_unless_null("completion_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "completion_tokens_details"))?;
        usage.reasoning = count(&mut details, "reasoning_tokens")?.or(usage.reasoning);
    }
    Ok(usage)
}
