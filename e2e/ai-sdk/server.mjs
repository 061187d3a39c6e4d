// A small server with the AI SDK's routes: requests and streams are agentwire's, the agent is scripted.
//
// It does the gateway's job in a hundred lines: parse the body, run the agent, write the run in the profile, keep it for a
// client that reconnects.

import { spawn } from 'node:child_process';
import http from 'node:http';
import { agentwire, ask } from './support.mjs';

const say = (id, ...deltas) => [
  { type: 'TEXT_MESSAGE_START', messageId: id, role: 'assistant' },
  ...deltas.map(delta => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: id, delta })),
  { type: 'TEXT_MESSAGE_END', messageId: id },
];
const call = (id, name, args) => [
  { type: 'TOOL_CALL_START', toolCallId: id, toolCallName: name },
  { type: 'TOOL_CALL_ARGS', toolCallId: id, delta: JSON.stringify(args) },
  { type: 'TOOL_CALL_END', toolCallId: id },
];

/** The agent's scripted response to a request. */
function script(input, number) {
  const last = input.messages.findLast(message => message.role !== 'activity');
  const answers = input.resume ?? [];
  if (answers.length > 0) {
    return answers.flatMap(({ interruptId, payload, status }, index) => {
      if (interruptId === 'i-colour') return say(`m${number}-${index}`, `Painted it ${payload.colour}.`);
      const granted = status === 'resolved' && payload?.approved;
      const result = { type: 'TOOL_CALL_RESULT', messageId: `res${number}`, toolCallId: 'pay-1', content: granted ? '{"sent":100}' : 'refused' };
      return [result, ...say(`m${number}-${index}`, granted ? 'Sent.' : `Not sent: ${payload?.reason ?? 'no reason'}.`)];
    });
  }
  if (last.role === 'tool') return say(`m${number}`, last.error ? `No place: ${last.error}.` : `You are in ${JSON.parse(last.content).city}.`);
  const text = typeof last.content === 'string' ? last.content : last.content.find(part => part.type === 'text').text;
  switch (text) {
    case 'pay': return [
      { type: 'STEP_STARTED', stepName: 'agent' }, ...say(`m${number}`, 'I will pay.'), ...call('pay-1', 'pay', { amount: 100 }), { type: 'STEP_FINISHED', stepName: 'agent' },
      { type: 'STEP_STARTED', stepName: 'tools' }, { type: 'STEP_FINISHED', stepName: 'tools' },
      { outcome: { type: 'interrupt', interrupts: [{ id: 'i-pay', reason: 'tool_call', message: 'Pay 100?', toolCallId: 'pay-1' }] } },
    ];
    case 'paint': return [...say(`m${number}`, 'Which colour?'), { outcome: { type: 'interrupt', interrupts: [{ id: 'i-colour', reason: 'input_required', message: 'Pick one' }] } }];
    case 'where': return [...call('loc-1', 'getLocation', {}), { outcome: { type: 'success', pendingToolCallIds: ['loc-1'] } }];
    case 'log': return [...call('log-1', 'log', {}), { type: 'TOOL_CALL_RESULT', messageId: 'l', toolCallId: 'log-1', content: 'logged' }];
    case 'long': return say(`m${number}`, ...Array.from({ length: 40 }, (_, index) => `word${index} `));
    default: return say(`m${number}`, `You said ${text}.`);
  }
}

/** Serves one profile. `bytewise` sends each byte separately; `held` events are sent at once, the others after a reconnect. */
export async function serve(profile, { bytewise = false, held = Infinity } = {}) {
  const requests = [];
  const runs = new Map();
  let number = 0;

  function start(request) {
    number += 1;
    const runId = `run-${number}`;
    const input = { ...request.input, runId };
    const said = script(input, number);
    const outcome = said.at(-1)?.outcome;
    const events = [
      { type: 'RUN_STARTED', threadId: input.threadId, runId, input },
      ...said.filter(event => event.type),
      { type: 'RUN_FINISHED', threadId: input.threadId, runId, ...(outcome && { outcome }) },
    ];
    const child = spawn(agentwire, ['convert', '--from', 'ag-ui', '--to', `ai-sdk@${profile}`, '-O', 'ui_tools=getLocation']);
    const run = { bytes: [], over: false, listeners: new Set() };
    const back = new Promise(resolve => { run.goOn = resolve; });
    child.stdout.on('data', bytes => { run.bytes.push(bytes); run.listeners.forEach(listener => listener(bytes)); });
    child.on('close', () => { run.over = true; run.listeners.forEach(listener => listener(null)); });
    (async () => {
      for (const [index, event] of events.entries()) {
        if (index === held) await back;
        child.stdin.write(`${JSON.stringify(event)}\n`);
      }
      child.stdin.end();
    })();
    runs.set(input.threadId, run);
    return run;
  }

  function follow(run, response) {
    const type = profile === '4' ? 'text/plain; charset=utf-8' : 'text/event-stream';
    response.writeHead(200, { 'content-type': type, 'cache-control': 'no-cache' });
    const send = bytes => {
      if (!bytewise) return response.write(bytes);
      for (const byte of bytes) response.write(Buffer.of(byte));
    };
    run.bytes.forEach(send);
    if (run.over) return response.end();
    const listener = bytes => (bytes === null ? response.end() : send(bytes));
    run.listeners.add(listener);
    response.on('close', () => run.listeners.delete(listener));
  }

  const server = http.createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8');
    request.on('data', text => { body += text; });
    request.on('end', () => {
      const resume = /^\/api\/chat\/([^/]+)\/stream$/.exec(request.url);
      if (resume) {
        const run = runs.get(decodeURIComponent(resume[1]));
        if (!run || run.over) return response.writeHead(204).end();
        follow(run, response);
        return run.goOn();
      }
      const [parsed] = ask([{ request: body }]);
      requests.push({ body: JSON.parse(body), ...parsed });
      if (parsed.error) return response.writeHead(400, { 'content-type': 'application/json' }).end(JSON.stringify(parsed));
      follow(start(parsed), response);
    });
  });
  await new Promise(ready => server.listen(0, '127.0.0.1', ready));
  return {
    requests,
    api: `http://127.0.0.1:${server.address().port}/api/chat`,
    close: () => new Promise(done => { server.closeAllConnections(); server.close(done); }),
  };
}
