//! Cut connections: nothing is lost or doubled, wherever the bytes end.

use agentwire_client::{HttpAgent, Profile, Protocol, Recovery, Run};

use crate::support::{
    FINISHED, STARTED, agent, cutting_proxy, drain, fixed_server, frames, gateway, quick, response, sse,
};

/// A pseudo-random sequence with a fixed start, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit).expect("a small number")
    }
}

const PROTOCOLS: [(&str, Protocol, bool); 6] = [
    ("/", Protocol::AgUi, false),
    ("/", Protocol::AgUi, true),
    ("/awp", Protocol::Hai, false),
    ("/awp", Protocol::Hai, true),
    ("/api/chat", Protocol::AiSdk(Profile::V7), false),
    ("/api/chat", Protocol::AiSdk(Profile::V5), false),
];

async fn result(address: &str, case: usize, is_cut: bool) -> (Vec<String>, String, usize) {
    let (path, protocol, is_binary) = PROTOCOLS[case % PROTOCOLS.len()];
    let agent = HttpAgent::builder(format!("http://{address}{path}"))
        .protocol(protocol)
        .binary(is_binary)
        .thread(format!("thread-{case}"))
        .reconnect(quick(1000))
        .build()
        .expect("an agent");
    let text = "think tools state steps plan media subagent long 40: 你好, Grüße";
    let run = Run {
        run_id: Some(format!("run-{case}").as_str().into()),
        messages: vec![agentwire_client::Message::user("u1", text)],
        ..Run::default()
    };
    let mut stream = agent.run(run);
    let (events, error) = drain(&mut stream).await;
    assert!(error.is_none(), "case {case} {protocol:?} cut: {is_cut}: {error:?}");
    let recoveries = stream.report().recoveries;
    assert!(recoveries.iter().all(|it| *it == Recovery::Whole), "case {case}: {recoveries:?}");
    let events = events.iter().map(|event| format!("{:?}", event.body)).collect();
    (events, format!("{:?} {}", agent.messages(), agent.state()), recoveries.len())
}

/// 200 runs, each through a proxy that closes every connection at a random byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_at_random_bytes_lose_and_double_nothing() {
    let (whole, cut) = (gateway().await, gateway().await);
    let mut reconnects = 0;
    for case in 0..200 {
        let mut random = Random(case as u64 + 1);
        let is_binary = PROTOCOLS[case % PROTOCOLS.len()].2;
        // The binary encoding has no cursors: each response repeats the run from its start.
        let most = if is_binary { 40_000 } else { 4_000 };
        let (proxy, _) = cutting_proxy(cut.clone(), move || random.below(most)).await;
        let (events, conversation, _) = result(&whole, case, false).await;
        let (cut_events, cut_conversation, times) = result(&proxy, case, true).await;
        assert_eq!(cut_events, events, "case {case}");
        assert_eq!(cut_conversation, conversation, "case {case}");
        reconnects += times;
    }
    assert!(reconnects > 200, "{reconnects}");
}

#[tokio::test]
async fn a_server_without_cursors_gets_the_same_request_again() {
    let text = |text: &str| format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"{text}"}}"#);
    let start = r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#;
    let end = r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#;
    let (one, two) = (text("one "), text("two"));
    let whole = frames(&[STARTED, start, &one, &two, end, FINISHED]);
    // Cut inside a frame, and behind the data of a frame without its end.
    for at in [whole.find("two").expect("a place"), whole.find("two").expect("a place") + 5, 3] {
        let (address, requests) = fixed_server(vec![sse(&whole[..at]), sse(&whole)], false).await;
        let agent = agent(&address);
        let mut stream = agent.run(Run::user("hi"));
        let (events, error) = drain(&mut stream).await;
        assert!(error.is_none(), "{error:?}");
        let kinds: Vec<_> = events.iter().map(agentwire_client::Event::kind).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "RUN_STARTED").count(), 1, "{kinds:?}");
        let last = agent.messages().pop().expect("a message");
        assert_eq!(last, agentwire_client::Message::assistant("m", "one two"), "cut at {at}");
        let requests = requests.lock().expect("no panic").clone();
        let body = |index: usize| requests[index].split_once("\r\n\r\n").expect("a body").1.to_owned();
        assert_eq!(body(0), body(1), "the same ids and messages");
    }
}

#[tokio::test]
async fn a_last_frame_without_its_delimiter_ends_the_run() {
    let body = frames(&[STARTED, FINISHED]);
    let (address, requests) = fixed_server(vec![sse(body.trim_end())], false).await;
    let outcome = agent(&address).run(Run::user("hi")).finish().await.expect("a finished run");
    assert_eq!(outcome.report.recoveries, []);
    assert_eq!(requests.lock().expect("no panic").len(), 1);
}

#[tokio::test]
async fn a_snapshot_replaces_lost_events() {
    let first = format!(
        "data: {STARTED}\nid: r:0\n\ndata: {{\"type\":\"TEXT_MESSAGE_START\",\"messageId\":\"m\"}}\nid: r:1\n\n"
    );
    let snapshot = r#"{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"hi"},{"id":"m","role":"assistant","content":"all of it"}]}"#;
    let body = frames(&[STARTED, snapshot, FINISHED]);
    for (verdict, expected) in [("snapshot", Recovery::Snapshot), ("gap", Recovery::Gap)] {
        let mut second = response("200 OK", "text/event-stream", body.as_bytes());
        let header = format!("agentwire-recovery: {verdict}\r\n");
        let at = second.windows(12).position(|it| it == b"content-type").expect("a header");
        second.splice(at..at, header.into_bytes());
        let (address, requests) = fixed_server(vec![sse(&first), second], false).await;
        let agent = agent(&address);
        let outcome = agent.run(Run::user("hi")).finish().await.expect("a finished run");
        assert_eq!(outcome.report.recoveries, [expected]);
        assert!(agent.messages().contains(&agentwire_client::Message::assistant("m", "all of it")));
        let reconnect = requests.lock().expect("no panic")[1].clone();
        assert!(reconnect.starts_with("GET /runs/r/stream?format=ag-ui@1 "), "{reconnect}");
        assert!(reconnect.to_lowercase().contains("last-event-id: r:1\r\n"), "{reconnect}");
    }
}

#[tokio::test]
async fn a_stream_that_never_completes_is_truncated() {
    let (address, _) = fixed_server(vec![sse(&frames(&[STARTED]))], false).await;
    let agent = agent(&address);
    let (events, error) = drain(&mut agent.run(Run::user("hi"))).await;
    let error = error.expect("an error");
    assert_eq!(error.code(), "TRUNCATED", "{error}");
    assert_eq!(
        events.last().map(agentwire_client::Event::kind),
        Some("RUN_ERROR"),
        "the guard closes the run"
    );
}
