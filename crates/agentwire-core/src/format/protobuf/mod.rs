//! Protobuf by hand: the wire, and JSON as `google.protobuf.Value`.
//!
//! Two formats have a binary form, both small and both defined by what their JSON form says, so they share
//! this layer instead of generated code. What a message's fields mean is each format's own business.

pub(crate) mod value;
pub(crate) mod wire;
