use super::*;

const ON: &[&str] = &["subagents=on"];

fn at(path: &str, id: &str, members: Value) -> Value {
    let author = path.rsplit('/').next().and_then(|node| node.split('@').next());
    let mut event = event(json!({"id": id, "author": author, "nodeInfo": {"path": path}}));
    for (key, value) in members.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

/// Starts, ends, errors and text of subagents, one line each.
fn shown(events: &[Value]) -> Vec<String> {
    let show = |event: &Value| {
        let id = event["subagentRunId"].as_str().unwrap_or("main");
        match event["type"].as_str().unwrap() {
            "SUBAGENT_STARTED" => Some(format!("+{id} {}", event["name"].as_str().unwrap())),
            "SUBAGENT_FINISHED" => Some(format!("-{id}")),
            "SUBAGENT_ERROR" => Some(format!("!{id} {}", event["code"].as_str().unwrap())),
            "TEXT_MESSAGE_CONTENT" => Some(format!("{id}: {}", event["delta"].as_str().unwrap())),
            _ => None,
        }
    };
    events.iter().filter_map(show).collect()
}

#[test]
fn subagents_nest_and_close_from_the_inside() {
    let events = read_with(
        &[
            at("a@1", "1", json!({"content": text("one")})),
            at("a@1/b@1", "2", json!({"content": text("two")})),
            at("a@1/b@1/c@1", "3", json!({"content": text("three")})),
            at("a@1", "4", json!({"content": text("four")})),
            at("a@1/b@1", "5", json!({"content": text("five")})),
        ],
        ON,
    );
    let (b, c, again) = ("r:a@1/b@1:0", "r:a@1/b@1/c@1:1", "r:a@1/b@1:2");
    assert_eq!(
        shown(&events),
        [
            "main: one".to_owned(),
            format!("+{b} b"),
            format!("{b}: two"),
            format!("+{c} c"),
            format!("{c}: three"),
            format!("-{c}"),
            format!("-{b}"),
            "main: four".to_owned(),
            format!("+{again} b"),
            format!("{again}: five"),
            format!("-{again}"),
        ]
    );
    let parents: Vec<_> =
        of_type(&events, "SUBAGENT_STARTED").iter().map(|one| &one["parentSubagentRunId"]).collect();
    assert_eq!(parents, [&Value::Null, &json!(b), &Value::Null]);
}

#[test]
fn parallel_subagents_keep_their_own_text() {
    let on = |branch: &str, content: &str, partial: bool| {
        let author = branch.rsplit('.').next();
        event(
            json!({"id": branch, "branch": branch, "author": author, "partial": partial, "content": text(content)}),
        )
    };
    let events = read_with(
        &[
            on("p.a", "1", true),
            on("p.b", "2", true),
            on("p.a", "3", true),
            on("p.b", "24", false),
            on("p.a", "13", false),
        ],
        ON,
    );
    let (a, b) = ("r:p.a:0", "r:p.b:1");
    let expected = ["+A a", "A: 1", "+B b", "B: 2", "A: 3", "B: 4", "-B", "-A"];
    let expected = expected.map(|line| line.replace('A', a).replace('B', b));
    assert_eq!(shown(&events), expected);
}

#[test]
fn transfer_refers_to_its_call() {
    let mut over = event(
        json!({"author": "desk", "content": response("c1", "transfer_to_agent", json!({"result": null}))}),
    );
    over["actions"] = json!({"transferToAgent": "billing"});
    let events = read_with(
        &[
            event(json!({"author": "desk", "content": call("c1", "transfer_to_agent")})),
            over,
            event(json!({"id": "e3", "author": "billing", "content": text("hello")})),
        ],
        ON,
    );
    let started = of_type(&events, "SUBAGENT_STARTED");
    assert_eq!(started.len(), 1);
    assert_eq!((&started[0]["name"], &started[0]["parentToolCallId"]), (&json!("billing"), &json!("c1")));
    assert_eq!(of_type(&events, "TEXT_MESSAGE_CONTENT")[0]["subagentRunId"], "r:billing:0");
}

#[test]
fn subagent_with_a_pending_call_is_suspended() {
    let events = read_with(
        &[
            at("a@1", "1", json!({"content": text("x")})),
            at("a@1/b@1", "2", json!({"content": call("c1", "approve"), "longRunningToolIds": ["c1"]})),
        ],
        ON,
    );
    assert_eq!(
        of_type(&events, "SUBAGENT_FINISHED")[0]["outcome"],
        json!({"type": "suspended", "interruptIds": ["c1"]})
    );
    assert_eq!(last(&events)["outcome"]["interrupts"][0]["subagentRunId"], "r:a@1/b@1:0");
}

#[test]
fn failed_subagent_gets_the_error() {
    let failed = json!({"branch": "p.b", "errorCode": "SAFETY", "errorMessage": "no"});
    let events = read_with(
        &[
            at("", "1", json!({"branch": "p.a", "content": text("x")})),
            at("", "2", failed),
            at("", "3", json!({"branch": "p.a", "content": text("y")})),
        ],
        ON,
    );
    assert_eq!(shown(&events).last().unwrap(), "-r:p.a:0");
    assert_eq!(of_type(&events, "SUBAGENT_ERROR")[0]["subagentRunId"], "r:p.b:1");
    assert_eq!(last(&events)["code"], "SAFETY");
    let events = read_with(
        &[
            at("a@1/b@1", "1", json!({"content": text("x")})),
            at("a@1/b@1/c@1", "2", json!({"errorCode": "SAFETY", "errorMessage": "no"})),
            json!({"error": "no", "error_details": {"error_type": "SAFETY"}}),
        ],
        ON,
    );
    let lines = shown(&events);
    assert_eq!(lines[lines.len() - 2..], ["!r:a@1/b@1/c@1:1 SAFETY", "-r:a@1/b@1:0"]);
    assert_eq!(last(&events)["code"], "SAFETY");
}

#[test]
fn correction_keeps_the_subagent_of_messages() {
    let events = read_with(
        &[
            at("a@1", "1", json!({"content": text("main")})),
            at("a@1/b@1", "2", json!({"partial": true, "content": text("wrong")})),
            at("a@1/b@1", "2", json!({"content": text("right")})),
        ],
        ON,
    );
    let snapshot = of_type(&events, "MESSAGES_SNAPSHOT")[0];
    let owners: Vec<_> =
        snapshot["messages"].as_array().unwrap().iter().map(|message| &message["subagentRunId"]).collect();
    assert_eq!(owners, [&Value::Null, &json!("r:a@1/b@1:0")]);
}
