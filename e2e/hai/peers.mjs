// The side of agentwire in the comparison: the binary, and the fold of the core as the helper program `fold`.

import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root =
  process.env.AGENTWIRE_ROOT ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
export const binary = path.resolve(process.env.AGENTWIRE ?? path.join(target, "debug", "agentwire"));

if (!fs.existsSync(binary)) {
  throw new Error(`${binary} is missing: build it with \`cargo build\``);
}

/** Runs the command line; returns its exit code and output. */
export function agentwire(args) {
  return new Promise((resolve) => {
    const options = { encoding: "buffer", maxBuffer: 1 << 28 };
    execFile(binary, args, options, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, stdout, stderr: stderr.toString() });
    });
  });
}

/** The fold of the core after each of the AG-UI streams. */
export async function folds(streams) {
  const program = path.join(target, "debug", "fold");
  if (!fs.existsSync(program)) {
    throw new Error(`${program} is missing: build it with \`cargo build -p agentwire-tools\``);
  }
  const child = spawn(program, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {});
  child.stdin.end(streams.map(({ name, stream }) => `${JSON.stringify({ name, stream })}\n`).join(""));
  child.stdout.setEncoding("utf8");
  let text = "";
  for await (const part of child.stdout) text += part;
  return new Map(text.split("\n").filter(Boolean).map((line) => JSON.parse(line)).map((fold) => [fold.name, fold]));
}

/** Every fixture stream of a reader: the files with an expected output beside them. */
export function fixtures() {
  const found = [];
  const isStream = (file) =>
    !file.includes(".events.") && fs.existsSync(`${file.slice(0, -path.extname(file).length)}.events.jsonl`);
  const walk = (folder, format) => {
    for (const name of fs.readdirSync(folder).sort()) {
      const file = path.join(folder, name);
      if (fs.statSync(file).isDirectory()) walk(file, format);
      else if (isStream(file)) found.push({ format, file, name: path.relative(root, file) });
    }
  };
  const formats = path.join(root, "crates", "agentwire-core", "src", "format");
  for (const folder of fs.readdirSync(formats).sort()) {
    const fixtures = path.join(formats, folder, "fixtures");
    if (fs.existsSync(fixtures)) walk(fixtures, folder.replaceAll("_", "-"));
  }
  return found;
}

/** Options of a fixture are in its name: `x.thinking=chains.jsonl`. */
export const optionsOf = (file) =>
  path.basename(file).split(".").filter((part) => part.includes("=")).flatMap((pair) => ["-O", pair]);
