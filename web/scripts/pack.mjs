// Checks the size of a fresh build: the first load, compressed, without charts.
import { readFileSync, readdirSync } from "node:fs";
import { gzipSync } from "node:zlib";

const folder = new URL("../../crates/agentwire-gateway/console/", import.meta.url);
const LIMIT = 250_000;
const files = ["index.html", "console/console.js", "console/console.css", "console/icon.svg"];
const size = (name) => gzipSync(readFileSync(new URL(name, folder)), { level: 9 }).length;
const total = files.reduce((sum, name) => sum + size(name), 0);
console.log(`first load ${total} bytes compressed, charts ${size("console/charts.js")}`);
const known = ["charts.js", "console.css", "console.js", "icon.svg"];
const found = readdirSync(new URL("console/", folder)).sort();
if (String(found) !== String(known)) throw new Error(`expected the files ${known}, found ${found}`);
if (total > LIMIT) throw new Error(`the first load has more than ${LIMIT} bytes`);
