//! Runs, tools, questions and the calls of a gateway, in three protocols.

use agentwire_client::{Answer, Feedback, HttpAgent, Pending, Profile, Protocol, Run, Tool};
use agentwire_gateway::agent::Demo;
use futures_util::StreamExt;
use serde_json::json;

use crate::support::{drain, gateway, gateway_with, with_timeout};

const PATHS: [(&str, Protocol); 5] = [
    ("/", Protocol::AgUi),
    ("/awp", Protocol::Hai),
    ("/api/chat", Protocol::AiSdk(Profile::V7)),
    ("/api/chat", Protocol::AiSdk(Profile::V6)),
    ("/api/chat", Protocol::AiSdk(Profile::V5)),
];

fn agent(address: &str, (path, protocol): (&str, Protocol)) -> HttpAgent {
    HttpAgent::builder(format!("http://{address}{path}")).protocol(protocol).build().expect("an agent")
}

fn texts(agent: &HttpAgent) -> String {
    agent.messages().iter().map(|message| format!("{:?}\n", message.body)).collect()
}

#[tokio::test]
async fn a_conversation_keeps_its_messages_in_every_protocol() {
    let address = gateway().await;
    for path in PATHS {
        let agent = agent(&address, path);
        let outcome = agent.run(Run::user("tools think")).finish().await.expect("a finished run");
        assert!(!outcome.new_messages.is_empty() && outcome.pending.is_empty(), "{path:?} {outcome:?}");
        assert!(outcome.usage.iter().any(|usage| usage.output.is_some()), "{path:?} {outcome:?}");
        let first = agent.messages().len();
        agent.run(Run::user("hello")).finish().await.expect("a finished run");
        assert!(agent.messages().len() > first, "{path:?}");
        assert!(texts(&agent).contains("I am the demo agent"), "{path:?}: {}", texts(&agent));
        let stored = agent.history().await.expect("the history");
        let users = |list: &[agentwire_client::Message]| {
            list.iter().filter(|message| message.role().as_str() == "user").count()
        };
        assert_eq!(users(&stored), 2, "{path:?}: nothing was sent twice");
        assert_eq!(users(&agent.messages()), 2, "{path:?}");
    }
}

#[tokio::test]
async fn tools_are_run_and_their_results_sent() {
    let address = gateway().await;
    for path in PATHS {
        let agent = agent(&address, path);
        let tool = Tool::new("choose", "Chooses").parameters(json!({"type": "object"}));
        agent.tool(tool, |arguments| async move {
            assert_eq!(arguments["action"], "Show a demo");
            Ok(json!({"chosen": "the blue one"}))
        });
        let outcome = agent.run(Run::user("confirm")).finish().await.expect("a finished run");
        assert_eq!((outcome.report.rounds, outcome.pending.len()), (2, 0), "{path:?} {outcome:?}");
        assert!(texts(&agent).contains("the blue one"), "{path:?}: {}", texts(&agent));
    }
}

#[tokio::test]
async fn rounds_are_limited_and_failed_tools_told() {
    let address = gateway().await;
    let agent = HttpAgent::builder(format!("http://{address}/")).max_rounds(1).build().expect("an agent");
    agent.tool(Tool::new("choose", "Chooses"), |_| async { Err("no hands".into()) });
    let outcome = agent.run(Run::user("confirm")).finish().await.expect("a finished run");
    assert!(matches!(outcome.pending[..], [Pending::Call(_)]), "{outcome:?}");

    let agent = HttpAgent::builder(format!("http://{address}/")).build().expect("an agent");
    agent.tool(Tool::new("choose", "Chooses"), |_| async { Err("no hands".into()) });
    agent.run(Run::user("confirm")).finish().await.expect("a finished run");
    assert!(texts(&agent).contains("no hands"), "{}", texts(&agent));
}

#[tokio::test]
async fn questions_are_answered_in_every_protocol() {
    let address = gateway().await;
    for path in PATHS {
        for (answer, word) in [(Answer::approve(), "true"), (Answer::deny(), "false")] {
            let agent = agent(&address, path);
            let outcome = agent.run(Run::user("approve")).finish().await.expect("a waiting run");
            assert_eq!(outcome.pending.len(), 1, "{path:?} {outcome:?}");
            assert_eq!(agent.pending().await.expect("a list").as_array().map(Vec::len), Some(1));

            let agent = agent_that_answers(&address, path, answer.clone());
            let outcome = agent.run(Run::user("approve")).finish().await.expect("a finished run");
            assert_eq!((outcome.report.rounds, outcome.pending.len()), (2, 0), "{path:?} {outcome:?}");
            let decided = if word == "true" { "paid" } else { "not" };
            let last = format!("{:?}", agent.messages().last());
            assert!(
                last.to_lowercase().contains(decided) || last.contains(word),
                "{path:?} {answer:?}: {last}"
            );
        }
    }
}

fn agent_that_answers(address: &str, path: (&str, Protocol), answer: Answer) -> HttpAgent {
    let agent = agent(address, path);
    agent.on_question(move |interrupt| {
        let answer = answer.clone();
        async move {
            assert!(interrupt.message.is_some(), "{interrupt:?}");
            answer
        }
    });
    agent
}

#[tokio::test]
async fn a_question_may_stay_open() {
    let address = gateway().await;
    for path in PATHS {
        let agent = agent_that_answers(&address, path, Answer::Leave);
        let outcome = agent.run(Run::user("approve")).finish().await.expect("a waiting run");
        assert_eq!((outcome.report.rounds, outcome.pending.len()), (1, 1), "{path:?} {outcome:?}");
    }
}

#[tokio::test]
async fn runs_are_paused_resumed_and_stopped() {
    let address = gateway_with(Demo::default()).await;
    for path in PATHS {
        let agent = agent(&address, path);
        let mut stream = agent.run(Run::user("slow"));
        let mut seen = 0;
        while seen < 2 {
            let event = with_timeout("an event", stream.next()).await.expect("a stream").expect("no error");
            seen += usize::from(event.kind() == "TEXT_MESSAGE_CONTENT");
        }
        assert_eq!(agent.status().await.expect("a status")["status"], "running", "{path:?}");
        assert_eq!(agent.pause().await.expect("a pause")["status"], "paused", "{path:?}");
        assert_eq!(agent.resume().await.expect("a resume")["status"], "running", "{path:?}");
        agent.stop().await.expect("a stop");
        let (_, error) = drain(&mut stream).await;
        assert!(error.is_none(), "{path:?} {error:?}");
        assert!(stream.finish().await.expect("no failure").is_cancelled, "{path:?}");
    }
}

#[tokio::test]
async fn state_threads_and_feedback() {
    let address = gateway().await;
    let agent = agent(&address, PATHS[0]);
    agent.run(Run::user("state")).finish().await.expect("a finished run");
    let state = agent.server_state().await.expect("the state");
    assert_eq!(state, agent.state());
    agent.patch_state(&json!([{"op": "add", "path": "/mine", "value": 1}])).await.expect("a patch");
    assert_eq!(agent.server_state().await.expect("the state")["mine"], 1);
    let error = agent.patch_state(&json!([{"op": "remove", "path": "/none"}])).await.expect_err("a refusal");
    assert_eq!((error.code(), error.status()), ("HTTP_STATUS", Some(409)));
    let feedback =
        Feedback { rating: Some("up".into()), comment: Some("good".into()), ..Feedback::default() };
    agent.feedback(feedback).await.expect("feedback");
    let threads = agent.threads().await.expect("threads");
    assert_eq!(threads[0]["threadId"], agent.thread().as_str());
    agent.delete().await.expect("a deletion");
    assert_eq!(agent.history().await.expect_err("no thread").status(), Some(404));
}

#[tokio::test]
async fn a_fresh_client_follows_an_active_run() {
    let address = gateway_with(Demo::default()).await;
    for path in PATHS {
        let first = agent(&address, path);
        let mut stream = first.run(Run::user("long 60"));
        let mut seen = 0;
        while seen < 2 {
            let event = with_timeout("an event", stream.next()).await.expect("a stream").expect("no error");
            seen += usize::from(event.kind() == "TEXT_MESSAGE_CONTENT");
        }
        let second = HttpAgent::builder(format!("http://{address}{}", path.0))
            .protocol(path.1)
            .thread(first.thread())
            .build()
            .expect("an agent");
        let followed = second.sync().finish();
        let (followed, (_, error)) =
            with_timeout("both", async { tokio::join!(followed, drain(&mut stream)) }).await;
        followed.expect("a finished run");
        assert!(error.is_none());
        let last =
            |agent: &HttpAgent| format!("{:?}", agent.messages().pop().map(|message| message.body.clone()));
        assert_eq!(last(&second), last(&first), "{path:?}");
    }
    // A thread without a run is synchronized at once.
    let idle = agent(&address, PATHS[0]);
    idle.run(Run::user("hello")).finish().await.expect("a finished run");
    let again =
        HttpAgent::builder(format!("http://{address}/")).thread(idle.thread()).build().expect("an agent");
    with_timeout("a sync", again.sync().finish()).await.expect("a synchronized thread");
    assert_eq!(again.messages(), idle.messages());
}
