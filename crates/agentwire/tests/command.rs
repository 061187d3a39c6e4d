//! Runs the Markdown files in `tests/command`: shell commands with their input and expected output.
//!
//! A case is a `console` block, whose line after `$ ` is run by `sh` in an empty folder with `agentwire` in its
//! path. The other blocks up to the next heading are its input (`file NAME`, `stdin`), the response of a server at
//! `$SERVER` (`http STATUS CONTENT-TYPE`), and the expected output (`stdout`, `stderr`; empty if absent). A line
//! `Exit code N.` is the expected exit code (0 if absent).
//!
//! `UPDATE=1 cargo test -p agentwire --test command` rewrites the expected output; review the diff like code.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

/// A piece of a file: text between blocks, or a block with its label.
enum Piece {
    Text(String),
    Block { label: String, body: String },
}

fn pieces(markdown: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = markdown.lines();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("```") else {
            // A heading starts a new piece, because it ends the previous case.
            if line.starts_with('#') && !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            text.push_str(line);
            text.push('\n');
            continue;
        };
        pieces.push(Piece::Text(std::mem::take(&mut text)));
        let body: String =
            lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        pieces.push(Piece::Block { label: label.into(), body });
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// The output of a command.
#[derive(Debug, PartialEq, Eq)]
struct CommandOutput {
    stdout: String,
    stderr: String,
    code: i32,
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("command-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("the temporary folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a server that answers every request alike until the test ends; returns its URL.
///
/// Every one, because a client of another test may still try the port of its own server, which is gone.
fn serve(label: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (status, content_type) = label.split_once(' ').unwrap_or((label, "text/plain"));
    let head = format!("HTTP/1.1 {status} -\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n");
    let response: Arc<str> = format!("{head}{body}").into();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let response = response.clone();
            thread::spawn(move || answer(socket, &response));
        }
    });
    format!("http://{address}/")
}

fn answer(mut socket: TcpStream, response: &str) {
    let mut reader = BufReader::new(socket.try_clone().expect("a socket can be cloned"));
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut request = vec![0; length];
    let _ = reader.read_exact(&mut request);
    let _ = socket.write_all(response.as_bytes());
}

fn run(line: &str, blocks: &[(&str, &str)]) -> CommandOutput {
    let folder = Folder::new();
    let mut stdin = "";
    let mut server = None;
    for (label, body) in blocks {
        match label.split_once(' ') {
            Some(("file", name)) => {
                fs::write(folder.0.join(name), body).expect("a file of a case can be written")
            }
            Some(("http", response)) => server = Some(serve(response, body)),
            None if *label == "stdin" => stdin = body,
            _ => {}
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_agentwire"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("a binary lies in a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut child = Command::new("sh")
        .args(["-c", line])
        .current_dir(&folder.0)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env_remove("RUST_BACKTRACE")
        .env("SERVER", server.as_deref().unwrap_or("http://127.0.0.1:1/"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut pipe = child.stdin.take().expect("stdin is piped");
    let input = stdin.to_owned();
    // A command may exit before it has read all input, so a write error is ignored.
    let feeder = thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("the command ends");
    feeder.join().expect("the feeder does not panic");
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        match &server {
            Some(url) => text.replace(url.as_str(), "$SERVER"),
            None => text,
        }
    };
    CommandOutput {
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        code: output.status.code().unwrap_or(-1),
    }
}

fn exit_code(text: &str) -> Option<i32> {
    let (_, rest) = text.split_once("Exit code ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Checks one file, or rewrites its expected output.
fn check(path: &Path, update: bool, problems: &mut String) -> usize {
    let markdown = fs::read_to_string(path).expect("a file of cases can be read");
    let pieces = pieces(&markdown);
    // A case starts with a heading.
    let mut cases: Vec<Vec<&Piece>> = Vec::new();
    for piece in &pieces {
        let is_heading = matches!(piece, Piece::Text(text) if text.starts_with('#'));
        if is_heading || cases.is_empty() {
            cases.push(Vec::new());
        }
        cases.last_mut().expect("there is a case").push(piece);
    }
    let (mut rewritten, mut count) = (String::new(), 0);
    for case in cases {
        let blocks: Vec<_> = case
            .iter()
            .filter_map(|piece| match piece {
                Piece::Block { label, body } => Some((label.as_str(), body.as_str())),
                Piece::Text(_) => None,
            })
            .collect();
        let find = |name: &str| blocks.iter().find(|(label, _)| *label == name).map(|(_, body)| *body);
        let texts = case.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Block { .. } => None,
        });
        let Some(line) = find("console") else {
            case.iter().for_each(|piece| write_piece(piece, &mut rewritten));
            continue;
        };
        count += 1;
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let expected = CommandOutput {
            stdout: find("stdout").unwrap_or_default().into(),
            stderr: find("stderr").unwrap_or_default().into(),
            code: texts.clone().find_map(exit_code).unwrap_or(0),
        };
        let output = run(line, &blocks);
        // A block always ends with a line break, an output need not.
        let with_line_break = |text: &str| match text {
            "" => String::new(),
            text => format!("{}\n", text.strip_suffix('\n').unwrap_or(text)),
        };
        let output = CommandOutput {
            stdout: with_line_break(&output.stdout),
            stderr: with_line_break(&output.stderr),
            ..output
        };
        if output != expected {
            let name = path.file_name().unwrap_or_default().display();
            writeln!(problems, "{name}: {}\n  expected {expected:?}\n  got      {output:?}", line.trim())
                .expect("writing to memory does not fail");
        }
        // Input blocks stay; output blocks are rewritten.
        for piece in &case {
            match piece {
                Piece::Block { label, .. } if label == "stdout" || label == "stderr" => {}
                Piece::Text(text) if !text.starts_with('#') && text.trim().is_empty() => {}
                Piece::Text(text) if exit_code(text).is_some() && !text.starts_with('#') => {}
                piece => write_piece(piece, &mut rewritten),
            }
        }
        for (label, text) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !text.is_empty() {
                write!(rewritten, "```{label}\n{text}```\n").expect("writing to memory does not fail");
            }
        }
        if output.code != 0 {
            writeln!(rewritten, "\nExit code {}.", output.code).expect("writing to memory does not fail");
        }
        rewritten.push('\n');
    }
    if update {
        let text = format!("{}\n", rewritten.trim_end());
        fs::write(path, text).expect("the file of cases can be written");
    }
    count
}

fn write_piece(piece: &Piece, out: &mut String) {
    match piece {
        Piece::Text(text) => out.push_str(text),
        Piece::Block { label, body } => {
            write!(out, "```{label}\n{body}```\n").expect("writing to memory does not fail");
        }
    }
}

#[test]
fn commands_produce_the_documented_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command");
    let update = std::env::var_os("UPDATE").is_some();
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder of cases exists")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    files.sort();
    let mut problems = String::new();
    let count: usize = files.iter().map(|file| check(file, update, &mut problems)).sum();
    assert!(count > 0, "there are no cases");
    assert!(problems.is_empty() || update, "{problems}(UPDATE=1 rewrites the expected output)");
}
