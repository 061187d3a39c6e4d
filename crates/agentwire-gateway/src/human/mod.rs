//! Human in the loop: pending items, the answers to them, and the approval gate.
//!
//! The path of an answer, in reading order:
//!
//! 1. **Read** the request body: `format/{ag_ui,hai,ai_sdk}/input` in core, called by `http/{ag_ui,hai,ai_sdk}.rs`. Nothing
//!    is known about the thread yet.
//! 2. **Load** the pending items that the request can be about, once per request: [`pending`].
//! 3. **Collect** the answers from wherever the protocol carries them: [`given`], which also removes them from the
//!    conversation where they are no part of it.
//! 4. **Validate** them against the pending items: [`validate`], with [`schema`] for the payloads. No side effects; every
//!    rule has its error code.
//! 5. **Start** the run: `Store::start` in `run/admission.rs` records the answers and creates the run in one transaction. This
//!    is the only atomic check: of two requests that answer the same item, one wins.
//! 6. **Run**: the approval gate applies the decisions about its own questions ([`approval`]); the agent receives the
//!    other answers as `resume` entries.
//!
//! ```text
//!  body ──▶ RunInput ──▶ Given { answers: Vec<GivenAnswer> } ──▶ Checked ──┬─▶ for_store ──▶ Store::start
//!            (1)           (3)        ▲                 (4)      ▲         │                      │ (5)
//!                                     └── pending items (2) ─────┘         └─▶ for_run ───────────▼
//!                                                                              CheckedAnswer::Gate  ──▶ approval gate (6)
//!                                                                              CheckedAnswer::Agent ──▶ agent (6)
//! ```
//!
//! A run that had to wait for its thread repeats one rule before it starts, "every question is answered"
//! ([`pending::first_unanswered`]): the run before it may have asked a new one.

pub(crate) mod approval;
pub(crate) mod canonical;
pub(crate) mod feedback;
pub(crate) mod given;
mod json_schema;
pub(crate) mod pending;
pub(crate) mod schema;
mod schema_steps;
pub(crate) mod validate;
pub(crate) mod votes;
