use super::*;

#[test]
fn state_keys_are_escaped_and_temporary_ones_hidden() {
    let delta = json!({"a/b": 1, "c~d": null, "": 2, "x y": {"z": []}, "user:lang": "fr", "temp:t": 1, "agentwire:tools": []});
    let events = read(&[event(json!({"actions": {"stateDelta": delta}}))]);
    let paths: Vec<_> = of_type(&events, "STATE_DELTA")[0]["delta"]
        .as_array()
        .unwrap()
        .iter()
        .map(|op| &op["path"])
        .collect();
    assert_eq!(paths, ["/a~1b", "/c~0d", "/", "/x y", "/user:lang"]);
    assert_eq!(
        of_type(&events, "STATE_SNAPSHOT")[0]["snapshot"],
        json!({"a/b": 1, "c~d": null, "": 2, "x y": {"z": []}, "user:lang": "fr"})
    );
    let shown = read_with(&[event(json!({"actions": {"stateDelta": {"temp:t": 1}}}))], &["temp=show"]);
    assert_eq!(of_type(&shown, "STATE_SNAPSHOT")[0]["snapshot"], json!({"temp:t": 1}));
}

#[test]
fn final_snapshot_includes_the_state_of_the_request() {
    let mut input = RunInput::new("t", "r");
    input.state = Some(Json::parse(r#"{"keep":"me","n":1}"#).unwrap());
    let events = values(&read_for(&[event(json!({"actions": {"stateDelta": {"n": 2}}}))], input));
    assert_eq!(of_type(&events, "STATE_SNAPSHOT")[0]["snapshot"], json!({"keep": "me", "n": 2}));
}

#[test]
fn final_snapshot_is_optional() {
    let stream = [event(json!({"content": text("x")}))];
    assert!(of_type(&read(&stream), "STATE_SNAPSHOT").is_empty());
    assert_eq!(of_type(&read_with(&stream, &["snapshot=always"]), "STATE_SNAPSHOT").len(), 1);
    let changed = [event(json!({"actions": {"stateDelta": {"n": 2}}}))];
    assert!(of_type(&read_with(&changed, &["snapshot=never"]), "STATE_SNAPSHOT").is_empty());
}
