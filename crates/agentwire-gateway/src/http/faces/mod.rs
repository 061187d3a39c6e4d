//! Doors for front ends that speak a protocol of their own: another set of paths and shapes in front of the same runs,
//! with the same identity, scopes, limits and audit log.

pub(super) mod copilotkit;
pub(super) mod langgraph;
mod request;
