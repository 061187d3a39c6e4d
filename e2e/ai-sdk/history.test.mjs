// History written by agentwire passes the SDK's own validation, and can be continued.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { ask, chatWith, client, convert, fixtures, optionsOf, root } from './support.mjs';

const all = fixtures().filter(([, file]) => !file.endsWith('.gz'));
const options = file => optionsOf(file).filter(part => part !== '-O');
const kept = path.join(root, 'crates/agentwire-core/src/format/ai_sdk/fixtures');

// 5.0.0 has no validateUIMessages yet.
for (const version of ['5.0.216', '5.0.277', '6.0.230', '6.0.326', '7.0.169']) {
  test(`ai ${version} validates the history of every fixture`, async () => {
    const ai = await client(version);
    const major = Number(version[0]);
    const histories = ask(all.map(([format, file]) => ({ history: { path: file, format, options: options(file), version: major } })));
    const problems = [];
    let validated = 0;
    for (const [index, [, file]] of all.entries()) {
      const messages = histories[index];
      if (messages.length === 0) continue;
      try {
        await ai.validateUIMessages({ messages });
        await ai.convertToModelMessages(messages, { ignoreIncompleteToolCalls: true });
        validated += 1;
      } catch (error) {
        problems.push(`${path.relative(root, file)}: ${error.message.slice(0, 500)}`);
      }
    }
    assert.equal(problems.length, 0, `${problems.length} of ${all.length}\n${problems.slice(0, 5).join('\n')}`);
    assert.ok(validated > 100, `only ${validated} fixtures have a history`);
  });

  test(`ai ${version} sends the history back, and agentwire reads it`, async () => {
    const major = Number(version[0]);
    for (const name of ['tool', 'approval', 'interrupt', 'client_tool', 'carried', 'reasoning', 'state', 'interrupts_mixed']) {
      const file = path.join(kept, 'out', `${name}.jsonl`);
      const [messages] = ask([{ history: { path: file, format: 'ag-ui', version: major } }]);
      const bodies = [];
      const chat = await chatWith(version, {
        messages,
        fetch: async (_url, init) => {
          bodies.push(init.body);
          return new Response(convert(['--from', 'ag-ui', '--to', `ai-sdk@${major}`, path.join(kept, 'out/text.jsonl')]));
        },
      });
      await chat.sendMessage({ text: 'and then?' });
      assert.equal(chat.error, undefined, chat.error?.stack);
      const [before] = ask([{ convert: { path: file, format: 'ag-ui' } }]);
      const [request] = ask([{ request: bodies[0] }]);
      assert.equal(request.error, undefined);
      const plain = list => list.filter(message => !['activity', 'user'].includes(message.role)).map(message => ({
        id: message.role === 'tool' ? 'any' : message.id, role: message.role, content: message.content,
        calls: message.toolCalls?.map(call => [call.id, call.function.name, call.function.arguments.replace(/\s/g, '')]),
      }));
      assert.deepEqual(plain(request.input.messages), plain(before.messages), name);
    }
  });
}

test('a client continues its own message', async () => {
  for (const version of ['5.0.0', '5.0.216', '5.0.277', '6.0.230', '6.0.326', '7.0.169']) {
    const major = version[0];
    for (const file of fs.readdirSync(path.join(kept, 'continued')).filter(name => name.endsWith('.jsonl'))) {
      const begun = file.startsWith('client_tool') ? 'client_tool' : 'approval';
      const stream = place => convert(['--from', 'ag-ui', '--to', `ai-sdk@${major}`, path.join(kept, place)]);
      let answers = [stream(`out/${begun}.jsonl`), stream(`continued/${file}`)];
      const chat = await chatWith(version, { fetch: async () => new Response(answers.shift()) });
      await chat.sendMessage({ text: 'go' });
      assert.equal(chat.error, undefined, chat.error?.stack);
      if (begun === 'approval' && major !== '5') await chat.addToolApprovalResponse({ id: 'i1', approved: !file.includes('denied') });
      if (begun === 'client_tool') await (chat.addToolOutput ?? chat.addToolResult)({ tool: 'getLocation', toolCallId: 'c1', output: 'Paris' });
      await chat.sendMessage();
      assert.equal(chat.error, undefined, `${version} ${file}: ${chat.error?.stack}`);
      assert.equal(chat.messages.length, 2, `${version} ${file}`);
      const message = chat.messages[1];
      assert.equal(message.id, 'r1');
      const parts = message.parts.filter(part => part.toolCallId === 'c1');
      assert.equal(parts.length, 1, `${version} ${file}`);
      const state = file.includes('denied') ? (major === '5' ? 'output-error' : 'output-denied') : 'output-available';
      assert.equal(parts[0].state, state, `${version} ${file}`);
    }
  }
});
