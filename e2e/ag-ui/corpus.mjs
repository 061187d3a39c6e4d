// Streams for the comparison with the official client: valid ones, ones with a known error, and random events.
//
// All streams are derived from the seed, so a failing stream can be reproduced by its number.

import { EVENTS, anyJson, randomness, value } from "./schema.mjs";

/** Small shared pools of ids, so that events refer to each other, rightly and wrongly. */
const SHARED = {
  text: ["m1", "m2", "m3", ""], reasoning: ["m1", "m2", "m3", ""], activity: ["m1", "m2", "m3", ""], result: ["m1", "m2", "m3", ""],
  call: ["c1", "c2", "c3", "m1"],
};
const SUBAGENTS = ["s1", "s2", ""];
const STEPS = ["plan", "act"];

/** Ids of an orderly producer: never reused. */
const tidy = (run) =>
  Object.fromEntries(Object.keys(SHARED).map((kind) => [kind, [1, 2, 3].map((number) => `${run}-${kind}-${number}`)]));

/** The kind of id that an event's `messageId` is. */
const kindOf = (type) =>
  type.startsWith("REASONING") ? "reasoning" : type.startsWith("ACTIVITY") ? "activity" : type === "TOOL_CALL_RESULT" ? "result" : "text";

function chooser(random, overrides, ids, type) {
  const pools = {
    messageId: ids[kindOf(type)], parentMessageId: ids.text, toolCallId: ids.call, id: [...ids.text, ...ids.call], entityId: [...ids.text, ...ids.reasoning, ids.call[0]],
    subagentRunId: SUBAGENTS, parentSubagentRunId: SUBAGENTS, parentToolCallId: ids.call, stepName: STEPS,
    threadId: ["t1"], runId: ["r1"], delta: ["a", "", "b c", "{\"x\":1}", "é🚀"],
    path: ["", "/a", "/a/0", "/b", "/a/-", "/b/c"], from: ["/a", "/b", "/a/0"],
  };
  return (name, schema) => {
    if (name in overrides) return overrides[name];
    // `delta` is a patch in STATE_DELTA.
    if (name === "delta" && !schema.safeParse("text").success) return undefined;
    return name in pools ? random.pick(pools[name]) : undefined;
  };
}

/** One random, well-formed event of a type. */
export const anyEvent = (type, random, overrides = {}, fill = 0.15, ids = SHARED) =>
  value(EVENTS.get(type), random, { choose: chooser(random, overrides, ids, type), fill });

/** Tracks open messages, calls and steps, so that it can distinguish valid events from invalid ones. */
class Producer {
  constructor(random, orderly) {
    this.random = random;
    this.orderly = orderly;
    this.events = [];
  }

  event(type, overrides, fill) {
    const event = anyEvent(type, this.random, overrides, fill, this.ids);
    if (this.orderly) this.tidyMessages(event.messages ?? event.input?.messages ?? []);
    return event;
  }

  /** Gives the messages of a list unique ids; ids of the stream where possible. */
  tidyMessages(messages) {
    const { random, ids, events } = this;
    const used = new Set();
    const kinds = { reasoning: "reasoning", activity: "activity", tool: "result", assistant: "text" };
    const fresh = (pool, index) => {
      const id = random.pick(pool);
      return used.has(id) ? `list-${events.length}-${index}` : id;
    };
    messages.forEach((message, index) => {
      const pool = ids[kinds[message.role]];
      message.id = pool ? fresh(pool, index) : `list-${events.length}-${index}`;
      used.add(message.id);
      message.toolCalls?.forEach((call, place) => {
        call.id = fresh(ids.call, `${index}-${place}`);
        used.add(call.id);
      });
    });
  }

  run(runId) {
    const { random } = this;
    this.ids = this.orderly ? tidy(runId) : SHARED;
    this.open = { text: new Map(), call: new Map(), reasoning: new Map(), span: new Map(), step: new Map(), subagent: new Map() };
    this.owners = { message: new Map(), call: new Map(), activity: new Map(), reasoning: new Map() };
    this.started = new Set();
    const started = this.event("RUN_STARTED", { threadId: "t1", runId, ...(random.chance(0.7) && { input: null }) });
    if (started.input === null) delete started.input;
    else this.adopt(started.input?.messages ?? [], false);
    this.events.push(started);
    for (let count = random.below(25); count > 0; count -= 1) this.move();
    if (random.chance(0.15)) {
      this.events.push(this.event("RUN_ERROR"));
      return;
    }
    this.closeAll();
    const finished = this.event("RUN_FINISHED", { threadId: "t1", runId }, 0.3);
    const interrupts = finished.outcome?.interrupts;
    interrupts?.forEach((interrupt, index) => (interrupt.id = `i${index}`));
    this.events.push(finished);
  }

  adopt(messages, authoritative) {
    for (const message of messages) {
      const bucket = { reasoning: "reasoning", activity: "activity" }[message.role] ?? "message";
      const own = (owners, id) => {
        if (authoritative || !owners.has(id)) owners.set(id, message.subagentRunId);
      };
      own(this.owners[bucket], message.id);
      for (const call of message.toolCalls ?? []) own(this.owners.call, call.id);
    }
  }

  /** A tag that agrees with the owner: the owner's tag, or none. */
  tagged(event, owner, always = false) {
    delete event.subagentRunId;
    if (owner !== undefined && (always || this.random.chance(0.5))) event.subagentRunId = owner;
    return event;
  }

  start(type, kind, bucket, name, ids) {
    const { random } = this;
    const id = random.pick(ids);
    if (this.open[kind].has(id)) return;
    const event = this.event(type, { [name]: id });
    const owners = this.owners[bucket];
    if (owners.has(id)) this.tagged(event, owners.get(id), this.orderly);
    else owners.set(id, event.subagentRunId);
    this.open[kind].set(id, owners.get(id));
    this.events.push(event);
  }

  continue(type, kind, bucket, name, closes) {
    const { random } = this;
    const ids = [...this.open[kind].keys()];
    if (ids.length === 0) return;
    const id = random.pick(ids);
    this.events.push(this.tagged(this.event(type, { [name]: id }), this.owners[bucket].get(id)));
    if (closes) this.open[kind].delete(id);
  }

  startCall() {
    const { random } = this;
    const id = random.pick(this.ids.call);
    if (this.open.call.has(id)) return;
    const event = this.event("TOOL_CALL_START", { toolCallId: id }, 0.5);
    const { message, call } = this.owners;
    // An orderly producer starts a call once, and in a message that it has started.
    if (this.orderly && call.has(id)) return;
    if (this.orderly && !message.has(event.parentMessageId)) delete event.parentMessageId;
    const parent = event.parentMessageId;
    const holder = parent !== undefined && message.has(parent);
    if (call.has(id)) {
      if (holder && message.get(parent) !== call.get(id)) return;
      this.tagged(event, call.get(id));
    } else if (holder) {
      this.tagged(event, message.get(parent));
      call.set(id, message.get(parent));
    } else {
      call.set(id, event.subagentRunId);
    }
    this.open.call.set(id, call.get(id));
    this.events.push(event);
  }

  step() {
    const { random } = this;
    const open = [...this.open.step.values()];
    if (open.length > 0 && random.chance(0.5)) {
      const event = random.pick(open);
      this.open.step.delete(JSON.stringify(event));
      const [stepName, subagentRunId] = event;
      const finished = this.event("STEP_FINISHED", { stepName });
      delete finished.subagentRunId;
      if (subagentRunId !== null) finished.subagentRunId = subagentRunId;
      this.events.push(finished);
      return;
    }
    const event = this.event("STEP_STARTED");
    const key = [event.stepName, event.subagentRunId ?? null];
    if (this.open.step.has(JSON.stringify(key))) return;
    this.open.step.set(JSON.stringify(key), key);
    this.events.push(event);
  }

  subagent() {
    const { random } = this;
    const open = [...this.open.subagent.keys()];
    if (open.length > 0 && random.chance(0.5)) {
      const subagentRunId = random.pick(open);
      this.open.subagent.delete(subagentRunId);
      this.events.push(this.event(random.pick(["SUBAGENT_FINISHED", "SUBAGENT_ERROR"]), { subagentRunId }, 0.4));
      return;
    }
    const fresh = SUBAGENTS.filter((id) => !this.started.has(id));
    if (fresh.length === 0) return;
    const subagentRunId = random.pick(fresh);
    const event = this.event("SUBAGENT_STARTED", { subagentRunId }, 0.4);
    if (event.parentSubagentRunId !== undefined && !this.started.has(event.parentSubagentRunId)) delete event.parentSubagentRunId;
    this.started.add(subagentRunId);
    this.open.subagent.set(subagentRunId, true);
    this.events.push(event);
  }

  move() {
    const { random, owners } = this;
    const push = (event) => this.events.push(event);
    const moves = [
      () => this.start("TEXT_MESSAGE_START", "text", "message", "messageId", this.ids.text),
      () => this.continue("TEXT_MESSAGE_CONTENT", "text", "message", "messageId"),
      () => this.continue("TEXT_MESSAGE_CONTENT", "text", "message", "messageId"),
      () => this.continue("TEXT_MESSAGE_END", "text", "message", "messageId", true),
      () => this.startCall(),
      () => this.continue("TOOL_CALL_ARGS", "call", "call", "toolCallId"),
      () => this.continue("TOOL_CALL_END", "call", "call", "toolCallId", true),
      () => this.start("REASONING_START", "span", "reasoning", "messageId", this.ids.reasoning),
      () => this.continue("REASONING_END", "span", "reasoning", "messageId", true),
      () => this.start("REASONING_MESSAGE_START", "reasoning", "reasoning", "messageId", this.ids.reasoning),
      () => this.continue("REASONING_MESSAGE_CONTENT", "reasoning", "reasoning", "messageId"),
      () => this.continue("REASONING_MESSAGE_END", "reasoning", "reasoning", "messageId", true),
      () => this.step(),
      () => this.subagent(),
      () => push(this.event(random.pick(["STATE_SNAPSHOT", "STATE_DELTA", "RAW", "CUSTOM"]))),
      () => {
        const event = this.event("TOOL_CALL_RESULT");
        owners.message.set(event.messageId, event.subagentRunId);
        push(event);
      },
      () => {
        const event = this.event("ACTIVITY_SNAPSHOT", {}, 0.4);
        if (event.replace !== false || !owners.activity.has(event.messageId)) owners.activity.set(event.messageId, event.subagentRunId);
        push(event);
      },
      () => {
        const event = this.event("ACTIVITY_DELTA");
        push(owners.activity.has(event.messageId) ? this.tagged(event, owners.activity.get(event.messageId)) : event);
      },
      () => {
        const event = this.event("REASONING_ENCRYPTED_VALUE");
        delete event.subagentRunId;
        push(event);
      },
      () => {
        if (!random.chance(0.3)) return;
        const event = this.event("MESSAGES_SNAPSHOT", {}, 0.2);
        this.adopt(event.messages, true);
        push(event);
      },
      () => this.chunks(),
    ];
    random.pick(moves)();
  }

  /** A message or call in shorthand, started and ended by the surrounding events. */
  chunks() {
    const { random } = this;
    const [type, id, extra] = random.pick([
      ["TEXT_MESSAGE_CHUNK", "messageId", {}],
      ["TOOL_CALL_CHUNK", "toolCallId", { toolCallName: "f" }],
      ["REASONING_MESSAGE_CHUNK", "messageId", {}],
    ]);
    // Separate ids: chunks and explicit events of one id would end each other.
    const own = `k${this.events.length}`;
    this.events.push({ type, [id]: own, ...extra, delta: random.pick(["", "a", "é"]) });
    for (let count = random.below(3); count > 0; count -= 1) {
      this.events.push({ type, ...(random.chance(0.5) && { [id]: own }), delta: random.pick(["", "b"]), ...(random.chance(0.2) && { metadata: { n: count } }) });
    }
  }

  closeAll() {
    const { random } = this;
    const left = () => Object.values(this.open).some((map) => map.size > 0);
    while (left()) {
      random.pick([
        () => this.continue("TEXT_MESSAGE_END", "text", "message", "messageId", true),
        () => this.continue("TOOL_CALL_END", "call", "call", "toolCallId", true),
        () => this.continue("REASONING_END", "span", "reasoning", "messageId", true),
        () => this.continue("REASONING_MESSAGE_END", "reasoning", "reasoning", "messageId", true),
        () => this.open.step.size > 0 && this.step(),
        () => this.open.subagent.size > 0 && this.subagent(),
      ])();
    }
  }
}

/** A valid stream of one or more runs. */
export function validStream(random, orderly = false) {
  const producer = new Producer(random, orderly);
  const runs = random.pick([1, 1, 1, 2, 3]);
  for (let run = 1; run <= runs; run += 1) producer.run(`r${run}`);
  return producer.events;
}

/** Events in random order, inside a run or not. */
function soup(random) {
  const types = [...EVENTS.keys()];
  const events = Array.from({ length: 1 + random.below(12) }, () => anyEvent(random.pick(types), random));
  if (random.chance(0.9)) events.unshift(anyEvent("RUN_STARTED", random, { threadId: "t1", runId: "r1" }, 0));
  if (random.chance(0.5)) events.push(anyEvent("RUN_FINISHED", random, { threadId: "t1", runId: "r1" }, 0));
  return events;
}

/** Every position inside a JSON value, as the containing object or list and the key. */
function places(holder, found = []) {
  for (const key of Object.keys(holder)) {
    found.push([holder, Array.isArray(holder) ? Number(key) : key]);
    if (typeof holder[key] === "object" && holder[key] !== null) places(holder[key], found);
  }
  return found;
}

const WRONG = [null, true, 0, 1.5, -1, "", "text", [], {}, [null], { type: "text" }, { type: "success" }, 1e300, "1.0"];

/** Mutations of a list of events. */
const EVENT_MUTATIONS = {
  drop: (events, random) => void events.splice(random.below(events.length), 1),
  duplicate(events, random) {
    const at = random.below(events.length);
    events.splice(at, 0, structuredClone(events[at]));
  },
  repeatLater(events, random) {
    events.splice(random.below(events.length + 1), 0, structuredClone(random.pick(events)));
  },
  swap(events, random) {
    const [a, b] = [random.below(events.length), random.below(events.length)];
    [events[a], events[b]] = [events[b], events[a]];
  },
  swapNeighbours(events, random) {
    if (events.length < 2) return;
    const at = random.below(events.length - 1);
    [events[at], events[at + 1]] = [events[at + 1], events[at]];
  },
  truncate: (events, random) => void events.splice(random.below(events.length)),
  retag(events, random) {
    const event = random.pick(events);
    const tag = random.pick([...SUBAGENTS, undefined, null]);
    if (tag === undefined) delete event.subagentRunId;
    else event.subagentRunId = tag;
  },
  rename(events, random) {
    random.pick(events).type = random.pick([...EVENTS.keys(), "SOMETHING_NEW", "THINKING_START", "THINKING_END", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT", "THINKING_TEXT_MESSAGE_END", "TOOL_CALL", "TOOL_RESULT", "ERROR", "", "text_message_start"]);
  },
  wrongValue(events, random) {
    const [holder, key] = random.pick(places(random.pick(events)));
    holder[key] = structuredClone(random.pick(WRONG));
  },
  remove(events, random) {
    const [holder, key] = random.pick(places(random.pick(events)));
    if (Array.isArray(holder)) holder.splice(key, 1);
    else delete holder[key];
  },
  unknownMember(events, random) {
    const objects = [random.pick(events)];
    for (const [holder, key] of places(objects[0])) {
      if (typeof holder[key] === "object" && holder[key] !== null && !Array.isArray(holder[key])) objects.push(holder[key]);
    }
    random.pick(objects)[random.pick(["extra", "toString", "encryptedValueType", "__proto", "Type"])] = anyJson(random);
  },
  nullMember(events, random) {
    const event = random.pick(events);
    const name = random.pick(["timestamp", "rawEvent", "metadata", "subagentRunId", "role", "name", "parentMessageId", "result", "outcome", "usage", "code", "replace", "source", "input", "protocolVersion", "parentRunId", "description"]);
    event[name] = null;
  },
  /** A media part of 0.x, with the nulls that its Python servers sent, or malformed. */
  binaryPart(events, random) {
    const some = (...values) => random.pick([...values, null, undefined]);
    const part = {
      type: "binary", mimeType: random.pick(["image/png", "audio/wav", "text/csv", "", null, 1]), data: some("QUJD", "", 0, 7), url: some("http://x/y", "", false, {}),
      id: some("f1"), filename: some("a.png", "", 5),
    };
    const copy = { type: "image", source: { type: "data", value: "QUJD", mimeType: "image/png" }, ...random.pick([{}, { metadata: { filename: "a.png" } }]) };
    const content = random.pick([[part], [{ type: "text", text: "see" }, part], [part, copy], [copy, part]]);
    events.splice(random.below(events.length + 1), 0, { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m1", role: "user", content }] });
  },
  insert: (events, random) => void events.splice(random.below(events.length + 1), 0, anyEvent(random.pick([...EVENTS.keys()]), random)),
  unknownEvent: (events, random) => void events.splice(random.below(events.length + 1), 0, { type: "FUTURE_EVENT", x: anyJson(random) }),
  lateError: (events) => void events.push({ type: "RUN_ERROR", message: "late" }),
  againRun: (events) => void events.push({ type: "RUN_STARTED", threadId: "t1", runId: "r9" }),
  otherRun(events, random) {
    random.pick(events).runId = random.pick(["r1", "r2", "other"]);
  },
};

/** Mutations of the text of a body. */
const TEXT_MUTATIONS = {
  cut: (text, random) => text.slice(0, random.below(text.length + 1)),
  dropCharacter: (text, random) => {
    const at = random.below(text.length);
    return text.slice(0, at) + text.slice(at + 1);
  },
  insertCharacter: (text, random) => {
    const at = random.below(text.length);
    return text.slice(0, at) + random.pick(["{", "}", "[", "]", ",", ":", '"', "\\", "\n", " ", "0", "x", "\u0000", "é", "\ufeff"]) + text.slice(at);
  },
  doneFrame: (text) => `${text}data: [DONE]\n\n`,
  notAnObject: (text, random) => `${text}data: ${random.pick(["null", "1", '"text"', "[]", "", "true", "{}", '{"type":1}', '{"type":""}'])}\n\n`,
  fields: (text, random) => random.pick([": comment\n\n", "event: x\nid: 1\nretry: 5\n\n", "nonsense\n\n", "\n\n\n", ":\n", "id\n\n"]) + text,
};

/** Valid streams without reused ids, numbered. */
export function* orderlyStreams(seed, count) {
  for (let number = 0; number < count; number += 1) {
    const events = validStream(randomness(seed * 1_000_003 + number), true);
    yield { name: `#${number} orderly`, stream: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("") };
  }
}

/** The streams, numbered. */
export function* corpus(seed, count) {
  for (let number = 0; number < count; number += 1) {
    const random = randomness(seed * 1_000_003 + number);
    const kind = random.pick(["valid", "mutated", "mutated", "mutated", "soup", "soup", "text"]);
    const events = kind === "soup" ? soup(random) : validStream(random);
    const done = [];
    if (kind === "mutated" || (kind === "soup" && random.chance(0.2))) {
      for (let times = random.pick([1, 1, 1, 2, 3]); times > 0 && events.length > 0; times -= 1) {
        const name = random.pick(Object.keys(EVENT_MUTATIONS));
        EVENT_MUTATIONS[name](events, random);
        done.push(name);
      }
    }
    let stream = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
    if (kind === "text" && stream.length > 0) {
      const name = random.pick(Object.keys(TEXT_MUTATIONS));
      stream = TEXT_MUTATIONS[name](stream, random);
      done.push(name);
    }
    // A cut may fall inside a character; in bytes that becomes U+FFFD.
    stream = stream.toWellFormed();
    yield { name: `#${number} ${kind}${done.length ? ` (${done.join(", ")})` : ""}`, kind, stream };
  }
}
