// Records the streams of real AI SDK servers, as fixtures for the readers:
//
//   node e2e/ai-sdk/capture.mjs crates/agentwire-core/src/format/ai_sdk/fixtures/in
//
// The models are scripted with the parts below, so the recordings are reproducible.

import fs from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { client } from './support.mjs';

const folder = process.argv[2];
const usage = { inputTokens: 12, outputTokens: 7, totalTokens: 19 };
// Versions 6 and 7 expect usage in parts.
const usage6 = { inputTokens: { total: 12, noCache: 12, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 7, text: 7, reasoning: 0 } };

async function body(response) {
  return new Uint8Array(await response.arrayBuffer());
}

async function save(name, response) {
  fs.writeFileSync(path.join(folder, name), await body(response));
}

/** The parts as a stream. */
const streamOf = parts => new ReadableStream({
  start(controller) {
    for (const part of parts) controller.enqueue(part);
    controller.close();
  },
});

/** A model whose n-th response is the n-th list of parts. */
function model(version, answers) {
  const major = version[0];
  let call = 0;
  return {
    specificationVersion: { 5: 'v2', 6: 'v3', 7: 'v4' }[major],
    provider: 'mock',
    modelId: 'mock',
    supportedUrls: {},
    doStream: async () => {
      const parts = answers[Math.min(call, answers.length - 1)];
      call += 1;
      const finish = part => part.type !== 'finish' ? part : {
        type: 'finish',
        finishReason: major === '5' ? part.reason : { unified: part.reason, raw: part.reason },
        usage: major === '5' ? usage : usage6,
      };
      return { stream: streamOf([{ type: 'stream-start', warnings: [] }, ...parts.map(finish)]) };
    },
  };
}

const say = (id, ...deltas) => [
  { type: 'text-start', id }, ...deltas.map(delta => ({ type: 'text-delta', id, delta })), { type: 'text-end', id },
];
const think = (id, ...deltas) => [
  { type: 'reasoning-start', id }, ...deltas.map(delta => ({ type: 'reasoning-delta', id, delta })),
  { type: 'reasoning-end', id, providerMetadata: { anthropic: { signature: 'sig==' } } },
];
const callTool = (id, name, ...pieces) => [
  { type: 'tool-input-start', id, toolName: name }, ...pieces.map(delta => ({ type: 'tool-input-delta', id, delta })),
  { type: 'tool-input-end', id }, { type: 'tool-call', toolCallId: id, toolName: name, input: pieces.join('') },
];
const finish = reason => ({ type: 'finish', reason });

for (const version of ['5.0.216', '6.0.230', '7.0.169']) {
  const ai = await client(version);
  const major = version[0];
  const stop = ai.stepCountIs(5);
  const stream = async (answers, options = {}) => {
    const { tools, ...response } = options;
    const result = ai.streamText({ model: model(version, answers), prompt: 'hello', stopWhen: stop, tools, onError: () => {} });
    return result.toUIMessageStreamResponse({
      generateMessageId: () => 'msg-1', sendSources: true, onError: error => String(error?.message ?? error),
      messageMetadata: ({ part }) => part.type === 'finish' ? { totalUsage: part.totalUsage } : part.type === 'start' ? { model: 'mock' } : undefined,
      ...response,
    });
  };
  const weather = ai.tool({ description: 'weather', inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => ({ city, temp: 18 }) });
  const broken = ai.tool({ description: 'broken', inputSchema: z.object({}), execute: async () => { throw new Error('no such tool today'); } });
  const ask = ai.tool({ description: 'runs in the browser', inputSchema: z.object({}) });

  await save(`text.${major}.sse`, await stream([[...say('0', 'Hello', ', ', 'wörld 😀'), finish('stop')]]));
  await save(`reasoning.${major}.sse`, await stream([[...think('r0', 'Let me', ' think.'), ...say('0', '42'), finish('stop')]]));
  await save(`tool.${major}.sse`, await stream([
    [...say('0', 'Looking it up.'), ...callTool('call-1', 'weather', '{"ci', 'ty":"Paris"}'), finish('tool-calls')],
    [...say('0', '18 degrees.'), finish('stop')],
  ], { tools: { weather } }));
  await save(`tool_error.${major}.sse`, await stream([
    [...callTool('call-1', 'broken', '{}'), ...callTool('call-2', 'broken', '{"bad":'), finish('tool-calls')],
    [...say('0', 'Sorry.'), finish('stop')],
  ], { tools: { broken } }));
  await save(`client_tool.${major}.sse`, await stream([[...callTool('call-1', 'ask', '{}'), finish('tool-calls')]], { tools: { ask } }));
  await save(`source_file.${major}.sse`, await stream([[
    { type: 'source', sourceType: 'url', id: 's1', url: 'https://example.com', title: 'Example' },
    { type: 'source', sourceType: 'document', id: 's2', mediaType: 'application/pdf', title: 'Paper', filename: 'p.pdf' },
    { type: 'file', mediaType: 'image/png', data: major === '7' ? { type: 'data', data: 'aGk=' } : 'aGk=' }, ...say('0', 'See.'), finish('length'),
  ]]));
  await save(`error.${major}.sse`, await stream([[...say('0', 'so far').slice(0, 2), { type: 'error', error: new Error('overloaded') }]]));
  if (major !== '5') {
    const pay = ai.tool({ description: 'pay', inputSchema: z.object({ amount: z.number() }), needsApproval: true, execute: async () => 'paid' });
    await save(`approval.${major}.sse`, await stream([[...callTool('call-1', 'pay', '{"amount":5}'), finish('tool-calls')]], { tools: { pay } }));
  }
  const written = ai.createUIMessageStream({
    generateId: () => 'msg-1',
    execute: ({ writer }) => {
      writer.write({ type: 'start', messageId: 'msg-1' });
      writer.write({ type: 'data-weather', id: 'w1', data: { temp: 18 } });
      writer.write({ type: 'data-weather', id: 'w1', data: { temp: 19 } });
      writer.write({ type: 'data-notice', data: 'hello', transient: true });
      writer.write({ type: 'data-state', data: { mine: true } });
      writer.write({ type: 'text-start', id: 't' });
      writer.write({ type: 'text-delta', id: 't', delta: 'done' });
      writer.write({ type: 'text-end', id: 't' });
      if (major !== '5') {
        writer.write({ type: 'tool-input-available', toolCallId: 'call-1', toolName: 'job', input: {}, dynamic: true });
        writer.write({ type: 'tool-output-available', toolCallId: 'call-1', output: { done: 0.5 }, preliminary: true, dynamic: true });
        writer.write({ type: 'tool-output-available', toolCallId: 'call-1', output: { done: 1 }, dynamic: true });
      }
      if (major === '7') {
        writer.write({ type: 'custom', kind: 'openai.thing', providerMetadata: { openai: { x: 1 } } });
        writer.write({ type: 'reasoning-file', url: 'https://example.com/r.png', mediaType: 'image/png' });
      }
      writer.write({ type: 'abort' });
    },
  });
  await save(`written.${major}.sse`, ai.createUIMessageStreamResponse({ stream: written }));
}

{
  const ai = await client('4.3.19');
  const stream = async (answers, { tools, extra } = {}) => {
    let call = 0;
    const doStream = async () => ({
      stream: streamOf(answers[Math.min(call++, answers.length - 1)]),
      rawCall: { rawPrompt: null, rawSettings: {} },
    });
    return ai.createDataStreamResponse({
      onError: error => String(error?.message ?? error),
      execute: writer => {
        extra?.(writer);
        const result = ai.streamText({
          model: { specificationVersion: 'v1', provider: 'mock', modelId: 'mock', defaultObjectGenerationMode: undefined, doStream }, prompt: 'hello', tools, maxSteps: 5, toolCallStreaming: true,
          experimental_generateMessageId: () => 'msg-1', onError: () => {},
        });
        result.mergeIntoDataStream(writer, { sendReasoning: true, sendSources: true });
      },
    });
  };
  const done = reason => ({ type: 'finish', finishReason: reason, usage: { promptTokens: 12, completionTokens: 7 } });
  const text = (...deltas) => deltas.map(textDelta => ({ type: 'text-delta', textDelta }));
  const weather = ai.tool({ parameters: z.object({ city: z.string() }), execute: async ({ city }) => ({ city, temp: 18 }) });
  const ask = ai.tool({ parameters: z.object({}) });
  await save('text.4.txt', await stream([[...text('Hello', ', ', 'wörld 😀'), done('stop')]]));
  await save('reasoning.4.txt', await stream([[
    { type: 'reasoning', textDelta: 'Let me' }, { type: 'reasoning', textDelta: ' think.' }, { type: 'reasoning-signature', signature: 'sig==' },
    { type: 'redacted-reasoning', data: 'secret' }, ...text('42'), done('stop'),
  ]]));
  await save('tool.4.txt', await stream([
    [...text('Looking it up.'), { type: 'tool-call-delta', toolCallType: 'function', toolCallId: 'call-1', toolName: 'weather', argsTextDelta: '{"ci' },
      { type: 'tool-call-delta', toolCallType: 'function', toolCallId: 'call-1', toolName: 'weather', argsTextDelta: 'ty":"Paris"}' },
      { type: 'tool-call', toolCallType: 'function', toolCallId: 'call-1', toolName: 'weather', args: '{"city":"Paris"}' }, done('tool-calls')],
    [...text('18 degrees.'), done('stop')],
  ], { tools: { weather } }));
  await save('client_tool.4.txt', await stream([[{ type: 'tool-call', toolCallType: 'function', toolCallId: 'call-1', toolName: 'ask', args: '{}' }, done('tool-calls')]], { tools: { ask } }));
  await save('extras.4.txt', await stream([[
    { type: 'source', source: { sourceType: 'url', id: 's1', url: 'https://example.com', title: 'Example' } },
    { type: 'file', mimeType: 'image/png', data: 'aGk=' }, ...text('See.'), done('length'),
  ]], { extra: writer => { writer.writeData({ type: 'mine', n: 1 }); writer.writeData('plain'); writer.writeMessageAnnotation({ quality: 'high' }); } }));
  await save('error.4.txt', await stream([[...text('so far'), { type: 'error', error: new Error('overloaded') }]]));
}
