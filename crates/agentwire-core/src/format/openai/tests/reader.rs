use super::*;

#[test]
fn calls_of_declared_tools_are_pending() {
    let mut request = RunInput::new("t", "r");
    request.tools.push(tool("ask"));
    let own = delta(
        json!({"tool_calls": [{"index": 1, "id": "k2", "function": {"name": "mine", "arguments": "{}"}}]}),
    );
    let events = read_for(&[call("k1", "ask"), own, stop("tool_calls")], request);
    let Some(Body::RunFinished(finished)) = events.last().map(|event| &event.body) else {
        panic!("{events:#?}")
    };
    assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["k1".into()] }));
}

#[test]
fn ids_of_the_conversation_are_not_reused() {
    let mut request = RunInput::new("t", "r");
    let body = MessageBody::Assistant {
        content: None,
        tool_calls: Some(vec![ToolCall::new("call_0", "ask", "{}")]),
    };
    request.messages.push(Message::new("c1", body));
    let events = read_for(&[call("call_0", "ask"), stop("tool_calls")], request);
    let started = events.iter().find_map(|event| match &event.body {
        Body::ToolStart { call, parent, .. } => Some((call.to_string(), parent.clone())),
        _ => None,
    });
    assert_eq!(started, Some(("r:message:call".into(), Some("r:message".into()))));
}

#[test]
fn response_without_an_id_gets_one_from_the_run() {
    let (events, _) = read(&[json!({"choices": [{"delta": {"content": "x"}}]}), stop("stop")]);
    assert!(
        matches!(&events[1].body, Body::TextStart { message, .. } if &**message == "r:message"),
        "{events:#?}"
    );
}

#[test]
fn fast_path_and_full_decoding_agree() {
    for members in [
        json!({"content": "a\u{e9}\n"}),
        json!({"reasoning": "b"}),
        json!({"reasoning_content": "c", "content": ""}),
    ] {
        let plain = delta(members.clone());
        let mut odd = plain.clone();
        odd["some_new_member"] = json!(1);
        assert_eq!(read(&[plain, stop("stop")]), read(&[odd, stop("stop")]));
    }
}

#[test]
fn reasoning_in_two_members_is_emitted_once() {
    let (events, _) = read(&[delta(json!({"reasoning": "x", "reasoning_content": "x"})), stop("stop")]);
    let thoughts =
        |events: &[Event]| events.iter().filter(|event| event.kind() == "REASONING_MESSAGE_CONTENT").count();
    assert_eq!(thoughts(&events), 1);
    let (events, _) = read(&[delta(json!({"reasoning": "x", "reasoning_content": ""})), stop("stop")]);
    assert_eq!(thoughts(&events), 1, "an empty member is ignored");
}

#[test]
fn text_after_a_call_continues_the_message() {
    let (events, _) = read(&[
        delta(json!({"content": "a"})),
        call("k", "f"),
        delta(json!({"content": "b"})),
        delta(json!({"reasoning": "hm"})),
        delta(json!({"content": "c"})),
        stop("stop"),
    ]);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let messages = fold.messages();
    let spoken: Vec<_> = messages.iter().filter(|message| &*message.id == "c1").collect();
    assert_eq!(spoken.len(), 1, "{messages:#?}");
    let MessageBody::Assistant { content, tool_calls } = &spoken[0].body else { panic!() };
    assert_eq!(content.as_deref(), Some("abc"));
    assert_eq!(tool_calls.as_ref().map(Vec::len), Some(1));
}

#[test]
fn frames_after_done_are_ignored() {
    let text =
        format!("{}data: [DONE]\n\n{}", sse(&[stop("stop")]), sse(&[delta(json!({"content": "late"}))]));
    let (events, failure) = golden::read_framed(&FORMAT, Framing::Sse, text.as_bytes(), usize::MAX, &[]);
    assert_eq!((texts(&events), failure), (String::new(), None));
    assert_eq!(events.last().map(Event::kind), Some("RUN_FINISHED"));
}

#[test]
fn stream_without_a_completion_fails() {
    let (events, _) = golden::read_framed(&FORMAT, Framing::Sse, b"data: [DONE]\n\n", usize::MAX, &[]);
    let Some(Body::RunError(error)) = events.last().map(|event| &event.body) else { panic!("{events:#?}") };
    assert_eq!(error.code.as_deref(), Some("UPSTREAM_NO_EVENTS"));
}

#[test]
fn errors_name_the_path_of_malformed_members() {
    for (frame, path) in [
        (json!({"choices": 1}), "/choices"),
        (json!({"choices": [1]}), "/choices/0"),
        (delta(json!({"content": 1})), "/choices/0/delta/content"),
        (delta(json!({"content": [{"type": "text", "text": 1}]})), "/choices/0/delta/content/0/text"),
        (delta(json!({"tool_calls": {}})), "/choices/0/delta/tool_calls"),
        (
            delta(json!({"tool_calls": [{"function": {"name": 1}}]})),
            "/choices/0/delta/tool_calls/0/function/name",
        ),
        (json!({"choices": [], "usage": {"prompt_tokens": -1}}), "/usage/prompt_tokens"),
        (chunk(json!([{"index": "x", "delta": {}}])), "/choices/0/index"),
        (
            delta(json!({"reasoning_details": [{"type": "reasoning.text", "text": {}}]})),
            "/choices/0/delta/reasoning_details/0/text",
        ),
        (delta(json!({"annotations": [7]})), "/choices/0/delta/annotations/0"),
    ] {
        let (_, failure) = read(std::slice::from_ref(&frame));
        assert!(
            failure.as_ref().is_some_and(|failure| failure.contains(&format!("`{path}`"))),
            "{frame}: {failure:?}"
        );
    }
}

#[test]
fn error_code_is_the_most_specific_name() {
    for (error, code, message) in [
        (json!({"error": {"message": "no", "type": "t", "code": "c"}}), "c", "no"),
        (json!({"error": {"message": "no", "type": "t", "code": null}}), "t", "no"),
        (json!({"error": {"message": "no", "code": 429}}), "429", "no"),
        (json!({"error": {"message": "no"}}), "UPSTREAM_ERROR", "no"),
        (json!({"error": "plain"}), "UPSTREAM_ERROR", "plain"),
        (json!({"error": {"code": "c"}}), "c", "c"),
        (json!({"detail": "Not Found"}), "UPSTREAM_REFUSED", "Not Found"),
    ] {
        for before in [vec![], vec![delta(json!({"content": "x"}))]] {
            let (events, failure) = read(&[before, vec![error.clone()]].concat());
            assert_eq!(failure, None);
            let Some(Body::RunError(error_event)) = events.last().map(|event| &event.body) else {
                panic!("{events:#?}")
            };
            assert_eq!(
                (error_event.code.as_deref(), &*error_event.message),
                (Some(code), message),
                "{error}"
            );
        }
    }
}

#[test]
fn tables_are_bounded() {
    let choices: Vec<Value> =
        (0..1000).map(|index| json!({"index": index, "delta": {"content": "x"}})).collect();
    let (events, _) = read(&[chunk(json!(choices))]);
    assert_eq!(texts(&events).len(), 128);
    let calls: Vec<Value> = (0..2000)
        .map(|index| json!({"index": index, "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let (events, _) = read(&[delta(json!({"tool_calls": calls})), stop("tool_calls")]);
    assert_eq!(events.iter().filter(|event| event.kind() == "TOOL_CALL_START").count(), 1024);
}
