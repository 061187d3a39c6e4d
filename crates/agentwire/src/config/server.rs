//! The keys of the whole server.

use agentwire_gateway::settings::{Identity, IdentityField, IdentitySource, Settings, Sse};
use agentwire_store::Durability;

use super::{
    LogFormat,
    kind::{
        ADDRESS, Count, DURATION, DURATION_OR_ZERO, HEADER, LEVEL, List, NAME, ORIGIN, OrNever, PATH,
        POINTER, STORE, Size, Text, Word,
    },
    table::{Kind, Shape, Table, Value},
};

/// How much of a write must be safe before it is seen.
pub(crate) const DURABILITIES: &[(&str, Durability)] =
    &[("memory", Durability::Memory), ("os", Durability::Os), ("fsync", Durability::Fsync)];

/// What holds for the whole server.
pub(super) struct Server<'s> {
    pub(super) settings: &'s mut Settings,
    pub(super) store: &'s mut String,
    pub(super) durability: &'s mut Durability,
    pub(super) log_format: &'s mut LogFormat,
    pub(super) log_level: &'s mut String,
}

/// Reads the keys of the whole server.
pub(super) fn read(table: &mut Table<'_>, server: Server<'_>) {
    let settings = server.settings;
    table.set("listen", &ADDRESS, &mut settings.listen, "Where to listen. Port 0 is any free one.");
    table.set(
        "store",
        &STORE,
        server.store,
        "Where threads, runs and their logs are kept. A path is relative to the working directory.",
    );
    table.set(
        "durability",
        &Word(DURABILITIES),
        server.durability,
        "What has an event before a client sees it: our memory, the operating system (survives the death of the process), or the disk (survives the loss of power).",
    );
    table.set(
        "sse",
        &Word(&[("compatible", Sse::Compatible), ("standard", Sse::Standard)]),
        &mut settings.sse,
        "How SSE looks: `data:` and `id:` only, which every client reads, or `event:` as well.",
    );
    table.table("identity", "Whose threads a request is about.", |table| {
        identity(table, &mut settings.identity);
        let main = &settings.identity;
        let history =
            "The same for the history's routes: what is said here holds there, the rest is as for runs.";
        settings.history_identity = own_identity(table, "history", history, main);
        let state = "The same for the state's routes.";
        settings.state_identity = own_identity(table, "state", state, main);
    });
    table.set(
        "cors",
        &List(ORIGIN, "a list of origins"),
        &mut settings.cors,
        "Origins whose pages may read our answers.",
    );
    table.table("drain", "What happens on SIGTERM.", |table| {
        table.set(
            "grace",
            &DURATION_OR_ZERO,
            &mut settings.drain_grace,
            "How long runs may go on after a request to stop.",
        );
    });
    table.set(
        "heartbeat",
        &DURATION,
        &mut settings.heartbeat,
        "After how long a quiet stream gets a comment.",
    );
    table.table("retention", "What is kept, and for how long.", |table| {
        let retention = &mut settings.retention;
        table.set(
            "events",
            &OrNever(DURATION_OR_ZERO),
            &mut retention.events,
            "How long an ended run can be replayed exactly; after that it is compacted.",
        );
        table.set(
            "history",
            &OrNever(DURATION),
            &mut retention.history,
            "How long a thread is kept after its last change.",
        );
        table.set(
            "runs_per_thread",
            &OrNever(Count(1)),
            &mut retention.runs_per_thread,
            "How many logs of ended runs are kept per thread.",
        );
        table.set(
            "threads_per_user",
            &OrNever(Count(1)),
            &mut retention.threads_per_user,
            "How many threads are kept per user.",
        );
    });
    table.table("limits", "Bounds on what clients can ask for.", |table| {
        let limits = &mut settings.limits;
        table.set("body", &Size, &mut limits.body, "The longest body of a request.");
        table.set("head", &Size, &mut limits.head, "The longest head of a request.");
        table.set(
            "request_timeout",
            &DURATION,
            &mut limits.request_timeout,
            "How long a client may take to send the head of a request, and then its body.",
        );
        table.set(
            "reader_lag",
            &Size,
            &mut limits.reader_lag,
            "How far a reader may fall behind its run before it is cut; it can come back whole.",
        );
        table.set(
            "ring",
            &Size,
            &mut limits.ring,
            "How much of each live run is kept in memory for its readers.",
        );
        table.set("connections", &Count(1), &mut limits.connections, "The most connections at once.");
        table.set("runs", &Count(1), &mut limits.runs, "The most live runs at once.");
    });
    table.set(
        "lease",
        &DURATION,
        &mut settings.lease,
        "How long a claim on a run lasts unless renewed; a dead gateway's runs are ended after that.",
    );
    table.set(
        "store_patience",
        &DURATION_OR_ZERO,
        &mut settings.store_patience,
        "How long a run is held while the store does not answer.",
    );
    settings.audit = table.maybe("audit", &PATH, "The file that says who did what; none if absent.");
    table.table("log", "What is written to stderr.", |table| {
        table.set(
            "format",
            &Word(LogFormat::NAMES),
            server.log_format,
            "Lines for people, or one JSON object per line.",
        );
        table.set("level", &LEVEL, server.log_level, "How much is logged.");
    });
}

fn identity(table: &mut Table<'_>, identity: &mut Identity) {
    let header = table.maybe(
        "user_header",
        &HEADER,
        "Short for `user = { header = \"…\", default = \"default-user\" }`. Whoever sets the header must be trusted: put a proxy in front that removes what clients send.",
    );
    if table.has("user_header") && table.has("user") {
        let hint = "`user_header` is the short form of `user`; keep one of them";
        table.refuse("user_header", "`identity` has both `user` and `user_header`", hint);
    }
    if let Some(name) = header {
        identity.user = IdentityField::header(name, Some("default-user"));
    }
    table.set("user", &ExtractKind, &mut identity.user, "The user.");
    table.set("tenant", &ExtractKind, &mut identity.tenant, "The organisation, or the application.");
    identity.thread =
        table.maybe("thread", &ExtractKind, "The conversation; where the protocol has it if absent.");
}

/// What a group of routes says about itself; `None` if it says nothing.
fn own_identity(
    table: &mut Table<'_>,
    name: &'static str,
    about: &'static str,
    main: &Identity,
) -> Option<Identity> {
    let is_given = table.has(name);
    let mut own = main.clone().thread(None);
    table.table(name, about, |table| {
        let mut look = |key, about| {
            let found = table.maybe(key, &ExtractKind, about)?;
            if let IdentitySource::Path(parameter) = &found.source
                && parameter != "id"
            {
                let message = format!("`{}.{key}.path` cannot be `{parameter}`", table.path());
                table.refuse(key, message, "the only parameter of these paths is `id`, the thread");
            }
            Some(found)
        };
        if let Some(user) = look("user", "The user.") {
            own.user = user;
        }
        if let Some(tenant) = look("tenant", "The organisation, or the application.") {
            own.tenant = tenant;
        }
        own.thread = look("thread", "The conversation; the one in the path if absent.");
    });
    is_given.then_some(own)
}

/// Where a name is taken from.
struct ExtractKind;

/// The name of a parameter of a path.
const PARAMETER: Text<String> = NAME;

fn extract(table: &mut Table<'_>) -> Option<IdentityField> {
    let header = table.maybe("header", &HEADER, "From this header of the request.");
    let path = table.maybe(
        "path",
        &PARAMETER,
        "From this parameter of the agent's `path`; for history and state, `id`.",
    );
    let body = table.maybe(
        "body",
        &POINTER,
        "From this place in the body. Anyone can claim anything there: for development and single-user servers.",
    );
    let constant = table.maybe("constant", &NAME, "Always this.");
    let default = table.maybe(
        "default",
        &NAME,
        "What it is if the request does not say; without it such a request is refused with `NO_IDENTITY`.",
    );
    let given: Vec<_> =
        ["header", "path", "body", "constant"].into_iter().filter(|key| table.has(key)).collect();
    match given.as_slice() {
        [] => {
            let message = format!("`{}` does not say where the name is taken from", table.path());
            table.refuse("", message, "give one of: header, path, body, constant");
        }
        [_] => {}
        [_, second, ..] => {
            let message = format!("`{}` says twice where the name is taken from", table.path());
            table.refuse(second, message, "give one of: header, path, body, constant");
        }
    }
    if constant.is_some() && default.is_some() {
        table.refuse(
            "default",
            format!("`{}.default` is never used: there is a constant", table.path()),
            "remove it",
        );
    }
    let from = match (header, path, body) {
        (Some(header), ..) => IdentitySource::Header(header),
        (_, Some(path), _) => IdentitySource::Path(path.trim_matches(['{', '}']).to_owned()),
        (_, _, Some(body)) => IdentitySource::Body(body),
        _ => return constant.map(IdentityField::constant),
    };
    Some(IdentityField { source: from, default })
}

impl Kind<IdentityField> for ExtractKind {
    fn read(&self, value: &Value<'_>) -> Option<IdentityField> {
        value.table("a table such as `{ header = \"x-user-id\" }`", extract)?.0
    }

    fn shape(&self) -> Shape {
        Shape::Table(Table::describe(extract))
    }

    fn show(&self, value: &IdentityField) -> Option<String> {
        let default =
            value.default.as_ref().map_or(String::new(), |default| format!(", default = {default:?}"));
        Some(match &value.source {
            IdentitySource::Constant => {
                format!("{{ constant = {:?} }}", value.default.as_deref().unwrap_or_default())
            }
            IdentitySource::Header(name) => format!("{{ header = {name:?}{default} }}"),
            IdentitySource::Path(name) => format!("{{ path = {name:?}{default} }}"),
            IdentitySource::Body(pointer) => format!("{{ body = {pointer:?}{default} }}"),
        })
    }
}
