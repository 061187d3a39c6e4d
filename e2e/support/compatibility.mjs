// Parts of pages that are made from tests.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "../..");
export const read = (file) => fs.readFileSync(path.join(root, file), "utf8");

/** Compares a part of a page, between two marks, with the text that it must have; with UPDATE=1, writes it. */
export function same(file, start, end, wanted) {
  const page = read(file);
  const [from, to] = [page.indexOf(start) + start.length, page.indexOf(end, page.indexOf(start) + start.length)];
  assert.ok(from >= start.length && to >= from, `${file} has no part between \`${start}\` and \`${end}\``);
  if (process.env.UPDATE) fs.writeFileSync(path.join(root, file), page.slice(0, from) + wanted + page.slice(to));
  else assert.equal(page.slice(from, to), wanted);
}

/** Compares the only table of a section. */
export function sameTable(file, section, wanted) {
  const page = read(file);
  const table = page.split(/^## /m).find((part) => part.startsWith(`${section}\n`))?.match(/^(\|.*\n)+/m)?.[0];
  assert.ok(table, `${file} has no section \`${section}\` with a table`);
  if (process.env.UPDATE) fs.writeFileSync(path.join(root, file), page.replace(table, () => wanted));
  else assert.equal(table, wanted);
}
