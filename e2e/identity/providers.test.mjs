// Tokens as real OpenID providers make them, with keys of the test: claims, headers and key sets have their shapes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { agent, keySets, serve, signer, soon } from "./support.mjs";

const now = () => Math.floor(Date.now() / 1000);
const times = () => ({ iat: now(), exp: now() + 600 });
const uuid = "6f1c9c3e-51d2-4c8e-9a56-0f4bd4a7d0a1";

/** Each provider: its issuer, its entry in the configuration, the header and the claims of its tokens, and the user. */
const providers = {
  keycloak: {
    issuer: "https://sso.example.com/realms/acme",
    entry: `audience = ["agentwire"]
claims = { user = "/sub", tenant = "/azp", roles = "/realm_access/roles", scopes = "/scope" }`,
    header: { typ: "JWT" },
    claims: () => ({
      ...times(), jti: "onrtac:0a9f", aud: ["agentwire", "account"], sub: uuid, typ: "Bearer", azp: "spa", sid: "b3b2", acr: "1",
      "allowed-origins": ["https://app.example.com"], realm_access: { roles: ["offline_access", "member"] },
      resource_access: { account: { roles: ["manage-account"] } }, scope: "openid email profile", email_verified: true, preferred_username: "ada",
    }),
    // Keycloak's set has a key for encryption too.
    more: (key) => ({ ...key, kid: "enc-1", use: "enc", alg: "RSA-OAEP" }),
    user: `keycloak|${uuid}`,
  },
  auth0: {
    issuer: "https://acme.eu.auth0.com/",
    entry: `audience = ["https://agents.example.com"]
claims = { user = "/sub", tenant = "/org_id", roles = "/https:~1~1example.com~1roles", scopes = "/scope" }`,
    header: { typ: "at+jwt" },
    claims: () => ({
      ...times(), "https://example.com/roles": ["member"], sub: "auth0|64b7f1c2", aud: ["https://agents.example.com", "https://acme.eu.auth0.com/userinfo"],
      scope: "openid profile offline_access", azp: "XyZ", org_id: "org_9x", permissions: ["read:agents"],
    }),
    user: "auth0|auth0|64b7f1c2",
  },
  entra: {
    issuer: "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
    entry: `audience = ["api://agentwire", "2d4d11a2-f814-46a7-890a-274a72a7309e"]
claims = { user = "/oid", tenant = "/tid", roles = "/roles", scopes = "/scp" }`,
    header: { typ: "JWT", x5t: "MnC_VZcATfM5pOYiJHMba9goEKY" },
    claims: () => ({
      ...times(), nbf: now(), aud: "2d4d11a2-f814-46a7-890a-274a72a7309e", aio: "AXQAi", azp: "f2d1", azpacr: "0", idp: "live.com", name: "Ada", oid: uuid,
      preferred_username: "ada@example.com", rh: "0.A", roles: ["member"], scp: "access_as_user", sub: "pairwise", tid: "9188040d-6c67-4c5b-b112-36a304b66dad", uti: "u", ver: "2.0",
    }),
    more: (key) => ({ ...key, kid: "old", x5t: "old", x5c: ["MIIC"] }),
    user: `entra|${uuid}`,
  },
  okta: {
    issuer: "https://dev-1.okta.com/oauth2/default",
    entry: `audience = ["api://default"]
claims = { user = "/uid", tenant = "/cid", roles = "/groups", scopes = "/scp" }`,
    header: {},
    claims: () => ({ ...times(), ver: 1, jti: "AT.1", aud: "api://default", cid: "0oa1", uid: "00u1", scp: ["openid", "agents:*:run", "agents:*:read"], auth_time: now(), sub: "ada@example.com" }),
    user: "okta|00u1",
  },
  cognito: {
    issuer: "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Ab",
    entry: `audience = ["4kq"]
claims = { user = "/sub", roles = "/cognito:groups" }`,
    header: {},
    claims: () => ({ ...times(), sub: uuid, "cognito:groups": ["member"], "cognito:username": "ada", aud: "4kq", event_id: "e", token_use: "id", auth_time: now(), origin_jti: "o", email: "ada@example.com" }),
    user: `cognito|${uuid}`,
  },
  google: {
    issuer: "https://accounts.google.com",
    entry: `audience = ["1.apps.googleusercontent.com"]
claims = { user = "/sub", tenant = "/hd", roles = "/hd" }`,
    header: { typ: "JWT" },
    claims: () => ({ ...times(), azp: "1.apps.googleusercontent.com", aud: "1.apps.googleusercontent.com", sub: "110169484474386276334", hd: "member", email: "ada@example.com", email_verified: true, at_hash: "h", nonce: "n" }),
    user: "google|110169484474386276334",
  },
};

async function gateway(t, sets, agentUrl) {
  const keys = await keySets(t, sets);
  const entries = Object.entries(providers).map(
    ([name, { issuer, entry }]) => `[[auth.jwt]]\nname = "${name}"\nissuer = "${issuer}"\njwks = { url = "${keys}/${name}" }\nalgorithms = ["RS256", "ES256"]\n${entry}\n`,
  );
  return serve(
    t,
    `store = "memory:"\n${entries.join("\n")}\n[auth.roles]\nmember = ["agents:*:run", "agents:*:read"]\n[agents.a]\nupstream = { kind = "ag-ui", url = "${agentUrl}" }\n`,
  );
}

const start = (url, token, id) =>
  soon(
    "a run",
    fetch(url, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ threadId: id, runId: id, messages: [{ id: `${id}-u`, role: "user", content: "hi" }], tools: [], context: [], state: {}, forwardedProps: {} }),
    }),
  );

test("tokens of six providers are accepted, each for its own user", async (t) => {
  const upstream = await agent(t);
  const made = Object.fromEntries(Object.keys(providers).map((name) => [name, signer(`${name}-1`, name === "auth0" ? "ES256" : "RS256")]));
  const sets = {};
  for (const [name, { more }] of Object.entries(providers)) {
    sets[`/${name}`] = [more?.(signer("other").jwk), made[name].jwk].filter(Boolean);
  }
  const { url } = await gateway(t, sets, upstream.url);
  for (const [name, { issuer, header, claims }] of Object.entries(providers)) {
    const token = made[name].token(header, { iss: issuer, ...claims() });
    const response = await start(url, token, `run-${name}`);
    assert.equal(response.status, 200, `${name}: ${response.headers.get("agentwire-error-code")}`);
    assert.match(await response.text(), /RUN_FINISHED/);
    // Its own thread, and nobody else's.
    for (const other of Object.keys(providers)) {
      const read = await soon("a read", fetch(`${url}/runs/run-${other}`, { headers: { authorization: `Bearer ${token}` } }));
      const isThere = Object.keys(providers).indexOf(other) <= Object.keys(providers).indexOf(name);
      assert.equal(read.status, other === name && isThere ? 200 : 404, `${name} reads ${other}`);
    }
    // Another provider's key under this issuer's name, and this key under another issuer's.
    const foreign = made[name === "okta" ? "google" : "okta"];
    for (const forged of [
      foreign.token({ ...header, kid: made[name].kid }, { iss: issuer, ...claims() }),
      made[name].token(header, { iss: "https://evil.example/", ...claims() }),
      made[name].token(header, { iss: issuer, ...claims(), aud: "another" }),
      made[name].token(header, { iss: issuer, ...claims(), aud: undefined }),
      made[name].token(header, { iss: issuer, ...claims(), exp: now() - 600 }),
    ]) {
      assert.equal((await start(url, forged, "forged")).status, 401, name);
    }
  }
  const names = upstream.calls.length;
  assert.equal(names, Object.keys(providers).length, "a forged token starts nothing");
});

test("the access token of Cognito has no audience and is refused", async (t) => {
  const key = signer("cognito-1");
  const sets = Object.fromEntries(Object.keys(providers).map((name) => [`/${name}`, [key.jwk]]));
  const { url } = await gateway(t, sets, (await agent(t)).url);
  const claims = { ...times(), iss: providers.cognito.issuer, sub: uuid, client_id: "4kq", token_use: "access", scope: "agents:*:run", username: "ada" };
  assert.equal((await start(url, key.token({}, claims), "x")).status, 401);
});

test("keys are rotated without a restart", async (t) => {
  const [first, second] = [signer("k-1"), signer("k-2", "ES256")];
  const sets = Object.fromEntries(Object.keys(providers).map((name) => [`/${name}`, [first.jwk]]));
  const { url } = await gateway(t, sets, (await agent(t)).url);
  const { issuer, header, claims } = providers.keycloak;
  const token = (key) => key.token(header, { iss: issuer, ...claims() });
  assert.equal((await start(url, token(first), "one")).status, 200);
  assert.equal((await start(url, token(second), "two")).status, 401, "the key is not published yet");
  sets["/keycloak"] = [first.jwk, second.jwk];
  await soon(
    "the new key",
    (async () => {
      while ((await start(url, token(second), "three")).status !== 200) await new Promise((wake) => setTimeout(wake, 500));
    })(),
  );
  assert.equal((await start(url, token(first), "four")).status, 200, "the old key is still published");
});
