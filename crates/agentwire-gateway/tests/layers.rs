//! The architecture of the gateway as a table: imports between its modules point down.

use std::{fs, path::Path};

/// Bottom to top. A file may import from its own line and from the lines below it. A name with two parts is a file of that
/// folder, because two folders have a low and a high part: the gateway owns the live runs and the audit log, while
/// readers and maintenance use the gateway.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "settings, metrics, clocks",
        &[
            "settings",
            "metrics",
            "health",
            "timestamp",
            "auth::settings",
            "auth::scope",
            "auth::secret",
            "auth::upstream_identity",
            "agent::pattern",
            "tls",
            "trace",
            "limits::settings",
        ],
    ),
    ("typed errors with stable codes", &["error"]),
    ("principals, credentials and scopes", &["auth"]),
    ("limits of users, tenants and peers", &["limits"]),
    ("CPU work off the workers", &["cpu_work"]),
    ("futures that are polled when they are woken", &["wake_set"]),
    ("the Agent trait, its request and sink, the emitter", &["agent"]),
    ("agents behind HTTP, commands and recordings", &["upstream"]),
    (
        "live runs, the encoding of the log and its pages",
        &["stream::live", "stream::log_codec", "stream::cold", "stream::conversations", "stream::starts"],
    ),
    ("hooks and session locks", &["hooks"]),
    ("the audit log, one process per store file", &["ops::audit", "ops::instance_lock"]),
    ("the gateway: agents, store, live runs, its lease", &["gateway", "replica"]),
    ("history, snapshots and artifacts of a thread", &["thread"]),
    ("pending items, answers, approvals", &["human"]),
    ("admission, the run loop, the recorder", &["run"]),
    ("readers of a run", &["stream"]),
    ("recovery, drain, maintenance", &["ops"]),
    ("routes and the server", &["http"]),
];

/// The layer of a module path: the longest entry that it starts with.
fn layer(path: &str) -> Option<usize> {
    let entries =
        LAYERS.iter().enumerate().flat_map(|(index, (_, names))| names.iter().map(move |name| (name, index)));
    let covers =
        |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    entries.filter(|(name, _)| covers(name)).max_by_key(|(name, _)| name.len()).map(|(_, index)| index)
}

/// The paths of a use tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn paths(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else { return out.push(format!("{prefix}{tree}")) };
    let (head, body) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in body.char_indices().chain([(body.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !body[start..at].trim().is_empty() {
                    paths(&format!("{prefix}{head}"), &body[start..at], out);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The `crate::` paths of a source text, without comments and the tests at its foot.
fn imports(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut out = Vec::new();
    for rest in code.join("\n").split("crate::").skip(1) {
        let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        match rest.starts_with('{') {
            true => paths("", &rest[..rest.find(';').unwrap_or(rest.len())], &mut out),
            false => {
                let end = rest.find(|letter| !is_path(letter)).unwrap_or(rest.len());
                let tree = if rest[end..].starts_with('{') {
                    &rest[..rest.find(';').unwrap_or(end)]
                } else {
                    &rest[..end]
                };
                paths("", tree, &mut out);
            }
        }
    }
    out
}

fn scan(src: &Path, folder: &Path, upward: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a source folder can be read").path();
        let file = path.strip_prefix(src).expect("the path is in the folder").to_string_lossy().into_owned();
        if path.is_dir() {
            scan(src, &path, upward);
        } else if let Some(module) =
            file.strip_suffix(".rs").filter(|module| *module != "lib" && !module.ends_with("tests"))
        {
            let module = module.trim_end_matches("/mod").replace('/', "::");
            let from = layer(&module).unwrap_or_else(|| panic!("`{module}` has no layer in the table"));
            for import in imports(&fs::read_to_string(&path).expect("a source file can be read")) {
                if layer(&import).is_some_and(|to| to > from) {
                    upward.push(format!("{module} imports {import}"));
                }
            }
        }
    }
}

#[test]
fn imports_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upward = Vec::new();
    scan(&src, &src, &mut upward);
    assert!(upward.is_empty(), "imports that point up (see LAYERS): {upward:#?}");
}
