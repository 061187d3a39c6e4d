//! Parsing of valid files, and the errors of invalid ones.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use agentwire_gateway::settings::{
    AuditSettings, BreakerSettings, Busy, History, IdentityField, IdentitySource, MemoryLimit, OnDisconnect,
    Snapshots, Sse,
};
use proptest::prelude::*;

use super::*;

fn read_all(text: &str) -> Config {
    parse(text).unwrap_or_else(|problems| panic!("{}", render(text, &problems)))
}

fn render(text: &str, problems: &[Problem]) -> String {
    anstream::adapter::strip_str(&problem::render("agentwire.toml", text, problems)).to_string()
}

/// The rendered errors of an invalid file.
fn mistakes(text: &str) -> String {
    render(text, &parse(text).expect_err("the file is wrong"))
}

/// Tests that each parse some invalid files and compare all errors with one snapshot.
macro_rules! mistakes {
    ($($(#[$about:meta])* $name:ident: $($text:expr),+;)+) => {
        $($(#[$about])*
        #[test]
        fn $name() {
            let mut all = String::new();
            for text in [$($text),+] {
                let _ = writeln!(all, "{}", mistakes(text));
            }
            insta::assert_snapshot!(all);
        })+
    };
}

const AGENT: &str = "[agents.a]\nupstream = { kind = \"demo\" }\n";

mistakes! {
    syntax_errors_are_located:
        "listen = \n", "listen = \"127.0.0.1:1\n[agents.a]\nupstream = 1", "listen == 3\nstore = [1,\n", "[agents.a\n", "a = 1\na = 2\n",
        "= 3", "\u{0}", "x = \"\\q\"";
    unknown_keys_name_the_likely_one:
        "lisen = \"127.0.0.1:7117\"\n[agents.a]\nupstream = { kind = \"demo\" }\n[agents.a.timeouts]\nidel = \"3s\"\n",
        "[agents.a]\nupstream = { kind = \"langgraph\", url = \"http://h\", graph = \"g\", optoins = {} }\n[agents.a.routes]\nstates = true\n",
        "[agents.a]\nupstream = { kind = \"demo\", url = \"http://h\" }\n[retention]\nzzz = 1\n",
        "retention = { event = \"1d\" }\n[agents.a]\nupstream = { kind = \"demo\" }\n",
        "[agents.a]\nupstream = { kind = \"demo\" }\n\"odd key\" = 1\n";
    unknown_keys_known_elsewhere_name_the_table:
        "[agents.a]\nupstream = { kind = \"demo\" }\nlisten = \"127.0.0.1:7117\"\nidle = \"3s\"\n",
        "[agents.a]\nupstream = { kind = \"adk\", url = \"http://h\", app = \"x\", graph = \"g\" }\nbusy = { policy = \"reject\", limit = 3 }\n",
        "graph = \"agent\"\n[agents.a]\nupstream = { kind = \"demo\" }\n";
    wrong_types_name_the_right_one:
        "listen = 7117\nstore = true\ncors = \"https://x\"\nheartbeat = 15\nsse = 1\n[agents.a]\nupstream = \"demo\"\ndefault = \"true\"\n[agents.b]\nupstream = 3\nbusy = 1\ntimeouts = \"3s\"\n",
        "agents = 3\n", "[agents]\na = 3\n", "[[agents]]\nname = \"a\"\n",
        "identity = \"x-user-id\"\nretention = { runs_per_thread = \"ten\" }\nlimits = { body = 1.5, runs = \"10MiB\" }\n[agents.a]\nupstream = { kind = 1 }\n";
    bad_values_name_the_allowed_ones:
        "listen = \"7117\"\nstore = \"agentwire.db\"\ndurability = \"fsnc\"\nheartbeat = \"15x\"\nlease = \"0s\"\ncors = [\"https://a.example/app\", \"nonsense\"]\nlimits = { body = \"10XB\", head = 0, runs = 0, connections = -1 }\n[agents.a]\nupstream = { kind = \"demo\" }\nbusy = \"enque\"\nhistory = \"servr\"\ntimeouts = { idle = \"forever\" }\n",
        "store = \"postgres:db\"\nlog = { level = \"inf\", format = \"xml\" }\n[agents.a]\nupstream = { kind = \"ag-ui\", url = \"localhost:8000\" }\npath = \"agent\"\n[agents.b]\nupstream = { kind = \"ag-ui\", url = \"ftp://h/\" }\npath = \"/{user}/{user}\"\n[agents.c]\nupstream = { kind = \"ag-ui\", url = \"http://\" }\npath = \"/chat\"\n";
    rejects_templates_and_options_that_cannot_work:
        "[agents.a]\nupstream = { kind = \"events\", url = \"http://h/{{mesage}}\", body = { q = [\"{{thread}} {{foo}}\"] } }\n[agents.b]\nupstream = { kind = \"langgraph\", url = \"http://h\", graph = \"g\", context = { x = \"{{foo}}\" } }\n[agents.c]\nupstream = { kind = \"events\", url = \"http://h/x\", method = \"GET\", body = { a = 1 } }\n[agents.d]\nupstream = { kind = \"exec\", command = [\"x\"], options = { steps = \"none\" } }\n";
    hai_paths_must_be_free:
        "[agents.a]\nupstream = { kind = \"demo\" }\nhai = { paths = [\"/x/{user}\", \"/api/chat\", \"/a\", \"/a\", \"/\"] }\n",
        "[agents.a]\nupstream = { kind = \"demo\" }\nhai = { paths = [\"b\"] }\n";
    bad_kinds_and_formats_name_the_likely_one:
        "[agents.a]\nupstream = { kind = \"langraph\", url = \"http://h\" }\n[agents.b]\nupstream = { url = \"http://h\" }\n[agents.c]\nupstream = { kind = \"events\", url = \"http://h\", format = \"agui\" }\n[agents.d]\nupstream = { kind = \"exec\", command = \"x\", format = \"ag-ui@9\" }\n",
        "[agents.a]\nupstream = { kind = \"langgraph\", url = \"http://h\", graph = \"g\", options = { zzz = 1, steps = \"sometimes\" } }\n[agents.a.ai_sdk]\nprofile = \"9\"\noptions = { nothing = [] }\n";
    missing_keys_are_named:
        "[agents.a]\n", "[agents.a]\nupstream = { kind = \"langgraph\" }\n", "[agents.a]\nbusy = {}\n[agents.a.upstream]\nkind = \"openai\"\nurl = \"http://h\"\nheaders = { x-key = {} }\n",
        "[agents.a]\nupstream = { kind = \"exec\", command = [] }\n";
    checks_names_of_agents:
        "[agents.a]\nupstream = { kind = \"demo\" }\ndefault = true\n[agents.b]\nupstream = { kind = \"demo\" }\ndefault = true\n",
        "[agents.\"a/b\"]\nupstream = { kind = \"demo\" }\n[agents.\"\"]\nupstream = { kind = \"demo\" }\n";
    identity_has_exactly_one_source:
        "identity = { user = { header = \"x-user\", constant = \"u\" }, tenant = {}, thread = { body = \"threadId\" } }\n[agents.a]\nupstream = { kind = \"demo\" }\n",
        "identity = { user = { path = \"user\" }, user_header = \"x y\", tenant = { constant = \"a\", default = \"b\" } }\n[agents.a]\nupstream = { kind = \"demo\" }\n",
        "identity = { history = { user = { path = \"user\" } }, state = { users = { header = \"x\" }, thread = { path = \"{id}\" } } }\n[agents.a]\npath = \"/users/{user}\"\nupstream = { kind = \"demo\" }\n";
    explains_rules_without_effect:
        "[agents.a]\nupstream = { kind = \"demo\" }\nrules = [\n  { action = \"drop\" },\n  { action = \"drop\", event = \"RUN_FINISHED\" },\n  { action = \"drop\", event = \"TEXT_MESAGE_START\" },\n  { action = \"drop\", event = \"NOTHING_*\" },\n  { action = \"redact\", in = \"state\", tool = \"x\", pointer = \"/a\" },\n  { action = \"redact\", pointer = \"a.b\" },\n  { action = \"redact\", pointer = \"/type\" },\n  { action = \"redact\", event = \"RAW\", tool = \"x\", pointer = \"/a\" },\n  { action = \"rename\", tool = \"x\" },\n  { action = \"renam\", tool = \"x\" },\n  { tool = \"x\" },\n  { action = 3 },\n  3,\n  { action = \"drop\", tool = \"x\", to = \"y\" },\n  { action = \"redact\", tool = \"x\", in = \"argument\", pointer = \"/a\" },\n]\n",
        "[agents.a]\nupstream = { kind = \"demo\" }\nrules = { action = \"drop\" }\n",
        "[agents.a]\nupstream = { kind = \"demo\" }\n[[agents.a.rules]]\naction = \"redact\"\nevent = \"CUSTOM\"\n";
    hooks_are_checked:
        "[agents.a]\nupstream = { kind = \"demo\" }\n[agents.a.hooks.input]\ntimeout = 5\non_failure = \"close\"\n[agents.a.hooks.output]\nurl = \"localhost:9000/x\"\nheaders = { x-a = { env = \"\" } }\n[agents.a.hooks.events]\nurl = \"http://h\"\n[agents.a.hooks.native]\nurl = \"http://h\"\nsecret = \"\"\nafter = \"1s\"\n",
        "[agents.a]\nupstream = { kind = \"demo\" }\nhooks = \"http://h\"\n";
    headers_are_checked:
        "[agents.a]\nupstream = { kind = \"ag-ui\", url = \"http://h\", headers = { \"a b\" = \"x\", x-a = \"1\", X-A = \"2\", x-b = \"\\n\", x-c = 3, x-d = { env = \"\" }, x-e = { file = \"y\" } }, forward_headers = [\"ü\", 3] }\n";
}

#[test]
fn truncates_a_long_line_around_its_mistake() {
    let text = format!("cors = [{} \"nonsense\"]\n{AGENT}", "\"https://example.org\", ".repeat(40));
    insta::assert_snapshot!(mistakes(&text));
}

#[test]
fn every_key_reaches_its_setting() {
    let config = read_all(
        r#"
        listen = "0.0.0.0:80"
        store = "memory:"
        durability = "fsync"
        sse = "standard"
        proxies = ["10.0.0.0/8", "::1"]
        cors = ["https://app.example", "*"]
        heartbeat = "5s"
        lease = "20s"
        store_patience = "1s"
        audit = "audit.jsonl"
        drain = { grace = "0s" }
        identity = { user = { header = "X-User" }, tenant = { constant = "acme" }, thread = { body = "/threadId", default = "t" }, history = { user = { header = "x-reader" } }, state = { thread = { path = "id" } } }
        retention = { events = "never", history = "off", runs_per_thread = 3, threads_per_user = 4 }
        limits = { body = "1MiB", head = 4096, request_timeout = "9s", reader_lag = "2MiB", ring = "1KiB", connections = 5, runs = 6, memory = "256MiB", patch_work = "3MiB" }
        log = { format = "json", level = "warn,agentwire_gateway=debug" }

        [agents.first]
        upstream = { kind = "demo" }
        path = "/agent"
        busy = { policy = "wait", retries = 2, interval = "100ms" }
        history = "server"
        snapshots = "ignore"
        state_key = "frontend_state"
        on_disconnect = "cancel"
        feedback_url = "http://127.0.0.1:9/feedback"
        timeouts = { connect = "1s", first_byte = "2s", idle = "never", total = "off" }
        limits = { max_events = 10, max_frame = "1KiB", max_bytes = "2KiB" }
        sse = "compatible"
        breaker = { failures = 3, open = "4s" }
        ai_sdk = { profile = 6, options = {} }
        hai = { profile = "text", options = {}, close_delay = "0s" }
        routes = { ag_ui = false, hai = false, ai_sdk = false, history = false, state = false, runs = false }
        capabilities = { identity = { name = "First" } }

        [agents.second]
        upstream = { kind = "demo" }
        default = true
        busy = { policy = "enqueue", limit = 2 }
        "#,
    );
    let settings = &config.settings;
    assert_eq!(settings.listen.to_string(), "0.0.0.0:80");
    assert_eq!((config.store.as_str(), config.durability), ("memory:", Durability::Fsync));
    assert_eq!(settings.sse, Sse::Standard);
    assert_eq!(
        settings.proxies.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.0/8", "::1/128"]
    );
    assert_eq!(settings.cors, ["https://app.example", "*"]);
    assert_eq!(settings.heartbeat, Duration::from_secs(5));
    assert_eq!(settings.lease, Duration::from_secs(20));
    assert_eq!(settings.store_patience, Duration::from_secs(1));
    assert_eq!(settings.drain_grace, Duration::ZERO);
    assert_eq!(settings.audit, Some(AuditSettings::new("audit.jsonl")));
    assert_eq!(settings.identity.user, IdentityField::header("x-user", None));
    assert_eq!(settings.identity.tenant, IdentityField::constant("acme"));
    let thread =
        IdentityField { source: IdentitySource::Body("/threadId".into()), default: Some("t".into()) };
    assert_eq!(settings.identity.thread, Some(thread));
    let history = settings.history_identity.as_ref().expect("it has its own");
    assert_eq!((&history.user, &history.thread), (&IdentityField::header("x-reader", None), &None));
    assert_eq!(history.tenant, IdentityField::constant("acme"), "as for runs");
    let state = settings.state_identity.as_ref().expect("it has its own");
    assert_eq!(state.user, IdentityField::header("x-user", None), "as for runs");
    assert_eq!(
        state.thread,
        Some(IdentityField { source: IdentitySource::Path("id".into()), default: None })
    );
    let retention = &settings.retention;
    assert_eq!((retention.events, retention.history), (None, None));
    assert_eq!((retention.runs_per_thread, retention.threads_per_user), (Some(3), Some(4)));
    let limits = &settings.limits;
    assert_eq!((limits.body, limits.head, limits.request_timeout), (1 << 20, 4096, Duration::from_secs(9)));
    assert_eq!((limits.reader_lag, limits.ring, limits.connections, limits.runs), (2 << 20, 1 << 10, 5, 6));
    assert_eq!(limits.patch_work, 3 << 20);
    assert_eq!(limits.memory, MemoryLimit::Bytes(256 << 20));
    assert_eq!(config.log, Log { format: LogFormat::Json, level: "warn,agentwire_gateway=debug".into() });

    assert_eq!(config.default_agent.as_deref(), Some("second"));
    let [first, second] = config.agents.as_slice() else { panic!("there are two agents") };
    let agent = &first.settings;
    assert_eq!((first.name.as_str(), agent.path.as_str()), ("first", "/agent"));
    assert_eq!(agent.busy, Busy::Wait { retries: 2, interval: Duration::from_millis(100) });
    assert_eq!(second.settings.busy, Busy::Enqueue { limit: 2 });
    assert_eq!((agent.history, agent.on_disconnect), (Some(History::Server), OnDisconnect::Cancel));
    assert_eq!((agent.snapshots, second.settings.snapshots), (Some(Snapshots::Ignore), None));
    assert_eq!(agent.state_key.as_deref(), Some("frontend_state"));
    assert_eq!(agent.feedback_url.as_deref(), Some("http://127.0.0.1:9/feedback"));
    let timeouts = agent.timeouts;
    assert_eq!(
        (timeouts.connect, timeouts.first_byte),
        (Some(Duration::from_secs(1)), Some(Duration::from_secs(2)))
    );
    assert_eq!((timeouts.idle, timeouts.total), (None, None));
    let limits = agent.limits;
    assert_eq!((limits.max_events, limits.max_frame, limits.max_bytes), (10, 1 << 10, 2 << 10));
    assert_eq!((agent.sse, second.settings.sse), (Some(Sse::Compatible), None));
    assert_eq!(agent.breaker, BreakerSettings { failures: Some(3), open: Duration::from_secs(4) });
    assert_eq!((agent.ai_sdk_profile.as_str(), agent.hai_profile.as_str()), ("6", "text"));
    assert_eq!(agent.hai_close_delay, Duration::ZERO);
    let routes = agent.routes;
    assert!(!(routes.ag_ui || routes.hai || routes.ai_sdk || routes.history || routes.state || routes.runs));
    assert_eq!(agent.capabilities["identity"]["name"], "First");
}

#[test]
fn every_busy_policy_has_defaults() {
    let busy = |text: &str| read_all(&format!("{AGENT}busy = {text}\n")).agents[0].settings.busy;
    assert_eq!(busy("\"reject\""), Busy::Reject);
    assert_eq!(busy("\"interrupt\""), Busy::Interrupt);
    assert_eq!(busy("\"wait\""), Busy::Wait { retries: 10, interval: Duration::from_millis(500) });
    assert_eq!(busy("{ policy = \"enqueue\" }"), busy("\"enqueue\""));
    let detached = |text: &str| read_all(&format!("{AGENT}busy = {text}\n")).agents[0].settings.detached;
    assert_eq!(detached("\"enqueue\""), Busy::Interrupt);
    assert_eq!(detached("{ detached = \"reject\" }"), Busy::Reject);
    assert_eq!(busy("{ detached = \"reject\" }"), Busy::Reject);
    assert_eq!(detached("{ policy = \"wait\", retries = 1, detached = \"enqueue\" }"), busy("\"enqueue\""));
}

#[test]
fn the_short_form_of_identity_falls_back_to_the_default_user() {
    let config = read_all(&format!("identity = {{ user_header = \"X-User-Id\" }}\n{AGENT}"));
    assert_eq!(config.settings.identity.user, IdentityField::header("x-user-id", Some("default-user")));
}

#[test]
fn an_agent_can_have_its_own_identity_and_group() {
    let config = read_all(
        "identity = { user_header = \"x-user\", runs = { user = { header = \"x-runs\" } } }\n\
         [agents.same]\nupstream = { kind = \"demo\" }\n\
         [agents.own]\nupstream = { kind = \"demo\" }\nthreads = \"same\"\n\
         identity = { tenant = { constant = \"acme\" }, history = { user = { constant = \"all\" } } }\n",
    );
    let header = |name: &str| IdentityField::header(name, None);
    assert_eq!(config.settings.runs_identity.as_ref().expect("its own").user, header("x-runs"));
    let [same, own] = config.agents.as_slice() else { panic!("two agents") };
    assert!(same.settings.identity.is_none() && same.settings.threads.is_none());
    assert_eq!(own.settings.threads.as_deref(), Some("same"));
    let own = own.settings.identity.as_ref().expect("its own");
    assert_eq!(own.main.user, IdentityField::header("x-user", Some("default-user")), "as for the server");
    assert_eq!(own.main.tenant, IdentityField::constant("acme"));
    let history = own.history.as_ref().expect("its own");
    assert_eq!((&history.user, &history.tenant), (&IdentityField::constant("all"), &own.main.tenant));
    assert!(own.state.is_none());
    assert_eq!(own.runs.as_ref().expect("as for the server").user, header("x-runs"));
}

#[test]
fn reads_every_kind_of_upstream() {
    let config = read_all(
        r#"
        [agents]
        demo.upstream = { kind = "demo" }
        replay.upstream = { kind = "replay", file = "x.jsonl", format = "langgraph", speed = 2 }
        ag-ui.upstream = { kind = "ag-ui", url = "http://127.0.0.1:8000/agent", headers = { Authorization = { env = "AGENTWIRE_TEST_UNSET" }, x-a = "b" }, forward_headers = ["Cookie"] }
        langgraph.upstream = { kind = "langgraph", url = "https://h", graph = "g", assistant = "a", context = { n = 1, list = [1.5, true, 1979-05-27] } }
        adk.upstream = { kind = "adk", url = "http://h", app = "shop", user = "u" }
        events.upstream = { kind = "events", url = "http://h/x", method = "PUT", format = "ag-ui", body = { q = [1] }, options = { old_shapes = "accept" } }
        openai.upstream = { kind = "openai", url = "http://h/v1", model = "m", system = "", api_key_env = "AGENTWIRE_TEST_UNSET" }
        exec.upstream = { kind = "exec", command = ["python3", "-u", "agent.py"], env = ["HOME", "MODE=fast=yes"], cwd = "/tmp" }
        shell.upstream = { kind = "exec", command = "cat events.jsonl", format = "adk" }
        any.upstream = { kind = "events", url = "http://h/x", method = "PATCH" }
        "#,
    );
    assert_eq!(config.default_agent.as_deref(), Some("demo"));
    let upstreams: Vec<_> =
        config.agents.iter().map(|agent| format!("{} {:#?}", agent.name, agent.upstream)).collect();
    // Formats contain function pointers, whose addresses differ in every build.
    let upstreams = upstreams.join("\n");
    let lines: Vec<_> = upstreams.lines().filter(|line| !line.trim_start().starts_with("0x")).collect();
    insta::assert_snapshot!(lines.join("\n"));
    let missing: Vec<_> = config.missing_variables().map(|(agent, name, _)| (agent, name)).collect();
    assert_eq!(missing, [("ag-ui", "AGENTWIRE_TEST_UNSET"), ("openai", "AGENTWIRE_TEST_UNSET")]);
}

#[test]
fn a_file_without_agents_has_the_demo_agent() {
    for text in ["", "listen = \"127.0.0.1:0\"", "[agents]"] {
        let config = read_all(text);
        assert_eq!(config.default_agent.as_deref(), Some("demo"), "{text}");
        assert_eq!(config.agents.len(), 1, "{text}");
    }
}

#[test]
fn accepts_byte_order_mark_and_carriage_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(
        &path,
        "\u{feff}listen = \"127.0.0.1:1\"\r\n[agents.a]\r\nupstream = { kind = \"demo\" }\r\n",
    )
    .unwrap();
    assert_eq!(ConfigFile::load(&path).unwrap().config.settings.listen.port(), 1);
}

proptest! {
    #[test]
    fn parser_never_panics(text in "(listen|store|agents|\\[|\\]|\\{|\\}|=|\"|\\.|a|1|\n| |upstream|kind|demo|busy|identity|,){0,40}") {
        if let Err(problems) = parse(&text) {
            prop_assert!(!problems.is_empty());
            render(&text, &problems);
        }
    }
}

/// Every key with its dotted path; the keys of a tagged table are below the tag's value.
fn paths(fields: &[Field], prefix: &str, out: &mut BTreeMap<String, bool>) {
    fn shape_paths(shape: &Shape, path: &str, out: &mut BTreeMap<String, bool>) {
        match shape {
            Shape::Value(..) => {}
            Shape::Table(fields) => paths(fields, path, out),
            Shape::Named(fields) => paths(fields, &format!("{path}.NAME"), out),
            Shape::Either(shapes) => shapes.iter().for_each(|shape| shape_paths(shape, path, out)),
            Shape::List(each) => shape_paths(each, path, out),
            Shape::Tagged(tag, variants) => {
                for variant in variants {
                    let path = format!("{path}({})", variant.name);
                    out.insert(format!("{path}.{tag}"), true);
                    paths(&variant.fields, &path, out);
                }
            }
        }
    }
    for field in fields {
        let path = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        out.insert(path.clone(), field.required);
        shape_paths(&field.shape, &path, out);
    }
}

#[test]
fn rules_and_hooks_reach_their_settings() {
    let config = read_all(
        r#"
        [agents.shop]
        upstream = { kind = "demo" }
        [[agents.shop.rules]]
        action = "drop"
        event = "REASONING_*"
        [[agents.shop.rules]]
        action = "rename"
        tool = "internal_search"
        to = "search"
        [[agents.shop.rules]]
        action = "redact"
        tool = "pay_*"
        in = "arguments"
        pointer = "/card/number"
        with = "hidden"
        [agents.shop.hooks]
        input = { url = "http://127.0.0.1:9000/input", timeout = "2s", on_failure = "open", headers = { authorization = { env = "NO_SUCH_VARIABLE" } } }
        lock = { url = "http://127.0.0.1:9000/lock", timeout = "30s" }
        input_record = { url = "http://127.0.0.1:9000/input_record" }
        native = { url = "http://127.0.0.1:9000/native", secret = "literal" }
        native_fallback = { url = "http://127.0.0.1:9000/native_fallback", after = "20s" }
        translate = { url = "http://127.0.0.1:9000/translate" }
        event = { url = "http://127.0.0.1:9000/event", secret = { env = "NO_SUCH_SECRET" } }
        output_record = { url = "http://127.0.0.1:9000/output_record" }
        output = { url = "http://127.0.0.1:9000/output" }
        state = { url = "http://127.0.0.1:9000/state" }
        "#,
    );
    let agent = &config.agents[0];
    insta::assert_debug_snapshot!(agent.hooks);
    let missing: Vec<_> = config.missing_variables().map(|(agent, name, _)| (agent, name)).collect();
    assert_eq!(missing, [("shop", "NO_SUCH_VARIABLE"), ("shop", "NO_SUCH_SECRET")]);
}

/// The same paths, from the JSON Schema.
fn schema_paths(schema: &serde_json::Value, prefix: &str, out: &mut BTreeMap<String, bool>) {
    for alternative in ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten() {
        let tag = ["kind", "policy", "action"]
            .into_iter()
            .find_map(|tag| alternative["properties"][tag]["const"].as_str());
        let prefix = tag.map_or_else(|| prefix.to_owned(), |tag| format!("{prefix}({tag})"));
        schema_paths(alternative, &prefix, out);
    }
    if schema["items"].is_object() {
        schema_paths(&schema["items"], prefix, out);
    }
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
    // Names of format options and headers are not keys of the file.
    let is_foreign = prefix.ends_with("options") || prefix.ends_with("headers");
    for (name, inner) in schema["properties"].as_object().into_iter().flatten().filter(|_| !is_foreign) {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        out.insert(path.clone(), required.contains(&&serde_json::Value::from(name.as_str())));
        schema_paths(inner, &path, out);
    }
    if prefix == "agents" {
        schema_paths(&schema["additionalProperties"], "agents.NAME", out);
    }
}

#[test]
fn schema_has_exactly_the_parsed_keys() {
    let (mut known, mut written) = (BTreeMap::new(), BTreeMap::new());
    paths(&description(), "", &mut known);
    schema_paths(&schema(), "", &mut written);
    assert!(known.len() > 100, "{}", known.len());
    // A form of the value, as `{ env = … }` of a header is, and no key of its own.
    assert_eq!(written.remove("store.env"), Some(true));
    written.retain(|path, _| !(path.starts_with("agents.NAME.hooks.") && path.ends_with(".secret.env")));
    assert_eq!(known, written);
}

#[test]
fn schema_matches_snapshot() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&schema()).unwrap());
}

/// The keys as Markdown tables: first those of a table, then those of its nested tables.
fn markdown(fields: &[Field], path: &str, heading: &str, out: &mut String) {
    let cell = |text: &str| text.replace('|', "\\|");
    if !fields.is_empty() {
        let _ = writeln!(
            out,
            "\n{heading}\n\n| key | value | default | description |\n| --- | --- | --- | --- |"
        );
    }
    for field in fields {
        let value = match &field.shape {
            Shape::Value(words, _) => words.clone(),
            Shape::List(_) => "a list of tables (below)".into(),
            Shape::Either(shapes) => match shapes.first() {
                Some(Shape::Value(words, _)) => format!("{words}, or a table (below)"),
                _ => "a table (below)".into(),
            },
            _ => "a table (below)".into(),
        };
        let default = match (&field.default, field.required) {
            (Some(default), _) => format!("`{default}`"),
            (None, true) => "required".into(),
            (None, false) => String::new(),
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            field.name,
            cell(&value),
            cell(&default),
            cell(field.about)
        );
    }
    for field in fields {
        let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        let shapes = match &field.shape {
            Shape::Either(shapes) => shapes.as_slice(),
            Shape::List(each) => std::slice::from_ref(&**each),
            shape => std::slice::from_ref(shape),
        };
        for shape in shapes {
            match shape {
                Shape::Value(..) | Shape::Either(_) | Shape::List(_) => {}
                Shape::Table(inner) => markdown(inner, &path, &format!("### `{path}`"), out),
                Shape::Named(inner) => {
                    let path = format!("{path}.NAME");
                    markdown(inner, &path, &format!("## Agents: `[{path}]`"), out);
                }
                Shape::Tagged(tag, variants) => {
                    let _ = writeln!(out, "\n### `{path}`\n\n| {tag} | description |\n| --- | --- |");
                    for variant in variants {
                        let _ = writeln!(out, "| `\"{}\"` | {} |", variant.name, cell(variant.about));
                    }
                    for variant in variants {
                        let heading = format!("#### `{path}` with `{tag} = \"{}\"`", variant.name);
                        markdown(&variant.fields, &path, &heading, out);
                    }
                }
            }
        }
    }
}

#[test]
fn docs_page_has_every_key() {
    const MARK: &str = "<!-- Generated from the parser: UPDATE=1 cargo test -p agentwire docs_page -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (prose, rest) = page.split_once(MARK).expect("the page has the mark");
    let mut expected = String::new();
    markdown(&description(), "", "## The whole server", &mut expected);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{prose}{MARK}{expected}")).unwrap();
        return;
    }
    assert_eq!(rest, expected, "docs/config.md is stale: run `UPDATE=1 cargo test -p agentwire docs_page`");
}
