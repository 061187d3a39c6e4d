//! Upstream `exec`: input, output, exit codes, environment and the end of child processes.

use std::time::Duration;

use agentwire_gateway::{
    agent::{Agent, EventSink},
    codes,
    upstream::{Exec, ExecOptions},
};

use super::{kinds, play, request};

/// A shell script as an agent.
fn shell(script: &str) -> Exec {
    Exec::new(options(script)).unwrap()
}

fn options(script: &str) -> ExecOptions {
    let command = ["sh", "-c", script].map(Into::into).to_vec();
    ExecOptions { command, ..ExecOptions::default() }
}

const TEXT: &str = r#"echo '{"type":"RUN_STARTED","threadId":"t","runId":"r"}'
echo '{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}'
echo '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hi"}'
echo '{"type":"TEXT_MESSAGE_END","messageId":"m"}'
"#;
const END: &str = r#"echo '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'"#;

/// A folder in which commands write files for the test to read.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

/// Waits for a condition, with a bound that suits a loaded machine.
async fn eventually(mut is_met: impl FnMut() -> bool) {
    let waiting = async {
        while !is_met() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(240), waiting).await.expect("the condition was not met in time");
}

fn is_alive(pid: &str) -> bool {
    // A zombie counts as dead.
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_command_reads_the_run_input_and_emits_events() {
    let (folder, path) = folder();
    let script = format!("cat > {path}/input; {TEXT}{END}");
    let (received, result) = play(&shell(&script), request()).await;
    result.unwrap();
    assert_eq!(
        kinds(&received),
        ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    );
    let input = std::fs::read_to_string(folder.path().join("input")).unwrap();
    assert_eq!(input.lines().count(), 1);
    assert!(input.ends_with('\n'));
    let input: serde_json::Value = serde_json::from_str(&input).unwrap();
    assert_eq!(input["messages"][0]["content"], "What is the weather?");
}

#[tokio::test]
async fn exit_code_zero_without_a_terminal_event_is_success() {
    let (received, result) = play(&shell(TEXT), request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"TEXT_MESSAGE_END"));
    let (_, result) = play(&shell("true"), request()).await;
    assert_eq!(result.unwrap_err().code(), codes::UPSTREAM_TRUNCATED);
    // Not after an incomplete line.
    let (_, result) = play(&shell(&format!("{TEXT} printf '{{\"type\":\"RUN_FIN'")), request()).await;
    assert_eq!(result.unwrap_err().code(), codes::UPSTREAM_TRUNCATED);
}

#[tokio::test]
async fn a_failing_command_reports_its_status_and_logs_stderr() {
    for (script, how) in [
        (format!("{TEXT} echo secret >&2; exit 3"), "exit status: 3"),
        ("echo secret >&2; exit 1".to_owned(), "exit status: 1"),
        ("echo secret >&2; kill -9 $$".to_owned(), "signal: 9"),
    ] {
        let (received, result) = play(&shell(&script), request()).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), codes::UPSTREAM_FAILED, "{script}");
        assert!(error.to_string().contains(how), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.detail().unwrap().contains("secret"));
        assert_eq!(received.is_empty(), !script.starts_with("echo '"));
    }
}

#[tokio::test]
async fn a_missing_command_is_unreachable() {
    let command = vec!["/no/such/command".into()];
    let agent = Exec::new(ExecOptions { command, ..ExecOptions::default() }).unwrap();
    let error = play(&agent, request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_UNREACHABLE);
    assert!(!error.to_string().contains("/no/such"), "{error}");
    assert!(error.detail().unwrap().contains("/no/such/command"));
    assert_eq!(Exec::new(ExecOptions::default()).unwrap_err().to_string(), "the command is empty");
    let env = vec!["=x".into()];
    assert!(Exec::new(ExecOptions { env, ..options("true") }).is_err());
}

#[tokio::test]
async fn garbage_is_not_an_event_stream() {
    for (script, code) in [
        ("echo 'Traceback (most recent call last):'; echo '  File x'", codes::UPSTREAM_BAD_CONTENT),
        ("echo '<html>'", codes::UPSTREAM_BAD_CONTENT),
        ("head -c 100000 /dev/urandom", codes::UPSTREAM_BAD_CONTENT),
    ] {
        let error = play(&shell(script), request()).await.1.unwrap_err();
        assert_eq!(error.code(), code, "{script}: {error:?}");
    }
    let named = ExecOptions {
        format: Some("ag-ui".into()),
        ..options(&format!("{TEXT} echo '{{\"type\":7}}'; sleep 600"))
    };
    let error = play(&Exec::new(named).unwrap(), request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_MALFORMED);
}

#[tokio::test]
async fn only_allowed_environment_variables_are_passed_on() {
    let (folder, path) = folder();
    // Cargo sets this one for tests.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let script = format!("env > {path}/env; pwd > {path}/pwd; {TEXT}{END}");
    let mut plain = options(&script);
    plain.env = vec!["CARGO_PKG_VERSION".into(), "MODE=fast=yes".into(), "NOT_SET_ANYWHERE".into()];
    plain.cwd = Some(folder.path().into());
    play(&Exec::new(plain).unwrap(), request()).await.1.unwrap();
    let env = std::fs::read_to_string(folder.path().join("env")).unwrap();
    let names: Vec<_> = env.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.contains(&"CARGO_PKG_VERSION") && names.contains(&"PATH"), "{names:?}");
    assert!(!names.contains(&"CARGO_PKG_NAME") && !names.contains(&"NOT_SET_ANYWHERE"), "{names:?}");
    assert!(env.lines().any(|line| line == "MODE=fast=yes"));
    let pwd = std::fs::read_to_string(folder.path().join("pwd")).unwrap();
    assert_eq!(std::fs::canonicalize(pwd.trim()).unwrap(), std::fs::canonicalize(folder.path()).unwrap());
}

/// The command, its child and its grandchild end with the run, by a stop as well as by a timeout.
#[tokio::test]
async fn a_stopped_run_kills_all_descendants() {
    let (folder, path) = folder();
    let script = format!(
        "echo $$ > {path}/a; sh -c 'echo $$ > {path}/b; (sleep 600 & echo $! > {path}/c; wait)' & {TEXT} wait"
    );
    let agent = shell(&script);
    let pids =
        || ["a", "b", "c"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default());
    let started = || pids().iter().all(|pid| !pid.trim().is_empty() && is_alive(pid));

    // Stopped.
    let (sink, mut received) = EventSink::new(1);
    let task = tokio::spawn(agent.run(request(), sink));
    received.recv().await.unwrap();
    eventually(started).await;
    task.abort();
    task.await.unwrap_err();
    eventually(|| pids().iter().all(|pid| !is_alive(pid))).await;

    // Timed out.
    let mut run_request = request();
    run_request.timeouts.idle = Some(Duration::from_millis(500));
    let error = play(&agent, run_request).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_TIMEOUT);
    eventually(|| pids().iter().all(|pid| !is_alive(pid))).await;
}

/// Processes that left the command's process group and session, and whose parents have exited.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_daemon_outlives_only_a_successful_command() {
    let (folder, path) = folder();
    // The second one is an orphan once the shells around it have exited.
    let daemons = format!(
        "rm -f {path}/a {path}/b
        setsid sh -c 'echo $$ > {path}/a; exec sleep 600' > /dev/null 2>&1 &
        (setsid sh -c '(sleep 600 & echo $! > {path}/b)' > /dev/null 2>&1 &)
        until test -s {path}/a && test -s {path}/b; do sleep 0.01; done;"
    );
    let pids =
        || ["a", "b"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default());
    let kill = |pid: &String| {
        std::process::Command::new("kill").arg("-9").arg(pid.trim()).status().unwrap();
    };

    // Stopped.
    let (sink, mut received) = EventSink::new(1);
    let task = tokio::spawn(shell(&format!("{daemons} {TEXT} sleep 600")).run(request(), sink));
    received.recv().await.unwrap();
    assert!(pids().iter().all(|pid| is_alive(pid)), "{:?}", pids());
    task.abort();
    task.await.unwrap_err();
    eventually(|| pids().iter().all(|pid| !is_alive(pid))).await;

    // Failed.
    play(&shell(&format!("{daemons} {TEXT} exit 3")), request()).await.1.unwrap_err();
    eventually(|| pids().iter().all(|pid| !is_alive(pid))).await;

    // Succeeded.
    for end in [END, "true"] {
        play(&shell(&format!("{daemons} {TEXT} {end}")), request()).await.1.unwrap();
        assert!(pids().iter().all(|pid| is_alive(pid)), "{:?}", pids());
        pids().iter().for_each(kill);
        eventually(|| pids().iter().all(|pid| !is_alive(pid))).await;
    }
}

#[tokio::test]
async fn a_background_child_does_not_outlive_the_run() {
    let (folder, path) = folder();
    // Without redirection the child would hold stdout, and the run would continue.
    let script = format!("sleep 600 >/dev/null 2>&1 & echo $! > {path}/c; {TEXT}");
    play(&shell(&script), request()).await.1.unwrap();
    let pid = std::fs::read_to_string(folder.path().join("c")).unwrap();
    eventually(|| !is_alive(&pid)).await;
}

/// A background child without redirection holds stdout open.
#[tokio::test]
async fn the_exit_of_a_command_counts_even_if_a_child_holds_stdout() {
    let (folder, path) = folder();
    let child = format!("sleep 600 & echo $! > {path}/c;");
    let (received, result) = play(&shell(&format!("{child} {TEXT}")), request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"TEXT_MESSAGE_END"));
    let error = play(&shell(&format!("{child} {TEXT} exit 3")), request()).await.1.unwrap_err();
    assert_eq!(error.code(), codes::UPSTREAM_FAILED, "{error:?}");
    let pid = std::fs::read_to_string(folder.path().join("c")).unwrap();
    eventually(|| !is_alive(&pid)).await;
    // Events that the child emits shortly afterwards are read.
    let late = format!("(sleep 0.2; {END}) & {TEXT} exit 0");
    let (received, result) = play(&shell(&late), request()).await;
    result.unwrap();
    assert_eq!(kinds(&received).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn a_command_may_clean_up_after_the_terminal_event() {
    let (folder, path) = folder();
    let script = format!("{TEXT}{END}\nsleep 0.2; echo done > {path}/done");
    play(&shell(&script), request()).await.1.unwrap();
    eventually(|| folder.path().join("done").exists()).await;
}

#[tokio::test]
async fn unread_stdin_and_large_stderr_do_not_block_a_command() {
    let mut big = request();
    let mut input = (*big.input).clone();
    input.messages.push(agentwire_core::event::Message::user("m2", &*"x".repeat(1 << 20)));
    big.input = input.into();
    let (received, result) = play(&shell(&format!("exec 0<&-; {TEXT}{END}")), big.clone()).await;
    result.unwrap();
    assert_eq!(received.len(), 5);
    // A megabyte on stderr before the first event.
    let noisy = format!("head -c 1000000 /dev/zero | tr '\\0' x >&2; {TEXT}{END}");
    play(&shell(&noisy), big).await.1.unwrap();
}

#[tokio::test]
async fn the_example_agents_run() {
    let folder = format!("{}/../../examples/exec", env!("CARGO_MANIFEST_DIR"));
    for command in [["sh", "agent.sh"], ["python3", "agent.py"]] {
        let command = command.map(Into::into).to_vec();
        let cwd = Some(folder.clone().into());
        let agent = Exec::new(ExecOptions { command, cwd, ..ExecOptions::default() }).unwrap();
        let (received, result) = play(&agent, request()).await;
        assert_eq!(result, Ok(()));
        assert!(kinds(&received).iter().filter(|kind| **kind == "TEXT_MESSAGE_CONTENT").count() >= 3);
    }
}
