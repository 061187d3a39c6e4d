//! The console: a page that is part of the binary, and the way of a browser to it.
//!
//! `web/` is its source, `crates/agentwire-gateway/console/` its build. The page has no data of its own: it uses the
//! public routes with the credential of the person who opened it.

use std::{io::Read as _, sync::OnceLock};

use axum::{
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::ops::Nested;
use crate::{codes, cpu_work, error::ApiError, gateway::Gateway, limits::Party};

/// Nothing is loaded from elsewhere, and nothing inline runs.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page, compressed by the build script.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    gzip: &'static [u8],
    etag: OnceLock<HeaderValue>,
    /// Unpacked for the first client that takes no gzip.
    whole: OnceLock<Bytes>,
}

macro_rules! asset {
    ($name:literal, $file:literal, $media_type:literal) => {
        Asset {
            name: $name,
            media_type: $media_type,
            gzip: include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".gz")),
            etag: OnceLock::new(),
            whole: OnceLock::new(),
        }
    };
}

static PAGE: Asset = asset!("", "index.html", "text/html; charset=utf-8");

static ASSETS: [Asset; 4] = [
    asset!("console.js", "console.js", "text/javascript; charset=utf-8"),
    asset!("console.css", "console.css", "text/css; charset=utf-8"),
    asset!("charts.js", "charts.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "icon.svg", "image/svg+xml"),
];

impl Asset {
    /// Unpacked once, off the workers.
    async fn whole(&'static self) -> Result<Bytes, ApiError> {
        match self.whole.get() {
            Some(whole) => Ok(whole.clone()),
            None => {
                cpu_work::spawn(Party::Anybody, || self.whole.get_or_init(|| unpack(self.gzip)).clone()).await
            }
        }
    }

    async fn respond(&'static self, request: &HeaderMap) -> Result<Response, ApiError> {
        let etag = self.etag.get_or_init(|| etag(self.gzip)).clone();
        let is_known = request.get_all(header::IF_NONE_MATCH).iter().any(|known| {
            let known = known.to_str().unwrap_or_default().split(',');
            known.map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag)
        });
        let mut response = if is_known {
            StatusCode::NOT_MODIFIED.into_response()
        } else if accepts_gzip(request) {
            ([(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))], self.gzip).into_response()
        } else {
            self.whole().await?.into_response()
        };
        let headers = response.headers_mut();
        if !is_known {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        }
        headers.insert(header::ETAG, etag);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}

fn etag(bytes: &[u8]) -> HeaderValue {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).expect("hexadecimal digits are a header value")
}

fn unpack(gzip: &[u8]) -> Bytes {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).expect("the build script wrote valid gzip");
    bytes.into()
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    ranges(request, header::ACCEPT_ENCODING).iter().any(|(name, weight)| name == "gzip" && *weight > 0.0)
}

/// The ranges of an `Accept` header with their weights, in the order of the header. A malformed weight is zero.
fn ranges(request: &HeaderMap, name: HeaderName) -> Vec<(String, f32)> {
    let values = request.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let ranges = values.flat_map(|value| value.split(',')).map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| {
            let (key, weight) = part.split_once('=')?;
            key.trim().eq_ignore_ascii_case("q").then(|| weight.trim().parse().unwrap_or(0.0))
        });
        (name, weight.unwrap_or(1.0))
    });
    ranges.collect()
}

/// True if a client prefers a page: the first range of the highest weight is HTML. `*/*` alone is no browser.
fn prefers_html(request: &HeaderMap) -> bool {
    let ranges = ranges(request, header::ACCEPT);
    let best = ranges.iter().map(|(_, weight)| *weight).fold(0.0, f32::max);
    let first = ranges.iter().find(|(_, weight)| *weight == best && best > 0.0);
    first.is_some_and(|(name, _)| matches!(name.as_str(), "text/html" | "application/xhtml+xml"))
}

impl Gateway {
    /// True if the page is served: as configured; otherwise on loopback, or with authentication.
    pub(crate) fn is_console_on(&self) -> bool {
        let settings = self.settings();
        settings.console.unwrap_or_else(|| settings.auth.is_required() || self.is_local())
    }
}

/// `GET /console`: the page.
pub(super) async fn page(State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Response, ApiError> {
    serve(&gateway, &PAGE, &headers).await
}

/// `GET /console/{file}`: a script, style or picture of the page.
pub(super) async fn file(
    State(gateway): State<Gateway>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asset = ASSETS.iter().find(|asset| asset.name == name).ok_or_else(super::no_route)?;
    serve(&gateway, asset, &headers).await
}

async fn serve(gateway: &Gateway, asset: &'static Asset, headers: &HeaderMap) -> Result<Response, ApiError> {
    match gateway.is_console_on() {
        true => asset.respond(headers).await,
        false => Err(super::no_route()),
    }
}

/// The files of the page alone, for a server that is no gateway: `agentwire view`.
pub fn console_routes<S: Clone + Send + Sync + 'static>() -> axum::Router<S> {
    use axum::routing::get;
    let page = |headers: HeaderMap| async move { PAGE.respond(&headers).await };
    let file = |Path(name): Path<String>, headers: HeaderMap| async move {
        match ASSETS.iter().find(|asset| asset.name == name) {
            Some(asset) => asset.respond(&headers).await,
            None => Err(super::no_route()),
        }
    };
    axum::Router::new().route("/console", get(page)).route("/console/{file}", get(file))
}

/// Leads a browser from `/` to the page.
pub(super) async fn redirect(
    State(gateway): State<Gateway>,
    nested: Nested,
    request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    if !is_read || !matches!(path, "/" | "" | "/console/") || !gateway.is_console_on() {
        return next.run(request).await;
    }
    let is_root = path != "/console/";
    if is_root && !prefers_html(request.headers()) {
        let mut response = next.run(request).await;
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept"));
        return response;
    }
    // The app may have mounted the gateway below a prefix.
    let prefix = nested.as_str();
    let Ok(location) = HeaderValue::from_str(&format!("{prefix}/console")) else {
        return ApiError::new(codes::BAD_REQUEST, "the path cannot be a header").into_response();
    };
    let headers = [(header::LOCATION, location), (header::VARY, HeaderValue::from_static("Accept"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_prefer_html_and_programs_do_not() {
        let prefers = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            prefers_html(&headers)
        };
        for browser in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            "TEXT/HTML",
            "application/json;q=0.5, text/html;q=0.6",
            "application/xhtml+xml, text/html",
        ] {
            assert!(prefers(browser), "{browser}");
        }
        for program in [
            "*/*",
            "",
            "text/*",
            "application/json",
            "text/html;q=0",
            "text/html;q=x",
            "text/event-stream, text/html;q=0.9",
            "application/json, text/html",
            "application/json, text/plain, */*",
        ] {
            assert!(!prefers(program), "{program}");
        }
    }
}
