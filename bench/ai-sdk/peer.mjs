// The peers: CPU time of the newest `ai` and `@ai-sdk/langchain` for the same work.
//
//   node peer.mjs FOLDER-OF-PACKAGES RECORDING
//
// Prints one JSON object: nanoseconds per text delta, and per event of the recording. The best round counts.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, recording] = process.argv.slice(2);
const load = name => {
  const require = createRequire(path.join(path.resolve(folder), 'package.json'));
  return import(pathToFileURL(require.resolve(name)));
};
const { createUIMessageStream, createUIMessageStreamResponse } = await load('ai');
const { toUIMessageStream } = await load('@ai-sdk/langchain');

const ROUNDS = 5;
// The length of a long response; with a longer one the peer would only be slower.
const DELTAS = 2_000;
const ANSWERS = 20;
const words = ['Hello', ' there', ', this', ' is', ' "quoted"', ' text', '.\n', ' Und', ' so', ' wörter'];

async function drain(response) {
  let bytes = 0;
  for await (const chunk of response.body) bytes += chunk.length;
  return bytes;
}

async function best(round) {
  let least = Infinity;
  for (let index = 0; index < ROUNDS; index += 1) {
    const before = process.cpuUsage();
    const count = await round();
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, ((user + system) * 1000) / count);
  }
  return least;
}

/** createUIMessageStream → response. */
async function uiMessageStream() {
  for (let answer = 0; answer < ANSWERS; answer += 1) await oneAnswer();
  return DELTAS * ANSWERS;
}

async function oneAnswer() {
  const stream = createUIMessageStream({
    execute: ({ writer }) => {
      writer.write({ type: 'start', messageId: 'm' });
      writer.write({ type: 'text-start', id: 'run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11' });
      for (let index = 0; index < DELTAS; index += 1) {
        writer.write({ type: 'text-delta', id: 'run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11', delta: words[index % words.length] });
      }
      writer.write({ type: 'text-end', id: 'run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11' });
      writer.write({ type: 'finish' });
    },
  });
  const bytes = await drain(createUIMessageStreamResponse({ stream }));
  if (bytes < DELTAS * 60) throw new Error('the peer wrote too little');
}

const lines = fs.readFileSync(recording, 'utf8').split('\n').filter(Boolean);

/** @ai-sdk/langchain over the recording, `COPIES` times; events are parsed, as a server between processes must do. */
async function langchain() {
  const COPIES = 5;
  let deltas = 0;
  for (let copy = 0; copy < COPIES; copy += 1) {
    const events = new ReadableStream({
      start(controller) {
        for (const line of lines) controller.enqueue(JSON.parse(line));
        controller.close();
      },
    });
    const stream = toUIMessageStream(events).pipeThrough(new TransformStream({
      transform(chunk, controller) {
        deltas += chunk.type === 'text-delta' ? 1 : 0;
        controller.enqueue(chunk);
      },
    }));
    await drain(createUIMessageStreamResponse({ stream }));
  }
  if (deltas < COPIES * 1900) throw new Error(`the peer translated ${deltas} deltas only`);
  return COPIES * lines.length;
}

console.log(JSON.stringify({ uiMessageStream: await best(uiMessageStream), langchain: await best(langchain) }));
