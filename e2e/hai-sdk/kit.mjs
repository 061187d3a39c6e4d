// The client package as one module. `dist` belongs to the tests of the package, which build it while others run.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
export const sdk = path.join(root, "sdk", "typescript", "hai-client");
export const quiet = { stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" };

/** Bundles the source of the package into `file`, `index.mjs` of a folder that can be imported as a package. */
export function bundleKit(file) {
  const esbuild = path.join(sdk, "node_modules", ".bin", "esbuild");
  execFileSync(esbuild, [path.join(sdk, "src", "index.ts"), "--bundle", "--format=esm", "--platform=node", `--outfile=${file}`], quiet);
  fs.writeFileSync(path.join(path.dirname(file), "package.json"), JSON.stringify({ name: "hai-client", main: path.basename(file) }));
}
