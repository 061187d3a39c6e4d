// Pages with the packages of assistant-ui, gateways and agents.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

import { pages } from "../support/pages.mjs";

export { PATIENCE_MS, agent, browser, folder, gate, serve } from "../console/support.mjs";
export { holds, until } from "../support/pages.mjs";

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

const page = pages(build, path.join(here, "pages"), { plugins: [packagesOfSuite] });

export const pageServer = (t) => page(t, "assistant");
