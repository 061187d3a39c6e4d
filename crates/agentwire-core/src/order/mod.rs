//! The order rules of a valid stream, a checker and a guard.
//!
//! [`Rule`] lists the rules. [`Checker`] reports the violations of a stream. [`Guard`] repairs them: any events in, a
//! valid stream out. Both use the same state machine, so the checker accepts every stream that passed the guard.
//!
//! The rules are those of the official AG-UI client, plus those of its specification that the client does not check
//! yet; [`Rule::enforced_by_client`] distinguishes the two.

mod checker;
mod guard;
mod registry;
mod rule;
mod track;

#[cfg(test)]
mod tests;

pub use self::{
    checker::{Checker, Violation},
    guard::Guard,
    rule::Rule,
};
