// The audit log of three gateways: one chain each, verified and exported together.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { binary } from "../gateway/support.mjs";
import { ask, cluster, last, postgres, run, until } from "./cluster.mjs";

test("each replica writes a named chain, goes on with it after a crash, and all are verified and merged", async (t) => {
  const server = await postgres(t);
  const settings = 'audit = { file = "audit.jsonl", name = "gw", key = { env = "AUDIT_KEY" } }\n';
  const env = { AUDIT_KEY: "a key for the chains of this test" };
  const group = await cluster(t, { server, settings, env });
  const audit = (...args) => {
    const options = { cwd: group.cwd, env: { ...process.env, ...env, STORE: "memory:", REPLICAS_KEY: "none" }, encoding: "utf8" };
    return spawnSync(binary, ["audit", ...args, "--config", "agentwire0.toml"], options);
  };
  const chains = () => fs.readdirSync(group.cwd).filter((name) => /^audit\..*\.jsonl$/.test(name)).sort();
  // Whole lines: the last one may be half written.
  const parse = (text) => text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
  const linesOf = (name) => parse(fs.readFileSync(path.join(group.cwd, name), "utf8"));
  const lines = () => chains().flatMap(linesOf);
  let round = 0;
  const work = async () => {
    round += 1;
    for (const [index, replica] of group.replicas.entries()) {
      const id = `r${round}-${index}`;
      assert.equal(last(await (await run(replica, "plain", id, id, "auto 1")).rest()).type, "RUN_FINISHED");
      assert.equal((await ask("POST", `${group.replicas[(index + 1) % 3].url}/agents/plain/runs/${id}/stop`)).status, 200);
      await until(`the line about ${id}`, () => lines().some(({ action, run }) => action === "start" && run === id));
    }
  };
  await work();
  assert.deepEqual(chains(), ["audit.gw-2.jsonl", "audit.gw-3.jsonl", "audit.gw.jsonl"]);
  await group.two.end("SIGKILL");
  await group.two.start();
  await work();
  assert.equal(chains().length, 3, "a gateway that starts again has its chain");
  for (const replica of group.replicas) await replica.end("SIGTERM");
  for (const name of chains()) {
    const own = linesOf(name);
    assert.ok(own.length > 2, name);
    assert.deepEqual([...new Set(own.map(({ chain }) => `audit.${chain}.jsonl`))], [name]);
  }

  const verified = audit("verify");
  assert.equal(verified.status, 0, verified.stderr);
  assert.equal(verified.stdout.match(/verified with the key/g).length, 3, verified.stdout);
  const exported = audit("export", ".");
  assert.equal(exported.status, 0, exported.stderr);
  const merged = parse(exported.stdout);
  assert.equal(merged.length, lines().length);
  assert.deepEqual(merged.map(({ at }) => at), merged.map(({ at }) => at).toSorted());
  assert.deepEqual([...new Set(merged.map(({ chain }) => chain))].sort(), ["gw", "gw-2", "gw-3"]);

  // One line of one gateway is changed.
  const changed = path.join(group.cwd, "audit.gw-2.jsonl");
  fs.writeFileSync(changed, fs.readFileSync(changed, "utf8").replace('"outcome":"ok"', '"outcome":"no"'));
  const wrong = audit("verify");
  assert.equal(wrong.status, 1);
  assert.match(wrong.stderr, /audit\.gw-2\.jsonl: line \d+/);
  assert.equal(wrong.stdout.match(/verified with the key/g).length, 2);
});
