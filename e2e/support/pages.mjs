// Pages with the packages of a suite, bundled once per process, on a server with an origin of its own.

import http from "node:http";
import path from "node:path";

/**
 * A function that serves a page of a suite until the end of a test and returns its address. `build`: the suite's own
 * esbuild; `folder`: the folder of its pages; `options`: more options of the build.
 */
export function pages(build, folder, options = {}) {
  const bundles = new Map();
  const bundle = async (name) => {
    const { outputFiles } = await build({
      entryPoints: [path.join(folder, `${name}.jsx`)],
      bundle: true,
      write: false,
      outdir: "/",
      format: "esm",
      jsx: "automatic",
      define: { "process.env.NODE_ENV": '"production"', "process.env": "{}" },
      loader: { ".woff": "dataurl", ".woff2": "dataurl", ".ttf": "dataurl" },
      logLevel: "error",
      ...options,
    });
    return new Map(outputFiles.map((file) => [path.basename(file.path), file.contents]));
  };
  return async (t, name) => {
    if (!bundles.has(name)) bundles.set(name, bundle(name));
    const files = await bundles.get(name);
    const server = http.createServer((request, response) => {
      const file = path.basename(new URL(request.url, "http://page").pathname);
      const type = file.endsWith(".css") ? "text/css" : file.endsWith(".js") ? "text/javascript" : "text/html";
      response.writeHead(200, { "content-type": `${type}; charset=utf-8` });
      response.end(files.get(file) ?? `<!doctype html><title>page</title><body><div id="root"></div><script type="module" src="/${name}.js"></script>`);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return `http://127.0.0.1:${server.address().port}`;
  };
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

/** Repeats an assertion about a page until it holds, because a page draws after an event and not with it. */
export async function holds(assertion) {
  for (let tries = 0; tries < 1500; tries += 1) {
    try {
      return await assertion();
    } catch (error) {
      if (error.code !== "ERR_ASSERTION") throw error;
    }
    await new Promise((wake) => setTimeout(wake, 20));
  }
  return assertion();
}
