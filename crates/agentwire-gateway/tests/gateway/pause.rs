//! Runs that are held and let go on: hard where the agent can be stopped, soft elsewhere.

use std::{path::Path, sync::Arc, time::Duration};

use agentwire_gateway::{
    agent::EventSink,
    upstream::{Exec, ExecOptions},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// Says sixty words, each by a child of its own, and writes down its process id first. After a few words it waits for
/// a file, as long as whoever started it lives.
const TALKER: &str = r#"
read line
echo $$ > "$1/pid.new"; mv "$1/pid.new" "$1/pid"
echo '{"type":"RUN_STARTED","threadId":"t","runId":"r"}'
i=0
while [ $i -lt 60 ]; do
  (sleep 0.01; echo "{\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"delta\":\"w$i \"}")
  i=$((i+1))
  while [ $i -eq 5 ] && [ ! -e "$1/go" ] && kill -0 $PPID; do sleep 0.02; done
done
echo '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'
"#;

fn talker(folder: &Path) -> Arc<Exec> {
    let options = ExecOptions {
        command: vec!["sh".into(), "-c".into(), TALKER.into(), "sh".into(), folder.display().to_string()],
        format: Some("ag-ui".into()),
        ..ExecOptions::default()
    };
    Arc::new(Exec::new(options).expect("a command"))
}

fn words(frames: &[Frame]) -> String {
    frames.iter().filter_map(|frame| frame.json()["delta"].as_str().map(str::to_owned)).collect()
}

async fn control(server: &Server, action: &str) -> (u16, Value) {
    let (status, body) = answer(server.ask(Method::POST, &format!("/runs/r/{action}"))).await;
    (status.as_u16(), body)
}

/// Whether the system says that a process can do nothing: stopped, or a shell that waits for a child which was stopped
/// before it became another program (`vfork`).
#[cfg(target_os = "linux")]
fn is_still(pid: &str) -> bool {
    matches!(state(pid), 'T' | 'D')
}

#[cfg(target_os = "linux")]
fn is_gone(pid: &str) -> bool {
    matches!(state(pid), 'X' | 'Z')
}

#[cfg(target_os = "linux")]
fn state(pid: &str) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('X')
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_is_held_does_nothing_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    // Far longer than it is silent by itself, however slow the machine, and shorter than it is held.
    let idle = Duration::from_secs(5);
    let server =
        plan(talker(folder.path())).agent(|agent| agent.timeouts.idle = Some(idle)).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(5).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it runs");
    let pid = pid.trim();
    assert_eq!(
        control(&server, "resume").await,
        (200, json!({"runId": "r", "status": "running", "mode": "hard"})),
        "a run that nobody has held goes on"
    );
    assert_eq!(
        control(&server, "pause").await,
        (200, json!({"runId": "r", "status": "paused", "mode": "hard"}))
    );
    assert_eq!(control(&server, "pause").await.1["mode"], "hard", "twice is as good as once");
    until("it is stopped", async || is_still(pid)).await;
    std::fs::write(folder.path().join("go"), "").expect("a file");
    tokio::time::sleep(idle + idle / 5).await;
    assert!(is_still(pid));
    assert_eq!(
        control(&server, "resume").await,
        (200, json!({"runId": "r", "status": "running", "mode": "hard"}))
    );
    assert_eq!(control(&server, "resume").await.0, 200);
    seen.extend(stream.rest().await);
    valid(&seen);
    let all: String = (0..60).map(|word| format!("w{word} ")).collect();
    assert_eq!(words(&seen), all, "nothing is lost and nothing is doubled");
    let told: Vec<_> = seen.iter().map(Frame::json).filter(|it| it["name"] == "hai.run_status").collect();
    let told: Vec<_> = told.iter().map(|it| (&it["value"]["status"], &it["value"]["mode"])).collect();
    assert_eq!(told, [(&json!("paused"), &json!("hard")), (&json!("running"), &json!("hard"))]);
    assert_eq!(control(&server, "pause").await.0, 409);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_that_is_held_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = plan(talker(folder.path())).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(5).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it runs");
    assert_eq!(control(&server, "pause").await.1["mode"], "hard");
    assert_eq!(control(&server, "stop").await.0, 200);
    seen.extend(stream.rest().await);
    valid(&seen);
    assert_eq!(seen.last().expect("an end").json()["outcome"]["type"], "cancelled");
    until("it is gone", async || is_gone(pid.trim())).await;
}

/// The agent is a function in this process: it cannot be stopped, but it is not asked for more than fits into its sink.
#[tokio::test]
async fn an_agent_that_cannot_be_stopped_is_slowed_down() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let (sent, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let seen_by_agent = (sent.clone(), enough.clone());
    let talks = play(move |_, sink: EventSink| {
        let (sent, enough) = seen_by_agent.clone();
        async move {
            sink.send(start("m")).await?;
            while !enough.load(Ordering::SeqCst) {
                let word = sent.fetch_add(1, Ordering::SeqCst);
                sink.send(delta("m", &format!("w{word} "))).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    });
    let server = plan(talks).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(3).await;
    assert_eq!(control(&server, "pause").await.1["mode"], "soft");
    // What fits into its sink it may still say.
    until("nobody asks it to go on", async || {
        let before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        sent.load(Ordering::SeqCst) == before
    })
    .await;
    assert_eq!(control(&server, "resume").await.0, 200);
    enough.store(true, Ordering::SeqCst);
    seen.extend(stream.rest().await);
    valid(&seen);
    let all = sent.load(Ordering::SeqCst);
    assert_eq!(words(&seen), (0..all).map(|word| format!("w{word} ")).collect::<String>());
}
