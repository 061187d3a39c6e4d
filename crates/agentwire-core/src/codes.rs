//! The stable codes of all errors, on the wire and in HTTP responses. `docs/errors.md` is generated from these tables.

/// One stable code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// The code as it appears on the wire.
    pub name: &'static str,
    /// The HTTP status of a response with this code; absent for codes that only occur within a stream.
    pub status: Option<u16>,
    /// The meaning, as a sentence for the documentation.
    pub about: &'static str,
}

macro_rules! codes {
    (
        $(#[doc = $table_doc:literal])+ $table:ident:
        $($(#[doc = $doc:literal])+ $name:ident $(= $status:literal)?;)+
    ) => {
        $($(#[doc = $doc])+ pub const $name: &str = stringify!($name);)+

        $(#[doc = $table_doc])+
        pub const $table: &[Code] =
            &[$(Code { name: $name, status: codes!(@ $($status)?), about: concat!($($doc, "\n"),+) }),+];
    };
    (@ $status:literal) => { Some($status) };
    (@) => { None };
}

codes! {
    /// The codes of the gateway: of HTTP responses, and of runs that fail.
    GATEWAY:

    /// The request body is malformed; the message names the JSON path and the expected value.
    BAD_REQUEST = 400;
    /// The id of a thread, run, user or tenant is empty, too long, not UTF-8, repeated, or contains control characters.
    BAD_ID = 400;
    /// `Last-Event-ID` or `?after=` is not `runId:seq`, or names another run than the path.
    BAD_CURSOR = 400;
    /// `?format=` or `?profile=` names no format that can be written.
    UNKNOWN_FORMAT = 400;
    /// The request does not identify its user, and there is no default.
    NO_IDENTITY = 401;
    /// The request has no valid credential. The message is the same for every cause; the server log has the cause.
    UNAUTHENTICATED = 401;
    /// The token is genuine and has expired: get a new one.
    TOKEN_EXPIRED = 401;
    /// The credential lacks the scope that the message names.
    FORBIDDEN = 403;
    /// Others than the sender decide about this call.
    NOT_AN_APPROVER = 403;
    /// Whoever started the run cannot approve its calls.
    SAME_PERSON = 403;
    /// The arguments of a call are not those that the approver has seen.
    ARGUMENTS_CHANGED = 409;
    /// There is no such approval, or the sender has no part in it.
    UNKNOWN_APPROVAL = 404;
    /// The gateway does not answer to the `Host` of the request, or there is not exactly one: see `hosts`.
    HOST_NOT_ALLOWED = 421;
    /// A page of another origin must not change anything here: see `cors`.
    ORIGIN_NOT_ALLOWED = 403;
    /// Too many requests, or failed authentications, of this user, tenant or peer address; the message says which. Retry
    /// after `Retry-After`; `RateLimit-Policy` and `RateLimit` describe the limit.
    RATE_LIMITED = 429;
    /// The user or tenant has reached a quota, which the message names: `runs`, `readers`, `threads`, `storage` or
    /// `run_starts`.
    QUOTA_EXCEEDED = 429;
    /// The audit log cannot be written, and the configuration allows nothing without it.
    AUDIT_UNAVAILABLE = 503;
    /// The credential cannot be checked, because the server with the keys or the external handler does not answer.
    AUTH_UNAVAILABLE = 503;
    /// There is no such thread, or it belongs to another user.
    UNKNOWN_THREAD = 404;
    /// There is no such run, or it belongs to another user.
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
    /// The route exists, but not with this method.
    METHOD_NOT_ALLOWED = 405;
    /// The run id was used in another thread before.
    RUN_ID_TAKEN = 409;
    /// Another run has the thread. On AG-UI and HAI this is RUN_ERROR within the stream.
    THREAD_IS_LOCKED = 409;
    /// The queue of runs that wait for the thread is full.
    QUEUE_FULL = 429;
    /// The patch does not apply, and none of it was applied; the message names the operation and the reason.
    PATCH_FAILED = 409;
    /// The patch removes a key of the state that the agent's server stores and cannot remove; nothing was changed.
    STATE_KEY_NOT_REMOVABLE = 409;
    /// The run has ended, or is in a state in which this cannot be done.
    IMPOSSIBLE = 409;
    /// The answer names no interrupt of this thread.
    UNKNOWN_INTERRUPT = 409;
    /// The tool result names no call that this thread waits for.
    UNKNOWN_TOOL_CALL = 409;
    /// The thread waits for the results of tools, and the answer contains none.
    NO_TOOL_RESULTS = 409;
    /// The thread waits for answers, and not all of them are in the request; nothing was done.
    INTERRUPT_UNANSWERED = 409;
    /// The answer is too late.
    INTERRUPT_EXPIRED = 409;
    /// The answer does not match the requested schema; the item stays open.
    SCHEMA_MISMATCH = 409;
    /// The item was already answered differently.
    ALREADY_ANSWERED = 409;
    /// The request body took too long.
    REQUEST_TIMEOUT = 408;
    /// The body exceeds the server's limit.
    BODY_TOO_LARGE = 413;
    /// The state or the conversation of the thread would exceed `limits.thread_state` or `limits.thread_messages`, or its
    /// values would take more than 192 MiB of memory. If an agent causes it, this is RUN_ERROR.
    THREAD_TOO_LARGE = 413;
    /// The patch moves, copies and compares more bytes than `limits.patch_work` allows; nothing was changed.
    PATCH_TOO_COSTLY = 413;
    /// The route does not accept the body's content type.
    UNSUPPORTED_MEDIA_TYPE = 415;
    /// Too many requests or runs at once, or too little memory for more; retry after `Retry-After`.
    OVERLOADED = 503;
    /// The gateway is shutting down; retry after `Retry-After`.
    DRAINING = 503;
    /// The store does not respond or is full.
    STORE_UNAVAILABLE = 503;
    /// The gateway that drives the run does not respond; retry after `Retry-After`.
    RUN_UNREACHABLE = 503;
    /// The request has no message that an agent could answer.
    NO_INPUT_MESSAGE;
    /// The agent's server refused the connection or was not found.
    UPSTREAM_UNREACHABLE = 502;
    /// The agent could not be reached several times in a row, and is not called for a while: its circuit breaker is open.
    /// Retry after `Retry-After`.
    UPSTREAM_UNAVAILABLE = 503;
    /// The agent's server responded with an error status.
    UPSTREAM_STATUS = 502;
    /// The agent's server responded with content that is not an event stream, such as a page.
    UPSTREAM_BAD_CONTENT = 502;
    /// The agent's stream contains a malformed event.
    UPSTREAM_MALFORMED = 502;
    /// The agent's stream ended before its run.
    UPSTREAM_TRUNCATED = 502;
    /// The agent exceeded a timeout: connect, first byte, idle or total.
    UPSTREAM_TIMEOUT = 504;
    /// The agent failed without a code of its own.
    UPSTREAM_FAILED = 502;
    /// A hook of the gateway refused the run; the message contains the reason.
    HOOK_REFUSED;
    /// A hook of the gateway failed, took too long or returned an invalid response; the log has the details.
    HOOK_FAILED;
    /// The run has more events or bytes, a larger frame or a more costly patch than allowed.
    LIMIT_EXCEEDED = 502;
    /// The gateway died during the run.
    GATEWAY_LOST;
    /// The gateway was shut down during the run, and its grace period was over.
    GATEWAY_SHUTDOWN;
    /// The thread was deleted during the run.
    THREAD_DELETED;
    /// An error of the gateway itself; the log has the details.
    INTERNAL = 500;
}

codes! {
    /// The codes of streams: those that format readers, the guard and agents give to a RUN_ERROR.
    STREAM:

    /// The stream ended before its run. The gateway reports this as `UPSTREAM_TRUNCATED`.
    STREAM_TRUNCATED;
    /// The stream contains no event. The gateway reports this as `UPSTREAM_TRUNCATED` or `UPSTREAM_BAD_CONTENT`.
    UPSTREAM_NO_EVENTS;
    /// The agent failed, and its stream names no code.
    UPSTREAM_ERROR;
    /// The agent's server refused the request.
    UPSTREAM_REFUSED;
    /// The input of a conversion is malformed or not an event stream.
    BAD_INPUT;
    /// The input of a conversion could not be read to its end.
    INPUT_UNREADABLE;
    /// The answer cannot be sent to the agent, which expects another type.
    BAD_ANSWER;
    /// The run was stopped while the agent was sending events.
    STOPPED;
}

codes! {
    /// The codes of the client library: of the failures that it reports to its own program.
    CLIENT:

    /// The URL, a header or an argument is invalid; nothing was sent.
    USAGE;
    /// The server responded with an error status; the code of its body is available too.
    HTTP_STATUS;
    /// The server could not be reached, or the connection broke before the response.
    NETWORK;
    /// The server exceeded a timeout: connect, response or idle.
    TIMEOUT;
    /// The response is not an event stream, such as a page.
    BAD_CONTENT_TYPE;
    /// A frame is malformed or larger than the limit; the error has its number and byte.
    BAD_FRAME;
    /// The run ended with RUN_ERROR; the code of the event is available too.
    RUN_ERROR;
    /// The stream ended before its run, and reconnecting is off or failed.
    TRUNCATED;
    /// The conversation exceeds the limit of memory.
    TOO_LARGE;
    /// The agent has an active run in this client.
    BUSY;
    /// The client aborted the run.
    ABORTED;
}

/// The code of that name among those of the gateway.
#[must_use]
pub fn find(name: &str) -> Option<&'static Code> {
    GATEWAY.iter().find(|code| code.name == name)
}
