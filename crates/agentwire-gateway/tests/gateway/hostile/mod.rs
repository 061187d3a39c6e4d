//! Hostile clients over real sockets: none of them can freeze or exhaust the gateway. Bounded, so that CI can run it.

mod bodies;
mod browsers;
mod busy_processors;
mod ceilings;
mod hosts;
mod long_lists;
mod long_work;
mod resets;
mod smuggling;
pub(crate) mod stored;
mod unread;
