//! What a thread is called on a server that does not know our users.
//!
//! Two users may give their threads the same name. On a server that keeps them apart nothing is to be done; on
//! one that does not, names are derived from user and thread, by a hash that nobody can steer.

use agentwire_core::event::ThreadId;
use agentwire_store::Owner;
use uuid::Uuid;

/// The name space of derived names: made once, at random.
const SPACE: Uuid = Uuid::from_u128(0x6f0f_3c1d_5a47_4f0e_9c65_0d2b_7e18_a3b4);

/// Whether there is only one user.
pub(super) fn is_single_user(owner: &Owner) -> bool {
    *owner == Owner::new("default", "default-user")
}

/// A thread's name as a UUID: its own if it is one and there is only one user, else a derived one.
pub(super) fn thread_uuid(owner: &Owner, thread: &ThreadId) -> Uuid {
    match Uuid::try_parse(thread) {
        Ok(uuid) if is_single_user(owner) => uuid,
        _ => derived(owner, thread),
    }
}

/// A thread's name on a server for which all our users are one.
pub(super) fn shared_thread(owner: &Owner, thread: &ThreadId) -> ThreadId {
    if is_single_user(owner) { thread.clone() } else { derived(owner, thread).to_string().into() }
}

/// A name as a server can take it that reads `%2F` in a path as `/`, and that nothing on the way takes for a step in
/// a path. Different names stay different.
pub(super) fn segment(name: &str) -> String {
    match name {
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        // Servers that store in files take these for paths.
        name => name.replace('%', "%25").replace('/', "%2F").replace('\\', "%5C"),
    }
}

/// A user's name on a server that knows users and no tenants. Different users stay different.
pub(super) fn user(owner: &Owner) -> String {
    let user = segment(owner.user.as_str());
    match owner.tenant.as_str() {
        "default" => user,
        // No name holds `%%` once it is a segment.
        tenant => format!("{}%%{user}", segment(tenant)),
    }
}

fn derived(owner: &Owner, thread: &ThreadId) -> Uuid {
    // Lengths, so that no two triples give one text.
    let (tenant, user) = (owner.tenant.to_string(), owner.user.to_string());
    let text = format!("{}:{tenant}{}:{user}{thread}", tenant.len(), user.len());
    Uuid::new_v5(&SPACE, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_two_tenants_never_meet() {
        assert_eq!(user(&Owner::new("default", "ada@example.com")), "ada@example.com");
        assert_eq!(user(&Owner::new("acme", "ada")), "acme%%ada");
        let words = ["a", "a/b", "a%2Fb", "a%%b", "%%", "%", "b", "..", "%2E%2E", "a\\b", "default"];
        let mut all: Vec<_> = words
            .iter()
            .flat_map(|tenant| words.iter().map(|name| user(&Owner::new(*tenant, *name))))
            .collect();
        assert!(all.iter().all(|name| !name.contains(['/', '\\']) && name != "." && name != ".."), "{all:?}");
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn threads_of_two_users_never_meet() {
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
