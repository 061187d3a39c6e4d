//! Ids of threads and users on an agent's server.
//!
//! Two users may choose the same thread id. A server that separates users takes it as it is; for others the id is
//! derived from owner and thread by a hash.

use agentwire_core::event::ThreadId;
use agentwire_store::Owner;
use uuid::Uuid;

/// The UUID namespace of derived ids: random, and fixed forever.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0f_3c1d_5a47_4f0e_9c65_0d2b_7e18_a3b4);

/// True if the gateway has a single user.
pub(super) fn is_single_user(owner: &Owner) -> bool {
    *owner == Owner::new("default", "default-user")
}

/// The id of a thread as a UUID: its own if it is a UUID and there is a single user, else a derived one.
pub(super) fn thread_uuid(owner: &Owner, thread: &ThreadId) -> Uuid {
    match Uuid::try_parse(thread) {
        Ok(uuid) if is_single_user(owner) => uuid,
        _ => derive(owner, thread),
    }
}

/// The id of a thread on a server for which all users of the gateway are one.
pub(super) fn shared_thread(owner: &Owner, thread: &ThreadId) -> ThreadId {
    if is_single_user(owner) { thread.clone() } else { derive(owner, thread).to_string().into() }
}

/// An id as a path segment, for servers that decode `%2F` in a path to `/`, and without the meaning of `.` and `..`.
/// Different ids stay different.
pub(super) fn segment(name: &str) -> String {
    match name {
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        // Servers that store in files treat these as separators.
        name => name.replace('%', "%25").replace('/', "%2F").replace('\\', "%5C"),
    }
}

/// The id of a user on a server without tenants. Different users stay different.
pub(super) fn user_id(owner: &Owner) -> String {
    let user = segment(owner.user.as_str());
    match owner.tenant.as_str() {
        "default" => user,
        // No segment contains `%%`.
        tenant => format!("{}%%{user}", segment(tenant)),
    }
}

fn derive(owner: &Owner, thread: &ThreadId) -> Uuid {
    // With lengths, so that different triples give different texts.
    let (tenant, user) = (owner.tenant.to_string(), owner.user.to_string());
    let text = format!("{}:{tenant}{}:{user}{thread}", tenant.len(), user.len());
    Uuid::new_v5(&NAMESPACE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_of_different_tenants_differ() {
        assert_eq!(user_id(&Owner::new("default", "ada@example.com")), "ada@example.com");
        assert_eq!(user_id(&Owner::new("acme", "ada")), "acme%%ada");
        let words = ["a", "a/b", "a%2Fb", "a%%b", "%%", "%", "b", "..", "%2E%2E", "a\\b", "default"];
        let mut all: Vec<_> = words
            .iter()
            .flat_map(|tenant| words.iter().map(|name| user_id(&Owner::new(*tenant, *name))))
            .collect();
        assert!(all.iter().all(|name| !name.contains(['/', '\\']) && name != "." && name != ".."), "{all:?}");
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn thread_ids_of_different_users_differ() {
        let uuid = "0199b2a4-6f7e-7cc3-8d10-5b1c7f6a9e02";
        let single = Owner::new("default", "default-user");
        assert_eq!(thread_uuid(&single, &uuid.into()).to_string(), uuid);
        assert_eq!(shared_thread(&single, &"t1".into()).as_str(), "t1");
        let named = thread_uuid(&single, &"t1".into());
        assert_eq!(named, thread_uuid(&single, &"t1".into()), "the same after a restart");
        let mut all = vec![named];
        for (tenant, user) in [("default", "a"), ("a", "default"), ("ab", "c"), ("a", "bc")] {
            let owner = Owner::new(tenant, user);
            all.push(thread_uuid(&owner, &uuid.into()));
            all.push(thread_uuid(&owner, &"t1".into()));
            assert_eq!(
                shared_thread(&owner, &"t1".into()).as_str(),
                thread_uuid(&owner, &"t1".into()).to_string()
            );
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
