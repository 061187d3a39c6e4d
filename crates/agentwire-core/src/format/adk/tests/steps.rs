use super::*;

fn steps(events: &[Value]) -> Vec<String> {
    let show = |event: &Value| match event["type"].as_str().unwrap() {
        "STEP_STARTED" => Some(format!("+{}", event["stepName"].as_str().unwrap())),
        "STEP_FINISHED" => Some(format!("-{}", event["stepName"].as_str().unwrap())),
        _ => None,
    };
    events.iter().filter_map(show).collect()
}

fn at(path: &str) -> Value {
    event(
        json!({"id": path, "author": path.rsplit('/').next(), "nodeInfo": {"path": path}, "content": text("x")}),
    )
}

#[test]
fn nested_nodes_close_from_the_inside() {
    let events = read(&[at("a@1"), at("a@1/b@1"), at("a@1/b@1/c@1"), at("a@1/d@1"), at("a@1")]);
    assert_eq!(steps(&events), ["+a", "+a/b", "+a/b/c", "-a/b/c", "-a/b", "+a/d", "-a/d", "-a"]);
}

#[test]
fn node_that_runs_twice_is_two_steps() {
    let events = read(&[at("a@1/b@1"), at("a@1/b@2")]);
    assert_eq!(steps(&events), ["+a/b", "-a/b", "+a/b", "-a/b"]);
}

#[test]
fn concurrent_instances_have_numbered_names() {
    let mut one = at("a@1/b@1");
    one["partial"] = json!(true);
    let events = read(&[one, at("a@1/b@2")]);
    assert_eq!(steps(&events), ["+a/b", "+a@1/b@2", "-a@1/b@2", "-a/b"]);
}

#[test]
fn parallel_branches_close_when_the_run_moves_on() {
    let on = |branch: &str, author: &str| {
        event(json!({"id": author, "branch": branch, "author": author, "content": text("x")}))
    };
    let events = read(&[on("", "first"), on("p.a", "a"), on("p.b", "b"), on("p.a", "a"), on("", "last")]);
    assert_eq!(steps(&events), ["+first", "-first", "+p.a", "+p.b", "-p.b", "-p.a", "+last", "-last"]);
}
