//! The stable codes of everything that can go wrong, on the wire and in answers: one table, from which
//! `docs/errors.md` is made.

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident $(= $status:literal)?;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = stringify!($name);)+

        /// Every code: its name, the HTTP status it has before a stream begins (0: only within one), what it means.
        pub const ALL: &[(&str, u16, &str)] = &[$((stringify!($name), 0 $(+ $status)?, concat!($($doc, "\n"),+))),+];
    };
}

codes! {
    /// The body is not what this route takes; the message names the JSON path and what was expected there.
    BAD_REQUEST = 400;
    /// The id of a thread, run, user or tenant is empty, too long, not UTF-8, holds control characters or is there twice.
    BAD_ID = 400;
    /// `Last-Event-ID` or `?after=` is not `runId:seq`, or names another run than the path does.
    BAD_CURSOR = 400;
    /// `?format=` or `?profile=` names nothing that can be written.
    UNKNOWN_FORMAT = 400;
    /// The request says nothing about who it is for, and there is no default.
    NO_IDENTITY = 401;
    /// There is no such thread, or it is somebody else's.
    UNKNOWN_THREAD = 404;
    /// There is no such run, or it is somebody else's.
    UNKNOWN_RUN = 404;
    /// The thread has no such message or tool call.
    UNKNOWN_MESSAGE = 404;
    /// The agent stores no artifacts: only `adk` agents do.
    NO_ARTIFACTS = 404;
    /// The thread has no artifact of that name, or none of that version.
    UNKNOWN_ARTIFACT = 404;
    /// There is no agent of that name.
    UNKNOWN_AGENT = 404;
    /// There is no such route.
    UNKNOWN_ROUTE = 404;
    /// The route is there, but not with this method.
    METHOD_NOT_ALLOWED = 405;
    /// The run id was used in another thread before.
    RUN_ID_TAKEN = 409;
    /// Another run has the thread. On AG-UI and HAI this is RUN_ERROR within the stream.
    THREAD_IS_LOCKED = 409;
    /// As many runs wait for the thread as may.
    QUEUE_FULL = 429;
    /// The patch does not apply, so nothing of it was done; the message says which operation and why.
    PATCH_FAILED = 409;
    /// The run has ended, or is in a state in which this cannot be done.
    IMPOSSIBLE = 409;
    /// The answer names no interrupt that this thread has.
    UNKNOWN_INTERRUPT = 409;
    /// The tool result names no call that this thread waits for.
    UNKNOWN_TOOL_CALL = 409;
    /// The thread waits for the results of tools, and an empty answer came.
    NO_TOOL_RESULTS = 409;
    /// The thread waits for answers, and not all of them came; nothing was done.
    INTERRUPT_UNANSWERED = 409;
    /// The answer came too late.
    INTERRUPT_EXPIRED = 409;
    /// The answer does not follow the schema that was asked for; the item stays open.
    SCHEMA_MISMATCH = 409;
    /// Somebody gave another answer before.
    ALREADY_ANSWERED = 409;
    /// The request body took too long.
    REQUEST_TIMEOUT = 408;
    /// The body is larger than the server takes.
    BODY_TOO_LARGE = 413;
    /// The body's content type is not one that this route takes.
    UNSUPPORTED_MEDIA_TYPE = 415;
    /// Too much at once; try again after what `Retry-After` says.
    OVERLOADED = 503;
    /// The gateway is being shut down; try again after what `Retry-After` says.
    DRAINING = 503;
    /// The store does not answer or is full.
    STORE_UNAVAILABLE = 503;
    /// The request has no message that an agent could answer.
    NO_INPUT_MESSAGE;
    /// The agent's server refused the connection or was not found.
    UPSTREAM_UNREACHABLE = 502;
    /// The agent's server answered with an error status.
    UPSTREAM_STATUS = 502;
    /// The agent's server answered with something that is not an event stream, such as a page.
    UPSTREAM_BAD_CONTENT = 502;
    /// The agent's stream holds something malformed.
    UPSTREAM_MALFORMED = 502;
    /// The agent's stream ended before its run did.
    UPSTREAM_TRUNCATED = 502;
    /// The agent took too long: to be reached, to begin, between two events, or altogether.
    UPSTREAM_TIMEOUT = 504;
    /// The agent failed and gave no code of its own.
    UPSTREAM_FAILED = 502;
    /// A hook of the gateway refused the run; the message says why.
    HOOK_REFUSED;
    /// A hook of the gateway failed, took too long or gave an answer that makes no sense; the log has more.
    HOOK_FAILED;
    /// The run has more events or bytes, or a larger frame, than allowed.
    LIMIT_EXCEEDED = 502;
    /// The gateway died during the run.
    GATEWAY_LOST;
    /// The gateway was shut down during the run and did not wait longer.
    GATEWAY_SHUTDOWN;
    /// The thread was deleted during the run.
    THREAD_DELETED;
    /// An error of the gateway itself; the log has more.
    INTERNAL = 500;
}

/// Whether a run that is refused with this code is told so within a stream, in protocols that can: the request was
/// well formed and understood.
#[must_use]
pub fn is_answer(code: &str) -> bool {
    [
        THREAD_IS_LOCKED,
        QUEUE_FULL,
        UNKNOWN_INTERRUPT,
        UNKNOWN_TOOL_CALL,
        NO_TOOL_RESULTS,
        INTERRUPT_UNANSWERED,
        INTERRUPT_EXPIRED,
        SCHEMA_MISMATCH,
        ALREADY_ANSWERED,
    ]
    .contains(&code)
}

/// The documented code of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter().map(|(code, ..)| *code).find(|code| *code == name)
}

/// The HTTP status of a code.
#[must_use]
pub fn status(code: &str) -> u16 {
    ALL.iter()
        .find(|(name, ..)| *name == code)
        .map_or(500, |(_, status, _)| if *status == 0 { 500 } else { *status })
}
