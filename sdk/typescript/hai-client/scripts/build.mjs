// Builds dist/: CommonJS (.js, .d.ts) by tsc, and ES modules (.mjs, .d.mts) from a second run whose relative imports get
// their file names. The files are real ones, because `moduleResolution: node` knows no `exports`.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const dist = path.join(root, "dist");
const modules = path.join(root, "dist", ".modules");
const tsc = path.join(root, "node_modules", "typescript", "bin", "tsc");

function files(folder) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    return entry.isDirectory() ? files(name) : [name];
  });
}

fs.rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [tsc, "-p", root], { stdio: "inherit" });
execFileSync(process.execPath, [tsc, "-p", root, "--module", "ES2020", "--outDir", modules], { stdio: "inherit" });
for (const file of files(modules)) {
  const isTypes = file.endsWith(".d.ts");
  const text = fs.readFileSync(file, "utf8").replace(/(from\s+|import\()"(\.{1,2}\/?[^"]*)"/g, (_, lead, name) => {
    const target = path.resolve(path.dirname(file), name);
    const isFolder = fs.existsSync(target) && fs.statSync(target).isDirectory();
    return `${lead}"${name.replace(/\/$/, "")}${isFolder ? "/index" : ""}.mjs"`;
  });
  // fast-json-patch is CommonJS: Node offers its functions by the default export only.
  const imports = text.replace(/import \{ applyPatch \} from "fast-json-patch";/, 'import jsonPatch from "fast-json-patch";\nconst { applyPatch } = jsonPatch;');
  const relative = path.relative(modules, file).replace(/\.d\.ts$/, ".d.mts").replace(/\.js$/, ".mjs");
  fs.writeFileSync(path.join(dist, relative), isTypes ? text : imports);
}
fs.rmSync(modules, { recursive: true, force: true });
