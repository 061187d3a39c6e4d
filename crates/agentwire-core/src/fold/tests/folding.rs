//! The effect of each event on messages and state.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    event::{
        Block, Citation, Content, ContentPart, EncryptedEntity, File, MediaKind, PartSource, Role, RunError,
        RunInput,
    },
    json::Json,
};

fn add(path: &str, value: Value) -> PatchOp {
    PatchOp::add(path, value.into())
}

fn replace(path: &str, value: Value) -> PatchOp {
    PatchOp::replace(path, value.into())
}

// Text.

#[test]
fn deltas_build_the_message_that_a_start_opens() {
    let events = [start("m"), delta("m", "Hel"), delta("m", "lo"), end("m")];
    assert_eq!(messages(events), [Message::assistant("m", "Hello")]);
}

#[test]
fn role_name_and_owner_come_from_the_start() {
    let open = Body::TextStart { message: "m".into(), role: Some(Role::User), name: Some("Ada".into()) };
    let expected = Message::from(MessageData {
        name: Some("Ada".into()),
        subagent: Some("s".into()),
        ..Message::user("m", "hi").into_data()
    });
    assert_eq!(messages([by("s", open.into()), delta("m", "hi")]), [expected]);
    for role in [Role::Developer, Role::System] {
        let open = Body::TextStart { message: "m".into(), role: Some(role), name: None };
        assert_eq!(messages([open.into(), delta("m", "x")])[0].role(), role);
    }
}

#[test]
fn a_start_on_a_known_id_appends_to_that_message() {
    let open = Body::TextStart { message: "m".into(), role: None, name: Some("Bob".into()) };
    let events = [by("s", open.into()), delta("m", "!"), end("m"), start("m"), delta("m", "?")];
    assert_eq!(on(vec![Message::user("m", "hi")], events).messages(), [Message::user("m", "hi!?")]);
}

#[test]
fn a_start_on_a_message_with_calls_leaves_its_content_out_until_there_is_some() {
    let calls = [ToolCall::new("c", "search", "")];
    let events = [call("c", "search", Some("m")), start("m")];
    assert_eq!(messages(events.clone()), [assistant("m", None, &calls)]);
    assert_eq!(messages(events.into_iter().chain([delta("m", "")])), [assistant("m", Some(""), &calls)]);
}

#[test]
fn text_for_an_activity_is_ignored() {
    let plan = active("m", "plan", json!({"n": 1}));
    let meta = json!({"k": 1});
    let events =
        [with(meta.clone(), start("m")), with(meta.clone(), delta("m", "text")), with(meta, end("m"))];
    assert_eq!(on(vec![plan.clone()], events).messages(), std::slice::from_ref(&plan));
    let events = [reasoning_start("m"), reasoning("m", "text")];
    assert_eq!(on(vec![plan.clone()], events).messages(), [plan]);
}

#[test]
fn text_for_an_unknown_message_is_ignored() {
    assert_eq!(messages([delta("m", "a"), end("m"), reasoning("r", "b"), arguments("c", "{")]), []);
}

#[test]
fn text_takes_the_place_of_parts() {
    let parts = || Content::Parts(vec![ContentPart::text("look")]);
    let answer = Message::new("t", MessageBody::Tool { call: "c".into(), content: parts(), error: None });
    let mut fold = on(vec![Message::user("u", parts()), answer], [start("u"), start("t")]);
    assert_eq!(fold.messages()[0], Message::user("u", parts()));
    for event in [delta("u", "a"), delta("u", "b"), delta("t", "")] {
        fold.apply(&event);
    }
    assert_eq!(fold.messages(), [Message::user("u", "ab"), tool("t", "c", "")]);
}

#[test]
fn interleaved_messages_do_not_mix() {
    let events = [
        start("a"),
        start("b"),
        delta("a", "1"),
        delta("b", "2"),
        delta("a", "3"),
        end("a"),
        delta("b", "4"),
    ];
    assert_eq!(messages(events), [Message::assistant("a", "13"), Message::assistant("b", "24")]);
}

// Reasoning.

#[test]
fn reasoning_builds_a_message_and_its_span_none() {
    let events = [
        Body::ReasoningStart { message: "r".into(), title: None }.into(),
        by("s", reasoning_start("r")),
        reasoning("r", "hm"),
        Body::ReasoningMessageEnd { message: "r".into() }.into(),
        Body::ReasoningEnd { message: "r".into() }.into(),
        Body::ReasoningStart { message: "empty".into(), title: None }.into(),
    ];
    assert_eq!(
        messages(events),
        [Message::from(MessageData { subagent: Some("s".into()), ..reasoned("r", "hm").into_data() })]
    );
}

#[test]
fn reasoning_on_a_text_message_appends_to_it() {
    assert_eq!(
        messages([start("m"), delta("m", "a"), reasoning_start("m"), reasoning("m", "b")]),
        [Message::assistant("m", "ab")]
    );
}

#[test]
fn encrypted_values_stay_with_their_message_or_call() {
    let seal = |entity| Event::new(Body::ReasoningEncrypted { entity, value: "x".into() });
    let events = [
        call("c", "search", Some("m")),
        activity("a", "plan", json!({})),
        with(json!({"k": 1}), seal(EncryptedEntity::Message("m".into()))),
        seal(EncryptedEntity::ToolCall("c".into())),
        seal(EncryptedEntity::Message("a".into())),
        seal(EncryptedEntity::Message("nobody".into())),
        seal(EncryptedEntity::ToolCall("m".into())),
    ];
    let folded = messages(events);
    assert_eq!(folded[0].encrypted.as_deref(), Some("x"));
    assert_eq!(folded[0].tool_calls()[0].encrypted.as_deref(), Some("x"));
    assert_eq!((metadata(&folded[0]), &folded[0].tool_calls()[0].metadata), (None, &None));
    assert_eq!(folded[1], active("a", "plan", json!({})));
}

// Tool calls.

#[test]
fn a_call_goes_to_the_assistant_message_that_it_names() {
    let events = [
        start("m"),
        delta("m", "hi"),
        call("c", "search", Some("m")),
        arguments("c", "{"),
        arguments("c", "}"),
    ];
    assert_eq!(messages(events), [assistant("m", Some("hi"), &[ToolCall::new("c", "search", "{}")])]);
}

#[test]
fn a_call_with_an_unknown_parent_creates_that_message() {
    assert_eq!(
        messages([by("s", call("c", "search", Some("m")))]),
        [Message::from(MessageData {
            subagent: Some("s".into()),
            ..assistant("m", None, &[ToolCall::new("c", "search", "")]).into_data()
        })]
    );
}

#[test]
fn a_call_that_names_a_message_of_another_role_gets_its_own() {
    for other in
        [Message::user("m", "hi"), reasoned("m", ""), active("m", "plan", json!({})), tool("m", "x", "")]
    {
        let own = assistant("c", None, &[ToolCall::new("c", "search", "")]);
        let mut fold = on(vec![other.clone()], [call("c", "search", Some("m"))]);
        assert_eq!(fold.messages(), [other, own]);
    }
}

#[test]
fn a_call_without_a_parent_gets_its_own_message() {
    for parent in [None, Some("")] {
        let events = [call("c", "search", parent), call("d", "book", parent)];
        assert_eq!(
            messages(events),
            [
                assistant("c", None, &[ToolCall::new("c", "search", "")]),
                assistant("d", None, &[ToolCall::new("d", "book", "")]),
            ]
        );
    }
}

#[test]
fn a_holder_that_shares_its_id_with_an_older_message_is_not_attributed() {
    let mut fold =
        on(vec![Message::user("c", "hi")], [by("s", call("c", "search", None)), arguments("c", "{}")]);
    assert_eq!(
        fold.messages(),
        [Message::user("c", "hi"), assistant("c", None, &[ToolCall::new("c", "search", "{}")])]
    );
}

#[test]
fn a_call_in_the_message_of_another_does_not_change_its_owner() {
    let events = [by("a", start("m")), by("b", call("c", "search", Some("m")))];
    assert_eq!(messages(events)[0].subagent, Some("a".into()));
}

#[test]
fn a_call_that_starts_again_keeps_its_arguments_and_takes_the_new_name() {
    let history = vec![assistant("m", None, &[ToolCall::new("c", "search", "{\"a\":")])];
    let events = [with(json!({"k": 1}), call("c", "find", Some("elsewhere"))), arguments("c", "1}")];
    let renamed =
        ToolCall { metadata: Some(object(json!({"k": 1}))), ..ToolCall::new("c", "find", "{\"a\":1}") };
    assert_eq!(on(history, events).messages(), [assistant("m", None, &[renamed])]);
}

#[test]
fn tool_result_follows_its_call_and_earlier_results() {
    let events = [
        call("c", "search", Some("m")),
        call("d", "search", Some("m")),
        start("after"),
        result("t1", "c", "one"),
        delta("after", "text"),
        result("t2", "d", "two"),
        delta("after", "!"),
        start("last"),
        result("t3", "c", "three"),
    ];
    let folded = messages(events);
    assert_eq!(ids(&folded), ["m", "t1", "t2", "t3", "after", "last"]);
    assert_eq!(folded[4], Message::assistant("after", "text!"));
}

#[test]
fn result_of_an_unknown_call_is_appended() {
    assert_eq!(
        messages([start("m"), result("t", "c", "x")]),
        [Message::assistant("m", ""), tool("t", "c", "x")]
    );
}

#[test]
fn repeated_tool_result_is_kept_twice() {
    let events = [call("c", "search", Some("m")), start("n"), result("t", "c", "x"), result("t", "c", "x")];
    assert_eq!(ids(&messages(events)), ["m", "t", "t", "n"]);
}

#[test]
fn of_two_messages_with_one_id_the_first_in_order_counts() {
    // The result is inserted before the text message with the same id.
    let events = [
        call("c", "search", Some("m")),
        start("x"),
        result("x", "c", "answer"),
        delta("x", "!"),
        result("t", "c", ""),
    ];
    assert_eq!(
        messages(events),
        [
            assistant("m", None, &[ToolCall::new("c", "search", "")]),
            tool("x", "c", "answer!"),
            tool("t", "c", ""),
            Message::assistant("x", ""),
        ]
    );
    // Here it is inserted after it.
    let events =
        [start("x"), call("c", "search", Some("m")), start("n"), result("x", "c", "answer"), delta("x", "!")];
    assert_eq!(
        messages(events),
        [
            Message::assistant("x", "!"),
            assistant("m", None, &[ToolCall::new("c", "search", "")]),
            tool("x", "c", "answer"),
            Message::assistant("n", ""),
        ]
    );
}

#[test]
fn a_failed_tool_leaves_its_error_beside_the_content() {
    let failed = ToolResult {
        message: "t".into(),
        call: "c".into(),
        content: "no".into(),
        error: Some("timeout".into()),
        explicit_role: true,
    };
    let folded = messages([by("s", Body::ToolResult(Box::new(failed)).into())]);
    assert_eq!(folded[0].subagent, Some("s".into()));
    assert_eq!(
        folded[0].body,
        MessageBody::Tool { call: "c".into(), content: "no".into(), error: Some("timeout".into()) }
    );
}

// State.

#[test]
fn a_snapshot_replaces_the_state_even_by_null() {
    assert_eq!(fold([state(json!({"a": 1})), state(json!({"b": 2}))]).state(), &json!({"b": 2}));
    assert_eq!(fold([state(json!(null))]).state(), &json!(null));
    assert_eq!(Fold::new().state(), &json!({}));
    assert_eq!(Fold::from_history(vec![], Some(json!([1]))).state(), &json!([1]));
}

#[test]
fn a_patch_that_does_not_apply_is_skipped_whole_and_counted() {
    let fold = fold([
        state_delta([add("/a", json!(1))]),
        state_delta([add("/b", json!(2)), replace("/missing", json!(3))]),
        state_delta([]),
        state_delta([replace("/a", json!(4))]),
    ]);
    assert_eq!((fold.state(), fold.skipped_patches()), (&json!({"a": 4}), 1));
}

#[test]
fn metadata_of_state_events_reaches_no_message() {
    let events =
        [start("m"), with(json!({"k": 1}), state(json!({}))), with(json!({"k": 1}), state_delta([]))];
    assert_eq!(messages(events), [Message::assistant("m", "")]);
}

// Snapshots of all messages.

#[test]
fn a_snapshot_updates_in_place_appends_the_new_and_drops_the_rest() {
    let history = vec![Message::user("a", "1"), Message::assistant("b", "2"), Message::user("c", "3")];
    let events =
        [snapshot([Message::user("new", "4"), Message::assistant("c", "three"), Message::user("a", "one")])];
    assert_eq!(
        on(history, events).messages(),
        [Message::user("a", "one"), Message::assistant("c", "three"), Message::user("new", "4")]
    );
}

#[test]
fn streaming_continues_after_a_snapshot() {
    let events = [
        start("a"),
        delta("a", "x"),
        start("gone"),
        delta("gone", "y"),
        call("c", "search", Some("m")),
        arguments("c", "{"),
        snapshot([assistant("m", None, &[ToolCall::new("c", "search", "[")]), Message::assistant("a", "X")]),
        delta("a", "!"),
        delta("gone", "!"),
        arguments("c", "]"),
    ];
    assert_eq!(
        messages(events),
        [Message::assistant("a", "X!"), assistant("m", None, &[ToolCall::new("c", "search", "[]")]),]
    );
}

#[test]
fn reasoning_stays_unless_the_snapshot_has_some() {
    let history = || vec![reasoned("r", "hm"), Message::user("u", "hi")];
    assert_eq!(on(history(), [snapshot([])]).messages(), [reasoned("r", "hm")]);
    assert_eq!(on(history(), [snapshot([reasoned("q", "")])]).messages(), [reasoned("q", "")]);
}

#[test]
fn activities_stay_unless_the_snapshot_has_some() {
    let plan = || active("a", "plan", json!({}));
    assert_eq!(on(vec![plan()], [snapshot([])]).messages(), [plan()]);
    assert_eq!(ids(on(vec![plan()], [snapshot([active("b", "search", json!({}))])]).messages()), ["b"]);
}

#[test]
fn a_snapshot_may_declare_which_activities_it_is_complete_for() {
    let declared = |types: Value, messages: Vec<Message>| {
        let metadata = json!({"@ag-ui/client": {"authoritativeActivityTypes": types}});
        let history = vec![active("a", "plan", json!({})), active("b", "search", json!({}))];
        let mut fold = on(history, [with(metadata, snapshot(messages))]);
        ids(fold.messages()).join(" ")
    };
    let any = || vec![active("c", "other", json!({}))];
    assert_eq!(declared(json!(null), vec![]), "");
    assert_eq!(declared(json!(null), any()), "c");
    assert_eq!(declared(json!(["plan"]), vec![]), "b");
    assert_eq!(declared(json!(["plan"]), any()), "b c");
    assert_eq!(declared(json!([]), any()), "a b c");
    // Malformed declarations are ignored.
    for malformed in [json!("plan"), json!(["plan", 1]), json!({}), json!(false)] {
        assert_eq!(declared(malformed, any()), "a b c");
    }
    let under = |client: Value| {
        let history = vec![active("a", "plan", json!({}))];
        let mut fold = on(history, [with(json!({"@ag-ui/client": client}), snapshot(any()))]);
        ids(fold.messages()).join(" ")
    };
    assert_eq!(under(json!(null)), "a c");
    assert_eq!(under(json!([])), "a c");
    assert_eq!(under(json!({"else": 1})), "c");
}

#[test]
fn a_declared_snapshot_still_updates_its_messages() {
    let metadata = json!({"@ag-ui/client": {"authoritativeActivityTypes": []}});
    let newer = active("a", "plan", json!({"n": 2}));
    let mut fold =
        on(vec![active("a", "plan", json!({"n": 1}))], [with(metadata, snapshot([newer.clone()]))]);
    assert_eq!(fold.messages(), [newer]);
}

#[test]
fn repeated_ids_in_a_snapshot_fold_as_the_official_client_does() {
    let twice = || [Message::user("a", "1"), Message::user("a", "2")];
    assert_eq!(on(vec![], [snapshot(twice())]).messages(), twice());
    assert_eq!(on(vec![Message::user("a", "0")], [snapshot(twice())]).messages(), [Message::user("a", "2")]);
}

// Activities.

#[test]
fn a_snapshot_of_an_activity_replaces_content_type_and_owner_but_not_metadata() {
    let folded = messages([
        by("s", with(json!({"k": 1, "l": 1}), activity("a", "plan", json!({"n": 1})))),
        with(json!({"k": 2}), activity("a", "search", json!({"m": 2}))),
    ]);
    let expected = active("a", "search", json!({"m": 2}));
    assert_eq!(
        folded,
        [Message::from(MessageData {
            metadata: Some(object(json!({"k": 2, "l": 1}))),
            ..expected.into_data()
        })]
    );
}

#[test]
fn without_replace_an_activity_stays_but_takes_the_metadata() {
    let keep = |event: Event| match event.body {
        Body::ActivitySnapshot { message, kind, content, .. } => {
            Event { body: Body::ActivitySnapshot { message, kind, content, replace: Some(false) }, ..event }
        }
        _ => unreachable!(),
    };
    let events = [
        keep(activity("a", "plan", json!({"n": 1}))),
        by("s", with(json!({"k": 1}), keep(activity("a", "search", json!({}))))),
    ];
    let expected = active("a", "plan", json!({"n": 1}));
    assert_eq!(
        messages(events),
        [Message::from(MessageData { metadata: Some(object(json!({"k": 1}))), ..expected.into_data() })]
    );
    let text = || vec![Message::user("a", "hi")];
    let mut fold = on(text(), [with(json!({"k": 1}), keep(activity("a", "plan", json!({}))))]);
    assert_eq!(fold.messages(), text());
}

#[test]
fn an_activity_takes_the_place_of_any_message_of_its_id() {
    let events = [
        call("c", "search", Some("m")),
        arguments("c", "{"),
        start("n"),
        delta("n", "text"),
        with(json!({"old": 1}), delta("m", "text")),
        with(json!({"k": 1}), activity("m", "plan", json!({}))),
        arguments("c", "lost"),
        delta("m", "lost"),
        result("t", "c", "x"),
        delta("n", "!"),
    ];
    let plan = Message::from(MessageData {
        metadata: Some(object(json!({"k": 1}))),
        ..active("m", "plan", json!({})).into_data()
    });
    assert_eq!(messages(events), [plan, Message::assistant("n", "text!"), tool("t", "c", "x")]);
}

#[test]
fn a_call_held_twice_is_the_next_one_when_the_first_is_replaced() {
    let held = |id| assistant(id, None, &[ToolCall::new("c", "search", "")]);
    let events =
        [arguments("c", "a"), activity("m", "plan", json!({})), arguments("c", "b"), result("t", "c", "x")];
    let mut fold = on(vec![held("m"), held("n"), Message::user("u", "")], events);
    assert_eq!(
        fold.messages(),
        [
            active("m", "plan", json!({})),
            assistant("n", None, &[ToolCall::new("c", "search", "b")]),
            tool("t", "c", "x"),
            Message::user("u", ""),
        ]
    );
}

#[test]
fn deltas_change_an_activity_and_its_type() {
    let folded = messages([
        activity("a", "plan", json!({"items": []})),
        activity_delta("a", "plan", [add("/items/-", json!(1))]),
        activity_delta("a", "search", [add("/items/-", json!(2))]),
    ]);
    assert_eq!(folded, [active("a", "search", json!({"items": [1, 2]}))]);
}

#[test]
fn a_delta_that_does_not_apply_still_leaves_its_metadata() {
    let events = [
        activity("a", "plan", json!({"n": 1})),
        with(
            json!({"k": 1}),
            activity_delta("a", "search", [replace("/n", json!(2)), replace("/x", json!(2))]),
        ),
    ];
    let mut fold = fold(events);
    assert_eq!(fold.skipped_patches(), 1);
    let expected = active("a", "plan", json!({"n": 1}));
    assert_eq!(
        fold.messages(),
        [Message::from(MessageData { metadata: Some(object(json!({"k": 1}))), ..expected.into_data() })]
    );
}

#[test]
fn a_delta_cannot_replace_an_activity_by_a_non_object() {
    let mut fold = fold([
        activity("a", "plan", json!({"n": 1})),
        activity_delta("a", "plan", [replace("", json!({"n": 2}))]),
        activity_delta("a", "plan", [replace("", json!("text"))]),
        activity_delta("a", "plan", [add("/m", json!(3))]),
    ]);
    assert_eq!(fold.messages(), [active("a", "plan", json!({"n": 2, "m": 3}))]);
    assert_eq!(fold.skipped_patches(), 1);
}

#[test]
fn activity_deltas_for_other_messages_are_ignored() {
    let patch = [replace("", json!({}))];
    let mut fold = fold([
        start("m"),
        with(json!({"k": 1}), activity_delta("m", "plan", patch.clone())),
        activity_delta("x", "plan", patch),
    ]);
    assert_eq!(fold.messages(), [Message::assistant("m", "")]);
}

// Metadata.

#[test]
fn metadata_of_text_merges_into_the_message_last_write_winning() {
    let folded = messages([
        with(json!({"a": 1, "b": {"x": 1}}), start("m")),
        with(json!({"b": {"y": 2}}), delta("m", "")),
        with(json!({"c": null}), end("m")),
        with(json!({}), start("m")),
    ]);
    assert_eq!(metadata(&folded[0]), Some(r#"{"a":1,"b":{"y":2},"c":null}"#));
    assert_eq!(metadata(&messages([with(json!({}), start("m"))])[0]), Some("{}"));
}

#[test]
fn metadata_of_calls_merges_into_the_call() {
    let folded = messages([
        with(json!({"a": 1}), call("c", "search", Some("m"))),
        with(json!({"b": 2}), arguments("c", "")),
        with(json!({"a": 3}), call_end("c")),
        with(json!({"r": 1}), result("t", "c", "")),
    ]);
    let metadata_of_call = folded[0].tool_calls()[0].metadata.as_ref().map(Object::get);
    assert_eq!(metadata_of_call, Some(r#"{"a":3,"b":2}"#));
    assert_eq!((metadata(&folded[0]), metadata(&folded[1])), (None, Some(r#"{"r":1}"#)));
}

// Runs.

#[test]
fn messages_of_the_request_are_added_if_new() {
    let mut input = RunInput::new("t", "r");
    input.messages =
        vec![Message::user("known", "changed"), Message::user("new", "1"), Message::user("new", "2")];
    let started = RunStarted { input: Some(Box::new(input)), ..RunStarted::new("t", "r") };
    let mut fold = on(vec![Message::user("known", "hi")], [Body::RunStarted(Box::new(started)).into()]);
    assert_eq!(fold.messages(), [Message::user("known", "hi"), Message::user("new", "1")]);
}

#[test]
fn interrupts_last_until_a_run_finishes_without() {
    let waits = Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("i", "input_required")] });
    let mut fold = fold([run_started("1"), run_finished("1", waits)]);
    assert_eq!(fold.interrupts(), [Interrupt::new("i", "input_required")]);
    fold.apply(&run_started("2"));
    fold.apply(&Body::RunError(Box::new(RunError::new("broken", None))).into());
    assert_eq!(fold.interrupts().len(), 1);
    fold.apply(&run_started("3"));
    fold.apply(&run_finished("3", Some(Outcome::Cancelled)));
    assert_eq!(fold.interrupts(), []);
}

#[test]
fn pending_calls_are_those_that_the_end_names_or_else_those_unanswered_in_this_run() {
    let calls =
        |fold: &Fold| fold.pending_tool_calls().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut fold = fold([
        run_started("1"),
        call("b", "x", None),
        call("a", "x", None),
        call_end("b"),
        call("b", "x", None),
        call("c", "x", None),
        result("t", "a", ""),
    ]);
    assert_eq!(calls(&fold), "b c");
    fold.apply(&run_finished("1", Some(Outcome::Success { pending: vec![] })));
    assert_eq!(calls(&fold), "b c");
    let mut named = fold.clone();
    named.apply(&run_finished("1", Some(Outcome::Success { pending: vec!["c".into()] })));
    assert_eq!(calls(&named), "c");
    named.apply(&run_started("2"));
    assert_eq!(calls(&named), "");
}

#[test]
fn a_failed_run_keeps_the_delivered_messages() {
    let error = Body::RunError(Box::new(RunError::new("broken", None)));
    let fold = fold([run_started("1"), start("m"), delta("m", "a"), state(json!({"a": 1})), error.into()]);
    assert_eq!(fold.into_parts(), (vec![Message::assistant("m", "a")], json!({"a": 1})));
}

// Events that AG-UI carries as activities.

#[test]
fn sources_and_files_become_activities() {
    let source = Citation {
        id: "x".into(),
        message: Some("m".into()),
        url: Some("https://example.org".into()),
        title: None,
        media_type: None,
        filename: Some("a.pdf".into()),
        detail: Some(object(json!({"score": 1}))),
    };
    let file = File {
        id: "f".into(),
        message: None,
        kind: MediaKind::Document,
        source: PartSource::File {
            value: "h".into(),
            provider: Some("p".into()),
            mime_type: Some("a/b".into()),
        },
        name: None,
    };
    let folded = messages([
        by("s", with(json!({"k": 1}), Body::Citation(Box::new(source)).into())),
        Body::File(Box::new(file)).into(),
    ]);
    let expected =
        json!({"messageId": "m", "url": "https://example.org", "filename": "a.pdf", "detail": {"score": 1}});
    assert_eq!(
        folded,
        [
            Message::from(MessageData {
                subagent: Some("s".into()),
                metadata: Some(object(json!({"k": 1}))),
                ..active("x", "agentwire.source", expected).into_data()
            }),
            active(
                "f",
                "agentwire.file",
                json!({
                    "kind": "document",
                    "source": {"type": "file", "value": "h", "provider": "p", "mimeType": "a/b"},
                })
            ),
        ]
    );
}

#[test]
fn a_block_becomes_an_activity_that_remembers_its_ids() {
    let block = |block_id: Option<&str>| Block {
        id: "b".into(),
        message: "m".into(),
        output: object(json!({"type": "icon", "data": {"icon": "x"}})),
        layout: Some(json!({"x": 1}).into()),
        block_id: block_id.map(Into::into),
        style: Some(json!({"c": 2}).into()),
    };
    let event = |block| Event::new(Body::Block(Box::new(block)));
    let folded = messages([with(json!({"k": 1}), event(block(Some("1")))), event(block(None))]);
    let content = json!({"type": "icon", "data": {"icon": "x"}, "layout": {"x": 1}, "style": {"c": 2}});
    assert_eq!(
        folded,
        [Message::from(MessageData {
            metadata: Some(object(json!({"k": 1, "hai": {"messageId": "m"}}))),
            ..active("b", "hai.icon", content).into_data()
        })]
    );
}

#[test]
fn a_collaboration_collects_its_tasks_until_it_ends() {
    let id = || "h".into();
    let open = |message: Option<&str>| {
        Event::new(Body::CollaborationStart {
            id: id(),
            message: message.map(Into::into),
            from: "A".into(),
            to: "B".into(),
        })
    };
    let task = Event::new(Body::CollaborationTask { id: id(), task: Json::from(json!({"id": 1})) });
    let folded = messages([open(Some("m")), task.clone(), Body::CollaborationEnd { id: id() }.into()]);
    let content = json!({"from": "A", "to": "B", "tasks": [{"id": 1}], "status": "done"});
    assert_eq!(
        folded,
        [Message::from(MessageData {
            metadata: Some(object(json!({"hai": {"messageId": "m"}}))),
            ..active("h", "hai.agent_collaboration", content).into_data()
        })]
    );
    let content = json!({"from": "A", "to": "B", "tasks": [], "status": "open"});
    assert_eq!(messages([open(None)]), [active("h", "hai.agent_collaboration", content)]);
    assert_eq!(messages([task]), []);
}

#[test]
fn a_task_nested_too_deep_is_skipped() {
    let deep = format!("{}{}", "[".repeat(crate::json::MAX_DEPTH), "]".repeat(crate::json::MAX_DEPTH));
    let start = Body::CollaborationStart { id: "h".into(), message: None, from: "A".into(), to: "B".into() };
    let task = Body::CollaborationTask { id: "h".into(), task: Json::parse(&deep).unwrap() };
    let mut fold = fold([start.into(), task.into()]);
    assert_eq!(fold.skipped_patches(), 1);
    assert_eq!(fold.messages().len(), 1);
}

// Cost. These take minutes if a delta costs more than its own length.

#[test]
fn a_long_message_costs_its_length() {
    let deltas = (0..100_000).map(|_| delta("m", "word "));
    let arguments = (0..100_000).map(|_| arguments("c", "[0],"));
    let mut fold = fold([start("m"), call("c", "search", None)].into_iter().chain(deltas).chain(arguments));
    assert_eq!(fold.messages()[0], Message::assistant("m", "word ".repeat(100_000)));
    assert_eq!(&*fold.messages()[1].tool_calls()[0].arguments, "[0],".repeat(100_000));
}

#[test]
fn a_long_conversation_costs_its_length() {
    let turn = |n: usize| {
        let (message, id, answer) = (format!("m{n}"), format!("c{n}"), format!("t{n}"));
        [
            start(&message),
            delta(&message, "x"),
            end(&message),
            call(&id, "x", None),
            result(&answer, &id, "y"),
        ]
    };
    assert_eq!(fold((0..10_000).flat_map(turn)).messages().len(), 30_000);
    // All calls first, then all results, each inserted in the middle.
    let calls = (0..10_000).map(|n| call(&format!("c{n}"), "x", None));
    let answers = (0..10_000).map(|n| result(&format!("t{n}"), &format!("c{n}"), "y"));
    let folded = messages(calls.chain(answers));
    assert_eq!(ids(&folded[19_996..]), ["c9998", "t9998", "c9999", "t9999"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn reading_the_fold_does_not_change_it(events in untidy_streams(60), looks in any::<u64>()) {
        let mut watched = Fold::new();
        for (position, event) in events.iter().enumerate() {
            watched.apply(event);
            if looks & (1 << (position % 64)) != 0 {
                watched.messages();
            }
        }
        prop_assert_eq!(held(watched), held(folded(Fold::new(), &events)));
    }
}
