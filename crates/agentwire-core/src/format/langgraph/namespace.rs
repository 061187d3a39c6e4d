//! Checkpoint namespaces: `outer:ID|inner:ID`.

/// The place of the graph that the node at `ns` is in.
pub(super) fn outer(ns: &str) -> &str {
    ns.rsplit_once('|').map_or("", |(outer, _)| outer)
}

/// The node that a segment of a namespace names.
pub(super) fn node_of(segment: &str) -> &str {
    segment.rsplit_once(':').map_or(segment, |(node, _)| node)
}
