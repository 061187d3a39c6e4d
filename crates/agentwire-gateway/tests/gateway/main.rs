//! The gateway over real HTTP: its promises, each by a test of that name, and what it does with everything else.
//!
//! Agents are scripted in Rust, stores are real ones. Nothing here asserts on time; waits have a bound only so that
//! a failure is a message and not a hang.

mod answers;
mod busy;
mod docs;
mod emitter;
mod feedback;
mod forms;
mod gate;
mod hooks;
mod identity;
mod lifecycle;
mod limits;
mod model;
mod mount;
mod open_calls;
mod output_formats;
mod pause;
mod readers;
mod reattach;
mod support;
mod threads;

mod p1_order;
mod p3_recovery;
mod p5_ending;
mod p8_p9_exactly_once;
