//! Operations: audit log, background maintenance, recovery and drain, one process per store file.

pub mod audit;
pub(crate) mod instance_lock;
pub(crate) mod lifecycle;
mod maintenance;
