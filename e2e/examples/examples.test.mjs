// Runs the `test` of every folder in `examples/` that has a README; a failing one prints the reason.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const folder = path.join(root, "examples");

/** Timeout. Two real servers and a browser take about 15 seconds on a quiet machine. */
const LIMIT_MS = 10 * 60 * 1000;

/** Helper processes of a browser or a bundler exit shortly after their parent; this is the limit. */
const GRACE_MS = 60_000;

/** Servers that an example starts by name come from its own requirements, or from those of the required suites. */
function environment(example) {
  const venvs = [`_examples_${example}`, "langgraph", "adk"].map((name) => path.join(target, "venv", name, "bin"));
  return {
    ...process.env,
    AGENTWIRE: path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire")),
    AGENTWIRE_ROOT: root,
    AGENTWIRE_TARGET: target,
    PATH: [...venvs, process.env.PATH].join(path.delimiter),
  };
}

/** Runs a program and all its child processes to the end. */
function run(program, cwd) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, [], { cwd, env: environment(path.basename(cwd)), detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    child.stdout.on("data", (bytes) => (output += bytes));
    child.stderr.on("data", (bytes) => (output += bytes));
    /** Signals the process group; false if it is empty. */
    const signal = (name) => {
      try {
        return process.kill(-child.pid, name);
      } catch {
        return false;
      }
    };
    const timer = setTimeout(() => {
      output += `\nit was ended after ${LIMIT_MS / 60_000} minutes`;
      signal("SIGKILL");
    }, LIMIT_MS);
    child.on("error", reject);
    child.on("exit", async (code) => {
      clearTimeout(timer);
      // Terminated processes may need a moment to exit.
      for (const begun = Date.now(); signal(0) && Date.now() - begun < GRACE_MS; ) await new Promise((wake) => setTimeout(wake, 50));
      resolve({ code, left: signal("SIGKILL"), output });
    });
  });
}

const examples = fs
  .readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && fs.existsSync(path.join(folder, entry.name, "README.md")))
  .map((entry) => entry.name);

test("the index lists every example", () => {
  assert.ok(examples.length > 0);
  const index = fs.readFileSync(path.join(folder, "README.md"), "utf8");
  const absent = examples.filter((name) => !index.includes(`](${name}/)`));
  assert.deepEqual(absent, [], "examples/README.md has no line for these");
});

for (const name of examples) {
  test(`examples/${name}`, async () => {
    const program = path.join(folder, name, "test");
    assert.ok(fs.existsSync(program), `examples/${name} has no \`test\``);
    const { code, left, output } = await run(program, path.join(folder, name));
    assert.equal(code, 0, `\`examples/${name}/test\` ended with ${code}:\n${output}`);
    assert.ok(!left, `\`examples/${name}/test\` left processes behind`);
  });
}
