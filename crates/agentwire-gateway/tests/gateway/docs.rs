//! What is made from the code, so that it cannot lie.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use agentwire_gateway::{agent::Demo, codes, settings::AgentSettings};

use crate::support::plan;

#[test]
fn the_page_of_errors_lists_every_code() {
    let mut page = String::from(
        "# Errors\n\n\
         Everything that can go wrong has a stable code. Before a stream begins it comes with an HTTP status as\n\
         `{\"error\":{\"code\",\"message\",\"hint\"?}}`; within a stream it is the `code` of RUN_ERROR, or what the format has in its place.\n\
         Messages are for people and may change.\n\n\
         A code that an agent gives itself comes through as it is. Where its stream says that it failed and gives none, the reader of its\n\
         format does: `UPSTREAM_ERROR`, `UPSTREAM_REFUSED` (the server refused the request) or `UPSTREAM_NO_EVENTS` (nothing happened in it).\n\n\
         | code | status | meaning |\n| --- | --- | --- |\n",
    );
    for (name, status, about) in codes::ALL {
        let status = if *status == 0 { "in the stream".to_owned() } else { status.to_string() };
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(page, "| `{name}` | {status} | {about} |").expect("memory does not fail");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/errors.md is stale: run `UPDATE=1 cargo test -p agentwire-gateway --test gateway docs`"
    );
}

#[tokio::test]
async fn the_openapi_document_lists_every_route() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .and(
            "other",
            AgentSettings::default().path("/users/{user}/ask".into()),
            Arc::new(Demo::without_pauses()),
        )
        .on_memory()
        .await;
    let (status, document) = server.json("/openapi.json").await;
    assert_eq!(status, 200);
    let mut routes = String::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let answers = operation["responses"]["200"]["content"].as_object();
            let content: Vec<_> = answers.into_iter().flat_map(|content| content.keys().cloned()).collect();
            let parameters: Vec<_> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|parameter| parameter["name"].as_str().unwrap_or_default().to_owned())
                .collect();
            writeln!(
                routes,
                "{} {path} ({}) -> {}: {}",
                method.to_uppercase(),
                parameters.join(", "),
                content.join(", "),
                operation["summary"].as_str().unwrap_or_default()
            )
            .expect("memory does not fail");
        }
    }
    insta::assert_snapshot!("openapi", routes);
}
