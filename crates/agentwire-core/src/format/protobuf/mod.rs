//! Hand-written protobuf: the wire encoding, and JSON as `google.protobuf.Value`.
//!
//! Two formats have a small binary form that mirrors their JSON form, so they share this layer instead of generated
//! code. The meaning of the fields is in the folder of each format.

pub(crate) mod value;
pub(crate) mod wire;
