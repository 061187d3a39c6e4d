//! The SSE ids of LangGraph Server's frames.
//!
//! The server repeats frames after a stream is rejoined with `Last-Event-ID`: those that were produced while it
//! looked up the first frame to send. The ids tell which frames are repeated.

/// Whether the frame `id` precedes the frame `other`. The server numbers frames (`7`), or uses the time in
/// milliseconds and a counter (`1794794303715-0`). Other ids have no order.
pub(in crate::format::langgraph) fn is_earlier_id(id: &str, other: &str) -> bool {
    let parse = |id: &str| {
        let (time, count) = id.split_once('-').unwrap_or((id, "0"));
        Some((time.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
    };
    matches!((parse(id), parse(other)), (Some(id), Some(other)) if id < other)
}

#[cfg(test)]
mod tests {
    use super::is_earlier_id;

    #[test]
    fn compares_numbers_and_times_with_counters() {
        assert!(is_earlier_id("7", "10"));
        assert!(is_earlier_id("1794794303715-9", "1794794303715-10"));
        assert!(is_earlier_id("1794794303715-1", "1794794303716-0"));
        assert!(!is_earlier_id("10", "7"));
        assert!(!is_earlier_id("7", "7"));
        assert!(!is_earlier_id("7", "7-0"), "no counter is counter 0");
    }

    #[test]
    fn other_ids_have_no_order() {
        for (id, other) in [("", "1"), ("1", ""), ("a", "b"), ("1-a", "2-0"), ("-1", "1"), ("1", "1-2-3")] {
            assert!(!is_earlier_id(id, other), "{id:?} {other:?}");
        }
    }
}
