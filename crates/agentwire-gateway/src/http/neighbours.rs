//! The routes of `replicas.listen`, for other gateways on the same store: the events of runs of this process, and commands to
//! them. Every request needs the token of the shared key.

use std::convert::Infallible;

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde_json::Value;

use crate::{
    gateway::Gateway,
    replica::direct::{FRAME_INTERVAL, run_from_json, write_frame},
    stream::live::Follower,
};

/// The longest body of a request: four ids and a command.
const MAX_BODY: usize = 64 << 10;

pub(super) fn router(gateway: &Gateway) -> Router {
    Router::new()
        .route("/tail", post(tail))
        .route("/command", post(command))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(gateway.clone(), authenticate))
        .with_state(gateway.clone())
}

async fn authenticate(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    match gateway.direct().is_some_and(|direct| direct.token.accepts(given)) {
        true => next.run(request).await,
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

fn parse(body: &Bytes) -> Option<(agentwire_store::RunKey, Value)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    Some((run_from_json(&body)?, body))
}

/// The events of a run from a number on. Ends when the run does, or when it has to be read from the store.
async fn tail(State(gateway): State<Gateway>, body: Bytes) -> Response {
    let Some((key, body)) = parse(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let Some(next) = body["next"].as_u64() else { return StatusCode::BAD_REQUEST.into_response() };
    let Some(live) = gateway.live_run(&key.owner, &key.run) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let frames = stream::unfold(Follower::new(live, next), async |mut follower| {
        let mut out = BytesMut::new();
        match tokio::time::timeout(FRAME_INTERVAL, follower.next()).await {
            Ok(Some((epoch, events))) => {
                events.iter().for_each(|event| write_frame(&mut out, epoch, event));
            }
            Ok(None) => return None,
            Err(_) => write_frame(&mut out, 0, b""),
        }
        Some((Ok::<_, Infallible>(out.freeze()), follower))
    });
    Body::from_stream(frames).into_response()
}

async fn command(State(gateway): State<Gateway>, body: Bytes) -> Response {
    let Some((key, body)) = parse(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let Some(command) = body["command"].as_str() else { return StatusCode::BAD_REQUEST.into_response() };
    match gateway.execute_sent(&key, command).await {
        Some(reply) => reply.to_string().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
