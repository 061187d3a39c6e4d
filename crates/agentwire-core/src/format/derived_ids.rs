//! Ids of items whose native form has none, derived from the id of their event or message.

/// The id of the item with a role and a number: `m1:result`, `m1:result:1`.
pub(in crate::format) fn part_id<I: From<String>>(id: &str, role: &str, number: u32) -> I {
    I::from(match number {
        0 => format!("{id}:{role}"),
        number => format!("{id}:{role}:{number}"),
    })
}
