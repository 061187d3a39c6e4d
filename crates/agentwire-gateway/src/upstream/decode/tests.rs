//! Timeouts, backpressure and rejoined streams. Everything else is tested over real connections.

use std::time::Duration;

use agentwire_core::{
    event::RunInput,
    format::{ag_ui, langgraph},
};
use futures_util::stream;
use tokio::time::sleep;

use super::*;

const START: &str = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";
const END: &str = "data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";

/// Decodes chunks, each after a delay in seconds, with timeouts of 10 s (first byte) and 5 s (idle).
async fn decode_delayed(pieces: &[(u64, &str)]) -> (usize, Result<Close, UpstreamError>) {
    let mut request = Request::new(RunInput::new("t", "r"));
    request.timeouts.first_byte = Some(Duration::from_secs(10));
    request.timeouts.idle = Some(Duration::from_secs(5));
    let format = ExpectedFormat::of(&ag_ui::FORMAT, &[]).unwrap();
    let mut decoder = UpstreamDecoder::new(&format, &request, Some(Framing::Sse));
    let pieces: Vec<_> = pieces.iter().map(|(wait, text)| (*wait, Bytes::from((*text).to_owned()))).collect();
    let bytes = stream::iter(pieces).then(|(wait, text)| async move {
        sleep(Duration::from_secs(wait)).await;
        Ok::<_, UpstreamError>(text)
    });
    let (sink, mut events) = EventSink::new(64);
    let close = pump(bytes, &mut decoder, StreamTimeouts::start(&request), &sink).await;
    drop(sink);
    let mut count = 0;
    while events.recv().await.is_some() {
        count += 1;
    }
    (count, close)
}

fn timeout_of(result: (usize, Result<Close, UpstreamError>)) -> (usize, String) {
    let error = result.1.unwrap_err();
    assert_eq!(error.code(), crate::codes::UPSTREAM_TIMEOUT);
    (result.0, error.to_string())
}

#[tokio::test(start_paused = true)]
async fn any_byte_resets_the_idle_timeout() {
    let (count, close) =
        decode_delayed(&[(9, ": hello\n\n"), (4, START), (4, ":\n\n"), (4, ": x\n\n"), (4, END)]).await;
    assert!(matches!(close, Ok(Close::Done)), "{close:?}");
    assert_eq!(count, 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_has_its_own_timeout() {
    let begin = "the agent did not begin to answer within 10s";
    assert_eq!(timeout_of(decode_delayed(&[(11, START), (0, END)]).await), (0, begin.into()));
    assert_eq!(timeout_of(decode_delayed(&[(11, "")]).await), (0, begin.into()));
    // An empty chunk is not a byte.
    assert_eq!(timeout_of(decode_delayed(&[(4, ""), (4, ""), (4, START)]).await), (0, begin.into()));
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_keeps_the_events_before_it() {
    let silent = "the agent was silent for 5s";
    assert_eq!(timeout_of(decode_delayed(&[(0, START), (6, END)]).await), (1, silent.into()));
    assert_eq!(timeout_of(decode_delayed(&[(0, START), (4, ":\n\n"), (6, END)]).await), (1, silent.into()));
    // Half a frame resets the timeout once.
    assert_eq!(timeout_of(decode_delayed(&[(0, START), (4, "data: {"), (6, END)]).await), (1, silent.into()));
}

#[tokio::test(start_paused = true)]
async fn backpressure_does_not_count_as_idle_time() {
    let mut request = Request::new(RunInput::new("t", "r"));
    request.timeouts.idle = Some(Duration::from_secs(5));
    let format = ExpectedFormat::of(&ag_ui::FORMAT, &[]).unwrap();
    let mut decoder = UpstreamDecoder::new(&format, &request, Some(Framing::Sse));
    let text = format!("{START}data: {{\"type\":\"CUSTOM\",\"name\":\"x\",\"value\":1}}\n\n");
    // The receiver takes the events one by one.
    let pieces = stream::iter([(0, text), (3, END.to_owned())]).then(|(wait, text)| async move {
        sleep(Duration::from_secs(wait)).await;
        Ok::<_, UpstreamError>(Bytes::from(text))
    });
    let (sink, mut events) = EventSink::new(1);
    let slow = tokio::spawn(async move {
        let mut count = 0;
        while events.recv().await.is_some() {
            count += 1;
            sleep(Duration::from_secs(60)).await;
        }
        count
    });
    let close = pump(pieces, &mut decoder, StreamTimeouts::start(&request), &sink).await;
    assert!(matches!(close, Ok(Close::Done)), "{close:?}");
    drop(sink);
    assert_eq!(slow.await.unwrap(), 3);
}

#[tokio::test]
async fn send_all_keeps_the_order_in_a_small_channel() {
    let (sink, mut events) = EventSink::new(3);
    let mut many: Vec<Event> = (0..100)
        .map(|n| {
            Event::new(Body::Custom {
                name: "n".into(),
                value: agentwire_core::json::Json::from(serde_json::json!(n)),
            })
        })
        .collect();
    let sent = many.clone();
    let task = tokio::spawn(async move {
        sink.send_all(&mut many).await.unwrap();
        assert!(many.is_empty());
        sink.send_all(&mut many).await.unwrap();
    });
    let mut received = Vec::new();
    while let Some(event) = events.recv().await {
        received.push(event);
    }
    task.await.unwrap();
    assert_eq!(received, sent);
}

#[tokio::test]
async fn frames_repeated_after_a_rejoin_are_dropped() {
    let frame = |id: &str, delta: &str| {
        format!("{id}data: {{\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"delta\":\"{delta}\"}}\n\n")
    };
    let request = Request::new(RunInput::new("t", "r"));
    // Frames of AG-UI with the ids of LangGraph.
    let numbered = Format { is_earlier_id: langgraph::FORMAT.is_earlier_id, ..ag_ui::FORMAT };
    let format = ExpectedFormat::of(Box::leak(Box::new(numbered)), &[]).unwrap();
    let mut decoder = UpstreamDecoder::new(&format, &request, Some(Framing::Sse));
    decoder.rejoin();
    let mut events = Vec::new();
    decoder.push(START.as_bytes(), &mut events).await.unwrap();
    for (id, delta) in [("8-0", "a"), ("9-0", "b"), ("10-0", "c"), ("9-0", "b"), ("10-0", "c"), ("10-1", "c")]
    {
        decoder.push(frame(&format!("id: {id}\n"), delta).as_bytes(), &mut events).await.unwrap();
    }
    // A frame without an `id`.
    decoder.push(frame("", "d").as_bytes(), &mut events).await.unwrap();
    assert_eq!(decoder.last_id(), Some("10-1"));
    let text: String = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TextDelta { delta, .. } => Some(&**delta),
            _ => None,
        })
        .collect();
    assert_eq!(text, "abccd");
}
