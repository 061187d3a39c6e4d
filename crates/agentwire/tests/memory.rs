//! `convert` and `check` use constant memory for any input.

#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Write},
    process::{Child, Command, Stdio},
};

/// Upper bound of the memory, also for a file of 1 GB.
const LIMIT: u64 = 64 << 20;

/// Starts the binary with a pipe as stdin; its output is discarded.
fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_agentwire"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary can be started")
}

/// Peak resident memory of the process so far, in bytes.
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("the process is alive");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says it");
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kilobytes.expect("it is a number of kilobytes") << 10
}

/// Feeds the process; returns its peak memory and its exit code.
fn feed(arguments: &[&str], input: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> (u64, Option<i32>) {
    let mut child = start(arguments);
    let mut pipe = child.stdin.take().expect("stdin is piped");
    input(&mut pipe).expect("the process reads to the end");
    pipe.flush().expect("the process reads to the end");
    // The peak is read while the process still waits for input.
    let peak = peak(&child);
    drop(pipe);
    (peak, child.wait().expect("the process ends").code())
}

const START: &str = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";

/// 200 MB of messages, tool calls and state, as in a long run: every id is new.
fn long_run(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(START.as_bytes())?;
    let text = "lorem ipsum dolor sit amet ".repeat(100);
    let (mut written, mut number) = (0, 0);
    let mut chunk = String::new();
    while written < 200_000_000 {
        chunk.clear();
        let mut event = |json: String| {
            chunk.push_str("data: ");
            chunk.push_str(&json);
            chunk.push_str("\n\n");
        };
        for _ in 0..50 {
            number += 1;
            event(format!(r#"{{"type":"TEXT_MESSAGE_START","messageId":"m{number}"}}"#));
            for _ in 0..5 {
                event(format!(
                    r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"m{number}","delta":"{text}"}}"#
                ));
            }
            event(format!(r#"{{"type":"TEXT_MESSAGE_END","messageId":"m{number}"}}"#));
            event(format!(
                r#"{{"type":"STATE_DELTA","delta":[{{"op":"add","path":"/n","value":{number}}}]}}"#
            ));
        }
        out.write_all(chunk.as_bytes())?;
        written += chunk.len();
    }
    out.write_all(b"data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n")
}

#[test]
fn converting_200_megabytes_takes_constant_memory() {
    let (peak, code) = feed(&["convert", "--from", "ag-ui", "--to", "ag-ui"], long_run);
    assert_eq!(code, Some(0));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}

#[test]
fn checking_200_megabytes_takes_constant_memory() {
    let (peak, code) = feed(&["check", "-"], long_run);
    assert_eq!(code, Some(0));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}

/// One event of 100 MB, ten times the size limit of a frame, between two ordinary ones.
fn long_line(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(START.as_bytes())?;
    out.write_all(b"data: {\"type\":\"CUSTOM\",\"name\":\"large\",\"value\":\"")?;
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        out.write_all(&megabyte)?;
    }
    out.write_all(b"\"}\n\n")?;
    out.write_all(b"data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n")
}

#[test]
fn a_line_of_100_megabytes_takes_constant_memory() {
    let (peak, code) = feed(&["convert", "--from", "ag-ui", "--to", "ag-ui", "--lenient"], long_line);
    assert_eq!(code, Some(0));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}

#[test]
fn a_line_of_100_megabytes_is_a_violation() {
    let (peak, code) = feed(&["check", "-"], long_line);
    assert_eq!(code, Some(1));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}

/// 120 messages, calls and steps whose ids are 256 KiB long each, open and closed.
fn long_ids(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(START.as_bytes())?;
    let tail = "x".repeat(256 << 10);
    for number in 0..120 {
        let id = format!("{number}{tail}");
        write!(out, "data: {{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"{id}\"}}\n\n")?;
        write!(out, "data: {{\"type\":\"TEXT_MESSAGE_END\",\"messageId\":\"{id}\"}}\n\n")?;
        write!(
            out,
            "data: {{\"type\":\"TOOL_CALL_START\",\"toolCallId\":\"{id}\",\"toolCallName\":\"f\"}}\n\n"
        )?;
        write!(
            out,
            "data: {{\"type\":\"STEP_STARTED\",\"stepName\":\"{id}\",\"subagentRunId\":\"{id}\"}}\n\n"
        )?;
    }
    Ok(())
}

#[test]
fn long_ids_take_constant_memory() {
    let (peak, code) = feed(&["convert", "--from", "ag-ui", "--to", "ag-ui-proto"], long_ids);
    assert_eq!(code, Some(0));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}

#[test]
fn a_frame_that_announces_4_gigabytes_reserves_nothing() {
    let (peak, code) = feed(&["check", "--format", "ag-ui-proto", "-"], |out| {
        out.write_all(b"\xff\xff\xff\xff")?;
        out.write_all(&vec![0; 1 << 20])
    });
    assert_eq!(code, Some(1));
    assert!(peak < LIMIT, "{} MB", peak >> 20);
}
