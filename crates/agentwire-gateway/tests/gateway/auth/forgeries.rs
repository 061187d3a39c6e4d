//! T2: tokens that must not be accepted.

use agentwire_gateway::{
    agent::Demo,
    settings::{JwtAlgorithm, JwtIssuer, JwtKeys},
};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{INVALID, refusal, required, status};
use crate::support::*;

async fn server(issuers: Vec<JwtIssuer>) -> Server {
    plan(Arc::new(Demo::without_pauses())).set(|settings| settings.auth = required(issuers)).on_memory().await
}

async fn tried(server: &Server, token: &str) -> (u16, String, String) {
    refusal(server.ask(Method::GET, "/thread/list").bearer_auth(token)).await
}

fn unauthenticated() -> (u16, String, String) {
    (401, "UNAUTHENTICATED".into(), INVALID.into())
}

#[tokio::test]
async fn t2_forged_and_malformed_tokens_are_refused_alike() {
    for signer in [Signer::rsa(), Signer::ec(), Signer::ed()] {
        let issuer = Issuer::with(signer);
        let server = server(vec![issuer.settings.clone()]).await;
        let good = issuer.token("ada", "*");
        assert_eq!(tried(&server, &good).await.0, 200);
        let (header, claims) = (issuer.header(), Issuer::claims("ada", "*"));
        let with_header = |name: &str, value: Value| {
            let mut header = header.clone();
            header[name] = value;
            issuer.signer.token(&header, &claims)
        };
        let with_claim = |name: &str, value: Value| {
            let mut claims = claims.clone();
            claims[name] = value;
            issuer.signer.token(&header, &claims)
        };
        let without = |name: &str| {
            let mut claims = claims.clone();
            claims.as_object_mut().expect("an object").remove(name);
            issuer.signer.token(&header, &claims)
        };
        let parts: Vec<&str> = good.split('.').collect();
        let other = Issuer::new();
        let public = Signer::Secret(issuer.signer.public_bytes());
        let own_key = other.signer.jwk("k1");
        let unsigned = format!("{}.{}.", base64(json!({"alg": "none"}).to_string()), parts[1]);
        let duplicate = |text: &str| issuer.signer.token_of_texts(&header.to_string(), text);
        let claims_text = claims.to_string();
        let forged = [
            ("no algorithm", unsigned.clone()),
            ("no algorithm, with a signature", format!("{}{}", unsigned, parts[2])),
            ("`None`", with_header("alg", json!("None"))),
            ("HS256 with the public key as the secret", {
                public.token(&json!({"alg": "HS256", "kid": "k1"}), &claims)
            }),
            ("an algorithm that is not listed", with_header("alg", json!("RS512"))),
            ("an algorithm of another key type", with_header("alg", json!(if issuer.algorithm() == "RS256" { "ES256" } else { "RS256" }))),
            ("a number as the algorithm", with_header("alg", json!(1))),
            ("the key of somebody else", other.signer.token(&json!({"alg": "ES256", "kid": "k1"}), &claims)),
            ("its own key in the header", {
                other.signer.token(&json!({"alg": "ES256", "kid": "k1", "jwk": own_key}), &claims)
            }),
            ("a foreign key set in the header", {
                other.signer.token(&json!({"alg": "ES256", "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"}), &claims)
            }),
            ("an unknown critical extension", with_header("crit", json!(["b64"]))),
            ("an empty list of critical extensions", with_header("crit", json!([]))),
            ("an unknown key id", with_header("kid", json!("k2"))),
            ("a path as the key id", with_header("kid", json!("../../k1"))),
            ("a number as the key id", with_header("kid", json!(1))),
            ("changed claims", format!("{}.{}.{}", parts[0], base64(json!({"iss": ISSUER, "aud": "agentwire", "sub": "eve", "org": "acme", "exp": now() + 600}).to_string()), parts[2])),
            ("a changed signature", format!("{}.{}.{}", parts[0], parts[1], base64(vec![7; 64]))),
            ("an empty signature", format!("{}.{}.", parts[0], parts[1])),
            ("padding", format!("{good}=")),
            ("a space in it", format!("{} {}", &good[..10], &good[10..])),
            ("two parts", format!("{}.{}", parts[0], parts[1])),
            ("four parts", format!("{good}.x")),
            ("five parts", format!("{good}.x.y")),
            ("another issuer", with_claim("iss", json!("https://id.example"))),
            ("a list of issuers", with_claim("iss", json!([ISSUER]))),
            ("no issuer", without("iss")),
            ("another audience", with_claim("aud", json!("other"))),
            ("a part of the audience", with_claim("aud", json!("agentwire2"))),
            ("no audience", without("aud")),
            ("an empty list of audiences", with_claim("aud", json!([]))),
            ("a number as an audience", with_claim("aud", json!(["agentwire", 1]))),
            ("no end", without("exp")),
            ("text as the end", with_claim("exp", json!("9999999999"))),
            ("no number as the end", with_claim("exp", Value::Null)),
            ("not valid yet", with_claim("nbf", json!(now() + 3600))),
            ("made in the future", with_claim("iat", json!(now() + 3600))),
            ("text as a time", with_claim("nbf", json!("0"))),
            ("no user", without("sub")),
            ("an empty user", with_claim("sub", json!(""))),
            ("a number as the user", with_claim("sub", json!(7))),
            ("a list as the user", with_claim("sub", json!(["ada"]))),
            ("a user that is too long", with_claim("sub", json!("x".repeat(600)))),
            ("control characters", with_claim("sub", json!("a\nb"))),
            ("a reserved name", with_claim("sub", json!("default-user"))),
            ("a reserved prefix", with_claim("sub", json!("svc:billing"))),
            ("no tenant", without("org")),
            ("a number as the tenant", with_claim("org", json!(1))),
            ("an empty tenant", with_claim("org", json!(""))),
            ("a number as the scopes", with_claim("scope", json!(1))),
            ("a number among the roles", with_claim("realm", json!({"roles": ["a", 1]}))),
            ("a claim twice", duplicate(&claims_text.replacen('{', r#"{"sub":"eve","#, 1))),
            ("a nested claim twice", duplicate(&claims_text.replacen('{', r#"{"realm":{"roles":[],"roles":["admin"]},"#, 1))),
            ("a header member twice", issuer.signer.token_of_texts(&header.to_string().replacen('{', r#"{"alg":"none","#, 1), &claims_text)),
            ("a token that is too long", with_claim("fill", json!("x".repeat(9000)))),
            ("a payload that is not encoded", with_header("b64", json!(false))),
            ("a token in a token", issuer.signer.token(&json!({"alg": issuer.algorithm(), "kid": "k1", "cty": "JWT"}), &json!(good))),
            ("a number with a fraction as text", with_claim("exp", json!("1e12"))),
            ("a list as the end", with_claim("exp", json!([now() + 600]))),
            ("an audience within a list", with_claim("aud", json!([["agentwire"]]))),
            ("an audience as an object", with_claim("aud", json!({"agentwire": true}))),
            ("an audience with a space", with_claim("aud", json!("agentwire "))),
            ("line breaks in the signature", format!("{}.{}.{}%0A", parts[0], parts[1], parts[2])),
            ("claims that are a list", issuer.signer.token(&header, &json!([claims]))),
            ("a key id of another kind", with_header("kid", json!(["k1"]))),
            ("a key id with a query", with_header("kid", json!("k1' OR '1'='1"))),
            ("an algorithm in lower case", with_header("alg", json!(issuer.algorithm().to_lowercase()))),
            ("no key id in the place of one", with_header("kid", Value::Null)),
            ("a list as the algorithm", with_header("alg", json!([issuer.algorithm()]))),
            ("`nOnE` without a signature", format!("{}.{}.", base64(json!({"alg": "nOnE", "kid": "k1"}).to_string()), parts[1])),
            ("a known claim as a critical extension", with_header("crit", json!(["exp"]))),
            ("text as critical extensions", with_header("crit", json!("exp"))),
            ("an empty key id", with_header("kid", json!(""))),
            ("a key id with a null", with_header("kid", json!("k1\0"))),
            ("true as the end", with_claim("exp", json!(true))),
            ("an end beyond all numbers", duplicate(&claims_text.replacen("\"exp\":", "\"exp\":9e9999,\"x\":", 1))),
            ("an end twice", duplicate(&claims_text.replacen('{', r#"{"exp":99999999999,"#, 1))),
            ("an end twice, once escaped", duplicate(&claims_text.replacen('{', r#"{"\u0065xp":99999999999,"#, 1))),
            ("a null in the user", with_claim("sub", json!("ada\0"))),
            ("a new line in the tenant", with_claim("org", json!("acme\n"))),
            ("a mark before the claims", duplicate(&format!("\u{feff}{claims_text}"))),
            ("something behind the claims", duplicate(&format!("{claims_text}{claims_text}"))),
            ("the issuer in other letters", with_claim("iss", json!(ISSUER.to_uppercase()))),
            ("an audience of nothing", with_claim("aud", Value::Null)),
            ("two tokens", format!("{good},{good}")),
            ("nothing", String::new()),
            ("a dot", ".".into()),
        ];
        // The second time by what is remembered.
        for (name, token) in forged.iter().chain(&forged) {
            assert_eq!(tried(&server, token).await, unauthenticated(), "{name} ({})", issuer.algorithm());
        }
        let accepted = [
            ("a list of audiences", with_claim("aud", json!(["other", "agentwire"]))),
            ("a time with a fraction", with_claim("exp", json!(now() as f64 + 60.5))),
            ("a list of scopes", with_claim("scope", json!(["openid", "agents:*:read"]))),
            ("unknown members", with_header("x5t", json!("…"))),
            ("a far end", with_claim("exp", json!(1e300))),
            ("a begin before all times", with_claim("nbf", json!(-1e15))),
            ("a user of another alphabet", with_claim("sub", json!("käthe 愛"))),
            ("a user with a bar", with_claim("sub", json!("auth0|7|x"))),
        ];
        for (name, token) in &accepted {
            assert_eq!(tried(&server, token).await.0, 200, "{name} ({})", issuer.algorithm());
        }
        // "Expired" only after the signature was verified.
        let old = with_claim("exp", json!(now() - 31));
        assert_eq!(tried(&server, &old).await, (401, "TOKEN_EXPIRED".into(), INVALID.into()));
        assert_eq!(tried(&server, &with_claim("exp", json!(now() - 5))).await.0, 200, "within the leeway");
        assert_eq!(tried(&server, &with_claim("exp", json!(-1e15))).await.1, "TOKEN_EXPIRED");
        for line in
            [format!("Bearer\t{good}"), format!("Bearer,{good}"), format!("Bearer {good}, Bearer {good}")]
        {
            let request = server.ask(Method::GET, "/thread/list").header("authorization", &line);
            assert_eq!(refusal(request).await, unauthenticated(), "{line}");
        }
        let parts: Vec<&str> = old.split('.').collect();
        let forged = format!("{}.{}.{}", parts[0], parts[1], base64(vec![9; 64]));
        assert_eq!(tried(&server, &forged).await, unauthenticated(), "an expired token that is forged");
    }
}

#[tokio::test]
async fn t2_the_issuer_decides_before_the_key_id() {
    // The same key id, at two issuers.
    let (one, other) = (Issuer::new(), Issuer::new());
    let mut second = other.settings.clone();
    (second.name, second.issuer) = ("partner".into(), "https://partner.example/".into());
    second.audience = vec!["partner".into()];
    let server = server(vec![one.settings.clone(), second]).await;
    let theirs = |issuer: &str, audience: &str| {
        let mut claims = Issuer::claims("ada", "*");
        (claims["iss"], claims["aud"]) = (issuer.into(), audience.into());
        other.signer.token(&other.header(), &claims)
    };
    assert_eq!(tried(&server, &theirs("https://partner.example/", "partner")).await.0, 200);
    assert_eq!(tried(&server, &theirs(ISSUER, "agentwire")).await, unauthenticated());
    assert_eq!(tried(&server, &theirs("https://partner.example/", "agentwire")).await, unauthenticated());
}

#[tokio::test]
async fn t2_a_shared_secret_takes_its_own_algorithms_only() {
    let secret = b"a secret of at least thirty-two bytes".to_vec();
    let keys = JwtKeys::Secret(agentwire_gateway::auth::Secret::Value(secret.clone()));
    let server = server(vec![JwtIssuer::new("corp", ISSUER, "agentwire", keys)]).await;
    let claims = Issuer::claims("ada", "*");
    let token = |signer: &Signer, header: Value| signer.token(&header, &claims);
    let own = Signer::Secret(secret);
    assert_eq!(tried(&server, &token(&own, json!({"alg": "HS256"}))).await.0, 200);
    for (signer, header) in [
        (&own, json!({"alg": "HS384"})),
        (&Signer::Secret(b"another secret of thirty-two bytes".to_vec()), json!({"alg": "HS256"})),
        (&Signer::Secret(Vec::from(*b"x")), json!({"alg": "HS256"})),
        (&Signer::ec(), json!({"alg": "ES256"})),
    ] {
        assert_eq!(tried(&server, &token(signer, header)).await, unauthenticated());
    }
}

#[tokio::test]
async fn t2_weak_and_secret_keys_of_a_key_set_are_not_used() {
    let shared = Signer::Secret(b"a secret of at least thirty-two bytes".to_vec());
    let good = Signer::ec();
    let mut only_encryption = Signer::ec().jwk("enc");
    only_encryption["use"] = "enc".into();
    let mut other_algorithm = good.jwk("wrong");
    other_algorithm["alg"] = "ES384".into();
    let set = vec![
        shared.jwk("oct"),
        only_encryption,
        other_algorithm,
        good.jwk("good"),
        json!({"kty": "new"}),
        json!(1),
    ];
    let keys = KeyServer::new(set).await;
    let hour = std::time::Duration::from_secs(3600);
    let source = JwtKeys::Url { url: keys.url.clone(), refresh: hour, max_stale: hour };
    let mut settings = JwtIssuer::new("corp", ISSUER, "agentwire", source);
    settings.algorithms.push(JwtAlgorithm::HS256);
    let server = server(vec![settings]).await;
    let claims = Issuer::claims("ada", "*");
    assert_eq!(tried(&server, &good.token(&json!({"alg": "ES256", "kid": "good"}), &claims)).await.0, 200);
    for (signer, header) in [
        (&shared, json!({"alg": "HS256", "kid": "oct"})),
        (&good, json!({"alg": "ES256", "kid": "wrong"})),
        (&good, json!({"alg": "ES256", "kid": "enc"})),
        // Several keys: which one?
        (&good, json!({"alg": "ES256"})),
    ] {
        assert_eq!(tried(&server, &signer.token(&header, &claims)).await, unauthenticated(), "{header}");
    }
}

#[tokio::test]
async fn one_credential_per_request() {
    let issuer = Issuer::new();
    let mut settings = issuer.settings.clone();
    settings.cookie = Some("__Host-agentwire".into());
    let server = server(vec![settings]).await;
    let token = issuer.token("ada", "*");
    let list = || server.ask(Method::GET, "/thread/list");
    let cookie = format!("a=b; __Host-agentwire={token}; c=d");
    assert_eq!(refusal(list()).await, (401, "UNAUTHENTICATED".into(), "Bearer".into()), "no credential");
    assert_eq!(status(list().header("cookie", &cookie)).await, 200);
    assert_eq!(status(list().header("authorization", format!("bEaReR {token}"))).await, 200);
    let twice = [
        list().bearer_auth(&token).bearer_auth(&token),
        list().bearer_auth(&token).header("cookie", &cookie),
        list().header("cookie", format!("{cookie}; __Host-agentwire={token}")),
        list().header("cookie", &cookie).header("cookie", &cookie),
        list().header("cookie", &cookie).header("authorization", "Basic YTpi"),
        list().header("authorization", "Basic YTpi"),
        list().header("authorization", token.clone()),
        list().header("authorization", ""),
        list().header("cookie", "__Host-agentwire="),
        list().header("cookie", "x=y").header("authorization", "Bearer"),
    ];
    for (at, request) in twice.into_iter().enumerate() {
        assert_eq!(refusal(request).await, unauthenticated(), "{at}");
    }
    let path = format!("/thread/list?access_token={token}&token={token}&ticket={token}");
    let query = server.ask(Method::GET, &path);
    assert_eq!(refusal(query).await, (401, "UNAUTHENTICATED".into(), "Bearer".into()), "no token in a query");
}
