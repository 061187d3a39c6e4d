// A HAI client, ported from the code in the HAI standard and its public reference client: it joins deltas per
// message, inserts a comma at every `}{`, parses the whole as a list, applies JSON Patch to the state, and parses the
// text of a hand-over at its end. It is independent of agentwire.

import jsonPatch from "fast-json-patch";

/** The standard's own parser, copied literally. */
export function parseJsonString(jsonString) {
  if (!jsonString || typeof jsonString !== "string") throw new Error("the input must be a valid string");
  try {
    return JSON.parse(`[${jsonString.replace(/}{/g, "},{")}]`);
  } catch (error) {
    throw new Error(`JSON parse failed: ${error.message}`);
  }
}

/** The frames of an SSE body. */
export function framesOf(body) {
  const frames = [];
  for (const block of body.split("\n\n")) {
    const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
    if (data.length > 0) frames.push(JSON.parse(data.join("\n")));
  }
  return frames;
}

// The standard's client parses the whole message again with every delta; for long messages a sample must do.
const PARSED_EACH_TIME = 100;

export class HaiClient {
  messages = [];
  state = {};
  tasks = [];
  calls = new Map();
  thinking = "";
  finished = null;
  #collaborations = new Map();
  #contents = new Map();

  apply(event) {
    const handler = this[event.type];
    if (handler) handler.call(this, event);
  }

  #message(id) {
    return this.messages.find((message) => message.id === id);
  }

  RUN_STARTED(event) {
    if (!event.messageId || !event.role) throw new Error("RUN_STARTED without messageId and role");
    // Messages that the client itself had sent.
    for (const message of event.input?.messages ?? []) {
      if (!this.#message(message.id)) this.messages.push(message);
    }
  }

  BUSINESS_DATA_START({ messageId, role }) {
    if (!this.#message(messageId)) this.messages.push({ id: messageId, role, content: "" });
    this.#contents.set(messageId, 0);
  }

  BUSINESS_DATA_CONTENT({ messageId, delta }) {
    const message = this.#message(messageId);
    if (!message || !this.#contents.has(messageId)) throw new Error(`content for ${messageId}, which is not open`);
    if (typeof delta !== "string") throw new Error("a delta that cannot be joined");
    message.content = (message.content ?? "") + delta;
    const count = this.#contents.get(messageId) + 1;
    this.#contents.set(messageId, count);
    if (count <= PARSED_EACH_TIME) parseJsonString(message.content);
    for (const { output } of parseJsonString(delta)) {
      if (output.type === "thinking" && output.data) this.thinking += output.data.content;
    }
  }

  BUSINESS_DATA_END({ messageId }) {
    if (!this.#contents.delete(messageId)) throw new Error(`end of ${messageId}, which is not open`);
    // A snapshot may have removed the message in the meantime.
    const message = this.#message(messageId);
    if (message) parseJsonString(message.content);
  }

  AGENT_COLLABORATIVE_MESSAGE_START({ messageId, from, to }) {
    this.#collaborations.set(messageId, { from, to, buffer: "" });
  }

  AGENT_COLLABORATIVE_MESSAGE_CONTENT({ messageId, delta }) {
    this.#collaborations.get(messageId).buffer += delta;
  }

  AGENT_COLLABORATIVE_MESSAGE_END({ messageId }) {
    const { from, to, buffer } = this.#collaborations.get(messageId);
    const { task } = JSON.parse(buffer);
    this.tasks.push({ from, to, task });
    this.#collaborations.delete(messageId);
  }

  TOOL_CALL_START({ toolCallId, toolCallName }) {
    if (!this.calls.has(toolCallId)) this.calls.set(toolCallId, { name: toolCallName, args: "", ready: false });
  }

  TOOL_CALL_ARGS({ toolCallId, delta }) {
    this.calls.get(toolCallId).args += delta;
  }

  TOOL_CALL_END({ toolCallId }) {
    this.calls.get(toolCallId).ready = true;
  }

  STATE_SNAPSHOT({ snapshot }) {
    this.state = snapshot ?? null;
  }

  STATE_DELTA({ delta }) {
    try {
      this.state = jsonPatch.applyPatch(this.state, delta, true, false).newDocument;
    } catch {
      // The reference client warns and continues.
    }
  }

  MESSAGE_SNAPSHOT({ messages }) {
    this.messages = messages.map((message) => ({ ...message }));
    for (const { role, content } of this.messages) {
      if (role === "assistant" && content) parseJsonString(content);
    }
  }

  RUN_FINISHED(event) {
    this.#end(event);
  }

  RUN_ERROR(event) {
    if (typeof event.message !== "string") throw new Error("RUN_ERROR without a message");
    this.#end(event);
  }

  #end(event) {
    if (this.#contents.size > 0) throw new Error(`open at the end: ${[...this.#contents.keys()]}`);
    if (this.#collaborations.size > 0) throw new Error("a hand-over is open at the end");
    this.finished = event.type;
  }

  /** The text of each message of the assistant (or another role), as displayed. */
  texts() {
    const texts = new Map();
    for (const { id, role, content } of this.messages) {
      let text = "";
      if (Array.isArray(content)) {
        text = content.filter((part) => part.type === "text").map((part) => part.text).join("");
      } else if (content) {
        let outputs = null;
        try {
          outputs = parseJsonString(content);
        } catch {}
        const documents = Array.isArray(outputs) && outputs.every((output) => output?.output);
        text = documents
          ? outputs.map(({ output }) => (output.type === "text" && typeof output.content === "string" ? output.content : "")).join("")
          : content;
      }
      texts.set(id, { role, text: (texts.get(id)?.text ?? "") + text });
    }
    return texts;
  }
}
