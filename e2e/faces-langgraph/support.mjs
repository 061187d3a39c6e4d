// Pages with the real packages of LangGraph, bundled once, on a server with an origin of its own; gateways and agents.

import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export { PATIENCE_MS, agent, binary, browser, folder, gate, root, serve } from "../console/support.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const bundles = new Map();

/** The script of a page; made once per process. */
function bundle(name) {
  if (!bundles.has(name)) {
    bundles.set(name, build({
      entryPoints: [path.join(here, "pages", `${name}.jsx`)],
      bundle: true,
      write: false,
      format: "esm",
      jsx: "automatic",
      define: { "process.env.NODE_ENV": '"production"', "process.env": "{}" },
      logLevel: "error",
    }).then(({ outputFiles: [{ contents }] }) => contents));
  }
  return bundles.get(name);
}

/** The address of a server with a page. */
export async function pageServer(t, name) {
  const script = await bundle(name);
  const server = http.createServer((request, response) => {
    const isScript = new URL(request.url, "http://page").pathname === "/page.js";
    response.writeHead(200, { "content-type": `text/${isScript ? "javascript" : "html"}; charset=utf-8` });
    response.end(isScript ? script : '<!doctype html><title>page</title><body><div id="root"></div><script type="module" src="/page.js"></script>');
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** Waits until `check` gives a value. */
export async function until(check, what) {
  for (let tries = 0; tries < 6000; tries += 1) {
    const value = await check();
    if (value) return value;
    await new Promise((wake) => setTimeout(wake, 20));
  }
  throw new Error(`timed out: ${what}`);
}

/** All items of a stream. */
export async function collect(stream) {
  const all = [];
  for await (const item of stream) all.push(item);
  return all;
}

/** The text of a message's content. */
export const textOf = ({ content }) =>
  typeof content === "string" ? content : content.map((block) => block.text ?? "").join("");
