//! The stream of a real request has the sequence of the standard's sample.

use agentwire_core::{
    event::{Body, Event, StreamEnd},
    format::hai,
    framing::Framing,
    source::{GuardedSource, SourceOptions},
};

async fn post(path: &str, body: &str) -> (u16, String, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, hai_backend::router()).await });
    let response = agentwire_client::transport::builder()
        .build()
        .unwrap()
        .post(format!("http://{address}{path}"))
        .header("content-type", "application/json")
        .body(body.to_owned())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    let text = response.text().await.unwrap();
    server.abort();
    (status, content_type, text)
}

#[tokio::test]
async fn a_chat_is_the_standards_sequence() {
    let body = r#"{"threadId":"thread_12345","runId":"run_67890","messages":[{"id":"msg_1","role":"user","content":"介绍下 HAI }{ 吧"}],"context":[],"tools":[],"forwardedProps":{}}"#;
    for path in ["/chat", "/awp"] {
        let (status, content_type, text) = post(path, body).await;
        assert_eq!((status, content_type.as_str()), (200, "text/event-stream"));
        assert!(text.contains("介绍下"), "nothing is escaped to ASCII");
        let mut source = GuardedSource::new(&hai::FORMAT, Framing::Sse, &SourceOptions::default()).unwrap();
        let mut events = Vec::new();
        let mut sink = |event| events.push(event);
        source.push(text.as_bytes(), &mut sink).unwrap();
        source.end(&StreamEnd::Closed, &mut sink).unwrap();
        assert_eq!(source.repairs().count(), 0, "the stream needs no repair");
        let kinds: Vec<_> =
            events.iter().map(Event::kind).filter(|kind| *kind != "TEXT_MESSAGE_CONTENT").collect();
        let wanted = [
            "RUN_STARTED",
            "COLLABORATION_START",
            "COLLABORATION_TASK",
            "COLLABORATION_END",
            "STATE_DELTA",
            "STATE_DELTA",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "RUN_FINISHED",
        ];
        assert_eq!(kinds, wanted);
        let said: String = events
            .iter()
            .filter_map(|event| match &event.body {
                Body::TextDelta { delta, .. } => Some(&**delta),
                _ => None,
            })
            .collect();
        assert_eq!(said, "你说：介绍下 HAI }{ 吧");
        let Body::RunStarted(started) = &events[0].body else { panic!("{:?}", events[0]) };
        assert_eq!((&*started.thread, &*started.run), ("thread_12345", "run_67890"));
    }
}

#[tokio::test]
async fn a_malformed_request_is_refused() {
    let (status, content_type, text) = post("/chat", r#"{"messages":7}"#).await;
    assert_eq!((status, content_type.as_str()), (400, "application/json"));
    assert!(text.contains("at `/messages`: expected an array, found the number 7"), "{text}");
}
