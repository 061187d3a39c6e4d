mod input;
mod reader;

use super::FORMAT;
use crate::format::golden;

#[test]
fn golden_files() {
    golden::run(&FORMAT, "src/format/anthropic/fixtures");
}
