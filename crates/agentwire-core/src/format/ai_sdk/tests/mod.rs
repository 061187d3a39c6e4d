//! Claims about the AI SDK.

mod properties;
mod strict;

use std::{fmt::Write as _, fs, path::Path};

use super::{FORMAT, input};
use crate::{
    convert::{Converter, Source, SourceOptions},
    event::Event,
    format::{Options, Setup, StreamEnd, ag_ui, golden, langgraph},
    framing::Framing,
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

/// What a LangGraph stream is in the letter dialect.
fn dialect(lines: &[&str]) -> String {
    let from = &langgraph::FORMAT;
    let profile = FORMAT.profile("langchain-adapter").unwrap();
    let reading =
        SourceOptions { options: Options::default().for_profile(from, profile), ..SourceOptions::default() };
    let source = Source::new(from, Framing::Lines, &reading).unwrap();
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut converter = Converter::new(source, &FORMAT, profile, None, &setup).unwrap();
    converter.push((lines.join("\n") + "\n").as_bytes()).unwrap();
    converter.end(&StreamEnd::Closed).unwrap();
    String::from_utf8(converter.output().take().to_vec()).unwrap()
}

#[test]
fn the_dialect_has_the_payloads_of_langchains_events() {
    let written = dialect(&[
        r#"{"event":"on_chain_start","name":"My graph","run_id":"R1","parent_ids":[],"tags":[],"metadata":{"user":7},"data":{"input":{}}}"#,
        r#"{"event":"on_node_start","name":"plan","run_id":"R2","parent_ids":["R1"],"tags":[],"metadata":{"step":1},"data":{}}"#,
        r#"{"event":"on_agent_action","name":"agent","run_id":"R3","parent_ids":["R1","R2"],"tags":[],"metadata":{},"data":{"action":{"tool":"clock","tool_input":{"zone":"UTC"}}}}"#,
        r#"{"event":"on_tool_end","name":"clock","run_id":"R3","parent_ids":["R1","R2"],"tags":[],"metadata":{},"data":{"output":{"result":[1,2]}}}"#,
        r#"{"event":"on_chat_model_stream","name":"model","run_id":"R4","parent_ids":["R1","R2"],"tags":[],"metadata":{},"data":{"chunk":{"content":"Noon.","type":"AIMessageChunk","id":"m1"}}}"#,
        r#"{"event":"on_node_end","name":"plan","run_id":"R2","parent_ids":["R1"],"tags":[],"metadata":{},"data":{"output":{}}}"#,
        r#"{"event":"on_chain_end","name":"My graph","run_id":"R1","parent_ids":[],"tags":[],"metadata":{},"data":{"output":{}}}"#,
    ]);
    let wanted = [
        r#"2:{"type":"chain_start","name":"My graph","user":7}"#,
        r#"b:{"name":"plan","node_id":"R2","step":1}"#,
        r#"a:{"toolCallId":"R3","toolName":"clock","args":{"zone":"UTC"}}"#,
        r#"9:{"toolCallId":"R3","result":[1,2]}"#,
        r#"0:"Noon.""#,
        r#"c:{"node_id":"R2"}"#,
        r#"f:{"finishReason":"stop"}"#,
    ];
    assert_eq!(written.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn the_dialect_tells_a_failure_once() {
    let written = dialect(&[
        r#"{"event":"on_chain_start","name":"G","run_id":"R1","parent_ids":[],"tags":[],"metadata":{},"data":{}}"#,
        r#"{"event":"on_node_start","name":"n","run_id":"R2","parent_ids":["R1"],"tags":[],"metadata":{},"data":{}}"#,
        r#"{"event":"on_node_error","name":"n","run_id":"R2","parent_ids":["R1"],"tags":[],"metadata":{},"data":{"error":"no disk"}}"#,
        r#"{"event":"on_chain_error","name":"G","run_id":"R1","parent_ids":[],"tags":[],"metadata":{},"data":{"error":"no disk"}}"#,
    ]);
    let errors: Vec<_> = written.lines().filter(|line| line.starts_with("e:")).collect();
    assert_eq!(errors, [r#"e:"no disk""#], "{written}");
    assert!(!written.contains("\nf:"), "a run that failed does not finish: {written}");
}

#[test]
fn a_relative_address_is_not_taken_for_data() {
    let body = r#"{"id":"c","messages":[{"id":"u","role":"user","parts":[
        {"type":"file","mediaType":"image/png","url":"/uploads/cat.png"},
        {"type":"file","mimeType":"image/png","data":"aGk="}]}]}"#;
    let request = input::from_json(body, "t", "r", &mut Tally::default()).unwrap();
    let history = input::ui_messages(&request.input.messages, &[], 5);
    assert!(history.contains(r#""url":"/uploads/cat.png""#), "{history}");
    assert!(history.contains(r#""url":"data:image/png;base64,aGk=""#), "{history}");
}

#[test]
fn a_request_that_goes_on_names_the_message_that_its_history_holds() {
    let body = r#"{"id":"c","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ok","toolInvocations":
        [{"state":"result","toolCallId":"c1","toolName":"clock","args":{},"result":12}]}],
        "tools":[{"name":"clock","description":"the time"}]}"#;
    let request = input::from_json(body, "t", "r", &mut Tally::default()).unwrap();
    let written = input::to_json(&request.input, 6);
    let value: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["messageId"], value["messages"][1]["id"], "{written}");
    let back = input::from_json(&written, "t", "r", &mut Tally::default()).unwrap();
    assert_eq!(back.input.tools, request.input.tools, "declared tools survive");
}
