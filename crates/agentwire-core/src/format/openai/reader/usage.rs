//! Token counts of a response.

use serde_json::value::RawValue;

use crate::{
    event::Usage,
    json::{Fields, Path, ReadError},
};

pub(super) fn usage_at(raw: &RawValue, parent: Path<'_>) -> Result<Usage, ReadError> {
    usage(raw, Path::Key(&parent, "usage"))
}

pub(super) fn usage(raw: &RawValue, path: Path<'_>) -> Result<Usage, ReadError> {
    let mut fields = Fields::of(raw, path)?;
    let input = number(&mut fields, "prompt_tokens")?;
    let output = number(&mut fields, "completion_tokens")?;
    let total = number(&mut fields, "total_tokens")?;
    let hit = number(&mut fields, "prompt_cache_hit_tokens")?;
    let flat = number(&mut fields, "cached_tokens")?;
    let thought = number(&mut fields, "reasoning_tokens")?;
    let mut usage =
        Usage { input, output, total, cached_input: hit.or(flat), reasoning: thought, ..Usage::default() };
    if let Some(raw) = fields.take_unless_null("prompt_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "prompt_tokens_details"))?;
        usage.cached_input = number(&mut details, "cached_tokens")?.or(usage.cached_input);
        let write = number(&mut details, "cache_write_tokens")?;
        usage.cache_write_input = write.or(number(&mut details, "cache_creation_tokens")?);
    }
    if let Some(raw) = fields.take_unless_null("completion_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "completion_tokens_details"))?;
        usage.reasoning = number(&mut details, "reasoning_tokens")?.or(usage.reasoning);
    }
    Ok(usage)
}

fn number(fields: &mut Fields<'_, '_>, key: &str) -> Result<Option<u64>, ReadError> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    Ok(fields.integer(key, 0..=i64::MAX)?.and_then(|number| number.try_into().ok()))
}
