// The gateway with its demo agent, and a React page: what the examples of pages start.

import fs from "node:fs";
import path from "node:path";

import { agentwire, port } from "./processes.mjs";

/**
 * A function that starts both and returns the page's URL. `here`: the folder of the example; `build`: its esbuild.
 * Ports: PAGE_PORT, GATEWAY_PORT; 0 is any free port.
 */
export const demoPage = (here, build) => async (group, { PAGE_PORT = 5173, GATEWAY_PORT = 7117 } = process.env) => {
  const [pagePort, gatewayPort] = [await port(PAGE_PORT), await port(GATEWAY_PORT)];
  const [page, gateway] = [pagePort, gatewayPort].map((port) => `http://127.0.0.1:${port}`);
  // A page may read the gateway's responses if its origin is listed.
  const serve = ["serve", "--store", "memory:", "--cors", page, "--listen", `127.0.0.1:${gatewayPort}`];
  await group.start(agentwire(), serve, { url: `${gateway}/readyz` });

  const folder = path.join(group.folder, "page");
  fs.cpSync(path.join(here, "page"), folder, { recursive: true });
  await build({
    entryPoints: [path.join(here, "page", "page.jsx")],
    outfile: path.join(folder, "page.js"),
    bundle: true,
    format: "esm",
    jsx: "automatic",
    define: { GATEWAY: JSON.stringify(gateway), "process.env.NODE_ENV": '"production"', "process.env": "{}" },
    loader: { ".woff": "dataurl", ".woff2": "dataurl", ".ttf": "dataurl" },
    logLevel: "error",
  });
  return group.serve(folder, pagePort);
};
