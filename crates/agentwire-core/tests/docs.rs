//! Pages that are generated from the code. `UPDATE=1 cargo test` rewrites them.

use std::{fmt::Write, fs, path::Path};

use agentwire_core::order::Rule;

#[test]
fn page_of_rules_is_current() {
    let mut page = String::from(
        "# Order rules\n\n\
         Every rule of a valid stream has a name. `agentwire check` reports violations by that name,\n\
         `convert --report` counts repairs by it. The official AG-UI client 1.0.0 rejects a stream that breaks\n\
         a rule marked *client*; the others are in the specification or are limits of agentwire, and `check`\n\
         marks them `(spec)`.\n\n\
         | rule | meaning | |\n| --- | --- | --- |\n",
    );
    for rule in Rule::ALL {
        let client = if rule.enforced_by_client() { "client" } else { "" };
        writeln!(page, "| `{}` | {} | {client} |", rule.name(), rule.about()).expect("memory does not fail");
    }
    page.push_str(
        "\n`check` also reports `malformed` (a frame that does not follow its format, with the JSON path),\n\
         `frame` (one that is too large or truncated), and for servers `content-type`, `line-ends` and\n\
         `connection`.\n\n\
         ## Repairs by the guard\n\n\
         Content without a start gets one. An end without a start is dropped, and so is a second start. Tool\n\
         arguments for an unknown call are dropped, because a call cannot be announced without a name. A\n\
         subagent id that contradicts the owner is removed. Open items are closed before the run ends, inner\n\
         ones first: tool calls, text, reasoning, spans, steps, subagents. A stream that ends before its run\n\
         gets RUN_ERROR `STREAM_TRUNCATED`. After the end of a run, only another run is passed on.\n",
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
