//! The losses of each pair of formats, measured by converting every fixture of every reader to every profile of
//! every writer. `UPDATE=1 cargo test -p agentwire-core --test fidelity` rewrites `docs/FIDELITY.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use agentwire_core::{
    convert::Converter,
    event::StreamEnd,
    format::{FORMATS, Format, Options, Profile, Setup},
    framing::detect,
    source::{GuardedSource, SourceOptions},
};

/// The losses of a pair: the number of events of a kind, the total, and the reason.
#[derive(Default)]
struct Pair {
    events: u64,
    exact: u64,
    approximated: BTreeMap<(&'static str, &'static str), u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fixtures of a format: its folder's name is the format's, `-` being `_`. A binary form has none of its own.
fn fixtures(format: &Format) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/format")
        .join(format.name.replace('-', "_"))
        .join("fixtures");
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !name.contains(".events.") && !name.ends_with(".md") {
                found.push((name, fs::read(&path).expect("a fixture can be read")));
            }
        }
    }
    found.sort();
    found
}

/// Converts one fixture; `None` if its framing cannot be detected.
fn convert(
    from: &Format,
    name: &str,
    bytes: &[u8],
    to: &Format,
    profile: &Profile,
    pair: &mut Pair,
) -> Option<()> {
    let framing = detect(bytes, from.reads)?;
    // Options of a fixture go into its name: `x.thinking=chains.jsonl`.
    let pairs = name.split('.').filter(|part| part.contains('='));
    let options = Options::parse(pairs, from.options).ok()?;
    let source = GuardedSource::new(from, framing, &SourceOptions { options, ..SourceOptions::default() })?;
    let options = Options::default();
    let setup = Setup { thread: "thread".into(), run: "run".into(), options: &options };
    let mut converter = Converter::new(source, to, profile, None, &setup)?;
    // A malformed fixture ends its run with an error event, which is converted like any other.
    let _ = converter.push(bytes);
    let _ = converter.end(&StreamEnd::Closed);
    let report = converter.report();
    let exact: u64 = report.exact.iter().map(|(_, times)| times).sum();
    pair.exact += exact;
    pair.events += exact;
    for (losses, into) in
        [(&report.approximated, &mut pair.approximated), (&report.dropped, &mut pair.dropped)]
    {
        for loss in losses {
            *into.entry((loss.kind, loss.why)).or_default() += loss.times;
            pair.events += loss.times;
        }
    }
    Some(())
}

#[test]
fn fidelity_page_lists_the_reported_losses() {
    let writers: Vec<_> = FORMATS
        .iter()
        .filter(|format| format.writer.is_some())
        .flat_map(|format| format.profiles.iter().map(move |profile| (*format, profile)))
        .collect();
    let mut page = String::from(
        "# Fidelity\n\n\
         What each reader and writer lose between them, found by converting every fixture of the reader and asking the writer how well it\n\
         could express each event. This page is made by a test (`UPDATE=1 cargo test -p agentwire-core --test fidelity`), so it cannot lie;\n\
         `agentwire convert --report` says the same for your own streams.\n\n\
         *Exact* means that the reader of the target format restores the very same event. A figure like 97 % is the share of exact events; the\n\
         rest was changed or left out, and the list below says what and why.\n\n",
    );
    let mut details = String::new();
    let mut tables = Vec::new();
    for from in FORMATS.iter().filter(|format| format.reader.is_some()) {
        let fixtures = fixtures(from);
        if fixtures.is_empty() {
            continue;
        }
        let mut row = Vec::new();
        let mut reasons: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (to, profile) in &writers {
            let mut pair = Pair::default();
            for (name, bytes) in &fixtures {
                convert(from, name, bytes, to, profile, &mut pair);
            }
            let target = format!("{}@{}", to.name, profile.name);
            row.push(share(&pair));
            for (verb, losses) in [("changed", &pair.approximated), ("left out", &pair.dropped)] {
                for (kind, why) in losses.keys() {
                    reasons.entry(format!("`{kind}` {verb}: {why}")).or_default().insert(target.clone());
                }
            }
        }
        tables.push((from.name, row));
        if !reasons.is_empty() {
            writeln!(details, "\n## From {}\n", from.name).expect("memory does not fail");
            for (reason, targets) in reasons {
                let targets: Vec<_> = targets.into_iter().collect();
                writeln!(details, "- {reason} ({})", targets.join(", ")).expect("memory does not fail");
            }
        }
    }
    write!(page, "| from \\ to |").expect("memory does not fail");
    for (to, profile) in &writers {
        write!(page, " `{}@{}` |", to.name, profile.name).expect("memory does not fail");
    }
    page.push_str("\n| --- |");
    page.push_str(&" ---: |".repeat(writers.len()));
    page.push('\n');
    for (name, row) in &tables {
        writeln!(page, "| {name} | {} |", row.join(" | ")).expect("memory does not fail");
    }
    page.push_str(&details);
    let path = root().join("docs/FIDELITY.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/FIDELITY.md is stale: run `UPDATE=1 cargo test -p agentwire-core --test fidelity`"
    );
}

/// The share of events that were expressed exactly; 100 % only if all were.
fn share(pair: &Pair) -> String {
    if pair.events == 0 {
        return "–".into();
    }
    if pair.exact == pair.events {
        return "exact".into();
    }
    let tenths = pair.exact * 1000 / pair.events;
    format!("{}.{} %", tenths / 10, tenths % 10)
}
