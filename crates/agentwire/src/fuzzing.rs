//! Properties for the programs in `fuzz/`.

pub use agentwire_gateway::fuzzing::check_any_cursor;

use crate::{config, embed};

/// Panics unless a text is a configuration that stays the same when it is written as JSON and back, or has mistakes that
/// can be shown.
pub fn check_any_config(text: &str) {
    match config::parse(text) {
        Err(problems) => {
            assert!(!problems.is_empty(), "a file is refused without a reason");
            config::config_error("agentwire.toml", text, &problems);
        }
        Ok(config) => {
            let Some(document) = config::to_json(text) else { return };
            let again = config::parse(&embed::to_toml(&document)).expect("the same configuration");
            assert_eq!(format!("{config:?}"), format!("{again:?}"), "the configuration has changed");
        }
    }
}
