// Shared by the tests: the real clients, agentwire as a process, and a fold for comparison.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = process.env.AGENTWIRE_ROOT ?? path.resolve(here, '../..');
const target = process.env.AGENTWIRE_TARGET ?? path.resolve(root, process.env.CARGO_TARGET_DIR ?? 'target');
export const agentwire = path.resolve(process.env.AGENTWIRE ?? path.join(target, 'debug/agentwire'));
const aiSdk = path.join(target, 'debug/ai_sdk');
for (const [program, how] of [[agentwire, 'cargo build'], [aiSdk, 'cargo build -p agentwire-tools']]) {
  if (!fs.existsSync(program)) throw new Error(`${program} is missing: build it with \`${how}\``);
}

/** Timeout for any wait; generous, for busy machines. */
export const PATIENCE_MS = 180_000;

/** Sends requests to `tools/src/bin/ai_sdk.rs`. */
export function ask(questions) {
  const input = questions.map(question => `${JSON.stringify(question)}\n`).join('');
  const done = spawnSync(aiSdk, [], { input, maxBuffer: 1 << 30 });
  const answers = done.stdout?.toString().split('\n').filter(Boolean).map(line => JSON.parse(line)) ?? [];
  if (done.status !== 0 || answers.length !== questions.length) {
    throw new Error(`ai_sdk ended with ${done.status} after ${answers.length} of ${questions.length} answers: ${done.stderr}`);
  }
  return answers;
}

/** Each client, and the profiles that it must accept. A stream for an older version is valid for a newer one. */
export const clients = {
  '5.0.0': ['5'],
  '5.0.216': ['5'],
  '5.0.277': ['5'],
  '6.0.230': ['5', '6'],
  '6.0.326': ['5', '6'],
  '7.0.169': ['5', '6', '7'],
};

const loaded = new Map();
export async function client(version) {
  if (!loaded.has(version)) loaded.set(version, await import(`ai-${version}`));
  return loaded.get(version);
}

/** Runs agentwire; returns its output. Malformed input (exit code 3) still gives a complete stream. */
export function convert(args, input) {
  const done = spawnSync(agentwire, ['convert', ...args], { input, maxBuffer: 1 << 30 });
  if (done.error) throw done.error;
  if (done.status !== 0 && done.status !== 3) {
    throw new Error(`agentwire convert ${args.join(' ')} failed with ${done.status}: ${done.stderr}`);
  }
  return done.stdout;
}

/** All fixtures of all readers: [format, path]. */
export function fixtures() {
  const formats = path.join(root, 'crates/agentwire-core/src/format');
  const found = [];
  const visit = (folder, format) => {
    for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
      const full = path.join(folder, entry.name);
      if (entry.isDirectory()) visit(full, format);
      else if (/\.(sse|jsonl|json|txt|bin)(\.gz)?$/.test(entry.name) && !/\.events\.jsonl/.test(entry.name)) {
        found.push([format, full]);
      }
    }
  };
  const shared = path.join(root, 'e2e/fixtures');
  if (fs.existsSync(shared)) visit(shared, 'ag-ui');
  for (const folder of fs.readdirSync(formats)) {
    const place = path.join(formats, folder, 'fixtures');
    if (!fs.existsSync(place)) continue;
    if (folder === 'ai_sdk') {
      // Requests are not streams, and a continued message needs its start (see history.test.mjs).
      visit(path.join(place, 'in'), 'ai-sdk');
      visit(path.join(place, 'out'), 'ag-ui');
    } else visit(place, folder.replaceAll('_', '-'));
  }
  return found;
}

/** The options in a fixture's name: `x.thinking=chains.jsonl`. */
export function optionsOf(file) {
  return path.basename(file).split('.').filter(part => part.includes('=')).flatMap(part => ['-O', part]);
}

/** A stream of bytes in pieces of `size`. */
export function bytesOf(buffer, size = 65536) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= buffer.length) return controller.close();
      controller.enqueue(new Uint8Array(buffer.subarray(at, at + size)));
      at += size;
    },
  });
}

/** A chat of that version whose first request receives `body`. */
export async function chatWith(version, { fetch, messages = [], ...options }) {
  const ai = await client(version);
  class State {
    constructor() { this.status = 'ready'; this.error = undefined; this.messages = messages; }
    pushMessage = message => { this.messages = this.messages.concat(structuredClone(message)); };
    popMessage = () => { this.messages = this.messages.slice(0, -1); };
    replaceMessage = (index, message) => {
      this.messages = [...this.messages.slice(0, index), structuredClone(message), ...this.messages.slice(index + 1)];
    };
    snapshot = thing => structuredClone(thing);
  }
  class Chat extends ai.AbstractChat {
    constructor(init) { super({ ...init, state: new State() }); }
  }
  let counter = 0;
  return new Chat({
    id: 'chat1',
    generateId: () => `client-${++counter}`,
    transport: new ai.DefaultChatTransport({ api: 'http://test.invalid/api/chat', fetch }),
    ...options,
  });
}

/** Feeds one response to the real client of a version; returns its message and its final state. */
export async function receive(version, body, size) {
  const seen = { data: [], toolCalls: [] };
  const chat = await chatWith(version, {
    fetch: async () => new Response(bytesOf(body, size), { headers: { 'content-type': 'text/event-stream' } }),
    onData: part => seen.data.push(part),
    onToolCall: ({ toolCall }) => { seen.toolCalls.push(toolCall); },
    onError: () => {},
    onFinish: finish => { seen.finish = finish; },
  });
  await chat.sendMessage({ text: 'hello' });
  const message = chat.messages.at(-1);
  return { chat, message: message?.role === 'assistant' ? message : undefined, error: chat.error, status: chat.status, ...seen };
}

/** Reads one response of the data stream with the same function as useChat of version 4. */
export async function receive4(body, size, lastMessage) {
  const { callChatApi } = await import('@ai-sdk/ui-utils');
  const seen = { data: [], updates: 0, toolCalls: [] };
  let counter = 0;
  try {
    await callChatApi({
      api: 'http://test.invalid/api/chat',
      body: {},
      fetch: async () => new Response(bytesOf(body, size)),
      onUpdate: ({ message, data }) => { seen.message = message; seen.data = data; seen.updates += 1; },
      onFinish: (message, finish) => { seen.finish = { message, ...finish }; },
      onToolCall: ({ toolCall }) => { seen.toolCalls.push(toolCall); },
      restoreMessagesOnFailure: () => {},
      generateId: () => `client-${++counter}`,
      lastMessage,
    });
  } catch (error) { seen.error = error; }
  return seen;
}

/** The real hook of version 4, rendered without a page. `hook.current` is its latest return value. */
export async function hook4({ fetch, ...options }) {
  globalThis.IS_REACT_ACT_ENVIRONMENT = true;
  const React = (await import('react')).default;
  const { act, create } = (await import('react-test-renderer')).default;
  const { useChat } = await import('@ai-sdk/react');
  const hook = { current: undefined };
  let counter = 0;
  const generateId = () => `client-${++counter}`;
  function Page() {
    hook.current = useChat({ api: 'http://test.invalid/api/chat', id: 'chat1', fetch, generateId, onError: () => {}, ...options });
    return null;
  }
  let page;
  await act(async () => { page = create(React.createElement(Page)); });
  hook.do = async what => {
    await act(async () => { await what(hook.current); });
    for (const begun = Date.now(); hook.current.status !== 'ready' && hook.current.status !== 'error' && Date.now() - begun < PATIENCE_MS; ) {
      await act(async () => { await new Promise(wake => setTimeout(wake, 5)); });
    }
    await act(async () => { await new Promise(wake => setTimeout(wake, 5)); });
  };
  hook.leave = () => act(async () => { page.unmount(); });
  return hook;
}

/** The frames of a UI message stream. */
export function chunksOf(body) {
  return body.toString().split('\n\n').filter(frame => frame.startsWith('data: {')).map(frame => JSON.parse(frame.slice(6)));
}
