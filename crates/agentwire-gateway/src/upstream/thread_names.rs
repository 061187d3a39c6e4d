//! Ids of threads and users on an agent's server.
//!
//! Two users may choose the same thread id. A server that separates users takes it as it is; for others the id is
//! derived from user and thread by a hash. Two agents of one user may have the same thread id on the same server; the
//! second of them has an upstream scope, which becomes part of the id.

use agentwire_core::event::ThreadId;
use agentwire_store::Owner;
use uuid::Uuid;

/// The UUID namespace of derived ids: random, and fixed forever.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0f_3c1d_5a47_4f0e_9c65_0d2b_7e18_a3b4);

/// True if the gateway has a single user.
pub(super) fn is_single_user(owner: &Owner) -> bool {
    owner.tenant.as_str() == "default" && owner.user.as_str() == "default-user"
}

/// The id of a thread as a UUID: its own if it is a UUID and there is a single user, else a derived one.
pub(super) fn thread_uuid(owner: &Owner, thread: &ThreadId, scope: Option<&str>) -> Uuid {
    match Uuid::try_parse(thread) {
        Ok(uuid) if is_single_user(owner) && scope.is_none() => uuid,
        _ => derive(owner, thread, scope),
    }
}

/// The id of a session as a path segment, on a server that has users.
pub(super) fn session(thread: &ThreadId, scope: Option<&str>) -> ThreadId {
    match scope {
        None => segment(thread).into(),
        // No segment contains `%%`.
        Some(scope) => format!("{}%%{}", segment(thread), segment(scope)).into(),
    }
}

/// The id of a session as a path segment, on a server for which all users of the gateway are one.
pub(super) fn shared_session(owner: &Owner, thread: &ThreadId, scope: Option<&str>) -> ThreadId {
    match is_single_user(owner) {
        true => session(thread, scope),
        false => derive(owner, thread, scope).to_string().into(),
    }
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

fn derive(owner: &Owner, thread: &ThreadId, scope: Option<&str>) -> Uuid {
    // A namespace per scope, so that no scoped text can equal an unscoped one.
    let namespace =
        scope.map_or(NAMESPACE, |scope| Uuid::new_v5(&NAMESPACE, format!("agent {scope}").as_bytes()));
    // With lengths, so that different triples give different texts.
    let (tenant, user) = (owner.tenant.to_string(), owner.user.to_string());
    let text = format!("{}:{tenant}{}:{user}{thread}", tenant.len(), user.len());
    Uuid::new_v5(&namespace, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_of_different_tenants_differ() {
        assert_eq!(user_id(&Owner::new("default", "ada@example.com", "a")), "ada@example.com");
        assert_eq!(user_id(&Owner::new("acme", "ada", "a")), "acme%%ada");
        let words = ["a", "a/b", "a%2Fb", "a%%b", "%%", "%", "b", "..", "%2E%2E", "a\\b", "default"];
        let mut all: Vec<_> = words
            .iter()
            .flat_map(|tenant| words.iter().map(|name| user_id(&Owner::new(*tenant, *name, "a"))))
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
        let single = Owner::new("default", "default-user", "a");
        assert_eq!(thread_uuid(&single, &uuid.into(), None).to_string(), uuid);
        assert_eq!(shared_session(&single, &"t1".into(), None).as_str(), "t1");
        let named = thread_uuid(&single, &"t1".into(), None);
        assert_eq!(named, thread_uuid(&single, &"t1".into(), None), "the same after a restart");
        let mut all = vec![named];
        for (tenant, user) in [("default", "a"), ("a", "default"), ("ab", "c"), ("a", "bc")] {
            let owner = Owner::new(tenant, user, "a");
            all.push(thread_uuid(&owner, &uuid.into(), None));
            all.push(thread_uuid(&owner, &"t1".into(), None));
            assert_eq!(
                shared_session(&owner, &"t1".into(), None).as_str(),
                thread_uuid(&owner, &"t1".into(), None).to_string()
            );
        }
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
    #[test]
    fn thread_ids_of_different_agents_differ() {
        let uuid = "0199b2a4-6f7e-7cc3-8d10-5b1c7f6a9e02";
        let words = ["a", "a%%b", "b", "%", "agent a", uuid];
        let scopes = [None, Some("a"), Some("b"), Some("a%%b"), Some("agent a")];
        for owner in [Owner::new("default", "default-user", "x"), Owner::new("default", "ada", "x")] {
            let (mut uuids, mut sessions, mut shared) = (Vec::new(), Vec::new(), Vec::new());
            for (word, scope) in words.iter().flat_map(|word| scopes.map(|scope| (*word, scope))) {
                uuids.push(thread_uuid(&owner, &word.into(), scope).to_string());
                sessions.push(session(&word.into(), scope).to_string());
                shared.push(shared_session(&owner, &word.into(), scope).to_string());
            }
            for mut ids in [uuids, sessions, shared] {
                ids.sort();
                ids.dedup();
                assert_eq!(ids.len(), words.len() * scopes.len(), "{ids:?}");
            }
        }
    }

    /// Changing these would lose the memory of every thread on these servers.
    #[test]
    fn ids_of_existing_threads_never_change() {
        let ada = Owner::new("acme", "ada", "whichever");
        let ids = [
            thread_uuid(&ada, &"t1".into(), None).to_string(),
            shared_session(&ada, &"t/1".into(), None).to_string(),
            session(&"t/1".into(), None).to_string(),
        ];
        assert_eq!(
            ids,
            ["e6831f0f-8663-5dc1-9ad8-ad6baa89ca42", "abec87f0-61d1-5d85-8f90-e78794d515a2", "t%2F1"]
        );
    }
}
