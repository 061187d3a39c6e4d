//! Time, and what several events in one piece cost. The rest is tested over real connections.

use std::convert::Infallible;

use agentwire_core::{event::RunInput, format::ag_ui};
use futures_util::stream;
use tokio::time::sleep;

use super::*;

const START: &str = "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";
const END: &str = "data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n";

/// Plays pieces, each after so many seconds, with time-outs of 10 (first byte) and 5 seconds (between two).
async fn play(pieces: &[(u64, &str)]) -> (usize, Result<Close, UpstreamError>) {
    let mut request = Request::new(RunInput::new("t", "r"));
    request.timeouts.first_byte = Some(Duration::from_secs(10));
    request.timeouts.idle = Some(Duration::from_secs(5));
    let language = ExpectedFormat::of(&ag_ui::FORMAT, &[]).unwrap();
    let mut intake = UpstreamDecoder::new(&language, &request, Some(Framing::Sse));
    let pieces: Vec<_> = pieces.iter().map(|(wait, text)| (*wait, Bytes::from((*text).to_owned()))).collect();
    let bytes = stream::iter(pieces).then(|(wait, text)| async move {
        sleep(Duration::from_secs(wait)).await;
        Ok::<_, Infallible>(text)
    });
    let (sink, mut events) = EventSink::new(64);
    let close = pump(bytes, &mut intake, StreamTimeouts::begin(&request), &sink).await;
    drop(sink);
    let mut count = 0;
    while events.recv().await.is_some() {
        count += 1;
    }
    (count, close)
}

fn late(result: (usize, Result<Close, UpstreamError>)) -> (usize, String) {
    let failure = result.1.unwrap_err();
    assert_eq!(failure.code(), crate::codes::UPSTREAM_TIMEOUT);
    (result.0, failure.to_string())
}

#[tokio::test(start_paused = true)]
async fn bytes_of_any_kind_keep_a_stream_alive() {
    let (count, close) =
        play(&[(9, ": hello\n\n"), (4, START), (4, ":\n\n"), (4, ": x\n\n"), (4, END)]).await;
    assert!(matches!(close, Ok(Close::Over)), "{close:?}");
    assert_eq!(count, 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_has_its_own_time() {
    let begin = "the agent did not begin to answer within 10s";
    assert_eq!(late(play(&[(11, START), (0, END)]).await), (0, begin.into()));
    assert_eq!(late(play(&[(11, "")]).await), (0, begin.into()));
    // An empty piece is no byte.
    assert_eq!(late(play(&[(4, ""), (4, ""), (4, START)]).await), (0, begin.into()));
}

#[tokio::test(start_paused = true)]
async fn silence_in_the_middle_ends_the_run_after_what_was_said() {
    let silent = "the agent was silent for 5s";
    assert_eq!(late(play(&[(0, START), (6, END)]).await), (1, silent.into()));
    assert_eq!(late(play(&[(0, START), (4, ":\n\n"), (6, END)]).await), (1, silent.into()));
    // Half a frame is silence afterwards.
    assert_eq!(late(play(&[(0, START), (4, "data: {"), (6, END)]).await), (1, silent.into()));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_log_is_not_the_agents_silence() {
    let mut request = Request::new(RunInput::new("t", "r"));
    request.timeouts.idle = Some(Duration::from_secs(5));
    let language = ExpectedFormat::of(&ag_ui::FORMAT, &[]).unwrap();
    let mut intake = UpstreamDecoder::new(&language, &request, Some(Framing::Sse));
    let text = format!("{START}data: {{\"type\":\"CUSTOM\",\"name\":\"x\",\"value\":1}}\n\n");
    // One after the other, and the last one has to be waited for.
    let pieces = stream::iter([(0, text), (3, END.to_owned())]).then(|(wait, text)| async move {
        sleep(Duration::from_secs(wait)).await;
        Ok::<_, Infallible>(Bytes::from(text))
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
    let close = pump(pieces, &mut intake, StreamTimeouts::begin(&request), &sink).await;
    assert!(matches!(close, Ok(Close::Over)), "{close:?}");
    drop(sink);
    assert_eq!(slow.await.unwrap(), 3);
}

#[tokio::test]
async fn many_events_of_one_piece_go_out_in_order_through_a_narrow_outlet() {
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
    let mut got = Vec::new();
    while let Some(event) = events.recv().await {
        got.push(event);
    }
    task.await.unwrap();
    assert_eq!(got, sent);
}

#[test]
fn what_a_server_says_twice_where_it_is_joined_is_heard_once() {
    let frame = |id: &str, delta: &str| {
        format!("{id}data: {{\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"delta\":\"{delta}\"}}\n\n")
    };
    let request = Request::new(RunInput::new("t", "r"));
    let language = ExpectedFormat::of(&ag_ui::FORMAT, &[]).unwrap();
    let mut intake = UpstreamDecoder::new(&language, &request, Some(Framing::Sse));
    intake.again();
    let mut events = Vec::new();
    intake.push(START.as_bytes(), &mut events).unwrap();
    for (id, delta) in [("8-0", "a"), ("9-0", "b"), ("10-0", "c"), ("9-0", "b"), ("10-0", "c"), ("10-1", "c")]
    {
        intake.push(frame(&format!("id: {id}\n"), delta).as_bytes(), &mut events).unwrap();
    }
    // Without an `id` of its own.
    intake.push(frame("", "d").as_bytes(), &mut events).unwrap();
    assert_eq!(intake.last_id(), Some("10-1"));
    let said: String = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::TextDelta { delta, .. } => Some(&**delta),
            _ => None,
        })
        .collect();
    assert_eq!(said, "abccd");
}
