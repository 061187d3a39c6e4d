// Whole conversations between the real clients and a small test server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PATIENCE_MS, chatWith, client, clients, hook4 } from './support.mjs';
import { serve } from './server.mjs';

const newest = { 5: '5.0.277', 6: '6.0.326', 7: '7.0.169' };
const profileOf = version => version[0];

/** Waits until the chat is idle and stays idle. */
async function settled(chat) {
  for (let calm = 0, begun = Date.now(); calm < 5; ) {
    if (Date.now() - begun > PATIENCE_MS) throw new Error(`the chat is still ${chat.status}`);
    await new Promise(wake => setTimeout(wake, 10));
    calm = chat.status === 'ready' || chat.status === 'error' ? calm + 1 : 0;
  }
  assert.equal(chat.error, undefined, chat.error?.stack);
}

async function open(version, server, options = {}) {
  const ai = await client(version);
  return chatWith(version, { transport: new ai.DefaultChatTransport({ api: server.api }), ...options });
}

const textOf = message => message.parts.filter(part => part.type === 'text').map(part => part.text).join('|');
const toolOf = (message, id) => message.parts.find(part => part.toolCallId === id);
/** The method was renamed in version 5.0.x. */
const answer = (chat, options) => (chat.addToolOutput ?? chat.addToolResult)(options);

for (const version of Object.keys(clients)) {
  for (const bytewise of [false, true]) {
    test(`ai ${version}: a conversation${bytewise ? ', one byte at a time' : ''}`, async t => {
      const server = await serve(profileOf(version), { bytewise });
      t.after(server.close);
      const chat = await open(version, server);
      await chat.sendMessage({ text: 'hello' });
      await chat.sendMessage({ text: 'again' });
      await settled(chat);
      assert.deepEqual(chat.messages.map(message => message.role), ['user', 'assistant', 'user', 'assistant']);
      assert.deepEqual(chat.messages.map(message => message.id).filter(id => id.startsWith('run-')), ['run-1', 'run-2']);
      assert.equal(textOf(chat.messages[1]), 'You said hello.');
      assert.equal(textOf(chat.messages[3]), 'You said again.');
      // The ids of the agent's own messages return with the history.
      assert.deepEqual(server.requests[1].input.messages.map(message => message.id), ['client-1', 'm1', chat.messages[2].id]);
    });
  }

  test(`ai ${version}: a browser tool returns its result, and the message continues`, async t => {
    const server = await serve(profileOf(version));
    t.after(server.close);
    const ai = await client(version);
    const chat = await open(version, server, {
      sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => {
        assert.ok(!toolCall.dynamic, 'a tool of the user interface is not dynamic');
        answer(chat, { tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { city: 'Paris' } });
      },
    });
    await chat.sendMessage({ text: 'where' });
    await settled(chat);
    assert.equal(server.requests.length, 2, 'one answer, one request, and no loop');
    assert.deepEqual(server.requests[1].answers, ['loc-1']);
    assert.equal(server.requests[1].continues, 'run-1');
    assert.equal(chat.messages.length, 2, 'the same message goes on');
    const message = chat.messages[1];
    assert.equal(message.id, 'run-1');
    assert.equal(toolOf(message, 'loc-1').state, 'output-available');
    assert.equal(textOf(message), 'You are in Paris.');
  });

  test(`ai ${version}: a run that ends with a tool result is not sent again`, async t => {
    const server = await serve(profileOf(version));
    t.after(server.close);
    const ai = await client(version);
    const chat = await open(version, server, { sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls });
    await chat.sendMessage({ text: 'log' });
    await settled(chat);
    assert.equal(server.requests.length, 1);
  });

  test(`ai ${version}: an interrupt is answered in the interrupt's own tool part`, async t => {
    const server = await serve(profileOf(version));
    t.after(server.close);
    const ai = await client(version);
    const chat = await open(version, server, { sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithToolCalls });
    await chat.sendMessage({ text: 'paint' });
    await settled(chat);
    const data = chat.messages[1].parts.find(part => part.type === 'data-interrupt');
    assert.equal(data.data.message, 'Pick one');
    assert.equal(toolOf(chat.messages[1], 'interrupt:i-colour').state, 'input-available');
    await answer(chat, { tool: 'interrupt', toolCallId: 'interrupt:i-colour', output: { colour: 'red' } });
    await settled(chat);
    assert.equal(server.requests.length, 2);
    assert.deepEqual(server.requests[1].input.resume, [{ interruptId: 'i-colour', status: 'resolved', payload: { colour: 'red' } }]);
    assert.equal(textOf(chat.messages.at(-1)), 'Which colour?|Painted it red.');
    assert.equal(chat.messages.length, 2);
  });

  for (const approved of [true, false]) {
    test(`ai ${version}: a payment is ${approved ? 'approved' : 'denied'}`, async t => {
      const server = await serve(profileOf(version));
      t.after(server.close);
      const ai = await client(version);
      const two = version[0] !== '5';
      const chat = await open(version, server, {
        sendAutomaticallyWhen: two ? ai.lastAssistantMessageIsCompleteWithApprovalResponses : ai.lastAssistantMessageIsCompleteWithToolCalls,
      });
      await chat.sendMessage({ text: 'pay' });
      await settled(chat);
      const reason = approved ? undefined : 'too much';
      if (two) {
        const part = toolOf(chat.messages[1], 'pay-1');
        assert.equal(part.state, 'approval-requested');
        await chat.addToolApprovalResponse({ id: part.approval.id, approved, ...(reason && { reason }) });
      } else {
        assert.equal(toolOf(chat.messages[1], 'pay-1').state, 'input-available');
        await answer(chat, { tool: 'interrupt', toolCallId: 'interrupt:i-pay', output: { approved, ...(reason && { reason }) } });
      }
      await settled(chat);
      assert.equal(server.requests.length, 2, 'the answer is sent once');
      const [entry] = server.requests[1].input.resume;
      assert.deepEqual(entry.payload, { approved, ...(reason && { reason }) });
      assert.deepEqual([entry.interruptId, entry.status, entry.metadata.toolCallId], ['i-pay', 'resolved', 'pay-1']);
      assert.equal(chat.messages.length, 2, 'the same message goes on');
      const message = chat.messages[1];
      const part = toolOf(message, 'pay-1');
      assert.equal(message.parts.filter(part => part.toolCallId === 'pay-1').length, 1);
      assert.equal(part.state, approved ? 'output-available' : two ? 'output-denied' : 'output-error');
      if (approved) assert.deepEqual(part.output, { sent: 100 });
      assert.equal(textOf(message), approved ? 'I will pay.|Sent.' : 'I will pay.|Not sent: too much.');
      // The client's messages can be sent again.
      if (ai.validateUIMessages) await ai.validateUIMessages({ messages: chat.messages });
      await chat.sendMessage({ text: 'thanks' });
      await settled(chat);
      assert.equal(server.requests[2].input.resume, undefined, 'an old answer is not given twice');
    });
  }

  test(`ai ${version}: stop, then resume by replay`, async t => {
    const server = await serve(profileOf(version), { held: 10 });
    t.after(server.close);
    const chat = await open(version, server);
    const sent = chat.sendMessage({ text: 'long' });
    while (!chat.messages[1]?.parts.some(part => part.type === 'text' && part.text.length > 20)) await new Promise(wake => setTimeout(wake, 5));
    await chat.stop();
    await sent;
    assert.equal(chat.status, 'ready');
    const whole = Array.from({ length: 40 }, (_, index) => `word${index} `).join('');
    assert.ok(textOf(chat.messages[1]).length < whole.length, 'it was stopped in the middle');
    await chat.resumeStream();
    await settled(chat);
    const texts = chat.messages.at(-1).parts.filter(part => part.type === 'text').map(part => part.text);
    assert.equal(texts.at(-1), whole);
    // Older builds keep the truncated part beside the replay; this is a documented client defect.
    if (Object.values(newest).includes(version)) assert.deepEqual(texts, [whole]);
  });

  test(`ai ${version}: nothing to resume`, async t => {
    const server = await serve(profileOf(version));
    t.after(server.close);
    const chat = await open(version, server);
    await chat.resumeStream();
    // The first build does not return to `ready`.
    assert.equal(chat.status, version === '5.0.0' ? 'submitted' : 'ready');
    assert.equal(chat.messages.length, 0);
  });

  test(`ai ${version}: a bad request is reported`, async t => {
    const server = await serve(profileOf(version));
    t.after(server.close);
    const chat = await open(version, server, { messages: [{ id: 'x', role: 'assistant', parts: [{ type: 'tool-a', toolCallId: 'c', state: 'odd' }] }] });
    await chat.sendMessage({ text: 'hello' });
    assert.equal(chat.status, 'error');
    assert.match(chat.error.message, /\/messages\/0\/parts\/0\/state/);
  });
}

test('useChat 4: a conversation, a browser tool, a payment', async t => {
  const server = await serve('4');
  t.after(server.close);
  const hook = await hook4({
    api: server.api, fetch: globalThis.fetch, maxSteps: 3,
    onToolCall: ({ toolCall }) => (toolCall.toolName === 'getLocation' ? { city: 'Paris' } : undefined),
  });
  t.after(hook.leave);
  const last = () => hook.current.messages.at(-1);
  await hook.do(chat => chat.append({ role: 'user', content: 'hello' }));
  assert.equal(last().content, 'You said hello.');
  assert.equal(last().id, 'run-1');
  await hook.do(chat => chat.append({ role: 'user', content: 'where' }));
  await hook.do(async () => {});
  assert.equal(last().content, 'You are in Paris.');
  assert.equal(server.requests.length, 3);
  assert.deepEqual(server.requests[2].answers, ['loc-1']);
  await hook.do(chat => chat.append({ role: 'user', content: 'pay' }));
  assert.equal(last().annotations[0].data.message, 'Pay 100?');
  await hook.do(chat => chat.addToolResult({ toolCallId: 'interrupt:i-pay', result: { approved: false, reason: 'too much' } }));
  await hook.do(async () => {});
  assert.equal(server.requests.length, 5);
  assert.deepEqual(server.requests[4].input.resume[0].payload, { approved: false, reason: 'too much' });
  assert.equal(last().content, 'I will pay.Not sent: too much.');
  assert.deepEqual(last().toolInvocations.find(call => call.toolCallId === 'pay-1').result, { error: 'refused' });
});

test('useChat 4: one byte at a time', async t => {
  const server = await serve('4', { bytewise: true });
  t.after(server.close);
  const hook = await hook4({ api: server.api, fetch: globalThis.fetch });
  t.after(hook.leave);
  await hook.do(chat => chat.append({ role: 'user', content: 'hello' }));
  assert.equal(hook.current.messages.at(-1).content, 'You said hello.');
});
