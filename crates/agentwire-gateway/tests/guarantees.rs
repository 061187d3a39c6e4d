//! `docs/guarantees.md` names tests that exist, for each of the nine promises and each of the sixty faults.

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

/// The texts of all end-to-end suites.
fn suites(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of suites can be read") {
        let path = entry.expect("a folder of suites can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "node_modules" {
            suites(&path, text);
        } else if name.ends_with(".test.mjs") {
            text.push_str(&fs::read_to_string(&path).expect("a suite can be read"));
        }
    }
}

#[test]
fn every_fault_names_existing_tests() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/");
    let page = fs::read_to_string(crates.join("../docs/guarantees.md")).expect("the page can be read");
    let mut existing = BTreeSet::new();
    for name in ["agentwire-core", "agentwire-store", "agentwire-gateway", "agentwire-client", "agentwire"] {
        for folder in ["src", "tests"] {
            let folder = crates.join(name).join(folder);
            if folder.exists() {
                test_names(&folder, &mut existing);
            }
        }
    }
    let mut scripts = String::new();
    suites(&crates.join("../e2e"), &mut scripts);
    for fault in 1..=60 {
        let row = page.lines().find(|line| line.starts_with(&format!("| F{fault} ")));
        let row = row.unwrap_or_else(|| panic!("F{fault} has no row"));
        let tests = row.split('|').nth(2).unwrap_or_default();
        let functions: Vec<_> =
            tests.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2).collect();
        let cases: Vec<_> = tests.split('"').skip(1).step_by(2).collect();
        assert!(!functions.is_empty() || !cases.is_empty(), "F{fault} names no test");
        for function in functions {
            assert!(existing.contains(function), "F{fault}: there is no test `{function}`");
        }
        for case in cases {
            assert!(scripts.contains(case), "F{fault}: there is no test \"{case}\"");
        }
    }
}

#[test]
fn dependencies_have_checksums_and_no_other_source() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = fs::read_to_string(lock).expect("the lock file can be read");
    for package in lock.split("[[package]]").skip(1) {
        let Some(source) = package.lines().find(|line| line.starts_with("source = ")) else { continue };
        assert!(source.contains("registry+https://github.com/rust-lang/crates.io-index"), "{package}");
        assert!(package.lines().any(|line| line.starts_with("checksum = ")), "{package}");
    }
}
