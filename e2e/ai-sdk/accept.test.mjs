// Every fixture of every reader, in every profile, through every real client: each must accept it with its own
// validation enabled, and end with the same content as agentwire's fold.

import assert from 'node:assert/strict';
import path from 'node:path';
import { test } from 'node:test';
import { ask, clients, fixtures, optionsOf, receive, receive4, root } from './support.mjs';

const all = fixtures().filter(([, file]) => !file.endsWith('.gz'));
const question = ([format, path]) => ({ convert: { path, format, options: optionsOf(path).filter(part => part !== '-O') } });
const converted = ask(all.map(question));

/** The value without the keys that the SDK's parser rejects, which the writer omits. */
function safe(value) {
  if (Array.isArray(value)) return value.map(safe);
  if (value === null || typeof value !== 'object') return value;
  const refused = key => key === '__proto__' || (key === 'constructor' && (value[key] === null || Object.hasOwn(Object(value[key]), 'prototype')));
  return Object.fromEntries(Object.entries(value).filter(([key]) => !refused(key)).map(([key, item]) => [key, safe(item)]));
}

function parsed(text, keep) {
  try {
    const value = JSON.parse(text);
    return keep(value) ? safe(value) : text;
  } catch { return text; }
}
const argumentsOf = text => text.trim() === '' ? {} : parsed(text, value => typeof value !== 'string');
const inputOf = (event, text) => event.metadata?.aiSdk?.input ?? argumentsOf(text);
const objects = value => value !== null && typeof value === 'object';
/** The value of a tool result; an AI SDK server may have declared another type for its text. */
const outputOf = (content, metadata) => {
  if (typeof content !== 'string') return 'parts';
  const kind = metadata?.aiSdk?.output;
  return kind === 'text' ? content : parsed(content, kind === 'json' ? () => true : objects);
};

const spoken = message => ['user', 'system', 'developer'].includes(message.role);
const turnOf = messages => messages.slice(messages.findLastIndex(spoken) + 1);

/** The content of a run: the streamed content, and further content of the fold or of a replaced snapshot. */
function expected({ lines, messages }) {
  const wanted = { texts: {}, thoughts: {}, calls: {}, results: {} };
  const { texts, thoughts, calls, results } = wanted;
  const roles = {}, names = {}, history = new Set(), requested = {};
  let said = false, first = [];
  const know = message => {
    history.add(message.id);
    if (message.toolCallId) history.add(`result of ${message.toolCallId}`);
    for (const call of message.toolCalls ?? []) history.add(call.id);
  };
  const add = (message, renamed) => {
    if (message.role === 'assistant') {
      const isNew = message.content && !(message.id in roles) && !(message.id in texts) && !history.has(message.id);
      if (isNew && !renamed(message.content)) texts[message.id] = message.content;
      for (const call of message.toolCalls ?? []) {
        if (!history.has(call.id)) calls[call.id] ??= [call.function.name, argumentsOf(call.function.arguments)];
      }
    } else if (message.role === 'reasoning') {
      if (message.content && !history.has(message.id)) thoughts[message.id] ??= message.content;
    } else if (message.role === 'tool' && !history.has(`result of ${message.toolCallId}`)) {
      results[message.toolCallId] ??= message.error ?? outputOf(message.content, message.metadata);
    }
  };
  // A server may give a message a new id in each snapshot, and trim its text: such a message is not a second one, also if
  // the client sent it in its request.
  const takeRequest = messages => {
    messages.forEach(know);
    for (const { id, role, content } of turnOf(messages)) {
      if (role === 'assistant' && typeof content === 'string') requested[id] = content;
    }
  };
  const addTurn = turn => {
    const ids = new Set(turn.map(message => message.id));
    const squeezed = text => text.replace(/[ \t\n\f\r]/g, '');
    const left = Object.entries({ ...requested, ...texts }).filter(([id]) => !ids.has(id)).map(([, text]) => squeezed(text));
    const renamed = text => {
      const index = left.indexOf(squeezed(text));
      if (index >= 0) left.splice(index, 1);
      return index >= 0;
    };
    turn.forEach(message => add(message, renamed));
  };
  for (const line of lines.split('\n').filter(Boolean)) {
    const event = JSON.parse(line);
    const content = ['TEXT_MESSAGE_CONTENT', 'REASONING_MESSAGE_CONTENT', 'TOOL_CALL_START', 'TOOL_CALL_RESULT'].includes(event.type)
      || (event.type === 'ACTIVITY_SNAPSHOT' && /^(agentwire|hai)\./.test(event.activityType) && event.activityType !== 'hai.agent_collaboration');
    if (content && !said) {
      said = true;
      first.forEach(know);
    }
    switch (event.type) {
      case 'RUN_STARTED': if (event.input) takeRequest(event.input.messages); break;
      // Clients stop reading here.
      case 'RUN_ERROR': return { wanted, history };
      case 'MESSAGES_SNAPSHOT':
        if (said) addTurn(turnOf(event.messages));
        else first = event.messages;
        break;
      case 'TEXT_MESSAGE_START': roles[event.messageId] = event.role ?? 'assistant'; break;
      case 'TEXT_MESSAGE_CONTENT':
        if (roles[event.messageId] === 'assistant' && event.delta) texts[event.messageId] = (texts[event.messageId] ?? '') + event.delta;
        break;
      case 'REASONING_MESSAGE_CONTENT': if (event.delta) thoughts[event.messageId] = (thoughts[event.messageId] ?? '') + event.delta; break;
      case 'TOOL_CALL_START': names[event.toolCallId] = [event.toolCallName, '']; break;
      case 'TOOL_CALL_ARGS': names[event.toolCallId][1] += event.delta; break;
      case 'TOOL_CALL_END': calls[event.toolCallId] = [names[event.toolCallId][0], inputOf(event, names[event.toolCallId][1])]; break;
      case 'TOOL_CALL_RESULT': results[event.toolCallId] = event.metadata?.agentwire?.error ?? outputOf(event.content, event.metadata); break;
    }
  }
  addTurn(turnOf(messages));
  return { wanted, history };
}

/** The error text of calls whose run was cancelled or failed, so that no page runs them. */
const unsaid = 'the run ended before the tool was called';

/** The content of a client of versions 5 to 7. */
function held(message) {
  const texts = {}, thoughts = {}, calls = {}, results = {};
  for (const part of message?.parts ?? []) {
    const id = part.providerMetadata?.agentwire?.messageId;
    if (part.type === 'text') {
      texts[id] = (texts[id] ?? '') + part.text;
      assert.equal(part.state, 'done', 'every text part is closed');
    } else if (part.type === 'reasoning') {
      if (part.text) thoughts[id] = (thoughts[id] ?? '') + part.text;
      assert.equal(part.state, 'done', 'every reasoning part is closed');
    } else if (part.type === 'dynamic-tool' || part.type.startsWith('tool-')) {
      const name = part.toolName ?? part.type.slice('tool-'.length);
      if (name === 'interrupt' && part.toolCallId.startsWith('interrupt:')) continue;
      assert.notEqual(part.state, 'input-streaming', 'every tool part is complete');
      // Version 6 stores input that a server could not parse separately.
      calls[part.toolCallId] = [name, part.input ?? part.rawInput ?? null];
      if (part.errorText === unsaid) {
        calls[part.toolCallId] = [name];
        continue;
      }
      if (part.state === 'output-available') results[part.toolCallId] = part.output?.type === 'content' ? 'parts' : part.output;
      if (part.state === 'output-error') results[part.toolCallId] = part.errorText;
    }
  }
  return { texts, thoughts, calls, results };
}

/** Calls that were repeated or synthesized for results without a call are not a loss. */
function compare(actual, wanted, history) {
  for (const [id, [name]] of Object.entries(actual.calls)) {
    if (!(id in wanted.calls) && (name === 'unknown' || history.has(id))) delete actual.calls[id];
    // A client holds the parsed prefix of incomplete arguments.
    else if (actual.calls[id].length === 1 && wanted.calls[id]?.[0] === name) actual.calls[id] = wanted.calls[id];
  }
  assert.deepEqual(actual, wanted);
}

test('there are fixtures of every reader', () => {
  const formats = new Set(all.map(([format]) => format));
  for (const format of ['ag-ui', 'ai-sdk']) assert.ok(formats.has(format), `no fixtures of ${format}`);
  assert.ok(all.length > 100, `only ${all.length} fixtures`);
});

for (const [version, profiles] of Object.entries(clients)) {
  test(`ai ${version} accepts every fixture`, async t => {
    for (const profile of profiles) {
      await t.test(`as ai-sdk@${profile}`, async () => {
        const problems = [];
        for (const [index, [, file]] of all.entries()) {
          const answer = converted[index];
          const body = Buffer.from(answer.profiles[profile]);
          try {
            const { message, error, status, finish } = await receive(version, body);
            const failed = /^data: {"type":"error"/m.test(answer.profiles[profile]);
            if (failed) assert.equal(status, 'error');
            else assert.equal(error, undefined, error?.stack);
            const { wanted, history } = expected(answer);
            compare(held(message), wanted, history);
            if (!failed && profile !== '5' && finish && 'finishReason' in finish) {
              const abort = answer.profiles[profile].includes('{"type":"abort"}');
              if (!abort) assert.ok(finish.finishReason, 'the reason reaches onFinish');
            }
          } catch (error) {
            problems.push(`${path.relative(root, file)}: ${error.message}`);
          }
        }
        assert.equal(problems.length, 0, `${problems.length} of ${all.length}\n${problems.slice(0, 10).join('\n')}`);
      });
    }
  });
}

test('ai 4.3.19 accepts every fixture as ai-sdk@4', async () => {
  const problems = [];
  for (const [index, [, file]] of all.entries()) {
    const answer = converted[index];
    try {
      const { message, error } = await receive4(Buffer.from(answer.profiles['4']));
      const failed = /^3:/m.test(answer.profiles['4']);
      if (failed) assert.ok(error);
      else assert.equal(error, undefined, error?.stack);
      const { wanted, history } = expected(answer);
      const said = (message?.parts ?? []).filter(part => part.type === 'text').map(part => part.text).join('');
      const thought = (message?.parts ?? []).filter(part => part.type === 'reasoning').map(part => part.reasoning).join('');
      assert.equal(said.length, Object.values(wanted.texts).join('').length, 'all text, and nothing else');
      // Messages are written one after the other here, so each is in one piece unless it stopped itself.
      const steps = (message?.parts ?? []).filter(part => part.type === 'step-start').length;
      const opened = id => answer.lines.split(`"type":"TEXT_MESSAGE_START","messageId":${JSON.stringify(id)}`).length - 1;
      if (steps < 2) for (const [id, text] of Object.entries(wanted.texts)) assert.ok(opened(id) > 1 || said.includes(text), text);
      assert.equal(thought.length, Object.values(wanted.thoughts).join('').length, 'all reasoning');
      const calls = {}, results = {};
      for (const part of message?.parts ?? []) {
        if (part.type !== 'tool-invocation') continue;
        const { toolCallId, toolName, args, state, result } = part.toolInvocation;
        if (toolName === 'interrupt' && toolCallId.startsWith('interrupt:')) continue;
        assert.notEqual(state, 'partial-call');
        calls[toolCallId] = result?.error === unsaid ? [toolName] : [toolName, args];
        if (state === 'result' && calls[toolCallId].length === 2) results[toolCallId] = result;
      }
      for (const [id, [name, args]] of Object.entries(wanted.calls)) {
        // Only objects and arrays can be arguments here.
        wanted.calls[id] = [name, args !== null && typeof args === 'object' ? args : { value: args }];
      }
      for (const [id, result] of Object.entries(results)) {
        if (typeof wanted.results[id] === 'string' && result?.error === wanted.results[id]) results[id] = result.error;
        if (result?.type === 'content') results[id] = 'parts';
      }
      compare({ calls, results }, { calls: wanted.calls, results: wanted.results }, history);
    } catch (error) {
      problems.push(`${path.relative(root, file)}: ${error.message}`);
    }
  }
  assert.equal(problems.length, 0, `${problems.length} of ${all.length}\n${problems.slice(0, 10).join('\n')}`);
});

test('no page runs a call whose run was cancelled or failed', async () => {
  for (const [index, [, file]] of all.entries()) {
    if (!/\/(tool_stopped|tool_broken)\.jsonl$/.test(file)) continue;
    const told = seen => seen.toolCalls.map(call => call.toolCallId);
    for (const [version, profiles] of Object.entries(clients)) {
      for (const profile of profiles) {
        const seen = await receive(version, Buffer.from(converted[index].profiles[profile]));
        assert.deepEqual(told(seen), ['c0'], `${version} ${file}`);
        assert.equal(seen.message.parts.find(part => part.toolCallId === 'c1').state, 'output-error');
      }
    }
    assert.deepEqual(told(await receive4(Buffer.from(converted[index].profiles['4']))), ['c0'], file);
  }
});

test('the text stream contains the text', () => {
  for (const answer of converted) {
    const roles = {};
    let length = 0;
    for (const line of answer.lines.split('\n').filter(Boolean)) {
      const event = JSON.parse(line);
      if (event.type === 'TEXT_MESSAGE_START') roles[event.messageId] = event.role ?? 'assistant';
      if (event.type === 'TEXT_MESSAGE_CONTENT' && roles[event.messageId] === 'assistant') length += event.delta.length;
    }
    assert.equal(answer.profiles.text.length, length);
  }
});

test('splitting into single bytes changes nothing', async () => {
  const small = all.map(([, file], index) => [file, converted[index]]).filter(([, answer]) => answer.profiles['5'].length < 20_000).slice(0, 40);
  for (const [file, answer] of small) {
    for (const version of Object.keys(clients)) {
      const body = Buffer.from(answer.profiles['5']);
      const whole = await receive(version, body);
      const pieces = await receive(version, body, 1);
      assert.deepEqual(pieces.message, whole.message, `${version} ${file}`);
      assert.deepEqual(pieces.data, whole.data);
    }
    const body = Buffer.from(answer.profiles['4']);
    const clean = seen => JSON.stringify({ ...seen.message, revisionId: 0, createdAt: 0, id: 0 });
    assert.equal(clean(await receive4(body, 1)), clean(await receive4(body)), file);
  }
});
