//! Ids of threads, runs and users on an agent's server.
//!
//! Two users may choose the same thread id. A server that separates users takes it as it is; for others the id is
//! derived from user and thread by a hash, unless the thread has raw ids ([`ThreadIds`]). Two agents of one user may have
//! the same thread id on the same server; the second of them has an upstream scope, which becomes part of the id.
//!
//! A thread of an earlier version keeps the id that it got then. In those versions, all users but one of the name
//! `default-user` had derived ids on LangGraph and ADK servers, and everybody had raw ids elsewhere.

use std::borrow::Cow;

use agentwire_core::event::{Body, Event, RunId, RunInput, ThreadId};
use agentwire_store::{Owner, ThreadIds};
use uuid::Uuid;

use crate::agent::Request;

/// The UUID namespace of derived ids: random, and fixed forever.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0f_3c1d_5a47_4f0e_9c65_0d2b_7e18_a3b4);

/// The UUID namespace of derived ids of runs.
const RUNS: Uuid = Uuid::from_u128(0x0d7b_5a64_91c2_4c3f_b3a8_4e6f_25d9_1c07);

/// The ids that an agent's server accepts for threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerThreads {
    /// Any text.
    Text,
    /// UUIDs.
    Uuids,
    /// A path segment, below a user of the server.
    OfUsers,
    /// A path segment; all users of the gateway are one user there.
    Shared,
}

impl ServerThreads {
    /// The id of the request's thread on the server.
    pub(super) fn thread(self, request: &Request) -> ThreadId {
        let (thread, scope) = (&request.input.thread, request.upstream_scope.as_deref());
        match self {
            Self::Text => sent_ids(request).map_or_else(|| thread.clone(), |ids| ids.thread),
            Self::Uuids => thread_uuid(request).to_string().into(),
            Self::OfUsers => session(thread, scope),
            Self::Shared => match derived_form(request) {
                ThreadIds::Raw => session(thread, scope),
                ThreadIds::Scoped => derive(&request.owner, thread, scope).to_string().into(),
            },
        }
    }
}

/// The form of ids on servers for which earlier versions derived them.
fn derived_form(request: &Request) -> ThreadIds {
    request.thread_ids.unwrap_or_else(|| {
        let Owner { tenant, user, .. } = &request.owner;
        let was_single = tenant.as_str() == "default" && user.as_str() == "default-user";
        // Such an id may be that of another user's thread.
        let may_be_derived = request.has_users
            && Uuid::try_parse(&request.input.thread).is_ok_and(|id| id.get_version_num() == 5);
        if was_single && !may_be_derived { ThreadIds::Raw } else { ThreadIds::Scoped }
    })
}

/// The id of a thread as a UUID: its own if it is a UUID and raw, else a derived one.
pub(super) fn thread_uuid(request: &Request) -> Uuid {
    let (thread, scope) = (&request.input.thread, request.upstream_scope.as_deref());
    match Uuid::try_parse(thread) {
        Ok(uuid) if scope.is_none() && derived_form(request) == ThreadIds::Raw => uuid,
        _ => derive(&request.owner, thread, scope),
    }
}

/// The derived ids of a thread and a run.
#[derive(Clone, Debug)]
pub(super) struct SentIds {
    thread: ThreadId,
    run: RunId,
}

/// The ids that replace those of the request, if they are scoped.
pub(super) fn sent_ids(request: &Request) -> Option<SentIds> {
    let RunInput { thread, run, .. } = &*request.input;
    (request.thread_ids == Some(ThreadIds::Scoped)).then(|| SentIds {
        thread: derive(&request.owner, thread, request.upstream_scope.as_deref()).to_string().into(),
        run: derive_run(&request.owner, run),
    })
}

/// The id of the request's run on the server.
pub(super) fn sent_run(request: &Request) -> RunId {
    sent_ids(request).map_or_else(|| request.input.run.clone(), |ids| ids.run)
}

/// The run input with the ids that the agent gets.
pub(super) fn sent_input(request: &Request) -> Cow<'_, RunInput> {
    let Some(SentIds { thread, run }) = sent_ids(request) else { return Cow::Borrowed(&request.input) };
    let mut input = (*request.input).clone();
    let parent_run = input.parent_run.take().map(|parent| derive_run(&request.owner, &parent));
    (input.thread, input.run, input.parent_run) = (thread, run, parent_run);
    Cow::Owned(input)
}

impl SentIds {
    /// Gives events of the agent the ids of the request again.
    pub(super) fn restore(&self, events: &mut [Event], input: &RunInput) {
        for event in events {
            let (thread, run) = match &mut event.body {
                Body::RunStarted(started) => {
                    if started.thread == self.thread {
                        started.parent_run.clone_from(&input.parent_run);
                        started.input = None;
                    }
                    (&mut started.thread, &mut started.run)
                }
                Body::RunFinished(finished) => (&mut finished.thread, &mut finished.run),
                _ => continue,
            };
            if *thread == self.thread {
                thread.clone_from(&input.thread);
            }
            if *run == self.run {
                run.clone_from(&input.run);
            }
        }
    }
}

/// The id of a session as a path segment, on a server that has users.
fn session(thread: &ThreadId, scope: Option<&str>) -> ThreadId {
    match scope {
        None => segment(thread).into(),
        // No segment contains `%%`.
        Some(scope) => format!("{}%%{}", segment(thread), segment(scope)).into(),
    }
}

/// An id as a path segment, for servers that decode `%2F` in a path to `/`, and without the meaning of `.` and `..`.
/// Different ids stay different.
fn segment(name: &str) -> String {
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
    named(namespace, owner, thread)
}

/// Run ids are unique among the runs of a user's threads of one agent or group.
fn derive_run(owner: &Owner, run: &RunId) -> RunId {
    let namespace = Uuid::new_v5(&RUNS, owner.agent.as_str().as_bytes());
    named(namespace, owner, run).to_string().into()
}

fn named(namespace: Uuid, owner: &Owner, id: &str) -> Uuid {
    // With lengths, so that different triples give different texts.
    let (tenant, user) = (owner.tenant.as_str(), owner.user.as_str());
    let text = format!("{}:{tenant}{}:{user}{id}", tenant.len(), user.len());
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

    fn request(owner: &Owner, thread: &str, ids: Option<ThreadIds>, scope: Option<&str>) -> Request {
        let mut request = Request::new(RunInput::new(thread, "r1"));
        (request.owner, request.thread_ids) = (owner.clone(), ids);
        (request.upstream_scope, request.has_users) = (scope.map(Into::into), true);
        request
    }

    const UUID: &str = "0199b2a4-6f7e-7cc3-8d10-5b1c7f6a9e02";
    const SCOPED: Option<ThreadIds> = Some(ThreadIds::Scoped);
    const RAW: Option<ThreadIds> = Some(ThreadIds::Raw);
    const ALL: [ServerThreads; 4] =
        [ServerThreads::Text, ServerThreads::Uuids, ServerThreads::OfUsers, ServerThreads::Shared];

    #[test]
    fn raw_ids_are_those_of_the_client() {
        let owner = Owner::new("default", "default-user", "a");
        for server in ALL {
            assert_eq!(server.thread(&request(&owner, UUID, RAW, None)).as_str(), UUID, "{server:?}");
        }
        assert_eq!(ServerThreads::Shared.thread(&request(&owner, "t1", RAW, None)).as_str(), "t1");
        let named = ServerThreads::Uuids.thread(&request(&owner, "t1", RAW, None));
        assert_eq!(
            named,
            ServerThreads::Uuids.thread(&request(&owner, "t1", RAW, None)),
            "the same after a restart"
        );
        let plain = request(&owner, "t1", RAW, None);
        assert!(matches!(sent_input(&plain), Cow::Borrowed(_)));
    }

    /// Whatever the users are called.
    #[test]
    fn scoped_ids_of_different_users_differ() {
        let owners = [
            ("default", "default-user"),
            ("default", "a"),
            ("a", "default"),
            ("ab", "c"),
            ("a", "bc"),
            ("", "abc"),
        ];
        for server in [ServerThreads::Text, ServerThreads::Uuids, ServerThreads::Shared] {
            let (mut threads, mut runs) = (Vec::new(), Vec::new());
            for (tenant, user) in owners {
                let owner = Owner::new(tenant, user, "a");
                let uuid = server.thread(&request(&owner, UUID, SCOPED, None));
                // Another user's computed id leads nowhere.
                threads.push(server.thread(&request(&owner, &uuid, SCOPED, None)).to_string());
                threads.push(uuid.to_string());
                threads.push(server.thread(&request(&owner, "t1", SCOPED, None)).to_string());
                runs.push(sent_run(&request(&owner, "t1", SCOPED, None)).to_string());
            }
            for mut ids in [threads, runs] {
                let count = ids.len();
                ids.sort();
                ids.dedup();
                assert_eq!(ids.len(), count, "{server:?}");
            }
        }
    }

    #[test]
    fn thread_ids_of_different_agents_differ() {
        let words = ["a", "a%%b", "b", "%", "agent a", UUID];
        let scopes = [None, Some("a"), Some("b"), Some("a%%b"), Some("agent a")];
        for owner in [Owner::new("default", "default-user", "x"), Owner::new("default", "ada", "x")] {
            for (server, form) in [
                (ServerThreads::Uuids, RAW),
                (ServerThreads::Uuids, SCOPED),
                (ServerThreads::Text, SCOPED),
                (ServerThreads::OfUsers, SCOPED),
                (ServerThreads::Shared, RAW),
                (ServerThreads::Shared, SCOPED),
            ] {
                let all = words.iter().flat_map(|word| scopes.map(|scope| (*word, scope)));
                let mut ids: Vec<_> =
                    all.map(|(word, scope)| server.thread(&request(&owner, word, form, scope))).collect();
                ids.sort_by_key(ToString::to_string);
                ids.dedup();
                assert_eq!(ids.len(), words.len() * scopes.len(), "{server:?} {form:?}");
            }
        }
    }

    /// Changing these would lose the memory of every thread on these servers.
    #[test]
    fn ids_of_existing_threads_never_change() {
        let ada = Owner::new("acme", "ada", "whichever");
        for form in [None, SCOPED] {
            let ids = [
                ServerThreads::Uuids.thread(&request(&ada, "t1", form, None)).to_string(),
                ServerThreads::Shared.thread(&request(&ada, "t/1", form, None)).to_string(),
                ServerThreads::OfUsers.thread(&request(&ada, "t/1", form, None)).to_string(),
            ];
            assert_eq!(
                ids,
                ["e6831f0f-8663-5dc1-9ad8-ad6baa89ca42", "abec87f0-61d1-5d85-8f90-e78794d515a2", "t%2F1"]
            );
        }
        assert_eq!(ServerThreads::Text.thread(&request(&ada, "t1", None, None)).as_str(), "t1");
        let scoped = request(&ada, "t1", SCOPED, None);
        assert_eq!(ServerThreads::Text.thread(&scoped).as_str(), "e6831f0f-8663-5dc1-9ad8-ad6baa89ca42");
        let nameless = Owner::new("default", "default-user", "whichever");
        for server in ALL {
            assert_eq!(server.thread(&request(&nameless, UUID, None, None)).as_str(), UUID, "{server:?}");
        }
    }

    /// In earlier versions somebody without a name could begin a thread under the computed id of another user's.
    #[test]
    fn a_nameless_thread_of_an_earlier_version_is_not_that_of_another_user() {
        let (ada, nameless) = (Owner::new("default", "ada", "a"), Owner::new("default", "default-user", "a"));
        for server in [ServerThreads::Uuids, ServerThreads::Shared] {
            let of_ada = server.thread(&request(&ada, UUID, None, None));
            let mut reached = request(&nameless, &of_ada, None, None);
            assert_ne!(server.thread(&reached), of_ada);
            // A gateway with a single user has no others to protect.
            reached.has_users = false;
            assert_eq!(server.thread(&reached), of_ada);
        }
    }

    #[test]
    fn ids_that_come_back_are_those_of_the_request() {
        let mut request = request(&Owner::new("acme", "ada", "a"), "t1", SCOPED, None);
        std::sync::Arc::make_mut(&mut request.input).parent_run = Some("r0".into());
        let sent = sent_input(&request).into_owned();
        assert!(sent.thread != request.input.thread && sent.run != request.input.run);
        assert!(sent.parent_run.is_some() && sent.parent_run != request.input.parent_run);
        let started = agentwire_core::event::RunStarted::new(sent.thread.clone(), sent.run.clone());
        let finished = agentwire_core::event::RunFinished::new(sent.thread, sent.run);
        let mut events =
            [Event::new(Body::RunStarted(started.into())), Event::new(Body::RunFinished(finished.into()))];
        sent_ids(&request).unwrap().restore(&mut events, &request.input);
        let Body::RunStarted(started) = &events[0].body else { panic!("{events:?}") };
        let Body::RunFinished(finished) = &events[1].body else { panic!("{events:?}") };
        for (thread, run) in [(&started.thread, &started.run), (&finished.thread, &finished.run)] {
            assert_eq!((thread.as_str(), run.as_str()), ("t1", "r1"));
        }
        assert_eq!(started.parent_run.as_deref(), Some("r0"));
    }
}
