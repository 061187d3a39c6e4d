// The binary form, read by a protobuf library with the published schema, equals the JSON form.

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";

import protobuf from "protobufjs";

import { framesOf } from "./client.mjs";
import { agentwire, fixtures, optionsOf, root } from "./peers.mjs";

const schema = await protobuf.load(path.join(root, "docs", "formats", "hai.proto"));
const Event = schema.lookupType("hai.v1.Event");
const types = schema.lookupEnum("hai.v1.EventType");

const structOf = (struct) => Object.fromEntries(Object.entries(struct.fields ?? {}).map(([key, value]) => [key, valueOf(value)]));

function valueOf(value) {
  switch (value.kind) {
    case "numberValue": return value.numberValue;
    case "stringValue": return value.stringValue;
    case "boolValue": return value.boolValue;
    case "structValue": return structOf(value.structValue);
    case "listValue": return (value.listValue.values ?? []).map(valueOf);
    default: return null;
  }
}

const MEMBERS = {
  threadId: "threadId", runId: "runId", messageId: "messageId", role: "role", delta: "delta", stepName: "stepName",
  fromAgent: "from", toAgent: "to", toolCallId: "toolCallId", toolCallName: "toolCallName", parentMessageId: "parentMessageId",
  content: "content", message: "message", code: "code", name: "name", source: "source", blockId: "blockId",
};

/** An event in JSON, converted as the comments of the schema specify. */
function jsonOf(event) {
  const type = event.type === 0 ? event.unknownType : types.valuesById[event.type];
  const json = { type };
  const has = (key) => Object.hasOwn(event, key) && event[key] !== null;
  if (has("timestamp")) json.timestamp = Number(event.timestamp);
  for (const [field, member] of Object.entries(MEMBERS)) if (has(field)) json[member] = event[field];
  if (has("value")) json[type === "RAW" ? "event" : "value"] = valueOf(event.value);
  if (has("snapshot")) json.snapshot = valueOf(event.snapshot);
  if (has("style")) json.style = structOf(event.style);
  if (type === "MESSAGE_SNAPSHOT") json.messages = event.messages.map(structOf);
  if (type === "STATE_DELTA") {
    json.delta = event.patch.map((operation) => {
      const own = { op: operation.op, path: operation.path };
      if (Object.hasOwn(operation, "from") && operation.from !== null) own.from = operation.from;
      if (Object.hasOwn(operation, "value") && operation.value !== null) own.value = valueOf(operation.value);
      return own;
    });
  }
  const extra = has("extra") ? structOf(event.extra) : {};
  return { ...json, ...extra };
}

const large = (frame) => /[:[,]-?\d{17,}(?![\d.eE])/.test(JSON.stringify(frame));

for (const { format, file, name } of fixtures().filter(({ format }) => ["hai", "ag-ui", "adk"].includes(format))) {
  test(`a protobuf library reads ${name}`, async () => {
    const options = [...optionsOf(file), "-O", "stamp=1"];
    const [json, binary] = await Promise.all([
      agentwire(["convert", "--from", format, "--to", "hai", ...options, file]),
      agentwire(["convert", "--from", format, "--to", "hai-proto", ...options, file]),
    ]);
    assert.ok(json.code === 0 || json.code === 3, json.stderr);
    const events = [];
    for (let at = 0; at < binary.stdout.length; ) {
      const length = binary.stdout.readUInt32BE(at);
      events.push(jsonOf(Event.decode(binary.stdout.subarray(at + 4, at + 4 + length))));
      at += 4 + length;
    }
    const wanted = framesOf(json.stdout.toString()).filter((frame) => !large(frame));
    assert.deepEqual(events, wanted);
  });
}
