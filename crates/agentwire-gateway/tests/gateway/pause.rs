//! Pausing and resuming runs: hard where the agent's process can be stopped, soft otherwise.

use std::{path::Path, sync::Arc, time::Duration};

use agentwire_gateway::{
    agent::EventSink,
    upstream::{Exec, ExecOptions},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// Writes its process id to a file, then emits sixty words, each from a child process of its own. After five words it waits for
/// the file `go`, unless its parent process ends.
const WORDS_SCRIPT: &str = r#"
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

fn words_agent(folder: &Path) -> Arc<Exec> {
    let options = ExecOptions {
        command: vec![
            "sh".into(),
            "-c".into(),
            WORDS_SCRIPT.into(),
            "sh".into(),
            folder.display().to_string(),
        ],
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

/// True if a process is stopped, or is a shell that waits for a child which was stopped between `vfork` and `exec`.
#[cfg(target_os = "linux")]
fn is_stopped(pid: &str) -> bool {
    matches!(state(pid), 'T' | 'D')
}

#[cfg(target_os = "linux")]
fn has_ended(pid: &str) -> bool {
    matches!(state(pid), 'X' | 'Z')
}

#[cfg(target_os = "linux")]
fn state(pid: &str) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('X')
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_paused_command_is_stopped_and_continues_without_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    // Far longer than the silence between two words on a slow machine, and shorter than the pause.
    let idle = Duration::from_secs(5);
    let server =
        plan(words_agent(folder.path())).agent(|agent| agent.timeouts.idle = Some(idle)).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(5).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("a running process");
    let pid = pid.trim();
    assert_eq!(
        control(&server, "resume").await,
        (200, json!({"runId": "r", "status": "running", "mode": "hard"})),
        "resuming a run that is not paused has no effect"
    );
    assert_eq!(
        control(&server, "pause").await,
        (200, json!({"runId": "r", "status": "paused", "mode": "hard"}))
    );
    assert_eq!(control(&server, "pause").await.1["mode"], "hard", "pause is idempotent");
    wait_until("the process is stopped", async || is_stopped(pid)).await;
    std::fs::write(folder.path().join("go"), "").expect("a file");
    tokio::time::sleep(idle + idle / 5).await;
    assert!(is_stopped(pid));
    assert_eq!(
        control(&server, "resume").await,
        (200, json!({"runId": "r", "status": "running", "mode": "hard"}))
    );
    assert_eq!(control(&server, "resume").await.0, 200);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    let all: String = (0..60).map(|word| format!("w{word} ")).collect();
    assert_eq!(words(&seen), all, "no word is lost or repeated");
    let statuses: Vec<_> = seen.iter().map(Frame::json).filter(|it| it["name"] == "hai.run_status").collect();
    let statuses: Vec<_> = statuses.iter().map(|it| (&it["value"]["status"], &it["value"]["mode"])).collect();
    assert_eq!(statuses, [(&json!("paused"), &json!("hard")), (&json!("running"), &json!("hard"))]);
    assert_eq!(control(&server, "pause").await.0, 409);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_paused_command_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = plan(words_agent(folder.path())).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(5).await;
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("a running process");
    assert_eq!(control(&server, "pause").await.1["mode"], "hard");
    assert_eq!(control(&server, "stop").await.0, 200);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    assert_eq!(seen.last().expect("a last frame").json()["outcome"]["type"], "cancelled");
    wait_until("the process has ended", async || has_ended(pid.trim())).await;
}

/// The agent is a function in this process: it cannot be stopped, but it blocks when its sink is full.
#[tokio::test]
async fn a_paused_agent_that_cannot_be_stopped_gets_backpressure() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let (sent, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let shared = (sent.clone(), enough.clone());
    let agent = play(move |_, sink: EventSink| {
        let (sent, enough) = shared.clone();
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
    let server = plan(agent).on_memory().await;
    let mut stream = server.run("t", "r", "talk").await;
    let mut seen = stream.take(3).await;
    assert_eq!(control(&server, "pause").await.1["mode"], "soft");
    // It can still send the events that fit into its sink.
    wait_until("the agent is blocked", async || {
        let before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        sent.load(Ordering::SeqCst) == before
    })
    .await;
    assert_eq!(control(&server, "resume").await.0, 200);
    enough.store(true, Ordering::SeqCst);
    seen.extend(stream.rest().await);
    assert_valid(&seen);
    let all = sent.load(Ordering::SeqCst);
    assert_eq!(words(&seen), (0..all).map(|word| format!("w{word} ")).collect::<String>());
}
