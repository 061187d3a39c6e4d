//! Checkpoint namespaces, which identify a node and the nodes around it: `outer:ID|inner:ID`.

/// The namespace of the graph that contains the node at `ns`.
pub(super) fn outer(ns: &str) -> &str {
    ns.rsplit_once('|').map_or("", |(outer, _)| outer)
}

/// The name of the node in one segment of a namespace.
pub(super) fn node_of(segment: &str) -> &str {
    segment.rsplit_once(':').map_or(segment, |(node, _)| node)
}
