//! The audit file of a gateway under test.

use std::{path::PathBuf, time::Duration};

use agentwire_gateway::{
    ops::audit,
    settings::{AuditSettings, Settings},
};
use serde_json::Value;

use super::{Server, with_timeout};

/// An audit file in a temporary folder.
pub(crate) struct AuditFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl AuditFile {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        Self { path: folder.path().join("audit.jsonl"), _folder: folder }
    }

    /// The setting that turns the audit on.
    pub(crate) fn keep(&self) -> impl FnOnce(&mut Settings) + use<> {
        let path = self.path.clone();
        move |settings| settings.audit = Some(AuditSettings::new(path))
    }

    /// The file of the one gateway; on PostgreSQL it has a name.
    fn chain(&self) -> PathBuf {
        audit::chains(&self.path)
            .ok()
            .and_then(|chains| chains.into_iter().next())
            .unwrap_or_else(|| self.path.clone())
    }

    /// All lines so far, after a check of their hash chain.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        let violations = audit::verify(&self.chain(), None, |line| {
            lines.push(serde_json::from_str(line).expect("JSON"));
            Ok(())
        });
        assert_eq!(violations.unwrap_or_default(), []);
        lines
    }

    /// Waits for a line, because lines are written with a delay.
    pub(crate) async fn line(&self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        with_timeout(what, async {
            loop {
                let text = std::fs::read_to_string(self.chain()).unwrap_or_default();
                let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                if let Some(found) = lines.filter(&matches).last() {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

impl Server {
    /// The open pending items of a thread.
    pub(crate) async fn open(&self, thread: &str) -> Vec<Value> {
        let (_, open) = self.json(&format!("/threads/{thread}/pending")).await;
        open.as_array().cloned().unwrap_or_default()
    }
}
