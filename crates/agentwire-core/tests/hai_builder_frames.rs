//! Frames of the HAI builder, in a file that the tests of the Python builder read too: both must write the same bytes.
//!
//! `UPDATE=1 cargo nextest run -p agentwire-core --test hai_builder_frames` writes the file.

use std::{env, fs, path::Path};

use agentwire_core::format::hai::{Builder, builder::BuiltEvent};
use serde_json::{Value, json};

const FILE: &str = "../../e2e/python/hai_builder.jsonl";
const NOW: i64 = 1_620_000_000_500;

/// One line: the Python call and the frame.
fn row(function: &str, args: Value, kwargs: Value, event: BuiltEvent) -> String {
    let frame = Builder::new(|| NOW).build_sse_data(event);
    json!({ "function": function, "args": args, "kwargs": kwargs, "frame": frame }).to_string()
}

fn rows() -> Vec<String> {
    let b = Builder::new(|| NOW);
    let none = || json!({});
    let text = "你好 }{ \"quoted\" \\ \u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}😀";
    let content = |output: Value| b.build_business_data_content(output, "m");
    let side = json!({ "title": "t", "description": "d", "data": [{ "output": b.build_text("x") }] });
    let tool = json!({ "id": "1", "name": "n", "description": "d", "progress": "done", "data": side });
    let show = b.build_tool_call_show_output("s", "title", "icon", vec![tool]);
    vec![
        row("build_run_started", json!(["m"]), none(), b.build_run_started("m")),
        row(
            "build_run_started",
            json!(["m"]),
            json!({ "role": "user", "timestamp": 7 }),
            b.build_run_started("m").role("user").timestamp(7),
        ),
        row("build_run_finished", json!(["m"]), none(), b.build_run_finished("m")),
        row("build_run_error", json!(["bad"]), none(), b.build_run_error("bad", None)),
        row("build_run_error", json!(["bad", "CODE"]), none(), b.build_run_error("bad", Some("CODE"))),
        row("build_step_started", json!(["智能处理"]), none(), b.build_step_started("智能处理")),
        row("build_step_finished", json!(["智能处理"]), none(), b.build_step_finished("智能处理")),
        row(
            "build_agent_collaborative_message_start",
            json!(["USER", "Agent", "m"]),
            none(),
            b.build_agent_collaborative_message_start("USER", "Agent", "m"),
        ),
        row(
            "build_agent_collaborative_message_content",
            json!([{ "id": "1", "name": "n" }, "m"]),
            none(),
            b.build_agent_collaborative_message_content(json!({ "id": "1", "name": "n" }), "m"),
        ),
        row(
            "build_agent_collaborative_message_end",
            json!(["m"]),
            none(),
            b.build_agent_collaborative_message_end("m"),
        ),
        row(
            "build_state_delta",
            json!(["add", "/a/0", { "x": [1, 2.5, true, null] }]),
            none(),
            b.build_state_delta("add", "/a/0", json!({ "x": [1, 2.5, true, null] })),
        ),
        row(
            "build_state_delta",
            json!(["move", "/a", "v", "/b"]),
            none(),
            b.build_state_delta("move", "/a", "v").from_value("/b"),
        ),
        row("build_state_snapshot", json!([{ "a": 1 }]), none(), b.build_state_snapshot(json!({ "a": 1 }))),
        row("build_business_data_start", json!(["m"]), none(), b.build_business_data_start("m")),
        row("build_business_data_end", json!(["m"]), none(), b.build_business_data_end("m")),
        row(
            "build_business_data_content",
            json!([b.build_text(text), "m"]),
            none(),
            content(b.build_text(text)),
        ),
        row(
            "build_business_data_content",
            json!([b.build_text("x"), "m", { "x": 0, "y": 1 }, "block", { "background": true }]),
            none(),
            content(b.build_text("x"))
                .layout(json!({ "x": 0, "y": 1 }))
                .block_id("block")
                .style(json!({ "background": true })),
        ),
        row(
            "build_business_data_content",
            json!([b.build_text("x"), "m"]),
            json!({ "layout": {}, "block_id": "", "style": {} }),
            content(b.build_text("x")).layout(json!({})).block_id("").style(json!({})),
        ),
        row("build_business_data_content", json!([show, "m"]), none(), content(show.clone())),
        row("build_tool_call_start", json!(["c", "n", "m"]), none(), b.build_tool_call_start("c", "n", "m")),
        row("build_tool_call_start", json!(["c", "n", ""]), none(), b.build_tool_call_start("c", "n", "")),
        row(
            "build_tool_call_args",
            json!(["c", { "action": text }]),
            none(),
            b.build_tool_call_args("c", json!({ "action": text })),
        ),
        row("build_tool_call_args", json!(["c", "{\"a\":"]), none(), b.build_tool_call_args("c", "{\"a\":")),
        row("build_tool_call_end", json!(["c"]), none(), b.build_tool_call_end("c")),
        row(
            "build_tool_call_result",
            json!(["m", "c", "ok"]),
            none(),
            b.build_tool_call_result("m", "c", "ok"),
        ),
        row("build_custom", json!(["n", [1]]), none(), b.build_custom("n", json!([1]))),
        row("build_raw", json!([{ "a": {} }]), none(), b.build_raw(json!({ "a": {} }), None)),
        row("build_raw", json!([[], "s"]), none(), b.build_raw(json!([]), Some("s"))),
        output("build_text_output", json!([text]), none(), b.build_text_output(text)),
        output("build_thinking_output", json!(["t"]), none(), b.build_thinking_output("t").into()),
        output(
            "build_thinking_output",
            json!(["t", 3, false, false]),
            none(),
            b.build_thinking_output("t").elapsed(3).thinking(false).collapse(false).into(),
        ),
        output("build_fold_output", json!(["t"]), none(), b.build_fold_output("t").into()),
        output(
            "build_fold_output",
            json!(["t", true, "end"]),
            none(),
            b.build_fold_output("t").fold(true).position("end").into(),
        ),
        output("build_button_output", json!(["n"]), none(), b.build_button_output("n")),
        output("build_icon_output", json!(["i", "red"]), none(), b.build_icon_output("i", "red")),
        output(
            "build_image_output",
            json!(["image/png", "https://example.org/a.png"]),
            json!({ "name": "n", "alt": "a" }),
            b.build_image_output("image/png").url("https://example.org/a.png").name("n").alt("a").into(),
        ),
        output(
            "build_audio_output",
            json!(["audio/wav"]),
            json!({ "data": "AAAA" }),
            b.build_audio_output("audio/wav").data("AAAA").into(),
        ),
        output("build_video_output", json!(["video/mp4"]), none(), b.build_video_output("video/mp4").into()),
        output("build_file_output", json!(["text/plain"]), none(), b.build_file_output("text/plain").into()),
    ]
}

/// One line: an output, in the content of a message.
fn output(function: &str, args: Value, kwargs: Value, output: Value) -> String {
    let frame =
        Builder::new(|| NOW).build_sse_data(Builder::new(|| NOW).build_business_data_content(output, "m"));
    json!({ "function": function, "args": args, "kwargs": kwargs, "frame": frame }).to_string()
}

#[test]
fn the_frames_are_those_of_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let written = rows().join("\n") + "\n";
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &written).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), written, "UPDATE=1 writes the file");
}
