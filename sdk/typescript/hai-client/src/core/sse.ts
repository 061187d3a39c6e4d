/** Server-sent events: LF, CRLF and CR, several data lines, comments, split characters, a byte order mark. */

import { HaiError } from "./errors";

/** Characters of a frame that an error shows. */
export const EXCERPT = 200;

/** One frame. */
export interface SseFrame {
  data: string;
  event?: string;
  id?: string;
  retry?: number;
}

/** Bytes in, frames out. A frame that is not closed by a blank line is incomplete and is dropped. */
export class SseDecoder {
  private readonly decoder = new TextDecoder("utf-8");
  private rest = "";
  private data: string[] = [];
  private event?: string;
  private id?: string;
  private retry?: number;
  private size = 0;
  private number = 0;
  private endsWithReturn = false;

  constructor(private readonly maxFrame = 16 * 1024 * 1024) {}

  push(bytes: Uint8Array): SseFrame[] {
    let text = this.decoder.decode(bytes, { stream: true });
    if (text === "") return [];
    // The line feed of a CRLF whose return ended the last chunk.
    if (this.endsWithReturn && text[0] === "\n") text = text.slice(1);
    this.endsWithReturn = text[text.length - 1] === "\r";
    const frames: SseFrame[] = [];
    let start = 0;
    const lineEnd = /\r\n|\n|\r/g;
    for (let match = lineEnd.exec(text); match; match = lineEnd.exec(text)) {
      this.line(this.rest + text.slice(start, match.index), frames);
      this.rest = "";
      start = match.index + match[0].length;
    }
    this.rest += text.slice(start);
    if (this.rest.length + this.size > this.maxFrame) {
      const excerpt = `${this.data.join("\n")}${this.rest}`.slice(0, EXCERPT);
      throw new HaiError("BAD_FRAME", `frame ${this.number + 1} is larger than ${this.maxFrame} characters: ${excerpt}`);
    }
    return frames;
  }

  private line(line: string, frames: SseFrame[]): void {
    if (line === "") {
      if (this.data.length > 0 || this.retry !== undefined) {
        this.number += 1;
        frames.push({ data: this.data.join("\n"), event: this.event, id: this.id, retry: this.retry });
      }
      this.data = [];
      this.size = 0;
      this.event = undefined;
      this.retry = undefined;
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value[0] === " ") value = value.slice(1);
    if (field === "data") {
      this.data.push(value);
      this.size += value.length + 1;
    } else if (field === "event") this.event = value || undefined;
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
  }
}

/** The frames of a complete text or a stream of bytes. */
export async function* parseSse(source: string | AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>): AsyncGenerator<SseFrame, void, undefined> {
  const decoder = new SseDecoder();
  if (typeof source === "string") {
    yield* decoder.push(new TextEncoder().encode(source));
    return;
  }
  for await (const bytes of chunks(source)) yield* decoder.push(bytes);
}

/** The chunks of a body; not every browser can iterate one. */
export async function* chunks(source: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  if (!("getReader" in source)) {
    yield* source;
    return;
  }
  const reader = source.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
