//! Claims about the AI SDK.

mod properties;
mod strict;

use std::{fmt::Write as _, fs, path::Path};

use super::{FORMAT, input};
use crate::{
    event::Event,
    format::{ag_ui, golden},
    tally::Tally,
};

/// The events of a fixture in AG-UI's words.
fn events(path: &Path) -> Vec<Event> {
    let bytes = fs::read(path).expect("a fixture can be read");
    let (events, failure) = golden::read(&ag_ui::FORMAT, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "{}", path.display());
    events
}

fn fixtures(folder: &str, ending: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/ai_sdk/fixtures").join(folder);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of fixtures exists")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no fixtures in {}", folder.display());
    paths
}

fn written(profile: &str, events: &[Event], pairs: &[&str]) -> String {
    let bytes = golden::write(&FORMAT, profile, None, events, pairs);
    String::from_utf8(bytes).expect("the wire is UTF-8")
}

/// `out/x.jsonl` is what a run says, `out/x.wire` what each profile makes of it. `UPDATE=1` rewrites the latter.
#[test]
fn every_profile_says_what_is_expected() {
    let mut problems = String::new();
    for path in fixtures("out", ".jsonl").into_iter().chain(fixtures("continued", ".jsonl")) {
        let events = events(&path);
        let mut text = String::new();
        let mut previous = String::new();
        for profile in FORMAT.profiles {
            let bytes = written(profile.name, &events, &[]);
            if bytes == previous {
                writeln!(text, "== {}: the same", profile.name).unwrap();
            } else {
                writeln!(text, "== {}\n{bytes}", profile.name).unwrap();
            }
            previous = bytes;
        }
        let wanted = path.with_extension("wire");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&wanted, &text).unwrap();
        }
        if fs::read_to_string(&wanted).unwrap_or_default() != text {
            writeln!(problems, "{} differs", wanted.display()).unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}(UPDATE=1 rewrites the expectations)");
}

#[test]
fn reads_what_real_servers_send() {
    golden::run(&FORMAT, "src/format/ai_sdk/fixtures/in");
}

/// `requests/x.json` is what a client sent, `requests/x.input.json` what it means, or why it is refused.
#[test]
fn understands_what_real_clients_ask() {
    let mut problems = String::new();
    for path in fixtures("requests", ".json") {
        if path.to_string_lossy().ends_with(".input.json") {
            continue;
        }
        let body = fs::read_to_string(&path).unwrap();
        let mut tally = Tally::default();
        let text = match input::from_json(&body, "no-id", "r9", &mut tally) {
            Err(error) => format!("{error}\n"),
            Ok(request) => {
                let mut text = format!(
                    "trigger {:?}, message {:?}, continues {:?}, answers {:?}\n",
                    request.trigger, request.message, request.continues, request.answers
                );
                for (what, name, count) in tally.iter() {
                    writeln!(text, "tolerated {what} `{name}` {} times", count.times).unwrap();
                }
                let asked: serde_json::Value =
                    serde_json::from_str(&ag_ui::input::to_json(&request.input)).unwrap();
                text + &serde_json::to_string_pretty(&asked).unwrap() + "\n"
            }
        };
        let wanted = path.with_extension("input.json");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&wanted, &text).unwrap();
        }
        if fs::read_to_string(&wanted).unwrap_or_default() != text {
            writeln!(problems, "{} differs", wanted.display()).unwrap();
        }
    }
    assert!(problems.is_empty(), "{problems}(UPDATE=1 rewrites the expectations)");
}

#[test]
fn the_fixtures_suit_the_strictest_clients() {
    for path in fixtures("out", ".jsonl") {
        let events = events(&path);
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            strict::receive(version, &written(profile, &events, &[]));
        }
        strict::receive4(&written("4", &events, &[]));
    }
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let text = "x".repeat(input::MAX_BODY);
    let body =
        format!(r#"{{"messages":[{{"id":"u","role":"user","parts":[{{"type":"text","text":"{text}"}}]}}]}}"#);
    let error = input::from_json(&body, "t", "r", &mut Tally::default()).unwrap_err();
    assert_eq!(error.path(), "");
    assert!(error.problem().ends_with("expected at most 10485760"), "{error}");
}

#[test]
fn a_cut_run_is_closed() {
    let path = fixtures("out", "cancelled.jsonl").remove(0);
    let mut events = events(&path);
    events.pop();
    for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
        let body = written(profile, &events, &[]);
        strict::receive(version, &body);
        assert!(body.contains(r#"{"type":"abort"}"#), "{body}");
    }
    assert!(written("4", &events, &[]).ends_with("d:{\"finishReason\":\"other\"}\n"));
}
