// The client package as one module. `dist` belongs to the tests of the package, which build it while others run.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
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

/** Builds and packs the package in a folder of its own, and installs it into `modules` under the standard's name. */
export function installKit(modules) {
  const work = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-hai-pack-"));
  try {
    for (const name of ["package.json", "tsconfig.json", "README.md", "scripts", "src"]) {
      fs.cpSync(path.join(sdk, name), path.join(work, name), { recursive: true });
    }
    fs.symlinkSync(path.join(sdk, "node_modules"), path.join(work, "node_modules"));
    execFileSync("npm", ["run", "build"], { cwd: work, ...quiet });
    const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--json", "--ignore-scripts"], { cwd: work, ...quiet }));
    const installed = path.join(modules, "hai-client");
    fs.mkdirSync(installed, { recursive: true });
    execFileSync("tar", ["-xzf", path.join(work, filename), "-C", installed, "--strip-components=1"], quiet);
    fs.cpSync(path.join(sdk, "node_modules", "fast-json-patch"), path.join(modules, "fast-json-patch"), { recursive: true });
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}
