//! The gateway: one place in front of many agents, where runs belong to the gateway and not to a connection.

pub mod agent;
