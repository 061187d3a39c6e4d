//! Pages that are made from the code, so that they cannot lie. `UPDATE=1 cargo test` rewrites them.

use std::{fmt::Write, fs, path::Path};

use agentwire_core::order::Rule;

#[test]
fn the_page_of_rules_lists_every_rule() {
    let mut page = String::from(
        "# Rules of order\n\n\
         Every law of a valid stream has a name. `agentwire check` reports breaches by it, `convert --report` counts repairs by\n\
         it. A rule marked *client* makes the official AG-UI client 1.0.0 reject the stream; the others are in the specification or\n\
         are limits of agentwire, and `check` marks them `(spec)`.\n\n\
         | rule | law | |\n| --- | --- | --- |\n",
    );
    for rule in Rule::ALL {
        let client = if rule.enforced_by_client() { "client" } else { "" };
        writeln!(page, "| `{}` | {} | {client} |", rule.name(), rule.about()).expect("memory does not fail");
    }
    page.push_str(
        "\n`check` also reports `malformed` (a frame that does not follow its format, with the JSON path), `frame` (one that is too large \
         or\ncut off), and for servers `content-type`, `line-ends` and `connection`.\n\n\
         ## What the guard does about it\n\n\
         Content without a start gets one. An end without a start is dropped, and so is a second start. Tool arguments for a call whose name\n\
         is not known are dropped, because a call cannot be announced without a name. A tag that contradicts its owner is taken off. Everything open\n\
         is closed before the run ends, inner things first: tool calls, text, reasoning, spans, steps, subagents. A stream that ends before\n\
         its run gets RUN_ERROR `STREAM_TRUNCATED`. Nothing follows the end of a run but another run.\n",
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/rules.md is stale: run `UPDATE=1 cargo test -p agentwire-core --test docs`"
    );
}
