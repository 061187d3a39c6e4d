//! Documents that are generated from the code.

use std::{fmt::Write, fs, path::Path, sync::Arc};

use agentwire_gateway::{agent::Demo, codes, settings::AgentSettings};

use crate::support::plan;

#[test]
fn errors_page_lists_every_code() {
    let mut page = String::from(
        "# Errors\n\n\
         Every error has a stable code. Before a stream starts, it is the `code` of an HTTP error response:\n\
         `{\"error\":{\"code\",\"message\",\"hint\"?}}`. Within a stream it is the `code` of RUN_ERROR, or its\n\
         equivalent in other formats. Messages are for people and may change.\n\n\
         ## Codes of the gateway\n\n\
         | code | status | meaning |\n| --- | --- | --- |\n",
    );
    for code in codes::GATEWAY {
        let status = code.status.map_or_else(|| "in the stream".to_owned(), |status| status.to_string());
        writeln!(page, "| `{}` | {status} | {} |", code.name, about(code)).expect("memory does not fail");
    }
    page.push_str(
        "\n## Codes in streams\n\n\
         A code that an agent chooses itself is passed on unchanged. These codes stand for its failures without one:\n\n\
         | code | meaning |\n| --- | --- |\n",
    );
    for code in codes::STREAM {
        writeln!(page, "| `{}` | {} |", code.name, about(code)).expect("memory does not fail");
    }
    page.push_str(
        "\n## Codes of the client\n\n\
         `ClientError::code` of `agentwire-client` is one of these:\n\n\
         | code | meaning |\n| --- | --- |\n",
    );
    for code in codes::CLIENT {
        writeln!(page, "| `{}` | {} |", code.name, about(code)).expect("memory does not fail");
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

/// The meaning of a code in one line.
fn about(code: &codes::Code) -> String {
    code.about.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn openapi_document_lists_every_route() {
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
