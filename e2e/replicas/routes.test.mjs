// Every route at every replica: three gateways on one PostgreSQL server, and a run that one of them drives.

import assert from "node:assert/strict";
import { after } from "node:test";

import { all, input, isTerminal, post, typesOf } from "../gateway/support.mjs";
import { ask, balancer, cluster, follow, get, last, parallel, postgres, readThrough, run, sleep, status, until, Stream } from "./cluster.mjs";

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "1";
for (const method of ["error", "warn"]) console[method] = () => {};
const { HttpAgent } = await import("@ag-ui/client");

const server = await postgres({ after });
const { add, run: runAll } = parallel("routes", 3);

/** Runs `check(owner, other, name)` for each pair of gateways, each with a thread of its own; several owners at once. */
async function eachPair({ replicas }, check) {
  const ofOwner = async (owner, first) => {
    for (const [second, other] of replicas.entries()) await check(owner, other, `${first}${second}`);
  };
  await Promise.all(replicas.map(ofOwner));
}

/** Starts a run that has said three words. */
async function started({ agent }, owner, kind, thread, id, text) {
  const stream = await run(owner, kind, thread, id, text);
  const call = await agent.call(id);
  call.talk(3);
  await stream.take(5);
  return { stream, call };
}

add("P3 a run is followed at every replica from every cursor, and a future cursor is a gap", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "plain", name, name);
    const before = [...stream.seen];
    const whole = await follow(other, "plain", name);
    assert.equal(whole.verdict, "whole");
    assert.deepEqual(await whole.take(5), before);
    const parts = [];
    for (const [index, { id }] of before.entries()) {
      const part = await follow(other, "plain", name, id);
      assert.equal(part.verdict, "whole");
      assert.deepEqual(await part.take(4 - index), before.slice(index + 1));
      parts.push(part);
    }
    const gap = await follow(other, "plain", name, `${name}:999`);
    assert.equal(gap.verdict, "gap");
    call.talk(2);
    call.finish();
    const rest = await stream.rest();
    assert.equal(last(rest).type, "RUN_FINISHED");
    for (const reader of [whole, ...parts]) assert.deepEqual(await reader.rest(), rest);
    // The gap is told with snapshots, and is a valid stream up to the same end.
    const told = await gap.rest();
    assert.equal(typesOf(told)[0], "RUN_STARTED");
    assert.ok(typesOf(told).includes("MESSAGES_SNAPSHOT"), `${typesOf(told)}`);
    assert.equal(typesOf(told).filter(isTerminal).length, 1);
    const text = told.map(({ data }) => JSON.parse(data));
    const snapshot = text.find(({ type }) => type === "MESSAGES_SNAPSHOT").messages.at(-1)?.content ?? "";
    const deltas = text.filter(({ type }) => type === "TEXT_MESSAGE_CONTENT").map(({ delta }) => delta);
    assert.equal(snapshot.replace("hello", "") + deltas.join(""), "word0 word1 word2 word3 word4 ");
    // The same bytes afterwards, at all of them.
    for (const replica of group.replicas) assert.deepEqual(await (await follow(replica, "plain", name)).rest(), stream.seen);
  });
});

add("P3 a reader that is cut each second and sent to the next replica has the uncut stream", async (t) => {
  const group = await cluster(t, { server });
  const front = await balancer(t, group.replicas, { cut: () => 1000 });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const readers = Array.from({ length: 6 }, () => readThrough(() => front.url, "plain", "r"));
  for (let second = 0; second < 5; second += 1) {
    await sleep(900);
    call.talk(20);
  }
  call.finish();
  await stream.rest();
  for (const { seen, connections } of await Promise.all(readers)) {
    assert.deepEqual(seen, stream.seen);
    assert.ok(connections > 2, `${connections} connections`);
  }
  assert.equal(front.used.size, 3, "all replicas were used");
});

add("P3 a reader that is cut after each frame has the uncut stream", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const seen = [];
  let next = 0;
  while (seen.length < 30) {
    const reader = await follow(group.replicas[next++ % 3], "plain", "r", seen.at(-1)?.id);
    assert.equal(reader.verdict, "whole");
    if (seen.length >= 4) call.word();
    seen.push(...(await reader.take(1)));
    await reader.close();
  }
  call.finish();
  await stream.rest();
  seen.push(...(await (await follow(group.two, "plain", "r", seen.at(-1).id)).rest()));
  assert.deepEqual(seen, stream.seen);
});

add("stop, pause and resume at every replica", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "plain", name, name);
    const control = (word, at = other) => ask("POST", `${at.url}/agents/plain/runs/${name}/${word}`);
    const paused = await control("pause");
    assert.deepEqual([paused.status, paused.body.status, paused.body.mode], [200, "paused", "soft"]);
    for (const replica of group.replicas) assert.equal(await status(replica, "plain", name), "paused");
    assert.equal((await control("resume")).status, 200);
    for (const replica of group.replicas) assert.equal(await status(replica, "plain", name), "running");
    const stopped = await control("stop");
    assert.deepEqual([stopped.status, stopped.body.status], [200, "stopped"]);
    await stream.rest();
    assert.equal(typesOf(stream.seen).filter(isTerminal).length, 1);
    assert.deepEqual(last(stream.seen).outcome, { type: "cancelled" });
    await call.closed;
    for (const replica of group.replicas) {
      assert.equal((await control("stop", replica)).status, 200, "idempotent");
      assert.equal((await control("pause", replica)).status, 409, "it has ended");
      assert.equal((await ask("POST", `${replica.url}/agents/plain/runs/none/stop`)).status, 404);
    }
  });
});

add("PATCH, state, history and status during a run are the same at every replica", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "plain", name, name);
    const patch = (ops, at = other) => ask("PATCH", `${at.url}/agents/plain/state/${name}`, ops);
    for (let count = 0; count < 3; count += 1) {
      const done = await patch([{ op: "add", path: "/count", value: count }]);
      assert.equal(done.status, 200, JSON.stringify(done.body));
      for (const replica of group.replicas) {
        const { body } = await get(`${replica.url}/agents/plain/state_snapshot/${name}`);
        assert.equal(body.snapshot.count, count, "an acknowledged patch is seen everywhere");
      }
    }
    const failed = await patch([{ op: "remove", path: "/none" }]);
    assert.deepEqual([failed.status, failed.body.error.code, failed.body.snapshot.count], [409, "PATCH_FAILED", 2]);
    // The agent's own changes too.
    call.say({ type: "STATE_DELTA", delta: [{ op: "add", path: "/agent", value: true }] });
    for (const path of [`message_snapshot/${name}`, `state_snapshot/${name}`, `runs/${name}`, `threads/${name}/pending`, "threads"]) {
      const answers = () => Promise.all(group.replicas.map(async ({ url }) => {
        const { status, body } = await get(`${url}/agents/plain/${path}`);
        if (body.timestamp) body.timestamp = 0;
        return { status, body };
      }));
      await until(`${path} is the same`, async () => {
        const [first, ...others] = await answers();
        assert.equal(first.status, 200);
        if (path.startsWith("state") && first.body.snapshot.agent !== true) return false;
        return others.every((other) => JSON.stringify(other) === JSON.stringify(first));
      });
    }
    const { body } = await get(`${other.url}/agents/plain/message_snapshot/${name}`);
    assert.deepEqual(body.messages.map(({ content }) => content), ["hello", "word0 word1 word2 "]);
    call.finish();
    await stream.rest();
    for (const replica of group.replicas) {
      const { body } = await get(`${replica.url}/agents/plain/state_snapshot/${name}`);
      assert.deepEqual(body.snapshot, { count: 2, agent: true });
    }
  });
});

add("concurrent patches at all replicas: each is applied once", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  await ask("PATCH", `${group.two.url}/agents/plain/state/t`, [{ op: "add", path: "/list", value: [] }]);
  const names = Array.from({ length: 60 }, (_, index) => `p${index}`);
  await Promise.all(
    names.map(async (name, index) => {
      const { url } = group.replicas[index % 3];
      const send = () => ask("PATCH", `${url}/agents/plain/state/t`, [{ op: "add", path: "/list/-", value: name }]);
      // A patch that got 503 was withdrawn, so that it may be sent again.
      await until("it is acknowledged", async () => {
        const { status } = await send();
        assert.ok([200, 503].includes(status), `${status}`);
        return status === 200;
      });
    }),
  );
  call.finish();
  await stream.rest();
  const { body } = await get(`${group.three.url}/agents/plain/state_snapshot/t`);
  assert.deepEqual(body.snapshot.list.toSorted(), names.toSorted());
});

add("an interrupt is answered at any replica, once", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "plain", name, name);
    call.finish({ type: "interrupt", interrupts: [{ id: `${name}-q`, reason: "confirm" }] });
    await stream.rest();
    for (const replica of group.replicas) {
      const { body } = await get(`${replica.url}/agents/plain/threads/${name}/pending`);
      assert.deepEqual(body.map(({ id }) => id), [`${name}-q`]);
      const refused = await run(replica, "plain", name, `${name}-no`);
      assert.equal(last(await refused.rest()).code, "INTERRUPT_UNANSWERED");
    }
    // Different answers at once, at different replicas: one wins.
    const answers = await Promise.all(
      [owner, other, group.three].map(async (replica, index) => {
        const resume = [{ interruptId: `${name}-q`, status: "resolved", payload: { approved: true, by: index } }];
        const answered = await run(replica, "plain", name, `${name}-a${index}`, "auto 1", { resume });
        return last(await answered.rest());
      }),
    );
    const won = answers.filter(({ type }) => type === "RUN_FINISHED");
    assert.equal(won.length, 1, JSON.stringify(answers));
    for (const { type, code } of answers) assert.ok(type === "RUN_FINISHED" || ["ALREADY_ANSWERED", "THREAD_IS_LOCKED"].includes(code), code);
    const calls = group.agent.calls.filter(({ threadId, runId }) => threadId === name && runId !== name);
    assert.equal(calls.length, 1, "the agent gets one answer");
    const index = Number(won[0].runId.slice(-1));
    assert.equal(calls[0].input.resume[0].payload.by, index, "and it is that of the winner");
    for (const replica of group.replicas) assert.deepEqual((await get(`${replica.url}/agents/plain/threads/${name}/pending`)).body, []);
  });
});

add("a call behind the approval gate is approved at another replica", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const tools = [{ name: "delete_file", description: "", parameters: {} }];
    const stream = await run(owner, "gate", name, name, "hello", { tools });
    const call = await group.agent.call(name);
    call.say({ type: "TOOL_CALL_START", toolCallId: `${name}-c`, toolCallName: "delete_file" });
    call.say({ type: "TOOL_CALL_ARGS", toolCallId: `${name}-c`, delta: '{"path":"/a"}' });
    call.say({ type: "TOOL_CALL_END", toolCallId: `${name}-c` });
    call.finish();
    const { outcome } = last(await stream.rest());
    assert.equal(outcome.type, "interrupt");
    const { body } = await get(`${other.url}/agents/gate/threads/${name}/pending`);
    assert.deepEqual(body.map(({ kind }) => kind), ["approval"]);
    const resume = [{ interruptId: outcome.interrupts[0].id, status: "resolved", payload: { approved: true } }];
    const approved = await run(other, "gate", name, `${name}-yes`, "hello", { resume, tools, messages: [] });
    const seen = await approved.rest();
    assert.deepEqual(last(seen).outcome.pendingToolCallIds, [`${name}-c`]);
    const messages = [{ id: `${name}-t`, role: "tool", toolCallId: `${name}-c`, content: "done" }];
    const third = await run(group.three, "gate", name, `${name}-result`, "", { messages, tools });
    const next = await group.agent.call(`${name}-result`);
    assert.equal(next.input.messages.at(-1).content, "done");
    next.finish();
    await third.rest();
    assert.equal(await status(other, "gate", `${name}-result`), "finished");
  });
});

add("approvals are listed and decided at any replica, and two that decide at once start one run", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const tools = [{ name: "delete_file", description: "", parameters: {} }];
    const stream = await run(owner, "gate", name, name, "hello", { tools });
    const call = await group.agent.call(name);
    call.say({ type: "TOOL_CALL_START", toolCallId: `${name}-c`, toolCallName: "delete_file" });
    call.say({ type: "TOOL_CALL_ARGS", toolCallId: `${name}-c`, delta: '{"path":"/a"}' });
    call.say({ type: "TOOL_CALL_END", toolCallId: `${name}-c` });
    call.finish();
    assert.equal(last(await stream.rest()).outcome.type, "interrupt");
    const lists = await Promise.all(group.replicas.map(async ({ url }) => (await get(`${url}/approvals`)).body.find(({ thread }) => thread === name)));
    for (const found of lists) assert.deepEqual(found, lists[0]);
    const { id, argumentsHash, tool } = lists[0];
    assert.equal(tool, "delete_file");
    const decision = { decision: "approve", argumentsHash };
    const votes = await Promise.all([other, group.three].map(({ url }) => ask("POST", `${url}/approvals/${id}`, decision)));
    const accepted = votes.filter(({ status }) => status === 200);
    assert.ok(accepted.length > 0, JSON.stringify(votes.map(({ body }) => body)));
    for (const { status, body } of votes) assert.ok([200, 404, 409].includes(status), JSON.stringify(body));
    const started = new Set(accepted.map(({ body }) => body.runId));
    assert.equal(started.size, 1, `${[...started]}`);
    const [runId] = started;
    for (const replica of group.replicas) {
      assert.equal(last(await (await follow(replica, "gate", runId)).rest()).type, "RUN_FINISHED");
      const { body } = await get(`${replica.url}/agents/gate/threads/${name}/pending`);
      assert.deepEqual(body.map(({ id, kind }) => [id, kind]), [[`${name}-c`, "frontend-tool"]]);
      assert.equal((await get(`${replica.url}/approvals`)).body.find(({ thread }) => thread === name), undefined);
    }
  });
});

add("P4 a new message at another replica interrupts the run, and no two agents run at once", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "interrupt", name, name);
    const second = await run(other, "interrupt", name, `${name}-2`);
    const next = await group.agent.call(`${name}-2`);
    await stream.rest();
    assert.deepEqual(last(stream.seen).outcome, { type: "cancelled" });
    await call.closed;
    next.talk(1);
    next.finish();
    await second.rest();
    assert.equal(last(second.seen).type, "RUN_FINISHED");
    const { body } = await get(`${group.three.url}/agents/interrupt/message_snapshot/${name}`);
    assert.deepEqual(body.messages.map(({ id }) => id), [`${name}-user`, `${name}-answer`, `${name}-2-user`, `${name}-2-answer`]);
  });
});

add("queued runs of all replicas run in the order of their requests", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "queue", "t", "r0");
  const streams = [stream];
  for (let number = 1; number < 10; number += 1) {
    const replica = group.replicas[(number * 2) % 3];
    streams.push(await run(replica, "queue", "t", `r${number}`, "auto 2"));
    await until("it is queued", async () => (await status(group.one, "queue", `r${number}`)) === "queued");
  }
  const rejected = await run(group.two, "plain", "t", "other", "auto 1");
  assert.equal(last(await rejected.rest()).type, "RUN_FINISHED", "another agent has threads of its own");
  call.finish();
  for (const stream of streams) {
    await stream.rest();
    assert.equal(last(stream.seen).type, "RUN_FINISHED");
  }
  const calls = group.agent.calls.filter(({ runId }) => runId !== "other");
  assert.deepEqual(calls.map(({ runId }) => runId), streams.map((_, index) => `r${index}`));
  for (let index = 1; index < calls.length; index += 1) assert.ok(calls[index].began >= calls[index - 1].ended, "one after the other");
});

add("a thread that is busy elsewhere is refused at every replica", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  for (const [index, replica] of group.replicas.entries()) {
    const refused = await run(replica, "plain", "t", `again${index}`);
    assert.equal(last(await refused.rest()).code, "THREAD_IS_LOCKED");
    assert.equal((await get(`${replica.url}/agents/plain/runs/again${index}`)).status, 404, "it leaves nothing behind");
  }
  call.finish();
  await stream.rest();
});

add("P5 a thread is deleted at any replica: its run ends once, and its agent is closed", async (t) => {
  const group = await cluster(t, { server });
  await eachPair(group, async (owner, other, name) => {
    const { stream, call } = await started(group, owner, "plain", name, name);
    const third = await follow(group.three, "plain", name);
    await third.take(5);
    assert.equal((await ask("DELETE", `${other.url}/agents/plain/thread/${name}`)).status, 200);
    for (const reader of [stream, third]) {
      await reader.rest();
      assert.equal(typesOf(reader.seen).filter(isTerminal).length, 1);
      assert.equal(last(reader.seen).code, "THREAD_DELETED");
    }
    await call.closed;
    for (const { url } of group.replicas) {
      assert.equal((await get(`${url}/agents/plain/runs/${name}`)).status, 404);
      assert.equal((await get(`${url}/agents/plain/runs/${name}/stream`)).status, 404);
    }
  });
});

add("on_disconnect = cancel counts the readers of all replicas", async (t) => {
  const group = await cluster(t, { server });
  const { stream, call } = await started(group, group.one, "cancel", "t", "r");
  const second = await follow(group.two, "cancel", "r");
  await second.take(5);
  await stream.close();
  // Longer than a run without readers lives.
  await sleep(4000);
  assert.equal(await status(group.three, "cancel", "r"), "running");
  const third = await follow(group.three, "cancel", "r");
  await third.take(5);
  await second.close();
  await sleep(4000);
  assert.equal(await status(group.one, "cancel", "r"), "running");
  call.word();
  await third.take(1);
  await third.close();
  await until("the run is stopped", async () => (await status(group.two, "cancel", "r")) === "stopped");
  await call.closed;
});

add("P8 a hundred posts of one run id at all replicas start one run", async (t) => {
  const group = await cluster(t, { server });
  const front = await balancer(t, group.replicas);
  for (let round = 0; round < 3; round += 1) {
    const id = `r${round}`;
    const body = { ...input(`t${round}`, id, "auto 3"), protocolVersion: "1.0" };
    const posts = Array.from({ length: 100 }, () =>
      // A request beyond the connections of a busy gateway is told to come back.
      until("a stream", async () => {
        const stream = new Stream(await post(`${front.url}/agents/plain`, body));
        if (stream.response.status === 200) return stream.rest();
        assert.equal(stream.response.status, 503);
        return void (await stream.response.body?.cancel());
      }),
    );
    const streams = await Promise.all(posts);
    for (const seen of streams) assert.deepEqual(seen, streams[0]);
    assert.equal(last(streams[0]).type, "RUN_FINISHED");
    assert.equal(group.agent.count(id), 1, "P9: the agent is called once");
  }
});

add("SIGTERM: live runs finish, readers at all replicas lose nothing, queued runs go on elsewhere", async (t) => {
  const group = await cluster(t, { server });
  const front = await balancer(t, [group.two, group.three]);
  const { stream, call } = await started(group, group.one, "plain", "live", "live");
  const { stream: holding, call: held } = await started(group, group.two, "queue", "queue", "first");
  // It waits at the gateway that is about to leave.
  const queued = await run(group.one, "queue", "queue", "second", "auto 2");
  await until("it is queued", async () => (await status(group.two, "queue", "second")) === "queued");
  // A reader at the leaving gateway of a run that lives elsewhere.
  const tail = readThrough(() => front.url, "queue", "first", await follow(group.one, "queue", "first"));
  const elsewhere = readThrough(() => front.url, "plain", "live", await follow(group.two, "plain", "live"));
  const here = readThrough(() => front.url, "plain", "live", new Stream(await fetch(`${group.one.url}/agents/plain/runs/live/stream`)));
  const ended = group.one.end("SIGTERM");
  await until("it is not ready", async () => (await get(`${group.one.url}/readyz`).catch(() => ({ status: 503 }))).status === 503);
  call.talk(2);
  call.finish();
  held.finish();
  await holding.rest();
  const second = readThrough(() => front.url, "queue", "second");
  assert.deepEqual(await ended, { code: 0, signal: null });
  await Promise.all([stream.rest(), queued.rest()]);
  assert.equal(last((await second).seen).type, "RUN_FINISHED");
  assert.equal(group.agent.count("second"), 1);
  for (const seen of [(await elsewhere).seen, (await here).seen]) {
    assert.equal(last(seen).type, "RUN_FINISHED");
    assert.deepEqual(seen, await all(await fetch(`${group.three.url}/agents/plain/runs/live/stream`)));
  }
  assert.deepEqual((await tail).seen, holding.seen);
  // A rolling restart: the next ones too.
  for (const replica of [group.two, group.three]) {
    await group.one.start();
    assert.deepEqual(await replica.end("SIGTERM"), { code: 0, signal: null });
    await replica.start();
    assert.equal(last(await (await run(replica, "plain", "live", `after-${replica.pid}`, "auto 1")).rest()).type, "RUN_FINISHED");
    await group.one.end("SIGTERM");
  }
});

add("advertise: readers and commands go to the owner directly, and by the database if that is lost", async (t) => {
  const group = await cluster(t, { server, direct: true, linked: true });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const readers = [await follow(group.two, "plain", "r"), await follow(group.three, "plain", "r")];
  for (const reader of readers) assert.deepEqual(await reader.take(5), stream.seen);
  await until("both gateways are connected to the owner", () => group.neighbours[0].connections >= 2);
  // The database is out of reach for the second gateway, and its reader goes on.
  group.two.link.set("hole");
  call.talk(5);
  await stream.take(5);
  for (const reader of readers) await reader.take(5);
  group.two.link.set("pass");
  const control = (at, word) => ask("POST", `${at.url}/agents/plain/runs/r/${word}`);
  await until("it is paused", async () => (await control(group.two, "pause")).status === 200);
  assert.equal(await status(group.three, "plain", "r"), "paused");
  assert.equal((await control(group.three, "resume")).status, 200);
  // Without the direct way.
  group.neighbours.forEach((each) => each.cut());
  call.talk(5);
  for (const reader of readers) await reader.take(5);
  assert.equal((await control(group.two, "pause")).status, 200);
  assert.equal((await control(group.three, "resume")).status, 200);
  assert.equal((await ask("PATCH", `${group.two.url}/agents/plain/state/t`, [{ op: "add", path: "/a", value: 1 }])).status, 200);
  group.neighbours.forEach((each) => (each.isOpen = true));
  call.talk(5);
  call.finish();
  await stream.rest();
  for (const reader of readers) {
    await reader.rest();
    assert.deepEqual(reader.seen, stream.seen);
  }
  const other = await started(group, group.one, "plain", "u", "s");
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/s/stop`)).status, 200);
  await other.stream.rest();
  assert.deepEqual(last(other.stream.seen).outcome, { type: "cancelled" });
});

add("advertise: gateways with another key, and strangers, are refused; the database serves", async (t) => {
  const group = await cluster(t, { server, direct: true, count: 2, keys: ["one key of a gateway here", "another key of a gateway"] });
  const { stream, call } = await started(group, group.one, "plain", "t", "r");
  const reader = await follow(group.two, "plain", "r");
  await reader.take(5);
  const run = { tenant: "default", user: "default-user", agent: "plain", run: "r" };
  for (const [path, body] of [["tail", { ...run, next: 0 }], ["command", { ...run, command: '"stop"' }]]) {
    for (const headers of [{}, { authorization: "Bearer" }, { authorization: "Bearer one key of a gateway here" }]) {
      const url = `http://127.0.0.1:${group.neighbours[0].port}/${path}`;
      assert.equal((await fetch(url, { method: "POST", headers, body: JSON.stringify(body) })).status, 401);
    }
  }
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/r/pause`)).status, 200);
  assert.equal((await ask("POST", `${group.two.url}/agents/plain/runs/r/resume`)).status, 200);
  call.talk(2);
  call.finish();
  await stream.rest();
  await reader.rest();
  assert.deepEqual(reader.seen, stream.seen);
});

/** A fetch for the official client that resumes a cut stream by its cursor, as a page behind a load balancer does. */
function resuming(front) {
  return async (url, init) => {
    const { runId } = JSON.parse(init.body);
    let response = await fetch(url, init);
    const body = new ReadableStream({
      async start(controller) {
        const encoder = new TextEncoder();
        let cursor;
        for (;;) {
          const stream = new Stream(response);
          for await (const frame of stream.frames) {
            controller.enqueue(encoder.encode(frame.raw));
            cursor = frame.id;
            if (isTerminal(JSON.parse(frame.data).type)) return controller.close();
          }
          const headers = cursor ? { "last-event-id": cursor } : {};
          response = await fetch(`${front.url}/agents/plain/runs/${runId}/stream`, { headers });
          if (response.headers.get("agentwire-recovery") !== "whole") {
            return controller.error(new Error(`${response.status} after ${cursor}: ${await response.text()}`));
          }
        }
      },
    });
    return new Response(body, { headers: response.headers });
  };
}

for (const cuts of [false, true]) {
  add(`@ag-ui/client talks to all replicas through a load balancer${cuts ? " that cuts each second" : ""}`, async (t) => {
    const group = await cluster(t, { server });
    const front = await balancer(t, group.replicas, { cut: () => (cuts ? 1000 : null) });
    const agent = new HttpAgent({ url: `${front.url}/agents/plain`, threadId: "t" });
    if (cuts) agent.fetch = resuming(front);
    for (let turn = 0; turn < 4; turn += 1) {
      agent.addMessage({ id: `u${turn}`, role: "user", content: `question ${turn}` });
      const running = agent.runAgent({ runId: `r${turn}` });
      const call = await group.agent.call(`r${turn}`);
      call.say({ type: "STATE_DELTA", delta: [{ op: "add", path: `/turn${turn}`, value: turn }] });
      for (let part = 0; part < 4; part += 1) {
        call.talk(10);
        await sleep(cuts ? 700 : 10);
      }
      if (turn === 2) call.finish({ type: "interrupt", interrupts: [{ id: "q", reason: "confirm" }] });
      else call.finish();
      await running;
      if (turn === 2) {
        const resume = [{ interruptId: "q", status: "resolved", payload: { approved: true } }];
        const answering = agent.runAgent({ runId: "answer", resume });
        (await group.agent.call("answer")).finish();
        await answering;
      }
      const { body } = await get(`${front.url}/agents/plain/message_snapshot/t`);
      const short = ({ id, role, content }) => ({ id, role, content });
      assert.deepEqual(agent.messages.map(short), body.messages.map(short));
      const state = await get(`${front.url}/agents/plain/state_snapshot/t`);
      assert.deepEqual(agent.state, state.body.snapshot);
    }
    assert.equal(front.used.size, 3, "all replicas were used");
  });
}

runAll();
