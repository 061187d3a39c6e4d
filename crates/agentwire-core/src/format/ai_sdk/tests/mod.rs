//! Claims about the AI SDK.

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
            strict_client::receive(version, &written(profile, &events, &[]));
        }
        strict_client::receive4(&written("4", &events, &[]));
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
        strict_client::receive(version, &body);
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
    let source = GuardedSource::new(from, Framing::Lines, &reading).unwrap();
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

/// What one format makes of a stream of another.
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

/// The chunks of a UI message stream.
fn chunks(body: &str) -> Vec<serde_json::Value> {
    body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

#[test]
fn a_servers_name_for_its_message_survives_other_formats() {
    let ui = b"data: {\"type\":\"start\",\"messageId\":\"m1\",\"messageMetadata\":{\"model\":\"x\",\"at\":{\"s\":5}}}\n\n\
        data: {\"type\":\"start-step\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"text-end\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"finish\"}\n\n";
    let lines = b"f:{\"messageId\":\"m1\"}\n8:[{\"type\":\"message-metadata\",\"data\":{\"model\":\"x\",\"at\":{\"s\":5}}}]\n\
        0:\"hi\"\ne:{\"finishReason\":\"stop\"}\nd:{\"finishReason\":\"stop\"}\n";
    let foreign: [&'static Format; 4] = [&ag_ui::FORMAT, &hai::FORMAT, &FORMAT, &FORMAT];
    for (bytes, is_ui) in [(&ui[..], true), (lines, false)] {
        for (way, profile) in foreign.into_iter().zip(["1", "json-string", "6", "4"]) {
            let between = converted(&FORMAT, way, profile, bytes, &[]);
            for version in ["5", "6", "7"] {
                let body = converted(way, &FORMAT, version, between.as_bytes(), &[]);
                strict_client::receive(version.parse().unwrap(), &body);
                let chunks = chunks(&body);
                let start = &chunks[0];
                assert_eq!(start["messageId"], "m1", "through {} {profile}: {body}", way.name);
                let about = serde_json::json!({"model": "x", "at": {"s": 5}});
                let told: Vec<_> = chunks.iter().filter(|it| it["messageMetadata"]["model"] == "x").collect();
                assert_eq!(told.len(), 1, "once: {body}");
                assert_eq!(told[0]["messageMetadata"]["at"], about["at"]);
                if is_ui && profile != "4" {
                    assert_eq!(start["messageMetadata"]["model"], "x", "in the start: {body}");
                }
            }
            let body = converted(way, &FORMAT, "4", between.as_bytes(), &[]);
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
fn the_message_that_goes_on_is_named_by_who_holds_it() {
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
        assert_eq!(chunks(&body)[0]["messageId"], wanted, "{body}");
    }
}

#[test]
fn a_step_without_a_name_leaves_no_part() {
    let ui = b"data: {\"type\":\"start\"}\n\ndata: {\"type\":\"start-step\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"text-end\",\"id\":\"0\"}\n\n\
        data: {\"type\":\"finish-step\"}\n\ndata: {\"type\":\"finish\"}\n\n";
    let between = converted(&FORMAT, &ag_ui::FORMAT, "1", ui, &[]);
    let body = converted(&ag_ui::FORMAT, &FORMAT, "5", between.as_bytes(), &[]);
    let kept: Vec<_> = chunks(&body)
        .into_iter()
        .filter(|chunk| chunk["transient"] != true)
        .map(|chunk| chunk["type"].as_str().unwrap().to_owned())
        .collect();
    let wanted = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!(kept, wanted);
    assert_eq!(converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]), between, "nothing is lost");
}

/// A client with `sendAutomaticallyWhen` sends again as long as the last step of its message has tools and all of them
/// are answered, or allowed: whatever a response to such an answer says, it must end that.
#[test]
fn an_answer_that_leads_to_nothing_is_not_sent_for_ever() {
    let held = r#"{"id":"a1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}}],
        "metadata":{"aiSdk":{"message":"held"}}}"#.replace('\n', "");
    let edited = held.replace(r#"\"n\":1"#, r#"\"n\":2"#);
    let edit = format!("{{\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{edited}]}}\n");
    let pending = r#","outcome":{"type":"success","pendingToolCallIds":["c1"]}"#;
    let restated = ["start", "tool-input-start", "tool-input-delta", "tool-input-available", "finish"];
    for (between, outcome, wanted) in [
        ("", pending, &["start", "tool-input-available", "finish"][..]),
        (&*edit, pending, &restated),
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
            let said = chunks(&body);
            let types: Vec<_> = said.iter().filter_map(|chunk| chunk["type"].as_str()).collect();
            assert_eq!(types, wanted, "{body}");
            if let Some(call) = said.iter().find(|chunk| chunk["type"] == "tool-input-available") {
                assert_eq!(call["input"]["n"], if between.is_empty() { 1 } else { 2 }, "{body}");
            }
        }
    }
}

/// Whoever comes back while a message goes on that an earlier run began gets it as the history would tell it.
#[test]
fn who_holds_nothing_of_a_message_gets_it_from_its_beginning() {
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
        let said = chunks(&body);
        assert_eq!(said[0]["messageId"], id, "{body}");
        let text: String = said.iter().filter_map(|chunk| chunk["delta"].as_str()).collect();
        assert_eq!(text, "Wait.Done.", "{body}");
        let count = |kind: &str| said.iter().filter(|chunk| chunk["type"] == kind).count();
        assert_eq!((count("tool-output-available"), count("start-step")), (1, 2), "{body}");
        assert_eq!(count("tool-input-available"), 0, "a tool that has answered is not run again: {body}");
    }
}

/// A page of version 4 repeats what it was told under no name; its results of calls belong to the turn that is stored.
#[test]
fn repeated_turns_of_version_4_are_those_that_are_stored() {
    let body = r#"{"id":"t","messages":[
        {"role":"user","content":"where"},
        {"role":"assistant","content":"Let me see.","parts":[{"type":"text","text":"Let me see."},
            {"type":"tool-invocation","toolInvocation":{"state":"result","toolCallId":"c1","toolName":"gps","args":{},"result":"Paris"}}]},
        {"role":"user","content":"and then"},
        {"role":"assistant","content":"never stored"}]}"#;
    let mut input = input::from_json(body, "x", "r2", &mut Tally::default()).expect("a request").input;
    assert!(input::repeats_unnamed(&input));
    let mut answer = Message::assistant("m1", "Let me see.");
    if let MessageBody::Assistant { tool_calls, .. } = &mut answer.body {
        *tool_calls = Some(vec![ToolCall::new("c1", "gps", "{}")]);
    }
    let mut stored = vec![Message::user("t:0", "where"), answer];
    input::name_answer(&mut stored, &RunInput::new("t", "r1"));
    input::forget_repeated(&mut input, &stored);
    let left: Vec<_> = input.messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(left, ["t:0", "c1:result", "t:2", "t:3"]);
    // All of it is one message for a page that loads it.
    stored.push(input.messages[1].clone());
    let shown: serde_json::Value = serde_json::from_str(&input::ui_messages(&stored, &[], 5)).expect("JSON");
    assert_eq!((shown.as_array().map(Vec::len), &shown[1]["id"]), (Some(2), &"r1".into()), "{shown}");
    assert_eq!(shown[1]["parts"][2]["output"], "Paris", "{shown}");
}
