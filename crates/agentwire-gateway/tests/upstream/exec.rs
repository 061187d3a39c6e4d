//! Commands, well and badly behaved.

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

/// A folder that commands can leave traces in.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    (folder, path)
}

/// Waits until something becomes true; a loaded machine takes its time.
async fn eventually(mut is: impl FnMut() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(240), waiting).await.expect("it never became true");
}

fn alive(pid: &str) -> bool {
    // A process that ended but was not collected yet is dead too.
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_command_gets_the_run_and_answers() {
    let (folder, path) = folder();
    let script = format!("cat > {path}/input; {TEXT}{END}");
    let (told, result) = play(&shell(&script), request()).await;
    result.unwrap();
    assert_eq!(
        kinds(&told),
        ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
    );
    let input = std::fs::read_to_string(folder.path().join("input")).unwrap();
    assert_eq!(input.lines().count(), 1);
    assert!(input.ends_with('\n'));
    let input: serde_json::Value = serde_json::from_str(&input).unwrap();
    assert_eq!(input["messages"][0]["content"], "What is the weather?");
}

#[tokio::test]
async fn a_command_that_succeeds_without_a_last_word_has_succeeded() {
    let (told, result) = play(&shell(TEXT), request()).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"TEXT_MESSAGE_END"));
    let (_, result) = play(&shell("true"), request()).await;
    assert_eq!(result.unwrap_err().code(), codes::UPSTREAM_TRUNCATED);
    // A half line is not a word.
    let (_, result) = play(&shell(&format!("{TEXT} printf '{{\"type\":\"RUN_FIN'")), request()).await;
    assert_eq!(result.unwrap_err().code(), codes::UPSTREAM_TRUNCATED);
}

#[tokio::test]
async fn a_command_that_fails_says_so_and_its_stderr_is_for_the_log() {
    for (script, how) in [
        (format!("{TEXT} echo secret >&2; exit 3"), "exit status: 3"),
        ("echo secret >&2; exit 1".to_owned(), "exit status: 1"),
        ("echo secret >&2; kill -9 $$".to_owned(), "signal: 9"),
    ] {
        let (told, result) = play(&shell(&script), request()).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.code(), codes::UPSTREAM_FAILED, "{script}");
        assert!(failure.to_string().contains(how), "{failure}");
        assert!(!failure.to_string().contains("secret"), "{failure}");
        assert!(failure.detail().unwrap().contains("secret"));
        assert_eq!(told.is_empty(), !script.starts_with("echo '"));
    }
}

#[tokio::test]
async fn a_command_that_is_missing_is_unreachable() {
    let command = vec!["/no/such/command".into()];
    let agent = Exec::new(ExecOptions { command, ..ExecOptions::default() }).unwrap();
    let failure = play(&agent, request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_UNREACHABLE);
    assert!(!failure.to_string().contains("/no/such"), "{failure}");
    assert!(failure.detail().unwrap().contains("/no/such/command"));
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
        let failure = play(&shell(script), request()).await.1.unwrap_err();
        assert_eq!(failure.code(), code, "{script}: {failure:?}");
    }
    let named = ExecOptions {
        format: Some("ag-ui".into()),
        ..options(&format!("{TEXT} echo '{{\"type\":7}}'; sleep 600"))
    };
    let failure = play(&Exec::new(named).unwrap(), request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_MALFORMED);
}

#[tokio::test]
async fn only_what_is_allowed_of_the_environment_is_passed_on() {
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

/// The command, its child and its grandchild: whatever ends the run, they end.
#[tokio::test]
async fn a_run_that_is_stopped_takes_all_children_with_it() {
    let (folder, path) = folder();
    let script = format!(
        "echo $$ > {path}/a; sh -c 'echo $$ > {path}/b; (sleep 600 & echo $! > {path}/c; wait)' & {TEXT} wait"
    );
    let agent = shell(&script);
    let pids =
        || ["a", "b", "c"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default());
    let begun = || pids().iter().all(|pid| !pid.trim().is_empty() && alive(pid));

    // Stopped.
    let (sink, mut told) = EventSink::new(1);
    let task = tokio::spawn(agent.run(request(), sink));
    told.recv().await.unwrap();
    eventually(begun).await;
    task.abort();
    task.await.unwrap_err();
    eventually(|| pids().iter().all(|pid| !alive(pid))).await;

    // Silent.
    let mut asked = request();
    asked.timeouts.idle = Some(Duration::from_millis(500));
    let failure = play(&agent, asked).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_TIMEOUT);
    eventually(|| pids().iter().all(|pid| !alive(pid))).await;
}

/// What has left the command's group and its session, and whose parents are gone.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_daemon_outlives_a_command_that_ends_well_and_no_other() {
    let (folder, path) = folder();
    // The second one is a child of nobody once the shells around it have ended.
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
    let (sink, mut told) = EventSink::new(1);
    let task = tokio::spawn(shell(&format!("{daemons} {TEXT} sleep 600")).run(request(), sink));
    told.recv().await.unwrap();
    assert!(pids().iter().all(|pid| alive(pid)), "{:?}", pids());
    task.abort();
    task.await.unwrap_err();
    eventually(|| pids().iter().all(|pid| !alive(pid))).await;

    // Failed.
    play(&shell(&format!("{daemons} {TEXT} exit 3")), request()).await.1.unwrap_err();
    eventually(|| pids().iter().all(|pid| !alive(pid))).await;

    // Ended well.
    for end in [END, "true"] {
        play(&shell(&format!("{daemons} {TEXT} {end}")), request()).await.1.unwrap();
        assert!(pids().iter().all(|pid| alive(pid)), "{:?}", pids());
        pids().iter().for_each(kill);
        eventually(|| pids().iter().all(|pid| !alive(pid))).await;
    }
}

#[tokio::test]
async fn a_child_that_is_left_behind_does_not_outlive_the_run() {
    let (folder, path) = folder();
    // Without redirection the child would hold stdout, and the run would go on.
    let script = format!("sleep 600 >/dev/null 2>&1 & echo $! > {path}/c; {TEXT}");
    play(&shell(&script), request()).await.1.unwrap();
    let pid = std::fs::read_to_string(folder.path().join("c")).unwrap();
    eventually(|| !alive(&pid)).await;
}

/// A child that was started without a thought for its output holds it open.
#[tokio::test]
async fn a_command_that_has_ended_has_ended_whoever_holds_its_output() {
    let (folder, path) = folder();
    let child = format!("sleep 600 & echo $! > {path}/c;");
    let (told, result) = play(&shell(&format!("{child} {TEXT}")), request()).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"TEXT_MESSAGE_END"));
    let failure = play(&shell(&format!("{child} {TEXT} exit 3")), request()).await.1.unwrap_err();
    assert_eq!(failure.code(), codes::UPSTREAM_FAILED, "{failure:?}");
    let pid = std::fs::read_to_string(folder.path().join("c")).unwrap();
    eventually(|| !alive(&pid)).await;
    // What it goes on to say is heard.
    let late = format!("(sleep 0.2; {END}) & {TEXT} exit 0");
    let (told, result) = play(&shell(&late), request()).await;
    result.unwrap();
    assert_eq!(kinds(&told).last(), Some(&"RUN_FINISHED"));
}

#[tokio::test]
async fn a_command_may_tidy_up_after_its_last_word() {
    let (folder, path) = folder();
    let script = format!("{TEXT}{END}\nsleep 0.2; echo done > {path}/done");
    play(&shell(&script), request()).await.1.unwrap();
    eventually(|| folder.path().join("done").exists()).await;
}

#[tokio::test]
async fn a_command_that_reads_nothing_or_says_much_is_no_trouble() {
    let mut big = request();
    let mut input = (*big.input).clone();
    input.messages.push(agentwire_core::event::Message::user("m2", &*"x".repeat(1 << 20)));
    big.input = input.into();
    let (told, result) = play(&shell(&format!("exec 0<&-; {TEXT}{END}")), big.clone()).await;
    result.unwrap();
    assert_eq!(told.len(), 5);
    // A megabyte on stderr before the first word.
    let noisy = format!("head -c 1000000 /dev/zero | tr '\\0' x >&2; {TEXT}{END}");
    play(&shell(&noisy), big).await.1.unwrap();
}

#[tokio::test]
async fn the_examples_are_agents() {
    let folder = format!("{}/../../examples/exec", env!("CARGO_MANIFEST_DIR"));
    for command in [["sh", "agent.sh"], ["python3", "agent.py"]] {
        let command = command.map(Into::into).to_vec();
        let cwd = Some(folder.clone().into());
        let agent = Exec::new(ExecOptions { command, cwd, ..ExecOptions::default() }).unwrap();
        let (told, result) = play(&agent, request()).await;
        assert_eq!(result, Ok(()));
        assert!(kinds(&told).iter().filter(|kind| **kind == "TEXT_MESSAGE_CONTENT").count() >= 3);
    }
}
