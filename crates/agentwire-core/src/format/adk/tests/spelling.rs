use super::*;

/// The same event as from `model_dump_json()` without aliases: snake_case, and `null` for missing members.
fn snake(value: &Value, in_data: bool) -> Value {
    match value {
        Value::Object(map) => {
            let snake_key = |key: &str| -> String {
                key.chars()
                    .flat_map(|c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] })
                    .collect()
            };
            let mut out = serde_json::Map::new();
            for (key, value) in map {
                let data = in_data
                    || matches!(
                        &**key,
                        "args"
                            | "response"
                            | "stateDelta"
                            | "artifactDelta"
                            | "customMetadata"
                            | "requestedToolConfirmations"
                            | "requestedAuthConfigs"
                            | "output"
                            | "state"
                            | "inputTranscription"
                            | "outputTranscription"
                    );
                let key = if in_data { key.clone() } else { snake_key(key) };
                out.insert(key, snake(value, data));
            }
            if !in_data {
                out.entry("something_absent").or_insert(Value::Null);
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(|value| snake(value, in_data)).collect(),
        other => other.clone(),
    }
}

#[test]
fn snake_case_gives_the_same_events() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/adk/fixtures");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // Grounding metadata is also emitted unchanged, in its original spelling.
        if !name.ends_with(".jsonl")
            || name.contains(".events.")
            || name.starts_with("grounding")
            || name.starts_with("long")
        {
            continue;
        }
        let given = std::fs::read_to_string(&path).unwrap();
        let other: String = given
            .lines()
            .map(|line| format!("{}\n", snake(&serde_json::from_str(line).unwrap(), false)))
            .collect();
        let read = |text: &str| {
            golden::lines(&golden::read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]).0)
        };
        // Only values inside arguments may differ, by the re-encoding of this test.
        assert_eq!(read(&given), read(&other), "{name}");
        count += 1;
    }
    assert!(count > 40);
}
