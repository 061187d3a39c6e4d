use super::*;

#[test]
fn media_of_both_base64_alphabets_become_files() {
    let events = read(&[event(json!({"content": {"parts": [
        {"inlineData": {"mimeType": "audio/pcm", "data": "-_8="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/o.png"}},
    ]}}))]);
    let files: Vec<_> = of_type(&events, "ACTIVITY_SNAPSHOT").iter().map(|event| &event["content"]).collect();
    assert_eq!(files[0]["kind"], "audio");
    assert_eq!(files[0]["source"]["value"], "+/8=");
    assert_eq!(files[1]["source"]["value"], "gs://b/o.png");
}

#[test]
fn repeated_custom_metadata_is_emitted_once() {
    let events = read(&[
        event(json!({"partial": true, "content": text("a"), "customMetadata": {"trace": 1}})),
        event(json!({"content": text("a"), "customMetadata": {"trace": 1}})),
        event(json!({"id": "e2", "content": text("b"), "customMetadata": {"trace": 1}})),
        event(json!({"id": "e3", "content": text("c"), "customMetadata": {"trace": 2}})),
    ]);
    assert_eq!(custom(&events, "adk.metadata"), [&json!({"trace": 1}), &json!({"trace": 2})]);
}

#[test]
fn usage_is_counted_once_per_turn_and_model() {
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 1, "totalTokenCount": 16});
    let turn = |id: &str, model: &str, partial: bool| {
        event(
            json!({"id": id, "partial": partial, "modelVersion": model, "content": text("x"), "usageMetadata": usage}),
        )
    };
    let events =
        read(&[turn("a", "m", true), turn("a", "m", false), turn("b", "m", false), turn("c", "n", false)]);
    assert_eq!(
        last(&events)["usage"],
        json!([
            {"model": "m", "inputTokens": 22, "outputTokens": 10, "totalTokens": 32, "reasoningTokens": 6, "cachedInputTokens": 8},
            {"model": "n", "inputTokens": 11, "outputTokens": 5, "totalTokens": 16, "reasoningTokens": 3, "cachedInputTokens": 4},
        ])
    );
}

#[test]
fn raw_events_are_attached_on_demand() {
    let stream =
        [event(json!({"content": text("x"), "avgLogprobs": -0.5})), event(json!({"avgLogprobs": -0.7}))];
    let events = read_with(&stream, &["raw=attach"]);
    let raw: Vec<_> = events.iter().filter_map(|event| event.get("rawEvent")).collect();
    assert_eq!(raw, [&stream[0]]);
    assert_eq!(of_type(&events, "RAW")[0]["event"], stream[1]);
}
