// Outages that are not a crash: the disk of the database server is full, and a gateway that cannot renew its lease in time.

import assert from "node:assert/strict";
import { after } from "node:test";

import { isTerminal, typesOf } from "../gateway/support.mjs";
import { SHORT_LEASE, ask, cluster, follow, get, last, parallel, postgres, readThrough, run, sleep, until } from "./cluster.mjs";

const { add, run: runAll } = parallel("outages", 2);

const patch = (replica, thread, ops) => ask("PATCH", `${replica.url}/agents/plain/state/${thread}`, ops);
const state = async (replica, thread) => (await get(`${replica.url}/agents/plain/state_snapshot/${thread}`)).body.snapshot;

async function started({ agent }, owner, thread, id) {
  const stream = await run(owner, "plain", thread, id);
  const call = await agent.call(id);
  call.talk(3);
  await stream.take(5);
  return { stream, call };
}

/** Every replica starts and finishes runs again. */
async function serveAgain(group) {
  for (const replica of group.replicas) {
    await until("it serves again", async () => {
      const id = `again${performance.now()}`;
      const stream = await run(replica, "plain", id, id, "auto 1");
      return last(await stream.rest())?.type === "RUN_FINISHED";
    });
    await until("it is ready again", async () => (await get(`${replica.url}/readyz`)).status === 200);
  }
}

// `tables`: the tables cannot grow, statements fail and the server goes on. `wal`: the log of the server cannot grow, and it crashes.
for (const what of ["tables", "wal"]) {
  add(`P2 P5 the disk of the server is full (${what}): runs end, reads go on, nothing acknowledged is lost`, async (t) => {
    const server = await postgres(t, "fsync=off min_wal_size=32MB max_wal_size=64MB wal_recycle=off", { disk: "160m" });
    const group = await cluster(t, { server, lease: SHORT_LEASE });
    const ended = await started(group, group.two, "old", "old");
    ended.call.finish();
    await ended.stream.rest();
    const runs = [];
    for (const [index, replica] of group.replicas.entries()) {
      const { stream, call } = await started(group, replica, `t${index}`, `r${index}`);
      assert.equal((await patch(replica, `t${index}`, [{ op: "add", path: "/before", value: index }])).status, 200);
      runs.push({ index, stream, call });
    }
    const acknowledged = [];
    server.fill();
    if (what === "wal") server.sql("SELECT pg_switch_wal()");
    // Large events, so that the tables must grow.
    const filler = "x".repeat(20_000);
    const talking = setInterval(() => {
      for (const { call, index } of runs) {
        if (call.ended === null) call.say({ type: "TEXT_MESSAGE_CONTENT", messageId: `r${index}-answer`, delta: filler });
      }
    }, 20);
    t.after(() => clearInterval(talking));
    let refused = 0;
    await until("patches are refused", async () => {
      const value = acknowledged.length;
      const { status, headers } = await patch(group.one, "t0", [{ op: "add", path: `/n${value}`, value: filler }]);
      if (status === 200) acknowledged.push(value);
      else {
        assert.ok(status === 503 && headers.has("retry-after"), `${status}`);
        refused += 1;
      }
      return refused > 2;
    });
    // Connected clients are told, and their agents are closed.
    for (const { stream, call } of runs) {
      await stream.rest().catch(() => {});
      await call.closed;
    }
    clearInterval(talking);
    const full = await run(group.three, "plain", "new", "new", `auto 1 ${filler.repeat(10)}`);
    assert.equal(full.response.status, 503);
    if (what === "tables") {
      assert.ok(server.isAlive);
      // Reads go on.
      assert.deepEqual(await (await follow(group.three, "plain", "old")).rest(), ended.stream.seen);
      assert.equal((await get(`${group.one.url}/agents/plain/message_snapshot/old`)).body.messages.length, 2);
    }
    server.free();
    if (!server.isAlive) await server.start();
    for (const { index, stream } of runs) {
      const { seen } = await readThrough(() => group.replicas[(index + 1) % 3].url, "plain", `r${index}`);
      assert.equal(typesOf(seen).filter(isTerminal).length, 1);
      assert.ok(["STORE_UNAVAILABLE", "GATEWAY_LOST"].includes(last(seen).code), `${last(seen).code}`);
      const shown = stream.seen.filter(({ id }) => id !== undefined);
      assert.deepEqual(shown, seen.slice(0, shown.length), "what a client saw is in the log");
      assert.equal(group.agent.count(`r${index}`), 1, "P9: not executed again");
      assert.equal((await state(group.two, `t${index}`)).before, index);
    }
    const kept = await state(group.three, "t0");
    for (const value of acknowledged) assert.equal(kept[`n${value}`], filler, `n${value} was acknowledged`);
    await serveAgain(group);
  });
}

const server = await postgres({ after });

add("P4 an owner without a confirmed renewal stops reading at two thirds of its lease, and goes on when it is renewed in time", async (t) => {
  const lease = 15_000;
  const group = await cluster(t, { server, lease, linked: true });
  const { stream, call } = await started(group, group.one, "t", "r");
  const others = [group.two, group.three].map((replica) => readThrough(() => replica.url, "plain", "r"));
  // Its agent is silent, so that no write fails before.
  group.one.link.set("cut");
  await until("it holds its agents", () => /agents are not read.*is_held=true|is_held=true.*agents are not read/.test(group.one.said));
  const heard = stream.seen.length;
  call.talk(5);
  // Nothing of it may reach anybody: the log does not have it.
  await sleep(500);
  group.one.link.set("pass");
  call.talk(5);
  call.finish();
  await stream.rest();
  assert.equal(last(stream.seen).type, "RUN_FINISHED", JSON.stringify(last(stream.seen)));
  assert.ok(stream.seen.length >= heard + 10);
  assert.match(group.one.said, /is_held=false/);
  for (const reader of others) assert.deepEqual((await reader).seen, stream.seen);
  assert.equal(group.agent.count("r"), 1);
});

add("P4 P5 an owner without a renewal for its whole lease closes its agents and cuts its readers; another replica ends the run", async (t) => {
  const group = await cluster(t, { server, lease: SHORT_LEASE, linked: true });
  const { stream, call } = await started(group, group.one, "t", "r");
  const others = [group.two, group.three].map((replica) => readThrough(() => replica.url, "plain", "r"));
  assert.equal((await patch(group.two, "t", [{ op: "add", path: "/before", value: 1 }])).status, 200);
  group.one.link.set("hole");
  // It answers although the store never does.
  await until("it is not ready", async () => (await get(`${group.one.url}/readyz`)).status === 503);
  await call.closed;
  // A cut, no regular end: what the client saw is the beginning of the log, without an ending.
  await stream.rest().catch(() => {});
  const [{ seen }, other] = await Promise.all(others);
  assert.deepEqual(other.seen, seen);
  assert.equal(last(seen).code, "GATEWAY_LOST");
  const shown = stream.seen.filter(({ id }) => id !== undefined);
  assert.deepEqual(shown, seen.slice(0, shown.length));
  assert.ok(!isTerminal(typesOf(shown).at(-1)), "its reader saw no ending that is not in the log");
  assert.equal((await patch(group.three, "t", [{ op: "add", path: "/during", value: 1 }])).status, 200);
  group.one.link.set("pass");
  await serveAgain(group);
  for (const replica of group.replicas) assert.deepEqual(await state(replica, "t"), { before: 1, during: 1 });
});

runAll();
