//! The grammar of a valid stream.
//!
//! [`Rule`] names every law that an event can break. [`Checker`] reads a stream and names each breach.
//! [`Guard`] stands between every reader and everything else: whatever goes in, what comes out is a valid
//! stream. Both ask the same `Track`, so what the guard lets out is what the checker accepts.
//!
//! The laws are those of the official AG-UI client, plus those of its specification that the client does not
//! check yet; [`Rule::enforced_by_client`] tells them apart.

mod checker;
mod guard;
mod registry;
mod rule;
mod track;

#[cfg(test)]
mod tests;

pub use self::{
    checker::{Breach, Checker},
    guard::Guard,
    rule::Rule,
};
