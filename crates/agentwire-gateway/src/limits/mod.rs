//! Limits on what one caller can take: bytes of bodies, rates of requests, numbers of runs and readers.
//!
//! Every table here is bounded: its entries go when nothing is held, or when they are idle.

mod budget;
mod party;
mod quotas;
mod rate;
mod seats;
pub(crate) mod settings;

pub(crate) use self::{
    budget::{ByteBudget, HeldBytes},
    party::Party,
    quotas::{OwnerSeats, Quotas, over_quota},
    seats::{Seat, Seats},
};
