//! Checks the imports between the top-level modules of a crate against a table of layers.

use std::{collections::BTreeSet, fs, path::Path};

/// One module and the modules that it imports.
pub(crate) type Layer = (&'static str, &'static [&'static str]);

/// Fails if `table` is not ordered bottom to top, or differs from the imports of the sources in `src`.
pub(crate) fn check(src: &Path, table: &[Layer]) {
    let mut allowed = BTreeSet::new();
    for (index, (module, imports)) in table.iter().enumerate() {
        for import in *imports {
            let is_below = table[..index].iter().any(|(below, _)| below == import);
            assert!(is_below, "the table lists `{module}` -> `{import}`, but `{import}` is not below it");
            allowed.insert((module.to_string(), import.to_string()));
        }
    }
    let mut found = BTreeSet::new();
    scan(src, src, &mut found);
    let upward: Vec<_> =
        found.iter().filter(|(a, b, _)| !allowed.contains(&(a.clone(), b.clone()))).collect();
    assert!(upward.is_empty(), "imports that are not in the table (from, to, file): {upward:#?}");
    let used: BTreeSet<_> = found.into_iter().map(|(from, to, _)| (from, to)).collect();
    assert_eq!(allowed, used, "the table (left) lists imports that do not exist (right)");
}

/// Collects `(from, to, file)` of every import in `folder`, without test code.
fn scan(src: &Path, folder: &Path, found: &mut BTreeSet<(String, String, String)>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a source folder can be read").path();
        let file = path.strip_prefix(src).expect("the path is in the folder").to_string_lossy().into_owned();
        let from = file.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if file.split(['/', '.']).any(|part| ["lib", "tests", "golden", "arbitrary"].contains(&part)) {
            continue;
        }
        if path.is_dir() {
            scan(src, &path, found);
        } else if file.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("a source file can be read");
            let imports = imports(&text).into_iter().filter(|to| to != from);
            found.extend(imports.map(|to| (from.to_owned(), to, file.clone())));
        }
    }
}

/// The modules behind `crate::name` and `crate::{name, name::..}`, without comments and the tests at the foot.
fn imports(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    code.join("\n").split("crate::").skip(1).flat_map(first_names).collect()
}

/// The first name of `path`, or of each path in the braces that it starts with.
fn first_names(path: &str) -> Vec<String> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in path.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {}
            _ if depth > 0 => continue,
            _ => break,
        }
        if depth < 2 {
            parts.push(&path[start..at]);
            start = at + 1;
        }
    }
    parts.push(&path[start..]);
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name =
        |part: &str| part.trim().split(|letter| !is_name(letter)).next().unwrap_or_default().to_owned();
    parts.into_iter().map(name).filter(|name| !name.is_empty()).collect()
}
