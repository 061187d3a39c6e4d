// Faults with real processes: gateways and servers that are killed, stopped, cut off, slow, or replaced.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after } from "node:test";

import { freePort } from "../../examples/support/ports.mjs";
import { input, isTerminal, root, typesOf } from "../gateway/support.mjs";
import {
  SHORT_LEASE, ask, balancer, cluster, follow, get, last, output, parallel, postgres, programs, readThrough, run, sleep, sql, status, until, Stream,
} from "./cluster.mjs";

const server = await postgres({ after });
const { add, run: runAll } = parallel("faults", 3);
const lease = SHORT_LEASE;

async function started({ agent }, owner, kind, thread, id, words = 3) {
  const stream = await run(owner, kind, thread, id);
  const call = await agent.call(id);
  call.talk(words);
  await stream.take(words + 2);
  return { stream, call };
}

const patch = (replica, thread, ops, kind = "plain") => ask("PATCH", `${replica.url}/agents/${kind}/state/${thread}`, ops);
const state = async (replica, thread, kind = "plain") =>
  (await get(`${replica.url}/agents/${kind}/state_snapshot/${thread}`)).body.snapshot;

/** A change that is repeated until it is acknowledged; adding a member twice is harmless. */
const persist = (replica, thread, name) =>
  until(`${name} is acknowledged`, async () => (await patch(replica, thread, [{ op: "add", path: `/${name}`, value: 1 }])).status === 200);

add("P2 P5 P9 the owner is killed: its runs end elsewhere, nothing acknowledged is lost, its queued runs are run", async (t) => {
  const group = await cluster(t, { server, lease });
  const runs = [];
  for (let words = 1; words <= 5; words += 1) {
    const name = `t${words}`;
    const { stream } = await started(group, group.one, "plain", name, `r${words}`, words);
    assert.equal((await patch(group.two, name, [{ op: "add", path: "/kept", value: words }])).status, 200);
    runs.push({ name, words, stream, reader: readThrough(() => group.three.url, "plain", `r${words}`) });
  }
  const { call: holding } = await started(group, group.two, "queue", "queue", "first");
  for (const id of ["second", "third"]) {
    await run(group.one, "queue", "queue", id, "auto 1");
    await until("it is queued", async () => (await status(group.two, "queue", id)) === "queued");
  }
  const { call: behind } = await started(group, group.one, "queue", "behind", "lost");
  const waiting = await run(group.two, "queue", "behind", "next", "auto 1");
  await until("it is queued", async () => (await status(group.two, "queue", "next")) === "queued");
  await group.one.end("SIGKILL");
  await behind.closed;
  // Commands to the dead owner are answered by whoever ends the run.
  await until("the stop is answered", async () => {
    const { status, headers } = await ask("POST", `${group.two.url}/agents/plain/runs/r5/stop`);
    if (status !== 200) assert.ok(status === 503 && headers.has("retry-after"), `${status}`);
    return status === 200;
  });
  await persist(group.three, "t4", "late");
  for (const { name, words, stream, reader } of runs) {
    await stream.rest().catch(() => {});
    const { seen } = await reader;
    assert.deepEqual(seen.slice(0, stream.seen.length), stream.seen, "what a client saw is in the log");
    assert.equal(typesOf(seen).filter(isTerminal).length, 1);
    assert.equal(last(seen).code, "GATEWAY_LOST");
    for (const replica of [group.two, group.three]) assert.equal((await state(replica, name)).kept, words);
    const { body } = await get(`${group.two.url}/agents/plain/message_snapshot/${name}`);
    assert.equal(body.messages[0].id, `r${words}-user`);
    assert.match(body.messages[1].content, new RegExp(`word${words - 1}`));
    assert.equal(group.agent.count(`r${words}`), 1, "P9: not executed again");
  }
  assert.equal((await state(group.two, "t4")).late, 1);
  await waiting.rest();
  assert.equal(last(waiting.seen).type, "RUN_FINISHED", "the run behind a dead one gets the thread");
  holding.finish();
  for (const id of ["second", "third"]) {
    await until(`${id} has run`, async () => (await status(group.three, "queue", id)) === "finished");
    assert.equal(group.agent.count(id), 1);
  }
  const order = group.agent.calls.filter(({ threadId }) => threadId === "queue").map(({ runId }) => runId);
  assert.deepEqual(order, ["first", "second", "third"]);
  // It comes back and serves everything.
  await group.one.start();
  for (const { name } of runs) {
    const again = await run(group.one, "plain", name, `${name}-again`, "auto 1");
    assert.equal(last(await again.rest()).type, "RUN_FINISHED");
  }
});

for (const hasKey of [true, false]) {
  const title = hasKey ? "are kept encrypted, and it runs elsewhere" : "are not kept without a key, and it ends";
  add(`P9 the headers of a queued run whose gateway dies ${title}`, async (t) => {
    const agents = `
[agents.queue]
upstream = { kind = "ag-ui", url = "AGENT", forward_headers = ["x-canary"] }
busy = { policy = "enqueue", limit = 50, detached = "enqueue" }
`;
    const settings = hasKey ? 'replicas = { key = { env = "REPLICAS_KEY" } }' : "";
    const group = await cluster(t, { server, lease, agents, settings });
    const { call } = await started(group, group.two, "queue", "t", "first");
    const headers = { "content-type": "application/json", "x-canary": "tweet-tweet" };
    const body = JSON.stringify({ ...input("t", "second", "auto 1"), protocolVersion: "1.0" });
    const waiting = new Stream(await fetch(`${group.one.url}/agents/queue`, { method: "POST", headers, body }));
    await until("it is queued", async () => (await status(group.two, "queue", "second")) === "queued");
    const dump = server.sql(`SELECT body FROM ${group.schema}.inputs`);
    assert.ok(dump.includes("second") && !dump.includes("tweet-tweet"), "the database does not have the header");
    await group.one.end("SIGKILL");
    await waiting.rest().catch(() => {});
    await until("it was taken over", async () => {
      const [holder, found] = server.sql(`SELECT h.holder || ' ' || r.status FROM ${group.schema}.runs AS r JOIN ${group.schema}.heads AS h ON h.run = r.id WHERE r.run = 'second'`).split(" ");
      return holder.includes(`-${group.one.pid}-`) === false || found !== "queued";
    });
    call.finish();
    const { seen } = await readThrough(() => group.three.url, "queue", "second");
    if (hasKey) {
      assert.equal(last(seen).type, "RUN_FINISHED");
      assert.equal(group.agent.find("second").headers["x-canary"], "tweet-tweet");
    } else {
      assert.equal(last(seen).code, "GATEWAY_LOST");
    }
    assert.equal(group.agent.count("second"), hasKey ? 1 : 0);
  });
}

add("P4 an owner that is stopped longer than its lease overwrites nothing", async (t) => {
  const group = await cluster(t, { server, lease });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  assert.equal((await patch(group.one, "t", [{ op: "add", path: "/before", value: 1 }])).status, 200);
  group.one.signal("SIGSTOP");
  t.after(() => group.one.signal("SIGCONT"));
  // Its agent goes on; the words wait in the socket.
  call.talk(5);
  call.say({ type: "STATE_SNAPSHOT", snapshot: { overwritten: true } });
  call.finish();
  const { seen } = await readThrough(() => group.two.url, "plain", "r");
  assert.equal(last(seen).code, "GATEWAY_LOST");
  for (let count = 0; count < 5; count += 1) await persist(group.two, "t", `during${count}`);
  const next = await run(group.three, "plain", "t", "next", "auto 2");
  assert.equal(last(await next.rest()).type, "RUN_FINISHED");
  group.one.signal("SIGCONT");
  // Time for it to try everything that it had in hand.
  await until("it serves again", async () => (await get(`${group.one.url}/livez`)).status === 200);
  await sleep(lease);
  const kept = { before: 1, during0: 1, during1: 1, during2: 1, during3: 1, during4: 1 };
  for (const replica of group.replicas) {
    assert.deepEqual(await state(replica, "t"), kept);
    assert.deepEqual(await (await follow(replica, "plain", "r")).rest(), seen, "the log is as it was ended");
  }
  await stream.rest().catch(() => {});
  assert.deepEqual(stream.seen, seen.slice(0, stream.seen.length), "its reader saw nothing else");
  const again = await run(group.one, "plain", "t", "again", "auto 1");
  assert.equal(last(await again.rest()).type, "RUN_FINISHED");
});

for (const mode of ["cut", "hole"]) {
  add(`P2 P4 a replica loses the database (${mode}): others end its runs, and it comes back`, async (t) => {
    const group = await cluster(t, { server, lease, linked: true });
    const { stream, call } = await started(group, group.one, "plain", "t", "r");
    await persist(group.one, "t", "before");
    group.one.link.set(mode);
    const talking = setInterval(() => call.word(), 50);
    t.after(() => clearInterval(talking));
    const { seen } = await readThrough(() => group.two.url, "plain", "r");
    assert.equal(typesOf(seen).filter(isTerminal).length, 1);
    // The upstream is closed once its run may belong to another one.
    await call.closed;
    clearInterval(talking);
    await persist(group.two, "t", "during");
    assert.equal((await get(`${group.one.url}/livez`)).status, 200);
    const refused = await ask("POST", `${group.one.url}/agents/plain/runs/r/stop`);
    assert.ok(refused.status === 503, `${refused.status}`);
    await stream.rest().catch(() => {});
    const shown = stream.seen.filter(({ id }) => id !== undefined);
    assert.deepEqual(shown, seen.slice(0, shown.length), "nothing was shown that is not stored");
    group.one.link.set("pass");
    await until("it serves again", async () => {
      const again = await run(group.one, "plain", "t", `again${performance.now()}`, "auto 1");
      return last(await again.rest())?.type === "RUN_FINISHED";
    });
    assert.deepEqual(await state(group.one, "t"), { before: 1, during: 1 });
    assert.deepEqual(await (await follow(group.one, "plain", "r")).rest(), seen);
  });
}

add("the database is 200 ms away: runs keep their lease and lose nothing", async (t) => {
  const group = await cluster(t, { server, linked: true });
  group.one.link.delay = 200;
  // A start takes several round trips; requests beyond the connections of the gateway are told to come back.
  const persistent = async (number) => {
    for (;;) {
      const stream = await run(group.one, "plain", `t${number}`, `r${number}`, "auto 50");
      if (stream.response.status === 200) return stream;
      assert.equal(stream.response.status, 503);
      await sleep(1000);
    }
  };
  const streams = await Promise.all(Array.from({ length: 6 }, (_, number) => persistent(number)));
  const { stream, call } = await started(group, group.one, "plain", "long", "long");
  for (let word = 0; word < 100; word += 1) {
    call.word();
    await sleep(20);
  }
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/long/pause`)).status, 200);
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/long/resume`)).status, 200);
  call.finish();
  await stream.rest();
  for (const each of [stream, ...streams]) {
    if (each !== stream) await each.rest();
    assert.equal(last(each.seen).type, "RUN_FINISHED");
    assert.equal(group.agent.count(last(each.seen).runId), 1);
  }
  assert.deepEqual(await (await follow(group.three, "plain", "long")).rest(), stream.seen);
});

for (const signal of ["SIGQUIT", "SIGKILL"]) {
  add(`P2 the server is killed (${signal}) and started again: nothing acknowledged is lost`, async (t) => {
    const own = await postgres(t, "fsync=off");
    const group = await cluster(t, { server: own, lease });
    const front = await balancer(t, group.replicas);
    const runs = [];
    for (const [index, replica] of group.replicas.entries()) {
      const { stream, call } = await started(group, replica, "plain", `t${index}`, `r${index}`);
      await persist(replica, `t${index}`, "before");
      runs.push({ index, stream, call, reader: readThrough(() => front.url, "plain", `r${index}`) });
    }
    const talking = setInterval(() => runs.forEach(({ call }) => call.ended === null && call.word()), 20);
    t.after(() => clearInterval(talking));
    const acknowledged = [];
    const patching = (async () => {
      for (let count = 0; count < 300; count += 1) {
        const { status } = await patch({ url: front.url }, "t0", [{ op: "add", path: `/n${count}`, value: count }]);
        if (status === 200) acknowledged.push(count);
        await sleep(20);
      }
    })();
    await sleep(1500);
    await own.end(signal);
    await sleep(500);
    await own.start();
    await patching;
    clearInterval(talking);
    for (const { call } of runs) if (call.ended === null) call.finish();
    for (const { index, stream, reader } of runs) {
      await stream.rest().catch(() => {});
      const { seen } = await reader;
      const shown = stream.seen.filter(({ id }) => id !== undefined);
      assert.deepEqual(shown, seen.slice(0, shown.length), "what a client saw is in the log");
      assert.equal(typesOf(seen).filter(isTerminal).length, 1);
      assert.equal(group.agent.count(`r${index}`), 1);
      assert.equal((await state(group.two, `t${index}`)).before, 1);
    }
    const kept = await state(group.three, "t0");
    assert.ok(acknowledged.length > 10, `${acknowledged.length} acknowledged`);
    for (const count of acknowledged) assert.equal(kept[`n${count}`], count, `n${count} was acknowledged`);
    for (const replica of group.replicas) {
      await until("it serves again", async () => {
        const again = await run(replica, "plain", `new${replica.pid}`, `new${performance.now()}`, "auto 1");
        return last(await again.rest())?.type === "RUN_FINISHED";
      });
    }
  });
}

add("P8 connections that are cut at a commit: every event and change once", async (t) => {
  const group = await cluster(t, { server, linked: true });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const reader = readThrough(() => group.two.url, "plain", "r");
  await patch(group.one, "t", [{ op: "add", path: "/list", value: [] }]);
  const sent = [];
  for (let round = 0; round < 20; round += 1) {
    group.one.link.cutAtCommit(1 + (round % 5));
    call.talk(3);
    const { status } = await patch(group.replicas[round % 2], "t", [{ op: "add", path: "/list/-", value: round }]);
    if (status === 200) sent.push(round);
  }
  call.finish();
  await stream.rest();
  assert.equal(last(stream.seen).type, "RUN_FINISHED");
  assert.ok(group.one.link.commitsCut > 5, `${group.one.link.commitsCut} cuts`);
  assert.deepEqual((await reader).seen, stream.seen);
  const words = stream.seen.map(({ data }) => JSON.parse(data)).filter(({ type }) => type === "TEXT_MESSAGE_CONTENT");
  assert.deepEqual(words.map(({ delta }) => delta), Array.from({ length: 63 }, (_, index) => `word${index} `));
  const { list } = await state(group.three, "t");
  assert.equal(new Set(list).size, list.length, "no patch was applied twice");
  for (const round of sent) assert.ok(list.includes(round), `${round} was acknowledged`);
});

add("P5 a start whose confirmation is lost: the run has an ending, and its thread is free", async (t) => {
  const group = await cluster(t, { server, lease, linked: true });
  // The lease is renewed and the statements are prepared.
  await (await run(group.one, "plain", "first", "first", "auto 1")).rest();
  const starts = [];
  const ROUNDS = 8;
  for (let number = 1; number <= ROUNDS; number += 1) {
    // The first statement of a request with a result is its start; sometimes one of the background comes before.
    group.one.link.cutAtCommit(1);
    const stream = await run(group.one, "plain", `t${number}`, `r${number}`, "auto 2").catch(() => null);
    if (stream?.response.status === 200) await stream.rest().catch(() => {});
    starts.push(stream?.response.status ?? 0);
  }
  group.one.link.cutAtCommit(0);
  assert.ok(group.one.link.commitsCut > 0, `${starts}`);
  for (let number = 1; number <= ROUNDS; number += 1) {
    const known = async () => (await get(`${group.two.url}/agents/plain/runs/r${number}`)).body.status;
    // It was not stored, or it ends.
    await until(`r${number} is over`, async () => [undefined, "finished", "failed"].includes(await known()));
    const again = await run(group.two, "plain", `t${number}`, `again${number}`, "auto 1");
    assert.equal(last(await again.rest()).type, "RUN_FINISHED", `${starts}`);
    assert.ok(group.agent.count(`r${number}`) <= 1, "P9: not executed twice");
  }
});

add("a database that is away at the start is waited for; one that refuses ends the gateway with code 4", async (t) => {
  const own = await postgres(t, "fsync=off");
  await own.end("SIGQUIT");
  // Their banner says that they listen.
  const group = await cluster(t, { server: own, lease });
  for (const { url, said } of group.replicas) {
    assert.match(said, /the store is waited for/);
    assert.equal((await get(`${url}/livez`)).status, 200);
    const ready = await get(`${url}/readyz`);
    assert.deepEqual([ready.status, ready.body.error.code], [503, "STORE_UNAVAILABLE"]);
    const refused = await run({ url }, "plain", "early", "early", "auto 1");
    assert.equal(refused.response.status, 503);
  }
  await own.start();
  for (const [index, replica] of group.replicas.entries()) {
    await until("it is ready", async () => (await get(`${replica.url}/readyz`)).status === 200);
    assert.equal(last(await (await run(replica, "plain", `t${index}`, `r${index}`, "auto 2")).rest()).type, "RUN_FINISHED");
  }
  // It is waited for, and then its schema is too new.
  const version = own.sql(`SELECT version FROM ${group.schema}.meta`);
  own.sql(`UPDATE ${group.schema}.meta SET version = 99, min_writer = 99`);
  await group.one.end("SIGTERM");
  await own.end("SIGQUIT");
  await group.one.start();
  await own.start();
  assert.equal((await group.one.ended).code, 4);
  assert.match(group.one.said, /schema version 99/);
  // A drain works without a database.
  own.sql(`UPDATE ${group.schema}.meta SET version = ${version}, min_writer = 1`);
  await own.end("SIGQUIT");
  await group.one.start();
  assert.deepEqual(await group.one.end("SIGTERM"), { code: 0, signal: null });
});

for (const [what, change] of [
  ["password", (address) => address.replace(/:[^:@]+@/, ":wrong@")],
  ["database", (address) => address.replace(/\/agentwire$/, "/none")],
  ["user", (address) => address.replace("//agentwire:", "//nobody:")],
  ["encryption", (address) => `${address}?sslmode=require`],
]) {
  add(`a database that refuses the ${what} is not waited for: exit code 4`, async (t) => {
    const store = change(server.address);
    await assert.rejects(cluster(t, { store, count: 1 }), (error) => {
      assert.match(error.message, /serve ended with 4/);
      assert.match(error.message, /the store refuses/);
      assert.doesNotMatch(error.message, new RegExp(new URL(server.address).password));
      return true;
    });
  });
}

add("P4 gateways whose clocks are wrong by hours keep their leases, queues and timestamps", async (t) => {
  const folder = fs.readdirSync("/usr/lib").map((name) => `/usr/lib/${name}/faketime/libfaketimeMT.so.1`).find(fs.existsSync);
  const clocks = ["+5h", "-5h", "+0"];
  const envOf = (index) => ({ LD_PRELOAD: folder, FAKETIME: clocks[index], FAKETIME_DONT_FAKE_MONOTONIC: "1" });
  const group = await cluster(t, { server, lease, envOf });
  const runs = [];
  for (const [index, replica] of group.replicas.entries()) {
    runs.push(await started(group, replica, "queue", `t${index}`, `r${index}`));
    const next = group.replicas[(index + 1) % 3];
    const queued = await run(next, "queue", `t${index}`, `q${index}`, "auto 1");
    await until("it is queued", async () => (await status(replica, "queue", `q${index}`)) === "queued");
    runs.at(-1).queued = queued;
  }
  // Longer than a lease.
  await sleep(1.5 * lease);
  for (const [index, { stream, call, queued }] of runs.entries()) {
    for (const replica of group.replicas) assert.equal(await status(replica, "queue", `r${index}`), "running");
    call.word();
    const [{ data }] = await stream.take(1);
    const age = Math.abs(Date.now() - JSON.parse(data).timestamp);
    assert.ok(age < 30 * 60_000, `the event is ${age} ms off`);
    if (index === 0) continue;
    call.finish();
    assert.equal(last(await stream.rest()).type, "RUN_FINISHED");
    assert.equal(last(await queued.rest()).type, "RUN_FINISHED");
  }
  await group.one.end("SIGKILL");
  const { seen } = await readThrough(() => group.two.url, "queue", "r0");
  assert.equal(last(seen).code, "GATEWAY_LOST");
  assert.equal(last(await runs[0].queued.rest()).type, "RUN_FINISHED");
});

add("notifications are lost: readers at other replicas get everything by polling", async (t) => {
  const group = await cluster(t, { server, linked: true });
  for (const replica of group.replicas) replica.link.notifications = false;
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const readers = [group.two, group.three].map((replica) => readThrough(() => replica.url, "plain", "r"));
  for (let word = 0; word < 20; word += 1) {
    call.word();
    await sleep(50);
  }
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/r/pause`)).status, 200);
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/r/resume`)).status, 200);
  call.finish();
  await stream.rest();
  for (const reader of readers) assert.deepEqual((await reader).seen, stream.seen);
  const dropped = group.replicas.reduce((sum, { link }) => sum + link.dropped, 0);
  assert.ok(dropped > 0, "there were notifications to lose");
});

add("three replicas start at once on an empty database", async (t) => {
  for (let round = 0; round < 2; round += 1) {
    const group = await cluster(t, { server });
    for (const [index, replica] of group.replicas.entries()) {
      const stream = await run(replica, "plain", `t${index}`, `r${index}`, "auto 1");
      assert.equal(last(await stream.rest()).type, "RUN_FINISHED");
    }
    for (const replica of group.replicas) await replica.end("SIGKILL");
  }
});

add("P3 an asynchronous standby takes over without the last writes: every cursor is whole or a gap", async (t) => {
  const primary = await postgres(t, "fsync=off wal_level=replica max_wal_senders=4 hot_standby=on");
  const standby = await standbyOf(t, primary);
  const group = await cluster(t, { server: primary, lease: 10_000, linked: true });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const { stream: ended } = await started(group, group.two, "plain", "u", "done");
  group.agent.find("done").finish();
  await ended.rest();
  const { stream: forgetful } = await started(group, group.three, "plain", "w", "forgotten");
  await standby.catchUp();
  await standby.stopReceiving();
  group.agent.find("forgotten").finish();
  await forgetful.rest();
  const kept = stream.seen.length;
  call.talk(7);
  await stream.take(7);
  const { stream: lostRun } = await started(group, group.two, "plain", "v", "lost");
  const cursors = stream.seen.map(({ id }) => id);
  // The primary is gone, and the addresses lead to the standby.
  await primary.end("SIGKILL");
  await standby.promote();
  for (const replica of group.replicas) replica.link.redirect(standby.port);
  // Its agent is silent: the owner learns from the renewal of its lease that the log is shorter than its own.
  const whole = await readThroughGaps(() => group.three.url, "r");
  assert.equal(last(whole).code, "GATEWAY_LOST");
  await call.closed;
  // The ending of this run was lost, and no task drives it: its gateway ends it again.
  const forgotten = await readThroughGaps(() => group.three.url, "forgotten");
  assert.equal(last(forgotten).code, "GATEWAY_LOST");
  assert.equal(group.agent.count("forgotten"), 1);
  for (const { url } of group.replicas) {
    const { body } = await get(`${url}/metrics`);
    assert.match(body, /agentwire_store_server\{system="-?\d+",timeline="2",epoch="1"\} 1/);
    await until("it is ready", async () => /timeline 2, epoch 1/.test((await get(`${url}/readyz`)).body));
  }
  for (const replica of [group.two, group.three]) {
    const log = await (await follow(replica, "plain", "r")).rest();
    assert.equal(typesOf(log).filter(isTerminal).length, 1);
    for (const [index, cursor] of cursors.entries()) {
      const reader = await follow(replica, "plain", "r", cursor);
      if (index < kept) {
        assert.equal(reader.verdict, "whole", cursor);
        assert.deepEqual(log.slice(0, index + 1), stream.seen.slice(0, index + 1), "the same bytes");
        assert.deepEqual(await reader.rest(), log.slice(index + 1));
      } else {
        assert.equal(reader.verdict, "gap", `${cursor} was lost`);
        await reader.rest();
      }
    }
    assert.deepEqual(await (await follow(replica, "plain", "done")).rest(), ended.seen);
    assert.equal((await follow(replica, "plain", "lost", lostRun.seen[0].id)).response.status, 404, "a run that was lost is unknown");
  }
  for (const replica of group.replicas) {
    await until("it serves again", async () => {
      const again = await run(replica, "plain", "t", `again${performance.now()}`, "auto 1");
      return last(await again.rest())?.type === "RUN_FINISHED";
    });
  }
});

add("P2 P3 a synchronous standby takes over: nothing acknowledged is lost, and every cursor is whole", async (t) => {
  const primary = await postgres(t, "fsync=off wal_level=replica max_wal_senders=4 hot_standby=on");
  const standby = await standbyOf(t, primary);
  primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
  primary.sql("SELECT pg_reload_conf()");
  await until("it is synchronous", () => primary.sql("SELECT sync_state FROM pg_stat_replication") === "sync");
  const group = await cluster(t, { server: primary, lease: 10_000, linked: true });
  const runs = [];
  for (const [index, replica] of group.replicas.entries()) {
    const { stream, call } = await started(group, replica, "plain", `t${index}`, `r${index}`, 3 + index);
    await persist(replica, `t${index}`, "before");
    runs.push({ index, stream, call });
  }
  const acknowledged = [];
  for (let count = 0; count < 10; count += 1) {
    const { status } = await patch(group.two, "t0", [{ op: "add", path: `/n${count}`, value: count }]);
    if (status === 200) acknowledged.push(count);
  }
  await primary.end("SIGKILL");
  await standby.promote();
  for (const replica of group.replicas) replica.link.redirect(standby.port);
  await until("they are ready", async () => {
    const answers = await Promise.all(group.replicas.map(({ url }) => get(`${url}/readyz`)));
    return answers.every(({ status, body }) => status === 200 && body.includes("timeline 2, epoch 1"));
  });
  for (const { index, stream, call } of runs) {
    if (call.ended === null) call.finish();
    const log = await readThroughGaps(() => group.replicas[(index + 1) % 3].url, `r${index}`);
    assert.equal(typesOf(log).filter(isTerminal).length, 1);
    await stream.rest().catch(() => {});
    const shown = stream.seen.filter(({ id }) => id !== undefined);
    assert.deepEqual(log.slice(0, shown.length).map(({ data }) => data), shown.map(({ data }) => data), "what a client saw is in the log");
    for (const [at, { id }] of shown.entries()) {
      const reader = await follow(group.three, "plain", `r${index}`, id);
      assert.ok(reader.verdict === "whole" || (reader.response.status === 204 && at === log.length - 1), `${id} ${reader.verdict}`);
      await reader.close();
    }
    assert.equal(group.agent.count(`r${index}`), 1);
    assert.equal((await state(group.one, `t${index}`)).before, 1);
  }
  const kept = await state(group.three, "t0");
  for (const count of acknowledged) assert.equal(kept[`n${count}`], count);
  assert.ok(acknowledged.length > 5, `${acknowledged.length} acknowledged`);
});

/** Reads a run to its end, whatever the verdicts. */
async function readThroughGaps(at, id) {
  let seen = [];
  await until("the end of the run", async () => {
    const response = await fetch(`${at()}/agents/plain/runs/${id}/stream`).catch(() => null);
    if (response?.status !== 200) return false;
    const stream = new Stream(response);
    await stream.rest().catch(() => {});
    seen = stream.seen;
    return seen.length > 0 && isTerminal(typesOf(seen).at(-1));
  });
  return seen;
}

/** A streaming standby of a server, which can be promoted. */
async function standbyOf(t, primary) {
  const base = fs.mkdtempSync(path.join(os.tmpdir(), "agentwire-standby-"));
  fs.chmodSync(base, 0o755);
  const isRoot = process.getuid() === 0;
  if (isRoot) await output("chown", ["postgres", base]);
  const asUser = (program, args) => {
    const line = isRoot
      ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", path.join(programs, program), ...args]
      : [path.join(programs, program), ...args];
    return output(line[0], line.slice(1));
  };
  const data = path.join(base, "data");
  fs.appendFileSync(path.join(primary.home, "data", "pg_hba.conf"), "\nhost replication all 127.0.0.1/32 scram-sha-256\n");
  primary.sql("SELECT pg_reload_conf()");
  await asUser("pg_basebackup", ["-d", primary.address, "-D", data, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]);
  const port = await freePort();
  const options = `-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300 -c fsync=off`;
  await asUser("pg_ctl", ["-D", data, "-w", "-t", "60", "-l", path.join(base, "log"), "-o", options, "start"]);
  t.after(async () => {
    await asUser("pg_ctl", ["-D", data, "-m", "immediate", "stop"]);
    fs.rmSync(base, { recursive: true, force: true });
  });
  const address = primary.address.replace(/:\d+\//, `:${port}/`);
  return {
    port,
    sql: (text) => sql(address, text),
    catchUp: () => {
      const end = primary.sql("SELECT pg_current_wal_flush_lsn()");
      return until("the standby has it", () => sql(address, `SELECT pg_last_wal_replay_lsn() >= '${end}'`) === "t");
    },
    /** Nothing more arrives: what the primary commits from now on is lost in a failover. */
    stopReceiving: () => {
      sql(address, "ALTER SYSTEM SET primary_conninfo = ''");
      sql(address, "SELECT pg_reload_conf()");
      return until("it receives nothing", () => sql(address, "SELECT count(*) FROM pg_stat_wal_receiver") === "0");
    },
    promote: () => asUser("pg_ctl", ["-D", data, "-w", "promote"]),
  };
}

add("PgBouncer in transaction mode: three replicas follow, control and queue", async (t) => {
  const pooled = (await output(path.join(root, "scripts", "postgres"), ["pooler", server.home])).trim();
  const through = { address: pooled, port: Number(new URL(pooled).port) };
  const group = await cluster(t, { server: through, parameters: "&prepared=false" });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const reader = readThrough(() => group.two.url, "plain", "r");
  assert.equal((await ask("POST", `${group.three.url}/agents/plain/runs/r/pause`)).status, 200);
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/r/resume`)).status, 200);
  await persist(group.three, "t", "kept");
  call.talk(20);
  call.finish();
  await stream.rest();
  assert.deepEqual((await reader).seen, stream.seen);
  const { call: first } = await started(group, group.one, "queue", "q", "first");
  const second = await run(group.two, "queue", "q", "second", "auto 2");
  first.finish();
  assert.equal(last(await second.rest()).type, "RUN_FINISHED");
});

add("a schema that is newer by one serves both versions; one that is too new is refused with exit code 4", async (t) => {
  const group = await cluster(t, { server, count: 2 });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  // The expand step of the next version: a column that this version does not know, and the next number.
  server.sql(`ALTER TABLE ${group.schema}.runs ADD COLUMN of_the_next_version text`);
  server.sql(`UPDATE ${group.schema}.meta SET version = version + 1`);
  call.talk(3);
  await group.two.end("SIGTERM");
  await group.two.start();
  await persist(group.two, "t", "kept");
  call.finish();
  await stream.rest();
  assert.equal(last(stream.seen).type, "RUN_FINISHED");
  assert.equal(last(await (await run(group.two, "plain", "t", "next", "auto 1")).rest()).type, "RUN_FINISHED");
  // The contract step of the version after that.
  server.sql(`UPDATE ${group.schema}.meta SET min_writer = version`);
  await group.two.end("SIGTERM");
  await assert.rejects(group.two.start(), /serve ended with 4/);
});

add("a partition of the log is dropped under readers: they get a verdict, not silence", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "plain", "t", "ended");
  call.finish();
  await stream.rest();
  const cursor = stream.seen[1].id;
  // As retention does: the runs of the day are dropped, then the partition.
  server.sql(`UPDATE ${group.schema}.runs SET kept = 'nothing', first_retained = (SELECT next_seq FROM ${group.schema}.heads WHERE run = id)`);
  const parts = server.sql(`SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = '${group.schema}.log'::regclass`).split("\n");
  const used = parts.filter((part) => server.sql(`SELECT count(*) FROM ${part}`) !== "0");
  assert.equal(used.length, 1);
  server.sql(used[0].endsWith("_other") ? `TRUNCATE ${used[0]}` : `DROP TABLE ${used[0]}`);
  for (const replica of group.replicas) {
    const reader = await follow(replica, "plain", "ended", cursor);
    assert.equal(reader.response.status, 200);
    assert.ok(["snapshot", "gap"].includes(reader.verdict), `${reader.verdict}`);
    const seen = await reader.rest();
    assert.ok(isTerminal(typesOf(seen).at(-1)), `${typesOf(seen)}`);
    assert.equal((await get(`${replica.url}/agents/plain/message_snapshot/t`)).body.messages.length, 2, "the conversation stays");
  }
});

runAll();
