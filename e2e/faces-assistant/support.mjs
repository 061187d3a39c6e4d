// Pages with the packages of assistant-ui, bundled once per process, on a server with an origin of its own.

import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export { PATIENCE_MS, agent, browser, folder, gate, serve } from "../console/support.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const examples = path.resolve(here, "../../examples");

/** The adapter of the example uses the packages of this suite: a page must not have two copies of React. */
const packagesOfSuite = {
  name: "packages-of-suite",
  setup(bundler) {
    bundler.onResolve({ filter: /^[^./]/ }, ({ path: name, importer, kind, pluginData }) => {
      if (pluginData === "resolved" || !importer.startsWith(examples)) return undefined;
      return bundler.resolve(name, { kind, resolveDir: here, pluginData: "resolved" });
    });
  },
};

let bundle;

/** The address of a server with the page. */
export async function pageServer(t) {
  bundle ??= build({
    entryPoints: [path.join(here, "pages", "assistant.jsx")],
    bundle: true,
    write: false,
    outdir: "/",
    format: "esm",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
    plugins: [packagesOfSuite],
    logLevel: "error",
  }).then(({ outputFiles }) => outputFiles[0].contents);
  const script = await bundle;
  const server = http.createServer((request, response) => {
    const isScript = request.url.startsWith("/assistant.js");
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html; charset=utf-8" });
    response.end(isScript ? script : '<!doctype html><title>page</title><body><div id="root"></div><script type="module" src="/assistant.js"></script>');
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
  throw new Error(`timed out: ${await (typeof what === "function" ? what() : what)}`);
}
