//! Upstream `replay`: detection, gzip, errors and recorded times.

use std::{io::Write, path::PathBuf};

use agentwire_gateway::{
    codes,
    upstream::{Replay, ReplayOptions},
};
use tokio::time::{Duration, Instant};

use super::{fixture, kinds, play, request};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn replay(file: PathBuf) -> Replay {
    Replay::new(ReplayOptions { file, ..ReplayOptions::default() }).unwrap()
}

/// A file in a temporary folder, which is removed when the folder is dropped.
fn file(name: &str, bytes: &[u8]) -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (path, folder)
}

#[tokio::test]
async fn every_run_replays_the_whole_recording() {
    let agent = replay(path("weather_tool.sse"));
    let (first, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(kinds(&first).last(), Some(&"RUN_FINISHED"));
    let (second, _) = play(&agent, request()).await;
    assert_eq!(first, second);
}

#[tokio::test]
async fn formats_are_detected_from_the_first_bytes() {
    for (name, kind) in [
        ("chunks.sse", "RUN_FINISHED"),
        ("adk_tool.sse", "RUN_FINISHED"),
        ("langgraph_tools.jsonl", "RUN_FINISHED"),
    ] {
        let (received, result) = play(&replay(path(name)), request()).await;
        assert_eq!(result, Ok(()), "{name}");
        assert_eq!(kinds(&received).last(), Some(&kind), "{name}");
        assert!(kinds(&received).contains(&"TOOL_CALL_START"), "{name}: {:?}", kinds(&received));
    }
}

#[tokio::test]
async fn gzip_is_decoded_and_the_format_can_be_named() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&fixture("weather_tool.sse")).unwrap();
    let (file, _folder) = file("x.sse.gz", &packed.finish().unwrap());
    let named = |format: &str| ReplayOptions {
        file: file.clone(),
        format: Some(format.into()),
        ..ReplayOptions::default()
    };
    let (received, result) = play(&Replay::new(named("ag-ui@1")).unwrap(), request()).await;
    result.unwrap();
    assert_eq!(received, play(&replay(path("weather_tool.sse")), request()).await.0);
    let error = Replay::new(named("agui")).unwrap_err().to_string();
    assert!(error.starts_with("unknown format `agui` (known: langgraph, adk, ag-ui"), "{error}");
    let options = vec!["old_shapes=maybe".into()];
    let error = Replay::new(ReplayOptions { options, ..named("ag-ui") }).unwrap_err().to_string();
    assert!(error.contains("`maybe`"), "{error}");
}

#[tokio::test]
async fn a_bad_recording_is_rejected_or_fails_the_run() {
    let missing = ReplayOptions { file: "no/such/file".into(), ..ReplayOptions::default() };
    assert!(Replay::new(missing).unwrap_err().to_string().starts_with("`no/such/file` could not be read"));
    let slow = ReplayOptions { file: path("chunks.sse"), speed: Some(0.0), ..ReplayOptions::default() };
    assert_eq!(Replay::new(slow).unwrap_err().to_string(), "speed `0` is not above 0");
    for (bytes, code) in [
        (&b""[..], codes::UPSTREAM_TRUNCATED),
        (b"<html>", codes::UPSTREAM_BAD_CONTENT),
        (b"nothing of the kind\n", codes::UPSTREAM_BAD_CONTENT),
        (&fixture("weather_tool.sse")[..300], codes::UPSTREAM_TRUNCATED),
    ] {
        let (file, _folder) = file("x", bytes);
        let (_, result) = play(&replay(file), request()).await;
        assert_eq!(result.unwrap_err().code(), code);
    }
}

#[tokio::test(start_paused = true)]
async fn speed_scales_the_recorded_times() {
    let lines = [
        r#"{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1000}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","timestamp":3000}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":2000}"#,
        r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","timestamp":11000}"#,
    ];
    let (file, _folder) = file("x.jsonl", lines.join("\n").as_bytes());
    let agent = Replay::new(ReplayOptions { file, speed: Some(2.0), ..ReplayOptions::default() }).unwrap();
    // The paused clock advances only by the waits.
    let start = Instant::now();
    let (received, result) = play(&agent, request()).await;
    result.unwrap();
    assert_eq!(received.len(), lines.len());
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&start.elapsed()));
}
