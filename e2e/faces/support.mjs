// Pages with the packages of CopilotKit, gateways and agents.

import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

import { pages } from "../support/pages.mjs";

export { PATIENCE_MS, agent, browser, folder, gate, serve } from "../console/support.mjs";
export { holds, until } from "../support/pages.mjs";

export const pageServer = pages(build, path.join(path.dirname(fileURLToPath(import.meta.url)), "pages"));
