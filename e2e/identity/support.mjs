// A gateway with authentication, an identity provider and an agent that the test controls, and the recipes of the page.

import { execFileSync, spawn } from "node:child_process";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

// Timeout for any wait; generous, for busy machines.
const PATIENCE_MS = 180_000;

/** Waits for an expected event, with a timeout. */
export function soon(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`timed out: ${what}`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A folder that is removed after the test. */
export function folder(t) {
  const made = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-identity-"));
  t.after(() => fs.rmSync(made, { recursive: true, force: true }));
  return made;
}

async function listening(t, handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** A signing key of an identity provider. */
export function signer(kid, type = "RS256") {
  const { publicKey, privateKey } =
    type === "ES256" ? generateKeyPairSync("ec", { namedCurve: "P-256" }) : generateKeyPairSync("rsa", { modulusLength: 2048 });
  const base = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return {
    kid,
    jwk: { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: type },
    token(header, claims) {
      const content = `${base({ alg: type, kid, ...header })}.${base(claims)}`;
      const signature = sign("sha256", Buffer.from(content), { key: privateKey, dsaEncoding: "ieee-p1363" });
      return `${content}.${signature.toString("base64url")}`;
    },
  };
}

/** Serves key sets by path; `sets` can be changed. */
export async function keySets(t, sets) {
  return listening(t, (request, response) => {
    const keys = sets[request.url];
    response.writeHead(keys ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify({ keys }));
  });
}

/** The server of an AG-UI agent: says one word, waits until it may go on, says another, and ends. */
export async function agent(t) {
  const state = { calls: [], waiting: [], holds: false };
  const url = await listening(t, (request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (part) => (body += part));
    request.on("end", async () => {
      const { threadId, runId } = JSON.parse(body);
      state.calls.push(request.headers);
      response.on("error", () => {});
      response.writeHead(200, { "content-type": "text/event-stream" });
      const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
      say({ type: "RUN_STARTED", threadId, runId });
      say({ type: "TEXT_MESSAGE_START", messageId: `m-${runId}`, role: "assistant" });
      say({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${runId}`, delta: "first" });
      if (state.holds) await new Promise((resolve) => state.waiting.push(resolve));
      say({ type: "TEXT_MESSAGE_CONTENT", messageId: `m-${runId}`, delta: " second" });
      say({ type: "TEXT_MESSAGE_END", messageId: `m-${runId}` });
      say({ type: "RUN_FINISHED", threadId, runId });
      response.end();
    });
  });
  return Object.assign(state, {
    url: `${url}/`,
    release() {
      state.holds = false;
      state.waiting.splice(0).forEach((resolve) => resolve());
    },
  });
}

/** `agentwire serve` with a configuration, on a free port of this machine. */
export async function serve(t, toml, env = {}) {
  const cwd = folder(t);
  fs.writeFileSync(path.join(cwd, "agentwire.toml"), toml);
  const args = ["serve", "--config", "agentwire.toml", "--listen", "127.0.0.1:0", "--log", "warn"];
  const child = spawn(binary, args, { cwd, env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stderr.setEncoding("utf8");
  const url = await soon(
    "the address of the gateway",
    new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => reject(new Error(`serve ended with ${code}: ${said}`)));
      child.stderr.on("data", (text) => {
        said += text;
        const found = said.match(/listening\s+\S*?(https?:\/\/[\d.]+:\d+)\s/);
        if (found) resolve(found[1]);
      });
    }),
  );
  return { url, said: () => said };
}

const page = fs.readFileSync(path.join(root, "docs", "security.md"), "utf8");
const blocks = [...page.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text]) => ({ language, text, isUsed: false }));

/** The block of the page that begins with this text; marks it as tested. */
export function recipe(language, start) {
  const found = blocks.filter((block) => block.language === language && block.text.startsWith(start));
  if (found.length !== 1) throw new Error(`docs/security.md has ${found.length} blocks \`${language}\` that begin with \`${start}\``);
  found[0].isUsed = true;
  return found[0].text;
}

/** The recipes that no test has used. */
export const unused = () =>
  blocks.filter((block) => ["js", "nginx", "caddyfile"].includes(block.language) && !block.isUsed).map((block) => block.text.split("\n")[0]);

/** Runs a recipe in JavaScript with these names, and returns one of its own. */
export function run(start, names, result) {
  const AsyncFunction = (async () => {}).constructor;
  return new AsyncFunction(...Object.keys(names), `${recipe("js", start)}\nreturn ${result};`)(...Object.values(names));
}

/** A certificate for this machine, made by openssl. */
export function certificate(t) {
  const at = folder(t);
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => path.join(at, name));
  const names = "subjectAltName=DNS:agents.example.com,DNS:localhost,IP:127.0.0.1";
  const args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=agents.example.com", "-addext", names];
  execFileSync("openssl", [...args, "-keyout", key, "-out", cert], { stdio: "ignore" });
  return { key, cert, pem: fs.readFileSync(cert) };
}

export const sha = (text) => createHash("sha256").update(text).digest("hex");
