// Every folder of `examples/` that explains itself is run by its own `test`, which says why when it does not go.

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

/** Two real servers and a browser take a quarter of a minute on a quiet machine; what takes this long hangs. */
const LIMIT_MS = 10 * 60 * 1000;

/** Helpers of a browser or a bundler end by themselves once their parent has; those that have not by then will not. */
const GRACE_MS = 60_000;

// The servers that examples start by name come from the packages of the suites that this one needs.
const programs = ["langgraph", "adk"].map((suite) => path.join(target, "venv", suite, "bin"));
const env = {
  ...process.env,
  AGENTWIRE: path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire")),
  AGENTWIRE_ROOT: root,
  AGENTWIRE_TARGET: target,
  PATH: [...programs, process.env.PATH].join(path.delimiter),
};

/** Runs a program to its end, with all that it started. */
function run(program, cwd) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, [], { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    child.stdout.on("data", (bytes) => (output += bytes));
    child.stderr.on("data", (bytes) => (output += bytes));
    /** Signals the group; false if nobody is left in it. */
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
      // What was told to end may need a moment.
      for (const begun = Date.now(); signal(0) && Date.now() - begun < GRACE_MS; ) await new Promise((wake) => setTimeout(wake, 50));
      resolve({ code, left: signal("SIGKILL"), output });
    });
  });
}

const examples = fs
  .readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && fs.existsSync(path.join(folder, entry.name, "README.md")))
  .map((entry) => entry.name);

test("the index names every example", () => {
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
