// Pages with the real packages, bundled once, on a server with an origin of its own.

import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export { PATIENCE_MS, agent, browser, folder, gate, serve } from "../console/support.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const bundles = new Map();

/** The files of a page; made once per process. */
function bundle(name) {
  if (!bundles.has(name)) {
    bundles.set(name, build({
      entryPoints: [path.join(here, "pages", `${name}.jsx`)],
      bundle: true,
      write: false,
      outdir: "/",
      format: "esm",
      jsx: "automatic",
      define: { "process.env.NODE_ENV": '"production"' },
      loader: { ".woff": "dataurl", ".woff2": "dataurl", ".ttf": "dataurl" },
      logLevel: "error",
    }).then(({ outputFiles }) => new Map(outputFiles.map((file) => [path.basename(file.path), file.contents]))));
  }
  return bundles.get(name);
}

/** The address of a server with a page. */
export async function pageServer(t, name) {
  const files = await bundle(name);
  const server = http.createServer((request, response) => {
    const file = path.basename(new URL(request.url, "http://page").pathname);
    const content = files.get(file);
    const type = file.endsWith(".css") ? "text/css" : file.endsWith(".js") ? "text/javascript" : "text/html";
    response.writeHead(200, { "content-type": `${type}; charset=utf-8` });
    response.end(content ?? `<!doctype html><title>page</title><body><div id="root"></div><script type="module" src="/${name}.js"></script>`);
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
