//! Tests of the AI SDK format: golden files, conversions between formats, requests.

mod properties;
mod server_round_trip;
mod strict_client;
mod values;

use std::{fmt::Write as _, fs, path::Path};

use super::{FORMAT, input};
use crate::{
    convert::Converter,
    event::{Event, Message, MessageBody, RunInput, StreamEnd, ToolCall},
    format::{Format, Options, Setup, ag_ui, golden, hai, langgraph},
    framing::Framing,
    source::{GuardedSource, SourceOptions},
    tally::Tally,
};

/// Events of a fixture in AG-UI JSON.
fn fixture_events(path: &Path) -> Vec<Event> {
    let bytes = fs::read(path).expect("a fixture can be read");
    let (events, failure) = golden::read(&ag_ui::FORMAT, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "{}", path.display());
    events
}

fn fixtures(folder: &str, suffix: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/ai_sdk/fixtures").join(folder);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of fixtures exists")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no fixtures in {}", folder.display());
    paths
}

fn encoded(profile: &str, events: &[Event], pairs: &[&str]) -> String {
    let bytes = golden::write(&FORMAT, profile, None, events, pairs);
    String::from_utf8(bytes).expect("the wire is UTF-8")
}

/// Compares `text` with a golden file, or rewrites the file with `UPDATE=1`.
fn compare_golden(wanted: &Path, text: &str, problems: &mut String) {
    if std::env::var_os("UPDATE").is_some() {
        fs::write(wanted, text).unwrap();
    }
    if fs::read_to_string(wanted).unwrap_or_default() != text {
        writeln!(problems, "{} differs", wanted.display()).unwrap();
    }
}

/// `out/x.jsonl` contains the events of a run, `out/x.wire` the output of each profile. `UPDATE=1` rewrites the latter.
#[test]
fn every_profile_writes_the_expected_bytes() {
    let mut problems = String::new();
    for path in fixtures("out", ".jsonl").into_iter().chain(fixtures("continued", ".jsonl")) {
        let events = fixture_events(&path);
        let mut text = String::new();
        let mut previous = String::new();
        for profile in FORMAT.profiles {
            let bytes = encoded(profile.name, &events, &[]);
            if bytes == previous {
                writeln!(text, "== {}: the same", profile.name).unwrap();
            } else {
                writeln!(text, "== {}\n{bytes}", profile.name).unwrap();
            }
            previous = bytes;
        }
        compare_golden(&path.with_extension("wire"), &text, &mut problems);
    }
    assert!(problems.is_empty(), "{problems}(UPDATE=1 rewrites the expectations)");
}

#[test]
fn streams_of_real_servers_are_read() {
    golden::run(&FORMAT, "src/format/ai_sdk/fixtures/in");
}

/// `requests/x.json` is a request of a client, `requests/x.input.json` the canonical input or the error.
#[test]
fn requests_of_real_clients_are_read() {
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
                    request.trigger, request.message, request.continues, request.answered_calls
                );
                for (kind, name, count) in tally.iter() {
                    writeln!(text, "tolerated {kind} `{name}` {} times", count.times).unwrap();
                }
                let canonical: serde_json::Value =
                    serde_json::from_str(&ag_ui::input::to_json(&request.input)).unwrap();
                text + &serde_json::to_string_pretty(&canonical).unwrap() + "\n"
            }
        };
        compare_golden(&path.with_extension("input.json"), &text, &mut problems);
    }
    assert!(problems.is_empty(), "{problems}(UPDATE=1 rewrites the expectations)");
}

#[test]
fn strictest_clients_accept_all_fixtures() {
    for path in fixtures("out", ".jsonl") {
        let events = fixture_events(&path);
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            strict_client::receive(version, &encoded(profile, &events, &[]));
        }
        strict_client::receive4(&encoded("4", &events, &[]));
    }
}

#[test]
fn request_body_above_the_size_limit_is_an_error() {
    let text = "x".repeat(input::MAX_BODY);
    let body =
        format!(r#"{{"messages":[{{"id":"u","role":"user","parts":[{{"type":"text","text":"{text}"}}]}}]}}"#);
    let error = input::from_json(&body, "t", "r", &mut Tally::default()).unwrap_err();
    assert_eq!(error.path(), "");
    assert!(error.problem().ends_with("expected at most 10485760"), "{error}");
}

#[test]
fn truncated_run_ends_with_abort() {
    let path = fixtures("out", "cancelled.jsonl").remove(0);
    let mut events = fixture_events(&path);
    events.pop();
    for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
        let body = encoded(profile, &events, &[]);
        strict_client::receive(version, &body);
        assert!(body.contains(r#"{"type":"abort"}"#), "{body}");
    }
    assert!(encoded("4", &events, &[]).ends_with("d:{\"finishReason\":\"other\"}\n"));
}

/// Converts a LangGraph stream to the LangChain dialect.
fn to_dialect(lines: &[&str]) -> String {
    let from = &langgraph::FORMAT;
    let profile = FORMAT.profile("langchain-adapter").unwrap();
    let reading =
        SourceOptions { options: Options::default().for_profile(from, profile), ..SourceOptions::default() };
    let source = GuardedSource::new(from, Framing::Lines, &reading).unwrap();
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut converter = Converter::new(source, &FORMAT, profile, None, &setup).unwrap();
    converter.push((lines.join("\n") + "\n").as_bytes()).unwrap();
    converter.end(&StreamEnd::Closed).unwrap();
    String::from_utf8(converter.output().take().to_vec()).unwrap()
}

#[test]
fn dialect_contains_the_payloads_of_langchain_events() {
    let written = to_dialect(&[
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
fn dialect_reports_an_error_once() {
    let written = to_dialect(&[
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
fn relative_url_is_not_read_as_base64() {
    let body = r#"{"id":"c","messages":[{"id":"u","role":"user","parts":[
        {"type":"file","mediaType":"image/png","url":"/uploads/cat.png"},
        {"type":"file","mimeType":"image/png","data":"aGk="}]}]}"#;
    let request = input::from_json(body, "t", "r", &mut Tally::default()).unwrap();
    let history = input::ui_messages(&request.input.messages, &[], 5);
    assert!(history.contains(r#""url":"/uploads/cat.png""#), "{history}");
    assert!(history.contains(r#""url":"data:image/png;base64,aGk=""#), "{history}");
}

#[test]
fn continuing_request_contains_the_message_id_of_its_history() {
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

/// Converts a stream from one format to another.
fn converted(
    from: &'static Format,
    to: &'static Format,
    profile: &str,
    bytes: &[u8],
    options: &[&str],
) -> String {
    let framing = crate::framing::detect(bytes, from.reads).expect("a stream of the format");
    let source = GuardedSource::new(from, framing, &SourceOptions::default()).unwrap();
    let options = Options::parse(options.iter().copied(), to.options).unwrap();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut converter = Converter::new(source, to, to.profile(profile).unwrap(), None, &setup).unwrap();
    converter.push(bytes).unwrap();
    converter.end(&StreamEnd::Closed).unwrap();
    String::from_utf8(converter.output().take().to_vec()).unwrap()
}

/// Chunks of a UI message stream.
fn chunks_of(body: &str) -> Vec<serde_json::Value> {
    body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

#[test]
fn message_id_and_metadata_survive_other_formats() {
    let ui = b"data: {\"type\":\"start\",\"messageId\":\"m1\",\"messageMetadata\":{\"model\":\"x\",\"at\":{\"s\":5}}}\n\n\
        data: {\"type\":\"start-step\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"text-end\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"finish\"}\n\n";
    let lines = b"f:{\"messageId\":\"m1\"}\n8:[{\"type\":\"message-metadata\",\"data\":{\"model\":\"x\",\"at\":{\"s\":5}}}]\n\
        0:\"hi\"\ne:{\"finishReason\":\"stop\"}\nd:{\"finishReason\":\"stop\"}\n";
    let formats: [&'static Format; 4] = [&ag_ui::FORMAT, &hai::FORMAT, &FORMAT, &FORMAT];
    for (bytes, is_ui) in [(&ui[..], true), (lines, false)] {
        for (format, profile) in formats.into_iter().zip(["1", "json-string", "6", "4"]) {
            let between = converted(&FORMAT, format, profile, bytes, &[]);
            for version in ["5", "6", "7"] {
                let body = converted(format, &FORMAT, version, between.as_bytes(), &[]);
                strict_client::receive(version.parse().unwrap(), &body);
                let chunks = chunks_of(&body);
                let start = &chunks[0];
                assert_eq!(start["messageId"], "m1", "through {} {profile}: {body}", format.name);
                let metadata = serde_json::json!({"model": "x", "at": {"s": 5}});
                let with_metadata: Vec<_> =
                    chunks.iter().filter(|it| it["messageMetadata"]["model"] == "x").collect();
                assert_eq!(with_metadata.len(), 1, "once: {body}");
                assert_eq!(with_metadata[0]["messageMetadata"]["at"], metadata["at"]);
                if is_ui && profile != "4" {
                    assert_eq!(start["messageMetadata"]["model"], "x", "in the start: {body}");
                }
            }
            let body = converted(format, &FORMAT, "4", between.as_bytes(), &[]);
            assert!(body.contains("f:{\"messageId\":\"m1\"}\n"), "{body}");
            assert_eq!(body.matches("\"model\":\"x\"").count(), 1, "{body}");
        }
    }
}

#[test]
fn steps_of_version_4_keep_their_message_ids() {
    let lines = "2:[\"first\"]\nf:{\"messageId\":\"m1\"}\n0:\"a\"\ne:{\"finishReason\":\"stop\"}\n\
        f:{\"messageId\":\"m2\"}\n0:\"b\"\ne:{\"finishReason\":\"stop\"}\nd:{\"finishReason\":\"stop\"}\n";
    let between = converted(&FORMAT, &ag_ui::FORMAT, "1", lines.as_bytes(), &[]);
    let body = converted(&ag_ui::FORMAT, &FORMAT, "4", between.as_bytes(), &[]);
    let ids: Vec<_> = body.lines().filter(|line| line.starts_with("f:")).collect();
    assert_eq!(ids, [r#"f:{"messageId":"m1"}"#, r#"f:{"messageId":"m2"}"#], "{body}");
}

#[test]
fn continued_message_id_precedence_is_option_then_history_then_source() {
    let named = r#""metadata":{"aiSdk":{"message":"theirs"}}"#;
    let held = r#"{"id":"a1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}],
        "metadata":{"aiSdk":{"message":"held"}}}"#.replace('\n', "");
    let input =
        format!(r#""input":{{"threadId":"t","runId":"r","messages":[{held}],"tools":[],"context":[]}},"#);
    for (input, options, wanted) in
        [("", &[][..], "theirs"), (&*input, &[], "held"), (&*input, &["message=asked"], "asked")]
    {
        let stream = format!(
            "{{\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\",{input}{named}}}\n\
             {{\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}}\n"
        );
        let body = converted(&ag_ui::FORMAT, &FORMAT, "5", stream.as_bytes(), options);
        assert_eq!(chunks_of(&body)[0]["messageId"], wanted, "{body}");
    }
}

/// A client replaces a data part by one with the same id, also if an earlier response has written it.
#[test]
fn step_ids_of_a_continued_message_differ_from_the_earlier_ones() {
    let held = r#"{"id":"a1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}],
        "metadata":{"aiSdk":{"message":"run-1"}}}"#.replace('\n', "");
    let ids = |run: &str, messages: &str| -> Vec<String> {
        let stream = format!(
            "{{\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"{run}\",\"input\":{{\"threadId\":\"t\",\"runId\":\"{run}\",\
             \"messages\":[{messages}],\"tools\":[],\"context\":[]}}}}\n\
             {{\"type\":\"STEP_STARTED\",\"stepName\":\"plan\"}}\n{{\"type\":\"STEP_FINISHED\",\"stepName\":\"plan\"}}\n\
             {{\"type\":\"STEP_STARTED\",\"stepName\":\"act\"}}\n{{\"type\":\"STEP_FINISHED\",\"stepName\":\"act\"}}\n\
             {{\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"{run}\"}}\n"
        );
        let chunks = chunks_of(&converted(&ag_ui::FORMAT, &FORMAT, "5", stream.as_bytes(), &[]));
        assert_eq!(chunks[0]["messageId"], "run-1", "{chunks:?}");
        let steps = chunks.iter().filter(|chunk| chunk["type"] == "data-step");
        let mut ids: Vec<String> = steps.map(|chunk| chunk["id"].as_str().unwrap().to_owned()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids("run-1", ""), ["step:1", "step:2"]);
    assert_eq!(ids("run-2", &held), ["step:run-2:1", "step:run-2:2"]);
    assert_eq!(ids("run-3", &held), ["step:run-3:1", "step:run-3:2"]);
}

#[test]
fn failed_step_is_not_done() {
    let stream = "{\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\
        {\"type\":\"STEP_STARTED\",\"stepName\":\"plan\"}\n{\"type\":\"STEP_FINISHED\",\"stepName\":\"plan\"}\n\
        {\"type\":\"STEP_STARTED\",\"stepName\":\"act\"}\n\
        {\"type\":\"STEP_FINISHED\",\"stepName\":\"act\",\"metadata\":{\"status\":\"error\"}}\n\
        {\"type\":\"RUN_ERROR\",\"message\":\"bad\"}\n";
    for profile in ["5", "6", "7"] {
        let chunks = chunks_of(&converted(&ag_ui::FORMAT, &FORMAT, profile, stream.as_bytes(), &[]));
        let steps = chunks.iter().filter(|chunk| chunk["type"] == "data-step");
        let states: Vec<_> = steps
            .map(|chunk| [&chunk["data"]["name"], &chunk["data"]["status"]].map(|it| it.as_str().unwrap()))
            .collect();
        let expected = [["plan", "running"], ["plan", "done"], ["act", "running"], ["act", "failed"]];
        assert_eq!(states, expected, "{profile}");
    }
}

#[test]
fn unnamed_step_leaves_no_data_part() {
    let ui = b"data: {\"type\":\"start\"}\n\ndata: {\"type\":\"start-step\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"text-end\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"finish\"}\n\n";
    let between = converted(&FORMAT, &ag_ui::FORMAT, "1", ui, &[]);
    let body = converted(&ag_ui::FORMAT, &FORMAT, "5", between.as_bytes(), &[]);
    let kept: Vec<_> = chunks_of(&body)
        .into_iter()
        .filter(|chunk| chunk["transient"] != true)
        .map(|chunk| chunk["type"].as_str().unwrap().to_owned())
        .collect();
    let wanted = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!(kept, wanted);
    assert_eq!(converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]), between, "nothing is lost");
}

/// A client with `sendAutomaticallyWhen` sends again as long as the last step of its message has tools and all of them have
/// results or approval answers. Every response to such an answer must end this loop.
#[test]
fn automatic_sending_ends_after_every_response() {
    let held = r#"{"id":"a1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}}],
        "metadata":{"aiSdk":{"message":"held"}}}"#.replace('\n', "");
    let edited = held.replace(r#"\"n\":1"#, r#"\"n\":2"#);
    let edit = format!("{{\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{edited}]}}\n");
    let pending = r#","outcome":{"type":"success","pendingToolCallIds":["c1"]}"#;
    let repeated = ["start", "tool-input-start", "tool-input-delta", "tool-input-available", "finish"];
    for (between, outcome, wanted) in [
        ("", pending, &["start", "tool-input-available", "finish"][..]),
        (&*edit, pending, &repeated),
        ("", "", &["start", "start-step", "finish-step", "finish"]),
        ("", r#","outcome":{"type":"cancelled"}"#, &["start", "start-step", "finish-step", "abort"]),
    ] {
        let stream = format!(
            "{{\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\",\"input\":{{\"threadId\":\"t\",\"runId\":\"r\",\
             \"messages\":[{held}],\"tools\":[],\"context\":[]}}}}\n{between}\
             {{\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"{outcome}}}\n"
        );
        for profile in ["6", "7"] {
            let body = converted(&ag_ui::FORMAT, &FORMAT, profile, stream.as_bytes(), &[]);
            let chunks = chunks_of(&body);
            let types: Vec<_> = chunks.iter().filter_map(|chunk| chunk["type"].as_str()).collect();
            assert_eq!(types, wanted, "{body}");
            if let Some(call) = chunks.iter().find(|chunk| chunk["type"] == "tool-input-available") {
                assert_eq!(call["input"]["n"], if between.is_empty() { 1 } else { 2 }, "{body}");
            }
        }
    }
}

/// A client that reconnects while a run continues a message of an earlier run receives the message as in the history.
#[test]
fn whole_message_is_written_for_a_client_without_it() {
    let turn = r#"{"id":"a1","role":"assistant","content":"Wait.","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
        {"id":"x1","role":"tool","toolCallId":"c1","content":"ok"}"#.replace('\n', "");
    let named = turn.replacen("\"a1\",", r#""a1","metadata":{"aiSdk":{"message":"held"}},"#, 1);
    for (turn, id) in [(&turn, "a1"), (&named, "held")] {
        let stream = format!(
            "{{\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\",\"input\":{{\"threadId\":\"t\",\"runId\":\"r\",\
             \"messages\":[{{\"id\":\"u\",\"role\":\"user\",\"content\":\"go\"}},{turn}],\"tools\":[],\"context\":[]}}}}\n\
             {{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"a2\",\"role\":\"assistant\"}}\n\
             {{\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"a2\",\"delta\":\"Done.\"}}\n\
             {{\"type\":\"TEXT_MESSAGE_END\",\"messageId\":\"a2\"}}\n\
             {{\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}}\n"
        );
        let (events, failure) = golden::read(&ag_ui::FORMAT, stream.as_bytes(), usize::MAX, &[]);
        assert_eq!(failure, None);
        let options = Options::default().with_whole_message();
        let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
        let profile = FORMAT.profile("6").expect("a profile");
        let mut writer = FORMAT.writer.expect("a writer")(profile, &setup);
        let mut out = crate::framing::Frames::new(Framing::Sse);
        for event in &events {
            writer.write(event, &mut out);
        }
        writer.end(&mut out);
        let body = String::from_utf8(out.take().to_vec()).expect("UTF-8");
        let chunks = chunks_of(&body);
        assert_eq!(chunks[0]["messageId"], id, "{body}");
        let text: String = chunks.iter().filter_map(|chunk| chunk["delta"].as_str()).collect();
        assert_eq!(text, "Wait.Done.", "{body}");
        let count = |kind: &str| chunks.iter().filter(|chunk| chunk["type"] == kind).count();
        assert_eq!((count("tool-output-available"), count("start-step")), (1, 2), "{body}");
        assert_eq!(count("tool-input-available"), 0, "a tool that has answered is not run again: {body}");
    }
}

/// A page of version 4 repeats received messages without ids; its tool results belong to the stored turn.
#[test]
fn repeated_messages_of_version_4_are_removed_if_stored() {
    let body = r#"{"id":"t","messages":[
        {"role":"user","content":"where"},
        {"role":"assistant","content":"Let me see.","parts":[{"type":"text","text":"Let me see."},
            {"type":"tool-invocation","toolInvocation":{"state":"result","toolCallId":"c1","toolName":"gps","args":{},"result":"Paris"}}]},
        {"role":"user","content":"and then"},
        {"role":"assistant","content":"never stored"}]}"#;
    let mut input = input::from_json(body, "x", "r2", &mut Tally::default()).expect("a request").input;
    assert!(input::has_unnamed_messages(&input));
    let mut answer = Message::assistant("m1", "Let me see.");
    if let MessageBody::Assistant { tool_calls, .. } = &mut answer.body {
        *tool_calls = Some(vec![ToolCall::new("c1", "gps", "{}")]);
    }
    let mut stored = vec![Message::user("t:0", "where"), answer];
    input::set_response_id(&mut stored, &RunInput::new("t", "r1"));
    input::remove_stored_messages(&mut input, &stored);
    let left: Vec<_> = input.messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(left, ["t:0", "c1:result", "t:2", "t:3"]);
    // A page that loads the conversation receives one message.
    stored.push(input.messages[1].clone());
    let shown: serde_json::Value = serde_json::from_str(&input::ui_messages(&stored, &[], 5)).expect("JSON");
    assert_eq!((shown.as_array().map(Vec::len), &shown[1]["id"]), (Some(2), &"r1".into()), "{shown}");
    assert_eq!(shown[1]["parts"][2]["output"], "Paris", "{shown}");
}

/// Found by `response_round_trips`: the two have separate data parts, so one does not end the other.
#[test]
fn a_hand_over_goes_on_beside_an_activity_with_its_id() {
    let lines = [
        r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#,
        r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"hai.agent_collaboration","content":{"from":"A","to":"B","tasks":[],"status":"open"}}"#,
        r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"plan","content":{"steps":1}}"#,
        r#"{"type":"ACTIVITY_DELTA","messageId":"x","activityType":"hai.agent_collaboration","patch":[{"op":"add","path":"/tasks/-","value":{"id":1}}]}"#,
        r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#,
    ];
    let (events, failure) = golden::read(&ag_ui::FORMAT, lines.join("\n").as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    for profile in ["5", "6", "7"] {
        let body = encoded(profile, &events, &[]);
        let (back, _) = golden::read_framed(&FORMAT, Framing::Sse, body.as_bytes(), usize::MAX, &[]);
        let kinds = |events: &[Event]| events.iter().map(Event::kind).collect::<Vec<_>>();
        assert_eq!(kinds(&back), kinds(&events), "{body}");
        assert!(kinds(&back).contains(&"COLLABORATION_TASK"));
    }
}
