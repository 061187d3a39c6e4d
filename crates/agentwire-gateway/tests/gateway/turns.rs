//! The next turn of a conversation: answers under the id of the run that waits, and messages after a stop.

use std::{sync::Arc, time::Duration};

use agentwire_core::event::{Body, Event, Interrupt, Outcome, RunFinished, RunInput};
use agentwire_gateway::{
    codes,
    hooks::{Hooked, RunContext, SessionLock},
    settings::Busy,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// A request of AG-UI or HAI; `members` replace the default ones.
fn request(thread: &str, run: &str, members: &Value) -> Value {
    let mut body = json!({"threadId": thread, "runId": run, "protocolVersion": "1.0", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    for (key, value) in members.as_object().expect("members") {
        body[key] = value.clone();
    }
    body
}

fn resolved(id: &str, payload: &Value) -> Value {
    json!({"resume": [{"interruptId": id, "status": "resolved", "payload": payload}]})
}

fn command(answer: &Value) -> Value {
    json!({"forwardedProps": {"command": {"resume": answer}}})
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "content": text})
}

fn result(call: &str, content: &str) -> Value {
    json!({"id": format!("{call}-tool"), "role": "tool", "toolCallId": call, "content": content})
}

async fn frames(server: &Server, body: &Value) -> Vec<Frame> {
    let frames = Stream::of(server.post("/", body)).await.rest().await;
    assert_valid(&frames);
    frames
}

fn code_of(frames: &[Frame]) -> String {
    frames.last().expect("a last frame").json()["code"].as_str().unwrap_or_default().to_owned()
}

fn text_of(frames: &[Frame]) -> String {
    frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect()
}

fn run_of(frames: &[Frame]) -> String {
    frames[0].json()["runId"].as_str().expect("RUN_STARTED has one").to_owned()
}

async fn pending(server: &Server) -> Vec<String> {
    let (_, items) = server.json("/threads/t/pending").await;
    let ids = items.as_array().into_iter().flatten();
    ids.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

async fn messages(server: &Server) -> Vec<String> {
    let (_, snapshot) = server.json("/message_snapshot/t").await;
    let messages = snapshot["messages"].as_array().expect("a list").clone();
    messages.iter().map(|message| message["id"].as_str().expect("an id").to_owned()).collect()
}

/// Asks `q` until it has had `questions` answers, always under the same id, and says nothing in between.
fn insistent(questions: usize) -> Arc<Puppet> {
    let answers = std::sync::atomic::AtomicUsize::new(0);
    Puppet::eager(move |input: &RunInput| {
        use std::sync::atomic::Ordering::SeqCst;
        let count = answers.fetch_add(usize::from(input.resume.is_some()), SeqCst);
        let count = count + usize::from(input.resume.is_some());
        if count >= questions {
            return vec![start("last"), delta("last", "done"), end("last")];
        }
        let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
        finished.outcome =
            Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("q", "input_required")] });
        vec![Event::new(Body::RunFinished(Box::new(finished)))]
    })
}

#[tokio::test]
async fn a_resume_under_the_id_of_the_waiting_run_is_an_answer() {
    for backend in Backend::each().await {
        for answer in [resolved("q", &json!("blue")), command(&json!("blue"))] {
            let puppet = asker();
            let server = plan(puppet.clone()).on(&backend.store).await;
            let _ = server.ask(Method::DELETE, "/thread/t").send().await;
            server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
            // The page sends its messages along.
            let mut body = request("t", "r1", &answer);
            body["messages"] = json!([user("r1-user", r#"{"ask": [{"id": "q"}]}"#)]);
            let answered = frames(&server, &body).await;
            assert_eq!(run_of(&answered), "r1#2");
            assert_eq!(text_of(&answered), r#"[["q","resolved","blue"]]"#, "{answer}");
            assert_eq!(pending(&server).await, [] as [String; 0]);
            // The same request again gets the same run, and the agent is not called again.
            assert_eq!(frames(&server, &body).await, answered);
            assert_eq!(puppet.runs(), ["r1", "r1#2"]);
            // Without an answer it is a reconnect to the first run, as before.
            let again = server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
            assert_eq!(run_of(&again), "r1");
            assert_eq!(server.follow("/runs/r1%232/stream").await.rest().await, answered);
        }
    }
}

#[tokio::test]
async fn another_answer_under_the_same_id_is_refused() {
    let puppet = asker();
    let server = plan(puppet.clone()).on_memory().await;
    server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
    let unknown = frames(&server, &request("t", "r1", &resolved("x", &json!(1)))).await;
    assert_eq!(code_of(&unknown), codes::UNKNOWN_INTERRUPT);
    frames(&server, &request("t", "r1", &resolved("q", &json!("yes")))).await;
    let other = frames(&server, &request("t", "r1", &resolved("q", &json!("no")))).await;
    assert_eq!(code_of(&other), codes::ALREADY_ANSWERED);
    assert_eq!(puppet.runs(), ["r1", "r1#2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_answers_at_once_under_one_id_one_counts() {
    for backend in Backend::each().await {
        let puppet = asker();
        let server = Arc::new(plan(puppet.clone()).on(&backend.store).await);
        server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
        let mut posts = tokio::task::JoinSet::new();
        for number in 0..20 {
            let server = server.clone();
            posts.spawn(async move {
                frames(&server, &request("t", "r1", &resolved("q", &json!(number % 2)))).await
            });
        }
        let seen = with_timeout("all responses", posts.join_all()).await;
        let (refused, answered): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|frames| code_of(frames) == codes::ALREADY_ANSWERED);
        assert_eq!((refused.len(), answered.len()), (10, 10));
        assert!(answered.iter().all(|frames| *frames == answered[0]));
        assert_eq!(puppet.calls(), 2);
    }
}

/// CopilotKit keeps the id of the first run for every question.
#[tokio::test]
async fn a_series_of_questions_is_answered_under_the_first_id() {
    for backend in Backend::each().await {
        let puppet = insistent(3);
        let server = plan(puppet.clone()).on(&backend.store).await;
        server.run_to_end("t", "r1", "hello").await;
        // Two sequential interrupts of a LangGraph node have the same id, and a person may say yes to both.
        let body = request("t", "r1", &resolved("q", &json!("yes")));
        let second = frames(&server, &body).await;
        let third = frames(&server, &body).await;
        let fourth = frames(&server, &body).await;
        let runs = [&second, &third, &fourth].map(|frames| run_of(frames));
        assert_eq!(runs, ["r1#2", "r1#3", "r1#4"].map(str::to_owned));
        assert_eq!(text_of(&fourth), "done");
        assert_eq!(frames(&server, &body).await, fourth);
        assert_eq!(puppet.calls(), 4);
    }
}

/// A client that uses the ids of RUN_STARTED.
#[tokio::test]
async fn a_series_of_questions_is_answered_under_the_derived_ids() {
    let puppet = insistent(2);
    let server = plan(puppet.clone()).on_memory().await;
    server.run_to_end("t", "r1", "hello").await;
    let second = frames(&server, &request("t", "r1", &resolved("q", &json!("yes")))).await;
    let third = frames(&server, &request("t", &run_of(&second), &resolved("q", &json!("yes")))).await;
    assert_eq!((run_of(&third), text_of(&third)), ("r1#3".into(), "done".into()));
}

/// The client lost the response, so it cannot have seen the second question.
#[tokio::test]
async fn a_lost_response_is_repeated_and_not_answered() {
    let backend = Backend::sqlite().await;
    let puppet = Puppet::new(|input| match &input.resume {
        Some(_) => {
            let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
            finished.outcome =
                Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("q", "input_required")] });
            vec![start("m"), delta("m", "again"), end("m"), Event::new(Body::RunFinished(Box::new(finished)))]
        }
        None => asker_script(input),
    });
    let server = plan(puppet.clone()).on(&backend.store).await;
    puppet.allow(1);
    server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
    let body = request("t", "r1", &resolved("q", &json!("yes")));
    let mut lost = Stream::of(server.post("/", &body)).await;
    puppet.allow(1);
    let seen = lost.take(2).await;
    drop(lost);
    wait_until("the disconnect", async || server.metric("agentwire_readers{").await == 0).await;
    puppet.allow(100);
    wait_until("the second question", async || pending(&server).await == ["q"]).await;
    let repeated = frames(&server, &body).await;
    assert_eq!((run_of(&repeated), puppet.calls()), ("r1#2".into(), 2));
    assert_eq!(repeated[..2], seen[..]);
    // A cursor of the derived run continues it, whatever id the body has.
    let cursor = seen[1].id.clone().expect("an id");
    let rest = Stream::of(server.post("/", &body).header("last-event-id", &cursor)).await.rest().await;
    // The repeated response was read to its end, so that this is the answer to the second question.
    assert_eq!(run_of(&rest), "r1#3");
    let follow = server.ask(Method::GET, "/threads/t/stream").header("last-event-id", &cursor);
    assert_eq!(Stream::of(follow).await.rest().await, repeated[2..]);
}

#[tokio::test]
async fn a_result_under_the_id_of_the_waiting_run_is_an_answer() {
    let puppet = asker();
    let server = plan(puppet.clone()).on_memory().await;
    let script = r#"{"calls": [{"id": "c", "name": "pick", "args": {}}]}"#;
    server.run_to_end("t", "r1", script).await;
    assert_eq!(server.status("r1").await, "waiting");
    let body = request("t", "r1", &json!({"messages": [user("r1-user", script), result("c", "red")]}));
    let answered = frames(&server, &body).await;
    assert_eq!((run_of(&answered), text_of(&answered)), ("r1#2".into(), r#"["c","red",null]"#.into()));
    assert_eq!(frames(&server, &body).await, answered);
    assert_eq!(puppet.calls(), 2);
    assert_eq!(server.status("r1").await, "finished");
}

#[tokio::test]
async fn an_answer_under_the_waiting_id_may_come_with_a_message() {
    let puppet = asker();
    let server = plan(puppet.clone()).on_memory().await;
    server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
    let mut body = request("t", "r1", &resolved("q", &json!("yes")));
    body["messages"] = json!([user("u2", "and hurry")]);
    let answered = frames(&server, &body).await;
    assert_eq!(run_of(&answered), "r1#2");
    let input = puppet.last_request().input;
    assert_eq!(input.resume.as_ref().map(Vec::len), Some(1));
    assert_eq!(input.messages.last().map(|message| message.id.as_str()), Some("u2"));
}

#[tokio::test]
async fn hai_answers_under_the_id_of_the_waiting_run() {
    let puppet = asker();
    let server = plan(puppet.clone()).on_memory().await;
    let script = r#"{"ask": [{"id": "q"}]}"#;
    let body = json!({"threadId": "t", "runId": "r1", "messages": [user("u", script)]});
    Stream::of(server.post("/awp", &body)).await.bytes().await;
    let body = json!({"threadId": "t", "runId": "r1", "messages": [user("u", script), result("q", "blue")]});
    let answered = Stream::of(server.post("/awp", &body)).await.bytes().await;
    let answered = String::from_utf8_lossy(&answered);
    assert!(answered.contains("blue") && !answered.contains("RUN_ERROR"), "{answered}");
    assert_eq!(puppet.runs(), ["r1", "r1#2"]);
}

#[tokio::test]
async fn a_run_is_stopped_under_the_id_that_it_was_answered_with() {
    let puppet = Puppet::new(asker_script);
    let server = plan(puppet.clone()).on_memory().await;
    puppet.allow(1);
    server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
    let mut stream = Stream::of(server.post("/", &request("t", "r1", &resolved("q", &json!(1))))).await;
    stream.take(1).await;
    assert_eq!(answer(server.ask(Method::POST, "/runs/r1/stop")).await.0, 200);
    assert_eq!(stream.rest().await.last().expect("an end").json()["outcome"]["type"], "cancelled");
}

#[tokio::test]
async fn a_message_after_a_stop_interrupts_the_run_that_nobody_reads() {
    for backend in Backend::each().await {
        for busy in
            [Busy::Reject, Busy::Enqueue { limit: 2 }, Busy::Wait { retries: 1, interval: Duration::ZERO }]
        {
            let puppet = Puppet::new(|input| talk(input, 5));
            let server = plan(puppet.clone()).agent(|agent| agent.busy = busy).on(&backend.store).await;
            let _ = server.ask(Method::DELETE, "/thread/t").send().await;
            let (first, second) = (format!("one-{busy:?}"), format!("two-{busy:?}"));
            let mut one = server.run("t", &first, "hello").await;
            puppet.allow(2);
            one.take(3).await;
            drop(one);
            // At once: the gateway may not have noticed the disconnect.
            let mut two = server.run("t", &second, "again").await;
            two.take(1).await;
            puppet.allow(100);
            let rest = two.rest().await;
            assert_eq!(types(&rest).last().map(String::as_str), Some("RUN_FINISHED"), "{busy:?}");
            assert_eq!((code_of(&rest), puppet.runs()), (String::new(), vec![first.clone(), second.clone()]));
            assert_eq!(server.status(&first).await, "stopped");
            assert_eq!(puppet.stops(), 1);
            let users = [format!("{first}-user"), format!("{second}-user")];
            let stored = messages(&server).await;
            assert!(users.iter().all(|user| stored.contains(user)), "{stored:?}");
        }
    }
}

#[tokio::test]
async fn a_run_that_somebody_reads_is_not_interrupted() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    for path in ["/runs/one/stream", "/threads/t/stream", "/api/chat/t/stream", "/runs/one/stream?format=hai"]
    {
        let mut reader = server.follow(path).await;
        reader.next().await;
        drop(one);
        let refused = server.run_to_end("t", "two", "hello").await;
        assert_eq!(code_of(&refused), codes::THREAD_IS_LOCKED, "{path}");
        assert_eq!(messages(&server).await, ["one-user"], "a refused request leaves nothing behind");
        one = reader;
    }
    assert_eq!(server.json("/runs/two").await.0, 404);
    drop(one);
    let mut two = server.run("t", "two", "hello").await;
    puppet.allow(100);
    assert_eq!(code_of(&two.rest().await), "");
}

#[tokio::test]
async fn detached_can_be_set_apart() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let change = |agent: &mut agentwire_gateway::settings::AgentSettings| agent.detached = Busy::Reject;
    let server = plan(puppet.clone()).agent(change).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    drop(one);
    assert_eq!(code_of(&server.run_to_end("t", "two", "hello").await), codes::THREAD_IS_LOCKED);
    let one = server.follow("/runs/one/stream").await;
    puppet.allow(100);
    drop(one);
    wait_until("the run goes on without readers", async || server.status("one").await == "finished").await;

    let change = |agent: &mut agentwire_gateway::settings::AgentSettings| {
        agent.detached = Busy::Enqueue { limit: 1 };
    };
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).agent(change).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    assert_eq!(code_of(&server.run_to_end("t", "two", "hello").await), codes::THREAD_IS_LOCKED);
    drop(one);
    let mut two = server.run("t", "two", "hello").await;
    assert_eq!(server.status("two").await, "queued");
    puppet.allow(100);
    assert_eq!(code_of(&two.rest().await), "");
    assert_eq!(server.status("one").await, "finished");
}

/// The stop button of a page that calls the stop route and does not wait for the response.
#[tokio::test]
async fn a_message_during_a_stop_waits_for_it() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server = plan(puppet.clone()).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let stop = server.ask(Method::POST, "/runs/one/stop").send();
    let (stopped, two) = tokio::join!(stop, async {
        wait_until("the stop", async || server.status("one").await == "stopped").await;
        server.run("t", "two", "hello").await
    });
    assert_eq!(stopped.expect("a response").status(), 200);
    let mut two = two;
    puppet.allow(100);
    assert_eq!(code_of(&two.rest().await), "");
}

/// A lock that is never granted.
struct Never;

impl SessionLock for Never {
    fn lock<'l>(&'l self, _: &'l RunContext) -> Hooked<'l> {
        Box::pin(std::future::pending())
    }

    fn unlock<'l>(&'l self, _: &'l RunContext) -> agentwire_gateway::agent::BoxFuture<'l, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn words_are_kept_if_the_run_is_interrupted_before_it_calls_the_agent() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 5));
        let server =
            plan(puppet.clone()).wire(|builder| builder.lock(Arc::new(Never))).on(&backend.store).await;
        drop(server.run("t", "one", "hello").await);
        drop(server.run("t", "two", "hello").await);
        let mut three = server.run("t", "three", "hello").await;
        assert_eq!(answer(server.ask(Method::POST, "/runs/three/stop")).await.0, 200);
        three.rest().await;
        assert_eq!(messages(&server).await, ["one-user", "two-user", "three-user"]);
        assert_eq!(puppet.calls(), 0);
    }
}

#[tokio::test]
async fn a_front_end_tool_may_return_nothing() {
    let server = plan(asker()).on_memory().await;
    let script = r#"{"calls": [{"id": "c", "name": "pick", "args": {}}]}"#;
    server.run_to_end("t", "r1", script).await;
    let answered = frames(&server, &request("t", "r2", &json!({"messages": [result("c", "")]}))).await;
    assert_eq!(text_of(&answered), r#"["c","",null]"#);
}

#[tokio::test]
async fn an_empty_result_under_the_id_of_the_waiting_run_is_refused() {
    let server = plan(asker()).on_memory().await;
    server.run_to_end("t", "r1", r#"{"ask": [{"id": "q"}]}"#).await;
    let refused = frames(&server, &request("t", "r1", &json!({"messages": [result("q", "")]}))).await;
    assert_eq!(
        (code_of(&refused).as_str(), pending(&server).await),
        (codes::NO_TOOL_RESULTS, vec!["q".into()])
    );
}

/// With a delay that no test waits for, the stream stays open.
#[tokio::test]
async fn a_sync_of_hai_waits_its_close_delay() {
    let delay = |agent: &mut agentwire_gateway::settings::AgentSettings| {
        agent.hai_close_delay = Duration::from_secs(3600);
    };
    let server = plan(asker()).agent(delay).on_memory().await;
    let mut stream = Stream::of(server.post("/awp", &json!({"threadId": "t", "messages": []}))).await;
    let mut kinds = Vec::new();
    while kinds.last().map(String::as_str) != Some("RUN_FINISHED") {
        kinds.push(stream.next().await.expect("it ends with RUN_FINISHED").kind());
    }
    assert!(tokio::time::timeout(Duration::from_millis(100), stream.next()).await.is_err());
}

#[tokio::test]
async fn refusals_of_the_ai_sdk_route_are_sentences() {
    let puppet = Puppet::new(|input| talk(input, 5));
    let server =
        plan(puppet).set(|settings| settings.cors = vec!["https://app.example".into()]).on_memory().await;
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let chat = json!({"id": "t", "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]});
    let post = || server.post("/api/chat", &chat).header("origin", "https://app.example");
    let refused = post().send().await.expect("a response");
    assert_eq!(refused.status(), 409);
    assert_eq!(refused.headers()["agentwire-error-code"], codes::THREAD_IS_LOCKED);
    let exposed = refused.headers()["access-control-expose-headers"].to_str().expect("ASCII").to_owned();
    assert!(exposed.contains("agentwire-error-code"), "a page can read it: {exposed}");
    let text = refused.text().await.expect("a body");
    assert_eq!(text, "Another run has the thread; try again when it has ended, or stop it.");
    let (_, json) = answer(post().header("accept", "application/json")).await;
    assert_eq!(json["error"]["code"], codes::THREAD_IS_LOCKED);
}
