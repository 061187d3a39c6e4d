//! Secrets of the configuration: read from the environment or from a file, and never shown.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time after which a file is read again.
const REREAD: Duration = Duration::from_secs(5);

/// The source of a secret. It has no value that could be printed: `Debug` shows the source only.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Secret {
    /// An environment variable.
    Env(String),
    /// A file; a line break at its end does not count. Read again when it changes.
    File(PathBuf),
    /// The value itself, for programs.
    Value(Vec<u8>),
}

/// A secret that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The environment variable is not set.
    #[error("the environment variable `{0}` is not set")]
    Unset(String),
    /// The file cannot be read.
    #[error("the file `{0}` cannot be read: {1}")]
    Unreadable(PathBuf, String),
    /// There is nothing in it.
    #[error("{0} is empty")]
    Empty(String),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Value(_) => f.write_str("***"),
        }
    }
}

impl Secret {
    /// Reads the value.
    ///
    /// # Errors
    /// If it is absent or empty.
    pub fn read(&self) -> Result<Vec<u8>, SecretError> {
        let (value, name) = match self {
            Self::Env(name) => {
                let value = std::env::var_os(name).ok_or_else(|| SecretError::Unset(name.clone()))?;
                (value.into_encoded_bytes(), format!("the environment variable `{name}`"))
            }
            Self::File(path) => {
                let mut value = std::fs::read(path)
                    .map_err(|error| SecretError::Unreadable(path.clone(), error.to_string()))?;
                while value.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    value.pop();
                }
                (value, format!("the file `{}`", path.display()))
            }
            Self::Value(value) => (value.clone(), "the secret".to_owned()),
        };
        if value.is_empty() { Err(SecretError::Empty(name)) } else { Ok(value) }
    }
}

impl Secret {
    /// True if it can be read again: a pipe is read once, and would block whoever reads it again.
    fn can_change(&self) -> bool {
        matches!(self, Self::File(path) if !std::fs::metadata(path).is_ok_and(|about| !about.is_file()))
    }
}

/// The current value of a secret. A file is read again after a while; if that fails, the last value stays.
pub(crate) struct CurrentSecret {
    source: Secret,
    value: Mutex<Option<(Instant, Arc<[u8]>)>>,
}

impl CurrentSecret {
    pub(crate) fn new(source: Secret) -> Self {
        Self { source, value: Mutex::default() }
    }

    /// The value; `None` if it has never been there.
    pub(crate) fn get(&self) -> Option<Arc<[u8]>> {
        let mut current = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, value)) = &*current
            && (read.elapsed() < REREAD || !self.source.can_change())
        {
            return Some(value.clone());
        }
        match self.source.read() {
            Ok(value) => *current = Some((Instant::now(), value.into())),
            Err(error) => {
                tracing::error!(%error, "a secret could not be read");
                if let Some((read, _)) = &mut *current {
                    *read = Instant::now();
                }
            }
        }
        current.as_ref().map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_appear_in_debug_output() {
        let secret = Secret::Value(b"canary".to_vec());
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(format!("{:?}", Secret::Env("NAME".into())), "env NAME");
    }

    #[test]
    fn files_lose_the_line_break_at_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "a b\r\n\n").unwrap();
        assert_eq!(Secret::File(path.clone()).read().unwrap(), b"a b");
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(Secret::File(path.clone()).read(), Err(SecretError::Empty(_))));
        assert!(Secret::File(path.clone()).can_change());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Secret::File(path.clone()).read(), Err(SecretError::Unreadable(..))));
        assert!(Secret::File(path).can_change(), "it may come back");
        assert!(!Secret::File(folder.path().into()).can_change(), "it is no regular file");
        assert!(!Secret::Env("NAME".into()).can_change());
    }
}
