//! Starts, reloads and stops `agentwire serve` as a child process.

#![cfg(unix)]

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

/// A child process, killed on drop.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both only fail for a child that has already been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway in an empty folder, and its output until it was ready.
struct Gateway {
    folder: TempDir,
    child: KilledOnDrop,
    stderr: BufReader<ChildStderr>,
    banner: String,
}

impl Gateway {
    fn start(arguments: &[&str], until: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self::start_in(folder, arguments, until)
    }

    fn start_in(folder: TempDir, arguments: &[&str], until: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_agentwire"))
            .arg("serve")
            .args(arguments)
            .current_dir(folder.path())
            .env("NO_COLOR", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the gateway can be started");
        let mut child = KilledOnDrop(child);
        let mut stderr = BufReader::new(child.0.stderr.take().expect("stderr is piped"));
        let mut banner = String::new();
        while !banner.lines().last().is_some_and(|line| line.contains(until)) {
            let read = stderr.read_line(&mut banner).expect("stderr is text");
            assert!(read > 0, "the gateway ended: {banner}");
        }
        Self { folder, child, stderr, banner }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.0.id().to_string()]).status();
        assert!(sent.expect("kill can be started").success());
    }

    /// Its output up to a line that contains `until`.
    fn read_until(&mut self, until: &str) -> String {
        let mut output = String::new();
        while !output.lines().last().is_some_and(|line| line.contains(until)) {
            let read = self.stderr.read_line(&mut output).expect("stderr is text");
            assert!(read > 0, "the gateway ended: {output}");
        }
        output
    }

    /// Its URL.
    fn url(&self) -> String {
        self.line("listening").trim_start_matches("listening").trim().to_owned()
    }

    /// Waits for its end; returns the rest of its output and its exit status.
    fn finish(mut self) -> (String, ExitStatus, TempDir) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("stderr is text");
        (rest, self.child.0.wait().expect("it is our child"), self.folder)
    }

    fn line(&self, start: &str) -> &str {
        let mut lines = self.banner.lines().map(str::trim);
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no `{start}` in {}", self.banner))
    }
}

/// A shell command without a proxy for local addresses.
fn sh(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command
}

fn shell(line: &str) -> String {
    let output = sh(line).output().expect("sh can be started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_printed_curl_command_runs_the_demo_agent() {
    let gateway = Gateway::start(&["--listen", "127.0.0.1:0"], "curl");
    assert!(gateway.line("store").contains("sqlite:agentwire.db (durability os)"), "{}", gateway.banner);
    assert!(gateway.line("agents").contains("demo"), "{}", gateway.banner);
    assert!(gateway.line("POST /awp").contains("HAI"), "{}", gateway.banner);
    let response = shell(gateway.line("curl"));
    assert!(
        response.contains("\"type\":\"RUN_STARTED\"") && response.contains("\"type\":\"RUN_FINISHED\""),
        "{response}"
    );
    gateway.signal("-TERM");
    let (rest, status, folder) = gateway.finish();
    assert!(status.success(), "{status}: {rest}");
    assert!(rest.contains("SIGTERM"), "{rest}");
    assert!(folder.path().join("agentwire.db").exists());
    let stats = Command::new(env!("CARGO_BIN_EXE_agentwire"))
        .args(["store", "stats", "--json"])
        .current_dir(folder.path())
        .output()
        .expect("the command can be started");
    let stats = String::from_utf8_lossy(&stats.stdout).into_owned();
    assert!(stats.contains("\"threads\":1,\"runs\":1,\"liveRuns\":0"), "{stats}");
}

#[test]
fn flags_override_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = r#"
        listen = "192.0.2.1:1"
        store = "sqlite:file.db"
        [agents.first]
        upstream = { kind = "demo" }
        path = "/agent"
        [agents.second]
        upstream = { kind = "demo" }
    "#;
    std::fs::write(folder.path().join("agentwire.toml"), file).unwrap();
    let gateway = Gateway::start_in(folder, &["--listen", "127.0.0.1:0", "--durability", "fsync"], "curl");
    assert!(gateway.line("store").contains("sqlite:file.db (durability fsync)"), "{}", gateway.banner);
    assert!(gateway.line("second: demo").contains("demo"));
    assert!(gateway.line("curl").contains("/agent -H"), "{}", gateway.banner);
    assert!(shell(gateway.line("curl")).contains("RUN_FINISHED"));
    gateway.signal("-INT");
    let (rest, status, _) = gateway.finish();
    assert!(status.success(), "{status}: {rest}");
}

#[test]
fn a_second_signal_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let endless = format!("[agents.endless]\n{}\n", command("on", Some("never")));
    std::fs::write(folder.path().join("agentwire.toml"), endless).unwrap();
    let gateway = Gateway::start_in(folder, &["--listen", "127.0.0.1:0", "--store", "memory:"], "curl");
    let mut slow = KilledOnDrop(sh(gateway.line("curl")).stdout(Stdio::piped()).spawn().unwrap());
    // The run is active once its first line has arrived.
    let mut first = String::new();
    BufReader::new(slow.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    gateway.signal("-TERM");
    let mut gateway = gateway;
    let mut output = String::new();
    while !output.contains("SIGTERM") {
        assert!(gateway.stderr.read_line(&mut output).unwrap() > 0, "it ended at the first signal: {output}");
    }
    gateway.signal("-TERM");
    let (_, status, _) = gateway.finish();
    assert_eq!(status.code(), Some(143));
}

#[test]
fn json_log_contains_only_json() {
    let arguments = ["--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", "json"];
    let gateway = Gateway::start(&arguments, "listening");
    let banner = gateway.banner.clone();
    gateway.signal("-TERM");
    let (rest, status, _) = gateway.finish();
    assert!(status.success());
    for line in format!("{banner}{rest}").lines() {
        let parsed: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(parsed["level"].is_string() && parsed["message"].is_string(), "{line}");
    }
}

#[test]
fn the_example_configuration_is_valid() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agentwire.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_agentwire"))
        .args(["config", "check"])
        .arg(example)
        .output()
        .expect("the command can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A command as an agent: it emits the text `begin`, waits for the file `wait_for` if given, and ends. It stops waiting
/// when the gateway ends.
fn command(begin: &str, wait_for: Option<&str>) -> String {
    let say = |event: &str| format!("echo '{event}'; ");
    let wait = wait_for
        .map(|file| format!("while [ ! -e {file} ] && kill -0 $PPID; do sleep 0.02; done; "))
        .unwrap_or_default();
    let line = [
        say(r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#),
        say(r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#),
        say(&format!(r#"{{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"{begin}"}}"#)),
        wait,
        say(r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"the end"}"#),
        say(r#"{"type":"TEXT_MESSAGE_END","messageId":"m"}"#),
        say(r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#),
    ];
    format!(
        "upstream = {{ kind = \"exec\", command = ['sh', '-c', \"\"\"{}\"\"\"] }}",
        line.concat().replace('"', "\\\"")
    )
}

fn ask(url: &str, agent: &str, run: &str) -> String {
    let body = format!(
        r#"{{"threadId":"{run}","runId":"{run}","messages":[{{"id":"1","role":"user","content":"hi"}}],"tools":[],"context":[],"state":{{}},"forwardedProps":{{}}}}"#
    );
    format!("curl -sN {url}/agents/{agent} -H 'content-type: application/json' -d '{body}'")
}

#[test]
fn a_reload_replaces_agents_but_not_active_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agentwire.toml");
    let old = format!(
        "[agents.same]\n{}\n[agents.gone]\n{}\n",
        command("old", None),
        command("gone but not over", Some("go"))
    );
    std::fs::write(&file, old).unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--store", "memory:"];
    let mut gateway = Gateway::start_in(folder, &arguments, "curl");
    let url = gateway.url();
    assert!(shell(&ask(&url, "same", "r1")).contains("\"old\""));
    let live = sh(&ask(&url, "gone", "live")).stdout(Stdio::piped()).spawn();
    let mut live = KilledOnDrop(live.unwrap());
    let mut reader = BufReader::new(live.0.stdout.take().unwrap());
    let mut story = String::new();
    while !story.contains("gone but not over") {
        assert!(reader.read_line(&mut story).unwrap() > 0, "{story}");
    }

    let new = format!(
        "heartbeat = \"7s\"\nstore = \"sqlite:other.db\"\n[agents.same]\n{}\n[agents.fresh]\n{}\n",
        command("new", None),
        command("fresh", None)
    );
    std::fs::write(&file, &new).unwrap();
    gateway.signal("-HUP");
    let output = gateway.read_until("configuration reloaded");
    let last = output.lines().last().unwrap();
    assert!(last.contains("added=\"fresh\"") && last.contains("changed=\"same\""), "{output}");
    assert!(last.contains("removed=\"gone\""), "{output}");
    // The flag `--store` overrides the file before and after, so only the other key needs a restart.
    assert!(output.contains("keys=\"heartbeat\"") && output.contains("restart"), "{output}");
    assert!(shell(&ask(&url, "same", "r2")).contains("\"new\""));
    assert!(shell(&ask(&url, "fresh", "r3")).contains("\"fresh\""));
    assert!(shell(&ask(&url, "gone", "r4")).contains("UNKNOWN_AGENT"));
    let names = shell(&format!("curl -s {url}/agents"));
    assert!(names.contains("fresh") && !names.contains("gone"), "{names}");
    // The run of the old agent continues to its end, and is no run of the others.
    assert!(shell(&format!("curl -s {url}/runs/live")).contains("UNKNOWN_RUN"));
    std::fs::write(gateway.folder.path().join("go"), "").unwrap();
    reader.read_to_string(&mut story).unwrap();
    assert!(story.contains("the end") && story.contains("RUN_FINISHED"), "{story}");

    // An invalid or missing file changes nothing.
    std::fs::write(&file, format!("{new}\n[agents.wrong]\nupstream = {{ kind = \"langraph\" }}\n")).unwrap();
    gateway.signal("-HUP");
    let output = gateway.read_until("hint:");
    let line = new.lines().count() + 3;
    assert!(output.contains("the old one stays"), "{output}");
    assert!(output.contains(&format!("--> agentwire.toml:{line}:21")), "{output}");
    assert!(output.contains("did you mean `langgraph`"), "{output}");
    assert!(shell(&ask(&url, "fresh", "r5")).contains("RUN_FINISHED"));
    std::fs::remove_file(&file).unwrap();
    gateway.signal("-HUP");
    let output = gateway.read_until("hint:");
    assert!(
        output.contains("the old one stays") && output.contains("cannot read `agentwire.toml`"),
        "{output}"
    );
    assert!(shell(&ask(&url, "fresh", "r6")).contains("RUN_FINISHED"));

    // A corrected file is loaded.
    std::fs::write(&file, "[agents.last]\nupstream = { kind = \"demo\" }\n").unwrap();
    gateway.signal("-HUP");
    gateway.read_until("configuration reloaded");
    assert!(shell(&ask(&url, "last", "r7")).contains("RUN_FINISHED"));
    assert!(shell(&format!("curl -s {url}/capabilities")).contains("\"last\""), "it is the default one");
    gateway.signal("-TERM");
    let (rest, status, _) = gateway.finish();
    assert!(status.success(), "{status}: {rest}");
}

#[test]
fn a_failed_reload_is_logged_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agentwire.toml");
    std::fs::write(&file, "[agents.one]\nupstream = { kind = \"demo\" }\n").unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", "json"];
    let mut gateway = Gateway::start_in(folder, &arguments, "listening");
    std::fs::write(&file, "[agents.one]\nupstream = { kind = \"dmeo\" }\n").unwrap();
    gateway.signal("-HUP");
    let output = gateway.read_until("the old one stays");
    let line: serde_json::Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    let problem = line["problem"].as_str().unwrap();
    assert!(problem.contains("agentwire.toml:2:21") && !problem.contains('\u{1b}'), "{problem:?}");
}

#[test]
fn text_of_an_agent_stays_in_one_line_of_the_log() {
    for format in ["text", "json"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("bad.sh"),
            "printf 'first\\nERROR forged line\\033[2J\\033]0;title\\007\\n' >&2\nexit 3\n",
        )
        .unwrap();
        let file = "[agents.bad]\nupstream = { kind = \"exec\", command = [\"sh\", \"bad.sh\"] }\n";
        std::fs::write(folder.path().join("agentwire.toml"), file).unwrap();
        let arguments = ["--listen", "127.0.0.1:0", "--store", "memory:", "--log-format", format];
        let gateway = Gateway::start_in(folder, &arguments, "listening");
        let port = gateway.banner.split("127.0.0.1:").nth(1).expect("the address");
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        let url = format!("http://127.0.0.1:{port}");
        assert!(shell(&ask(&url, "bad", "r1")).contains("RUN_ERROR"));
        gateway.signal("-TERM");
        let (rest, _, _) = gateway.finish();
        assert!(rest.contains("forged line"), "{format}: {rest}");
        assert!(!rest.contains(['\u{1b}', '\u{7}']), "{format}: {rest:?}");
        for line in rest.lines() {
            let is_record = match format {
                "json" => serde_json::from_str::<serde_json::Value>(line).is_ok(),
                _ => !line.starts_with("ERROR"),
            };
            assert!(is_record, "{format}: {line:?}");
        }
    }
}

/// The log has the cause of a failure, which clients do not get to see.
#[test]
fn a_deleted_database_is_named_in_the_log() {
    let mut gateway = Gateway::start(&["--listen", "127.0.0.1:0"], "listening");
    std::fs::remove_file(gateway.folder.path().join("agentwire.db")).expect("the database can be deleted");
    let url = format!("{}/readyz", gateway.url());
    let request = std::thread::spawn(move || loop_until_refused(&url));
    let line = gateway.read_until("the store failed");
    assert!(line.contains("the database file was deleted or replaced"), "{line}");
    let body = request.join().expect("no panic");
    assert!(body.contains("STORE_UNAVAILABLE") && !body.contains("deleted"), "{body}");
}

/// Asks until the store fails: the file is looked at from time to time.
fn loop_until_refused(url: &str) -> String {
    loop {
        let body = shell(&format!("curl -s {url}"));
        if body.contains("error") {
            return body;
        }
    }
}
