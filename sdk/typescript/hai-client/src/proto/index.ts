/** The binary form: a length of four bytes and one `hai.v1.Event`, again and again. */

import { HaiError } from "../core/errors";
import type { BaseEvent } from "../core/events";

export const CONTENT_TYPE = "application/vnd.hai.event+proto";

/** The names of the numbers in hai.proto. */
const ORDER = [
  "", "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED",
  "BUSINESS_DATA_START", "BUSINESS_DATA_CONTENT", "BUSINESS_DATA_END",
  "AGENT_COLLABORATIVE_MESSAGE_START", "AGENT_COLLABORATIVE_MESSAGE_CONTENT", "AGENT_COLLABORATIVE_MESSAGE_END",
  "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
  "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGE_SNAPSHOT", "RAW", "CUSTOM",
];

const STRINGS: Record<number, string> = {
  3: "threadId", 4: "runId", 5: "messageId", 6: "role", 7: "delta", 8: "stepName", 9: "from", 10: "to",
  11: "toolCallId", 12: "toolCallName", 13: "parentMessageId", 14: "content", 15: "message", 16: "code",
  17: "name", 19: "source", 23: "blockId",
};

class Wire {
  private readonly view: DataView;
  at = 0;

  constructor(private readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isDone(): boolean {
    return this.at >= this.bytes.length;
  }

  varint(): number {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (this.isDone || shift > 63n) throw new HaiError("BAD_FRAME", "a binary frame has a malformed number");
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return Number(BigInt.asIntN(64, value));
    }
  }

  double(): number {
    this.need(8);
    const value = this.view.getFloat64(this.at, true);
    this.at += 8;
    return value;
  }

  block(): Uint8Array {
    const length = this.varint();
    this.need(length);
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  text(): string {
    return new TextDecoder().decode(this.block());
  }

  skip(kind: number): void {
    if (kind === 0) this.varint();
    else if (kind === 1) this.advance(8);
    else if (kind === 2) this.block();
    else if (kind === 5) this.advance(4);
    else throw new HaiError("BAD_FRAME", "a binary frame has a field of an unknown kind");
  }

  private advance(length: number): void {
    this.need(length);
    this.at += length;
  }

  private need(length: number): void {
    if (length < 0 || this.at + length > this.bytes.length) {
      throw new HaiError("BAD_FRAME", "a binary frame ends within a field");
    }
  }
}

/** Calls `field` for every field of a message; unknown ones are skipped. */
function fields(bytes: Uint8Array, field: (number: number, wire: Wire) => boolean): void {
  const wire = new Wire(bytes);
  while (!wire.isDone) {
    const tag = wire.varint();
    if (!field(tag >>> 3, wire)) wire.skip(tag & 7);
  }
}

/** Levels of nesting, as the gateway's own JSON has them. */
const MAX_DEPTH = 126;

function valueOf(bytes: Uint8Array, depth = 0): any {
  if (depth > MAX_DEPTH) throw new HaiError("BAD_FRAME", `a binary frame is nested more than ${MAX_DEPTH} levels deep`);
  let value: any = null;
  fields(bytes, (number, wire) => {
    if (number === 1) value = (wire.varint(), null);
    else if (number === 2) value = wire.double();
    else if (number === 3) value = wire.text();
    else if (number === 4) value = wire.varint() !== 0;
    else if (number === 5) value = structOf(wire.block(), depth + 1);
    else if (number === 6) value = listOf(wire.block(), depth + 1);
    else return false;
    return true;
  });
  return value;
}

function listOf(bytes: Uint8Array, depth: number): any[] {
  const list: any[] = [];
  fields(bytes, (number, wire) => number === 1 && (list.push(valueOf(wire.block(), depth)), true));
  return list;
}

function structOf(bytes: Uint8Array, depth = 0): Record<string, any> {
  const object: Record<string, any> = {};
  fields(bytes, (number, wire) => {
    if (number !== 1) return false;
    let key = "";
    let value: any = null;
    fields(wire.block(), (entry, inner) => {
      if (entry === 1) key = inner.text();
      else if (entry === 2) value = valueOf(inner.block(), depth);
      else return false;
      return true;
    });
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
    return true;
  });
  return object;
}

function operationOf(bytes: Uint8Array): any {
  const operation: any = {};
  fields(bytes, (number, wire) => {
    if (number === 1) operation.op = wire.text();
    else if (number === 2) operation.path = wire.text();
    else if (number === 3) operation.from = wire.text();
    else if (number === 4) operation.value = valueOf(wire.block());
    else return false;
    return true;
  });
  return operation;
}

/** The event of one message. */
export function decodeEvent(bytes: Uint8Array): BaseEvent {
  const event: BaseEvent = { type: "" };
  const patch: any[] = [];
  const messages: any[] = [];
  let value: any;
  let hasValue = false;
  fields(bytes, (number, wire) => {
    const name = STRINGS[number];
    if (name !== undefined) event[name] = wire.text();
    else if (number === 1) event.type = ORDER[wire.varint()] ?? "";
    else if (number === 2) event.timestamp = wire.varint();
    else if (number === 18) (value = valueOf(wire.block())), (hasValue = true);
    else if (number === 20) event.snapshot = valueOf(wire.block());
    else if (number === 21) patch.push(operationOf(wire.block()));
    else if (number === 22) messages.push(structOf(wire.block()));
    else if (number === 24) event.style = structOf(wire.block());
    else if (number === 30) event.type = wire.text();
    else if (number === 31) Object.assign(event, structOf(wire.block()));
    else return false;
    return true;
  });
  if (event.type === "STATE_DELTA" && event.delta === undefined) event.delta = patch;
  if (event.type === "MESSAGE_SNAPSHOT" && event.messages === undefined) event.messages = messages;
  if (hasValue) event[event.type === "RAW" ? "event" : "value"] = value;
  return event;
}

/** Bytes in, events out. */
export class ProtoDecoder {
  private chunks: Uint8Array[] = [];
  private size = 0;
  private number = 0;
  /** Bytes that the next frame needs, with its length. */
  private needed = 4;

  constructor(private readonly maxFrame = 16 * 1024 * 1024) {}

  push(bytes: Uint8Array): BaseEvent[] {
    this.chunks.push(bytes);
    this.size += bytes.length;
    const events: BaseEvent[] = [];
    if (this.size < this.needed) return events;
    const all = joined(this.chunks, this.size);
    const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
    let at = 0;
    for (this.needed = 4; all.length - at >= this.needed; ) {
      const length = view.getUint32(at);
      this.needed = 4 + length;
      if (length > this.maxFrame) this.fail(`it has ${length} bytes, at most ${this.maxFrame} are allowed`, all.subarray(at));
      if (all.length - at < this.needed) break;
      const frame = all.subarray(at + 4, at + this.needed);
      try {
        events.push(decodeEvent(frame));
      } catch (cause) {
        this.fail(cause instanceof Error ? cause.message : String(cause), frame, cause);
      }
      this.number += 1;
      at += this.needed;
      this.needed = 4;
    }
    const rest = all.slice(at);
    this.chunks = [rest];
    this.size = rest.length;
    return events;
  }

  private fail(problem: string, bytes: Uint8Array, cause?: unknown): never {
    const excerpt = Array.from(bytes.subarray(0, 16), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    throw new HaiError("BAD_FRAME", `frame ${this.number + 1}: ${problem}: ${excerpt}`, { cause });
  }
}

function joined(chunks: Uint8Array[], size: number): Uint8Array {
  if (chunks.length === 1) return chunks[0];
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}
