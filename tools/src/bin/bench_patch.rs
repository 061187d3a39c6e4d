//! Measures `patch::diff` and `patch::apply` and those of the crate `json-patch`. Used by `bench/patch`.
//!
//! ```text
//! cargo run --release -p agentwire-tools --bin bench_patch
//! ```

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use agentwire_core::patch::{Limits, Patch, apply, diff};
use serde_json::{Value, json};

/// The duration of each measurement. The best of its rounds counts, because it is the least disturbed one.
const TIME_PER_MEASUREMENT: Duration = Duration::from_millis(500);

fn main() {
    let state = state(34);
    let mut two_changes = state.clone();
    two_changes["todos"][17]["done"] = json!(true);
    two_changes["status"] = json!("running");
    let mut one_less = state.clone();
    one_less["todos"].as_array_mut().expect("todos are a list").remove(0);
    println!("state: {} bytes", state.to_string().len());

    for (name, to) in [("2 changes", &two_changes), ("first of 34 items removed", &one_less)] {
        let ours = diff(&state, to);
        let theirs = json_patch::diff(&state, to);
        println!("\n{name}");
        println!("  agentwire   {} operations, {} bytes", ours.0.len(), to_json(&ours).len());
        println!("  json-patch  {} operations, {} bytes", theirs.0.len(), theirs.to_string().len());
        measure("diff, agentwire", || diff(black_box(&state), black_box(to)));
        measure("diff, json-patch", || json_patch::diff(black_box(&state), black_box(to)));
        measure("apply, agentwire (with a clone)", || {
            let mut document = state.clone();
            apply(&mut document, black_box(&ours), &Limits::default()).expect("the patch applies");
            document
        });
        measure("apply, json-patch (with a clone)", || {
            let mut document = state.clone();
            json_patch::patch(&mut document, black_box(&theirs)).expect("the patch applies");
            document
        });
        measure("the clone", || state.clone());
    }

    println!();
    for count in [1_000, 10_000, 100_000] {
        let from = self::state(count);
        let mut to = from.clone();
        let todos = to["todos"].as_array_mut().expect("todos are a list");
        todos.reverse();
        todos.truncate(count / 2);
        measure(&format!("diff of {count} items, reversed and halved"), || diff(&from, &to));
        let mut to = from.clone();
        to["todos"][count / 2]["done"] = json!(true);
        measure(&format!("diff of {count} items, one changed"), || diff(&from, &to));
        let patch = diff(&from, &to);
        let mut document = from;
        measure(&format!("apply of that patch to {count} items"), || {
            apply(&mut document, &patch, &Limits::default()).expect("the patch applies");
        });
    }
}

/// A state with `count` items, as an agent keeps it.
fn state(count: usize) -> Value {
    let todo =
        |at| json!({"id": format!("todo-{at}"), "title": format!("Look at report {at}"), "done": false});
    json!({
        "status": "idle",
        "todos": (0..count).map(todo).collect::<Vec<_>>(),
        "user": {"name": "Ada", "locale": "en-GB", "flags": [true, false, true]},
        "step": 3,
    })
}

fn to_json(patch: &Patch) -> String {
    let operations: Vec<String> = patch
        .0
        .iter()
        .map(|operation| {
            let mut object = json!({"op": operation.op.as_str(), "path": operation.path});
            if let Some(from) = &operation.from {
                object["from"] = json!(from);
            }
            if let Some(value) = &operation.value {
                object["value"] = value.to_value();
            }
            object.to_string()
        })
        .collect();
    format!("[{}]", operations.join(","))
}

fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    let mut best = Duration::MAX;
    let start = Instant::now();
    while start.elapsed() < TIME_PER_MEASUREMENT {
        let round = Instant::now();
        black_box(work());
        best = best.min(round.elapsed());
    }
    println!("  {name:<45} {best:>12.2?}");
}
