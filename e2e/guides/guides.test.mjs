// Runs every guide, and every migration page with commands, as pasted: its `sh` blocks in a shell, in an empty folder,
// with its `text` blocks as the expected output. Installs (`sh install`) are skipped, because the required suites have done them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { freePort } from "../../examples/support/ports.mjs";
import { bundleKit } from "../hai-sdk/kit.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));
const docs = path.join(root, "docs");

/** Python servers take seconds to import, and longer on a busy machine. */
const LIMIT_MS = 10 * 60 * 1000;

/** The fenced blocks of a page: kind and text. */
function blocks(page) {
  return [...page.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)].map(([, kind, text]) => ({ kind: kind.trim(), text }));
}

/** The same text with free ports of this machine. */
async function elsewhere(text) {
  for (const port of ["7117", "7118", "8000", "2024", "11434"]) text = text.replaceAll(new RegExp(`\\b${port}\\b`, "g"), String(await freePort()));
  return text;
}

function bash(script, cwd, env) {
  return new Promise((resolve) => {
    // A separate process group, so that servers left running by a guide end with it.
    const child = spawn("bash", ["-euo", "pipefail", "-c", script], { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    let errors = "";
    child.stdout.on("data", (bytes) => (output += bytes));
    child.stderr.on("data", (bytes) => (errors += bytes));
    const end = () => {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {}
    };
    const timer = setTimeout(end, LIMIT_MS);
    // Remaining processes keep the output open; their earlier output is still read.
    child.on("exit", end);
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code, output, errors });
    });
  });
}

/** The offset after the pieces of a line (separated by `…`), searched in order; -1 if one is missing. */
function seen(output, from, line) {
  let at = from;
  for (const piece of line.split("…").filter(Boolean)) {
    const found = output.indexOf(piece, at);
    if (found < 0) return -1;
    at = found + piece.length;
  }
  return at;
}

const read = (page) => fs.readFileSync(path.join(docs, page), "utf8");
const pagesOf = (folder) => fs.readdirSync(path.join(docs, folder)).filter((name) => name.endsWith(".md")).map((name) => `${folder}/${name}`);
const names = [...pagesOf("guides"), ...pagesOf("migrate").filter((page) => blocks(read(page)).some(({ kind }) => kind === "sh"))];

test("a translated guide has the commands and the output of its original", () => {
  const comments = / *(#|\/\/) .*$/gm;
  const code = (name) => blocks(read(name)).map(({ kind, text }) => `${kind}\n${text.replaceAll(comments, "")}`);
  const translated = names.filter((name) => name.endsWith(".zh.md"));
  assert.ok(translated.length > 0);
  for (const name of translated) assert.deepEqual(code(name), code(name.replace(".zh.md", ".md")), name);
});

for (const name of names) {
  test(`docs/${name} can be pasted`, async (t) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-guide-"));
    t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
    const all = blocks(read(name));
    const script = await elsewhere(all.filter(({ kind }) => kind === "sh").map(({ text }) => text).join("\n"));
    const places = ["langgraph", "adk"].map((suite) => path.join(target, "venv", suite, "bin"));
    const PATH = [path.dirname(binary), ...places, process.env.PATH].join(":");
    const env = { ...process.env, PATH, PYTHONPATH: path.join(root, "sdk", "python", "src"), PYTHONDONTWRITEBYTECODE: "1", LANGSMITH_TRACING: "false", LANGGRAPH_CLI_NO_ANALYTICS: "1", LANGGRAPH_NO_VERSION_CHECK: "true", ADK_DISABLE_TELEMETRY: "1" };
    // The packages of `npm install` blocks.
    const wanted = all.find(({ kind, text }) => kind === "sh install" && text.startsWith("npm install "))?.text.split(/\s+/)[2].replace(/(?<=.)@[\d.]+$/, "") ?? "";
    const declares = (suite) => wanted in JSON.parse(fs.readFileSync(path.join(root, "e2e", suite, "package.json"), "utf8")).dependencies;
    const suite = ["ag-ui", "faces", "faces-assistant", "faces-langgraph"].find(declares) ?? "ag-ui";
    const modules = path.join(root, "e2e", suite, "node_modules");
    fs.mkdirSync(path.join(folder, "node_modules"));
    for (const entry of fs.readdirSync(modules)) fs.symlinkSync(path.join(modules, entry), path.join(folder, "node_modules", entry));
    bundleKit(path.join(folder, "node_modules", "hai-client", "index.mjs"));
    const { code, output, errors } = await bash(script, folder, env);
    const logs = fs.readdirSync(folder).filter((file) => file.endsWith(".log")).map((file) => `${file}:\n${fs.readFileSync(path.join(folder, file), "utf8").slice(-2000)}`);
    assert.equal(code, 0, `${errors}\n${output}\n${logs.join("\n")}`);
    let at = 0;
    for (const line of all.filter(({ kind }) => kind === "text").flatMap(({ text }) => text.split("\n")).filter(Boolean)) {
      const next = seen(output, at, line);
      assert.ok(next >= 0, `\`${line}\` is not in the following output:\n${output.slice(at)}`);
      at = next;
    }
    // `toml` blocks are valid configuration files.
    for (const { text } of all.filter(({ kind }) => kind === "toml")) {
      fs.writeFileSync(path.join(folder, "file.toml"), text);
      const checked = await bash("agentwire config check file.toml", folder, env);
      assert.equal(checked.code, 0, checked.errors);
    }
  });
}
