//! `docs/guarantees.md` names tests that exist, for each of the nine promises.

use std::{collections::BTreeSet, fs, path::Path};

/// The names of all test functions below a folder.
fn test_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a test folder can be read") {
        let path = entry.expect("a test folder can be read").path();
        if path.is_dir() {
            test_names(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a test file can be read");
            let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            names.extend(functions.map(str::to_owned));
        }
    }
}

#[test]
fn every_promise_names_existing_tests() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    let page = fs::read_to_string(crates.join("../docs/guarantees.md")).expect("the page can be read");
    let mut existing = BTreeSet::new();
    for name in ["agentwire-gateway", "agentwire-store"] {
        test_names(&crates.join(name).join("tests"), &mut existing);
    }
    for promise in 1..=9 {
        let prefix = format!("p{promise}_");
        let section = page.split("\n## ").find(|section| section.starts_with(&format!("P{promise} ")));
        let section = section.unwrap_or_else(|| panic!("P{promise} has no section"));
        let named: Vec<_> =
            section.split('`').skip(1).step_by(2).filter(|name| name.starts_with('p')).collect();
        assert!(named.iter().any(|name| name.starts_with(&prefix)), "P{promise} names no test of its own");
        let missing: Vec<_> = named.iter().filter(|name| !existing.contains(**name)).collect();
        assert!(missing.is_empty(), "P{promise} names tests that do not exist: {missing:?}");
    }
}
