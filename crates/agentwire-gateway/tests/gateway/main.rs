//! The gateway over real HTTP.
//!
//! Tests whose names begin with `p1_` to `p9_` show the guarantees P1 to P9 of `docs/guarantees.md`; the others cover
//! routes, settings, limits and hooks. Agents are scripted in Rust, stores are real. No test asserts on elapsed time:
//! timeouts only turn a hang into a failure with a message.

mod answers;
mod auth;
mod busy;
mod coming_back;
mod connections;
mod console;
mod copilotkit;
mod costly_patches;
mod docs;
mod emitter;
mod faults;
mod feedback;
mod forms;
mod frame_cursors;
mod gate;
mod hooks;
mod hostile;
mod identity;
mod langgraph;
mod langgraph_protocol;
mod langgraph_records;
mod lifecycle;
mod limits;
mod memory;
mod model;
mod mount;
mod open_calls;
mod output_formats;
mod owners;
mod pause;
mod postgres;
mod readers;
mod reattach;
mod repeated_ids;
mod replicas;
mod support;
mod threads;
mod turns;

mod p1_order;
mod p3_recovery;
mod p5_ending;
mod p8_p9_idempotence;
