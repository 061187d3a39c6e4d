// The checked-in build equals a fresh one, and is small enough.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { folder, root } from "./support.mjs";

const built = path.join(root, "crates/agentwire-gateway/console");

function files(folder, prefix = "") {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(prefix, entry.name);
    return entry.isDirectory() ? files(path.join(folder, entry.name), name) : [name];
  }).sort();
}

test("the checked-in build equals a fresh one", (t) => {
  // In a copy, so that a test never changes the tree.
  const copy = folder(t);
  const web = path.join(copy, "web");
  fs.cpSync(path.join(root, "web"), web, { recursive: true, filter: (name) => !name.includes("node_modules") });
  fs.cpSync(path.join(root, "sdk/typescript"), path.join(copy, "sdk/typescript"), { recursive: true, filter: (name) => !name.includes("node_modules") });
  fs.mkdirSync(path.join(copy, "crates/agentwire-gateway"), { recursive: true });
  const run = (...args) => execFileSync("npm", args, { cwd: web, stdio: ["ignore", "pipe", "pipe"], encoding: "utf8" });
  for (let attempt = 1; ; attempt += 1) {
    try {
      run("ci", "--no-audit", "--no-fund", "--loglevel=error");
      break;
    } catch (error) {
      if (attempt === 5) throw error;
    }
  }
  run("run", "build");
  const fresh = path.join(copy, "crates/agentwire-gateway/console");
  assert.deepEqual(files(fresh), files(built));
  for (const name of files(fresh)) {
    assert.ok(fs.readFileSync(path.join(fresh, name)).equals(fs.readFileSync(path.join(built, name))), `${name} differs: run \`npm ci && npm run build\` in web/`);
  }
});

test("the whole page without charts has at most 250 kB compressed", () => {
  const sizes = files(built).filter((name) => !name.includes("charts")).map((name) => gzipSync(fs.readFileSync(path.join(built, name)), { level: 9 }).length);
  assert.ok(sizes.reduce((sum, size) => sum + size, 0) <= 250_000, String(sizes));
});
