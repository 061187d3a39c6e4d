/** Joined JSON documents, outputs and ids. */

/** An output with its place on the page. */
export interface OutputDocument {
  output: { type: string; [key: string]: any };
  layout?: any;
  blockId?: string;
  style?: any;
  [key: string]: any;
}

/** A random UUID. */
export function randomId(): string {
  const source = (globalThis as any).crypto;
  if (source?.randomUUID) return source.randomUUID();
  const bytes = new Uint8Array(16);
  if (source?.getRandomValues) source.getRandomValues(bytes);
  else for (let at = 0; at < 16; at += 1) bytes[at] = Math.floor(Math.random() * 256);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** The parser printed in the standard: joined documents as a list. */
export function parseJsonString(text: string, options: { lang?: "zh" | "en" } = {}): any[] {
  const isEnglish = options.lang === "en";
  if (!text || typeof text !== "string") {
    throw new Error(isEnglish ? "the input must be a valid string" : "输入必须是有效的字符串");
  }
  try {
    return JSON.parse(`[${text.replace(/}{/g, "},{")}]`);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(isEnglish ? `JSON parse failed: ${reason}` : `JSON解析失败: ${reason}`);
  }
}

/** The end of the JSON object that starts at `start`; -1 if it is not complete. */
function objectEnd(text: string, start: number): number {
  let depth = 0;
  let inString = false;
  for (let at = start; at < text.length; at += 1) {
    const char = text[at];
    if (inString) {
      if (char === "\\") at += 1;
      else if (char === '"') inString = false;
    } else if (char === '"') inString = true;
    else if (char === "{") depth += 1;
    else if (char === "}") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return -1;
}

/**
 * The documents of a message's content. A document that is not complete yet is left out; content that is not made of
 * documents with an `output` is one text.
 */
export function parseContents(content: unknown): OutputDocument[] {
  if (typeof content !== "string" || content === "") return [];
  const asText = (): OutputDocument[] => [{ output: { type: "text", content } }];
  const documents: OutputDocument[] = [];
  let at = 0;
  while (at < content.length) {
    if (/\s/.test(content[at])) {
      at += 1;
      continue;
    }
    if (content[at] !== "{") return asText();
    const end = objectEnd(content, at);
    if (end < 0) return documents.length > 0 || /^\{\s*"(output|layout|blockId|style)/.test(content) ? documents : asText();
    let document: any;
    try {
      document = JSON.parse(content.slice(at, end));
    } catch {
      return asText();
    }
    if (typeof document.output !== "object" || document.output === null) return asText();
    documents.push(document);
    at = end;
  }
  return documents.length > 0 ? documents : asText();
}

/**
 * The blocks that a page draws: consecutive texts joined, consecutive thinking merged, `toolCallShow` updated by its id
 * and its tools by theirs. The end of a fold stays, for pages that nest.
 */
export function mergeOutputs(documents: OutputDocument[]): OutputDocument[] {
  const merged: OutputDocument[] = [];
  for (const document of documents) {
    const { output } = document;
    const last = merged[merged.length - 1];
    const isSame = last?.output.type === output.type && last.blockId === document.blockId;
    if (output.type === "text" && isSame) {
      last.output = { ...last.output, content: `${last.output.content ?? ""}${output.content ?? ""}` };
    } else if ((output.type === "thinking" || output.type === "think") && isSame) {
      const content = `${last.output.data?.content ?? ""}${output.data?.content ?? ""}`;
      last.output = { ...last.output, data: { ...last.output.data, ...output.data, content } };
    } else if (output.type === "toolCallShow" && output.id !== undefined) {
      const shown = merged.find((entry) => entry.output.type === "toolCallShow" && entry.output.id === output.id);
      if (!shown) {
        merged.push({ ...document });
        continue;
      }
      const tools: any[] = [...(shown.output.data?.tools ?? [])];
      for (const tool of output.data?.tools ?? []) {
        const known = tools.findIndex((entry) => entry.id === tool.id);
        if (known < 0) tools.push(tool);
        else tools[known] = { ...tools[known], ...tool };
      }
      shown.output = { ...shown.output, ...output, data: { ...shown.output.data, ...output.data, tools } };
    } else {
      merged.push({ ...document });
    }
  }
  return merged;
}

/** A delta as text: an object becomes compact JSON in which no `}{` stands inside a string. */
export function deltaText(delta: unknown): string {
  if (typeof delta === "string") return delta;
  if (delta === undefined || delta === null) return "";
  const json = JSON.stringify(delta);
  let text = "";
  let inString = false;
  for (let at = 0; at < json.length; at += 1) {
    const char = json[at];
    if (inString && char === "\\") {
      text += char + json[at + 1];
      at += 1;
      continue;
    }
    if (char === '"') inString = !inString;
    text += inString && char === "{" && json[at - 1] === "}" ? "\\u007b" : char;
  }
  return text;
}

/** A deep copy of JSON data. */
export function copy<T>(value: T): T {
  if (value === undefined) return value;
  const clone = (globalThis as any).structuredClone;
  if (clone) {
    try {
      return clone(value);
    } catch {
      // Functions and proxies of a page's framework cannot be cloned.
    }
  }
  return JSON.parse(JSON.stringify(value));
}
