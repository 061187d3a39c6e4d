// Values generated from the official schemas, so that the tests cover every field of the protocol and no others.

import * as schemas from "@ag-ui/core/schemas";

const definition = (schema) => schema.def ?? schema._zod.def;

/** The schema inside optional, nullable, default and piped schemas. */
export function inner(schema) {
  for (;;) {
    const def = definition(schema);
    if (["optional", "nullable", "default"].includes(def.type)) schema = def.innerType;
    else if (def.type === "pipe") schema = def.in;
    else return schema;
  }
}

export const isOptional = (schema) => ["optional", "default"].includes(definition(schema).type);
export const shape = (schema) => definition(inner(schema)).shape;

/** Each event type with its schema. */
export const EVENTS = new Map(
  definition(schemas.EventSchema).options.map((option) => [definition(shape(option).type).values[0], option]),
);
export const INPUT = schemas.RunAgentInputSchema;

/** A small seeded random number generator (mulberry32). */
export function randomness(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (limit) => Math.floor(next() * limit);
  return { next, below, chance: (p) => next() < p, pick: (list) => list[below(list.length)] };
}

const TEXTS = ["", "a", "Hello", "ünïcödé", "日本 🚀", 'quo"te\\', "line\nbreak\ttab", "\u0000\u001f", "x".repeat(200)];
const NUMBERS = [0, -0, 1, -1, 0.5, -2.25, 1e21, 1e-7, 123456789, 9007199254740991, -9007199254740991, 3.141592653589793];

/** Any JSON value. */
export function anyJson(random, depth = 3) {
  switch (random.below(depth > 0 ? 7 : 5)) {
    case 0:
      return null;
    case 1:
      return random.chance(0.5);
    case 2:
      return random.pick(NUMBERS);
    case 3:
    case 4:
      return random.pick(TEXTS);
    case 5:
      return Array.from({ length: random.below(4) }, () => anyJson(random, depth - 1));
    default:
      return anyObject(random, depth - 1);
  }
}

/** Any JSON object. Keys that look like array indices are excluded: JavaScript would move them to the front. */
export function anyObject(random, depth = 2) {
  const keys = ["", "a", "b", "ключ", "with space", "ag-ui", "type", "toString", "q\"uote"];
  const object = {};
  for (let count = random.below(4); count > 0; count -= 1) object[random.pick(keys)] = anyJson(random, depth);
  return object;
}

/**
 * A random value that `schema` accepts. `choose` may return the value of a member by its name, or `undefined` for a
 * random one; `fill` is the probability that an optional member is present.
 */
export function value(schema, random, { choose = () => undefined, fill = 0.3 } = {}, name = "") {
  const wanted = choose(name, schema);
  if (wanted !== undefined) return wanted;
  schema = inner(schema);
  const def = definition(schema);
  switch (def.type) {
    case "object": {
      const object = {};
      for (const [key, member] of Object.entries(def.shape)) {
        if (isOptional(member) && !random.chance(fill)) continue;
        object[key] = value(member, random, { choose, fill }, key);
      }
      return object;
    }
    case "array":
      for (;;) {
        const list = Array.from({ length: random.below(4) }, () => value(def.element, random, { choose, fill }, name));
        if (list.length > 0 || schema.safeParse(list).success) return list;
      }
    case "union":
      return value(random.pick(def.options), random, { choose, fill }, name);
    case "literal":
      return def.values[0];
    case "enum":
      return random.pick(Object.values(def.entries));
    case "string": {
      const text = random.pick(TEXTS);
      return schema.safeParse("not a pointer").success ? text : random.pick(["", "/a", "/a/0", "/a/-", "/~0~1", "/ключ", "//"]);
    }
    case "number": {
      const smallest = schema.safeParse(-1).success ? -9007199254740991 : 0;
      return random.pick([0, 1, 1758067200000, 9007199254740991, smallest]);
    }
    case "boolean":
      return random.chance(0.5);
    case "custom":
      return anyObject(random);
    case "any":
      for (;;) {
        const json = anyJson(random);
        if (schema.safeParse(json).success) return json;
      }
    default:
      throw new Error(`schema.mjs does not know schemas of type ${def.type}`);
  }
}

const JSON_KINDS = [null, true, false, 0, 1, -1.5, 1e21, 5e-324, 1.7976931348623157e308, 9007199254740993, "", "text", "é🚀", [], {}, [null, [true, { a: 1 }], "x"], { b: null, a: [], c: { "": -0.1 } }];

/**
 * Values that `schema` accepts, chosen so that every member, every kind of value and every member of every union occurs:
 * the smallest value first, then one variation at a time, then all members at once.
 */
export function variants(schema) {
  const optional = isOptional(schema);
  const target = inner(schema);
  const def = definition(target);
  const admitted = (values) => values.filter((json) => schema.safeParse(json).success);
  switch (def.type) {
    case "object": {
      const members = Object.entries(def.shape).map(([key, member]) => [key, variants(member), isOptional(member)]);
      const smallest = Object.fromEntries(members.filter(([, , spare]) => !spare).map(([key, [first]]) => [key, first]));
      const ordered = (object) => Object.fromEntries(members.filter(([key]) => key in object).map(([key]) => [key, object[key]]));
      const single = members.flatMap(([key, all]) => all.map((one) => ordered({ ...smallest, [key]: one })));
      const everything = Object.fromEntries(members.map(([key, all]) => [key, all.at(-1)]));
      return [smallest, ...single, everything];
    }
    case "array": {
      const elements = variants(def.element);
      return admitted([[], ...elements.map((element) => [element]), elements.slice(-3)]);
    }
    case "union":
      return def.options.flatMap((option) => variants(option));
    case "literal":
      return [def.values[0]];
    case "enum":
      return Object.values(def.entries);
    case "string":
      return admitted(["id", "", "/a/0/~0~1", "é🚀\n\"\\\u0000"]);
    case "number":
      return admitted([1, 0, -1, 127, 128, 1758067200000, -9007199254740991, 9007199254740991]);
    case "boolean":
      return [true, false];
    case "custom":
    case "any":
      return admitted(optional ? JSON_KINDS.filter((json) => json !== null) : JSON_KINDS);
    default:
      throw new Error(`schema.mjs does not know schemas of type ${def.type}`);
  }
}
