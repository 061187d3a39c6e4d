//! The client over real sockets: against a gateway with the demo agent, through a proxy that cuts connections, and
//! against servers that misbehave.

mod conversation;
mod cuts;
mod faults;
mod support;
