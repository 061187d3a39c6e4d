// Reverse proxies from Debian in front of the gateway, by the recipes of docs/security.md: TLS and users at the proxy,
// streams without buffering, reconnects.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import https from "node:https";
import net from "node:net";
import path from "node:path";
import { test } from "node:test";

import { agent, certificate, folder, recipe, serve, soon } from "./support.mjs";

const SECRET = "proxy-secret-of-the-test";

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function swap(text, from, to) {
  assert.ok(text.includes(from), `the recipe has no \`${from}\` any more`);
  return text.replaceAll(from, to);
}

/** Starts a proxy and waits until it accepts connections. */
async function start(t, command, args, port, env) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  t.after(() => child.kill("SIGTERM"));
  let said = "";
  for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (bytes) => (said += bytes));
  let ended = false;
  child.on("close", () => (ended = true));
  await soon(
    `${command} on ${port}`,
    (async () => {
      for (;;) {
        if (ended) throw new Error(`${command} ended: ${said}`);
        const isOpen = await new Promise((resolve) => {
          const socket = net.connect(port, "127.0.0.1", () => (socket.destroy(), resolve(true)));
          socket.on("error", () => resolve(false));
        });
        if (isOpen) return;
        await new Promise((wake) => setTimeout(wake, 50));
      }
    })(),
  );
}

const proxies = {
  async nginx(t, gateway, tls) {
    const [at, port] = [folder(t), await freePort()];
    const hash = (password) => execFileSync("openssl", ["passwd", "-apr1", password], { encoding: "utf8" }).trim();
    fs.writeFileSync(path.join(at, "users"), `ada:${hash("a")}\nbob:${hash("b")}\n`);
    const location = swap(swap(recipe("nginx", "location /"), "http://127.0.0.1:7117", gateway), "SECRET", SECRET);
    const conf = `daemon off; pid ${at}/pid; error_log stderr; worker_processes 1;
events {}
http {
  access_log off; client_body_temp_path ${at}/body; proxy_temp_path ${at}/proxy; fastcgi_temp_path ${at}/f; uwsgi_temp_path ${at}/u; scgi_temp_path ${at}/s;
  server {
    listen 127.0.0.1:${port} ssl http2; ssl_certificate ${tls.cert}; ssl_certificate_key ${tls.key};
    server_name agents.example.com; auth_basic "agents"; auth_basic_user_file ${at}/users;
    ${location}
  }
}`;
    fs.writeFileSync(path.join(at, "nginx.conf"), conf);
    // Its workers read the folder as another user.
    fs.chmodSync(at, 0o755);
    await start(t, "nginx", ["-p", at, "-c", path.join(at, "nginx.conf")], port);
    return port;
  },
  async caddy(t, gateway, tls) {
    const [at, port] = [folder(t), await freePort()];
    const hash = (password) => execFileSync("caddy", ["hash-password", "--plaintext", password], { encoding: "utf8" }).trim();
    let site = swap(recipe("caddyfile", "agents.example.com"), "127.0.0.1:7117", gateway.replace("http://", ""));
    site = swap(site, "agents.example.com {", `https://agents.example.com:${port} {\n  bind 127.0.0.1\n  tls ${tls.cert} ${tls.key}`);
    site = swap(site, "ada HASH", `ada ${hash("a")}\n    bob ${hash("b")}`);
    fs.writeFileSync(path.join(at, "Caddyfile"), `{\n  admin off\n  auto_https off\n}\n${site}`);
    await start(t, "caddy", ["run", "--config", path.join(at, "Caddyfile"), "--adapter", "caddyfile"], port, { PROXY_SECRET: SECRET, HOME: at, XDG_DATA_HOME: at, XDG_CONFIG_HOME: at });
    return port;
  },
};

for (const [name, proxy] of Object.entries(proxies)) {
  test(`${name}: users, TLS, streams as they are made, and reconnects`, async (t) => {
    const upstream = await agent(t);
    const toml = `store = "memory:"\n${recipe("toml", "hosts = ")}\n[agents.support]\nupstream = { kind = "ag-ui", url = "${upstream.url}" }\n`;
    const { url } = await serve(t, toml, { PROXY_SECRET: SECRET });
    const tls = certificate(t);
    const port = await proxy(t, url, tls);

    /** A request through the proxy; the response as it arrives. */
    const ask = (method, at, { as, body, headers = {} } = {}) =>
      soon(
        `${method} ${at}`,
        new Promise((resolve, reject) => {
          const request = https.request({
            host: "127.0.0.1", port, servername: "agents.example.com", ca: tls.pem, method, path: at, agent: false,
            headers: { host: "agents.example.com", ...(as ? { authorization: `Basic ${Buffer.from(as).toString("base64")}` } : {}), ...(body ? { "content-type": "application/json" } : {}), ...headers },
          });
          request.on("response", resolve).on("error", reject);
          request.end(body && JSON.stringify(body));
        }),
      );
    const until = async (response, wanted) => {
      let text = "";
      response.setEncoding("utf8");
      for await (const part of response) {
        text += part;
        if (text.includes(wanted)) break;
      }
      return text;
    };
    const input = { threadId: "t", runId: "r", messages: [{ id: "m", role: "user", content: "hi" }], tools: [], context: [], state: {}, forwardedProps: {} };

    assert.equal((await ask("GET", "/threads")).statusCode, 401, "the proxy asks for a password");
    assert.equal((await ask("GET", "/threads", { as: "ada:wrong" })).statusCode, 401);

    // The agent waits after its first word: a proxy that buffers would show nothing.
    upstream.holds = true;
    const streamed = await ask("POST", "/", { as: "ada:a", body: input });
    assert.equal(streamed.statusCode, 200);
    const text = await soon("the first word", until(streamed, "first"));
    assert.ok(!text.includes("second"));
    const last = text.match(/^id: (.*)$/gm).at(-1).slice(4);
    streamed.destroy();

    // The connection is gone; the run is not, and the rest comes by the position.
    const resumed = await ask("GET", "/runs/r/stream", { as: "ada:a", headers: { "last-event-id": last } });
    assert.equal(resumed.statusCode, 200);
    upstream.release();
    const rest = await soon("the rest", until(resumed, "RUN_FINISHED"));
    assert.ok(rest.includes("second") && !rest.includes('"first"'), rest);

    // Users are those of the proxy, whatever a client says.
    assert.equal((await ask("GET", "/runs/r", { as: "ada:a" })).statusCode, 200);
    for (const headers of [{}, { "x-user-id": "ada" }, { "x-user-id": "ada", "x-proxy-secret": "guess", "x-roles": "admin" }]) {
      assert.equal((await ask("GET", "/runs/r", { as: "bob:b", headers })).statusCode, 404, JSON.stringify(headers));
    }
    assert.equal((await ask("DELETE", "/thread/t", { as: "ada:a", headers: { "x-roles": "admin" } })).statusCode, 403, "the role is the proxy's");
    // Past the proxy nobody is anybody.
    const direct = (headers) => fetch(`${url}/runs/r`, { headers: { ...headers } }).then(({ status }) => status);
    for (const headers of [{ "x-user-id": "ada" }, { "x-user-id": "ada", "x-proxy-secret": "guess" }]) {
      assert.ok([401, 421].includes(await direct(headers)), JSON.stringify(headers));
    }
    assert.ok(!JSON.stringify(upstream.calls).includes(SECRET), "the agent does not see the secret");
  });
}
