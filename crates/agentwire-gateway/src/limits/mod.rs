//! Limits on what one caller can take: bytes of bodies, rates of requests, numbers of runs and readers. And on what the
//! gateway takes on: the memory governor, and the circuit breakers of agents.
//!
//! Every table here is bounded: its entries go when nothing is held, or when they are idle.

mod breaker;
mod budget;
mod memory;
mod party;
mod quotas;
mod rate;
mod seats;
pub(crate) mod settings;

pub(crate) use self::{
    breaker::{Breaker, BreakerCall},
    budget::{ByteBudget, HeldBytes},
    memory::{Memory, Pressure},
    party::Party,
    quotas::{OwnerSeats, Quotas, over_quota},
    seats::Seat,
};
