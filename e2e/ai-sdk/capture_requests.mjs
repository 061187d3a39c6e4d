// Records the requests of real AI SDK clients, as fixtures for the request parser:
//
//   node e2e/ai-sdk/capture_requests.mjs crates/agentwire-core/src/format/ai_sdk/fixtures/requests
//
// The clients receive streams written by agentwire, so their messages are the same as behind a gateway.

import fs from 'node:fs';
import path from 'node:path';
import { chatWith, convert, hook4, root, client } from './support.mjs';

const folder = process.argv[2];
const runs = path.join(root, 'crates/agentwire-core/src/format/ai_sdk/fixtures/out');

/** A server that responds to the n-th request with the n-th run, and records the bodies. */
function server(profile, ...names) {
  const bodies = [];
  const fetch = async (_url, init) => {
    bodies.push(JSON.parse(init.body));
    const name = names[Math.min(bodies.length, names.length) - 1];
    return new Response(convert(['--from', 'ag-ui', '--to', `ai-sdk@${profile}`, path.join(runs, `${name}.jsonl`)]));
  };
  return { fetch, bodies };
}

const save = (name, body) => fs.writeFileSync(path.join(folder, `${name}.json`), JSON.stringify(body, null, 1) + '\n');
const image = { type: 'file', mediaType: 'image/png', filename: 'a.png', url: 'data:image/png;base64,aGk=' };

for (const version of ['5.0.216', '6.0.230', '7.0.169']) {
  const major = version[0];
  const ai = await client(version);
  const open = async (...names) => {
    const { fetch, bodies } = server(major, ...names);
    return { chat: await chatWith(version, { fetch }), bodies };
  };
  {
    const { chat, bodies } = await open('text', 'tool', 'carried', 'reasoning', 'text');
    await chat.sendMessage({ text: 'hello' });
    save(`submit.${major}`, bodies[0]);
    await chat.sendMessage({ text: 'look', files: [image], metadata: { mood: 'good' } }, { body: { model: 'large', temperature: 0.5 } });
    save(`files.${major}`, bodies[1]);
    await chat.sendMessage({ text: 'more' });
    await chat.sendMessage({ text: 'think' });
    await chat.sendMessage({ text: 'all of it' });
    save(`history.${major}`, bodies[4]);
    await chat.sendMessage({ text: 'edited', messageId: chat.messages[2].id });
    save(`edit.${major}`, bodies[5]);
    await chat.regenerate({ messageId: chat.messages.at(-1).id });
    save(`regenerate.${major}`, bodies[6]);
  }
  {
    const { chat, bodies } = await open('client_tool', 'text');
    await chat.sendMessage({ text: 'where am I' });
    await chat.addToolOutput({ tool: 'getLocation', toolCallId: 'c1', output: { city: 'Paris' } });
    await chat.sendMessage();
    save(`tool_output.${major}`, bodies[1]);
  }
  {
    const { chat, bodies } = await open('client_tool', 'text');
    await chat.sendMessage({ text: 'where am I' });
    await chat.addToolOutput({ tool: 'getLocation', toolCallId: 'c1', state: 'output-error', errorText: 'no permission' });
    await chat.sendMessage();
    save(`tool_output_error.${major}`, bodies[1]);
  }
  {
    const { chat, bodies } = await open('interrupt', 'text');
    await chat.sendMessage({ text: 'paint' });
    await chat.addToolOutput({ tool: 'interrupt', toolCallId: 'interrupt:i1', output: { colour: 'red' } });
    await chat.sendMessage();
    save(`interrupt.${major}`, bodies[1]);
  }
  for (const [name, answer] of [['granted', { approved: true }], ['denied', { approved: false, reason: 'too much' }]]) {
    const { chat, bodies } = await open('approval', 'text');
    await chat.sendMessage({ text: 'pay' });
    if (major === '5') await chat.addToolOutput({ tool: 'interrupt', toolCallId: 'interrupt:i1', output: answer });
    else await chat.addToolApprovalResponse({ id: 'i1', ...answer });
    await chat.sendMessage();
    save(`approval_${name}.${major}`, bodies[1]);
  }
  {
    const { fetch, bodies } = server(major, 'text');
    const chat = await chatWith(version, {
      transport: new ai.DefaultChatTransport({
        api: 'http://test.invalid/api/chat', fetch,
        prepareSendMessagesRequest: ({ id, messages }) => ({ body: { id, message: messages.at(-1), selectedChatModel: 'x' } }),
      }),
    });
    await chat.sendMessage({ text: 'only this' });
    save(`last_message.${major}`, bodies[0]);
  }
}

{
  const { fetch, bodies } = server('4', 'text', 'tool', 'carried', 'reasoning', 'text');
  const hook = await hook4({ fetch });
  await hook.do(chat => chat.append({ role: 'user', content: 'hello' }));
  save('submit.4', bodies[0]);
  await hook.do(chat => chat.append(
    { role: 'user', content: 'look', experimental_attachments: [{ name: 'a.png', contentType: 'image/png', url: 'data:image/png;base64,aGk=' }] },
    { body: { model: 'large' }, data: { extra: 1 } },
  ));
  save('files.4', bodies[1]);
  await hook.do(chat => chat.append({ role: 'user', content: 'more' }));
  await hook.do(chat => chat.append({ role: 'user', content: 'think' }));
  await hook.do(chat => chat.append({ role: 'user', content: 'all of it' }));
  save('history.4', bodies[4]);
  await hook.do(chat => chat.reload());
  save('regenerate.4', bodies[5]);
  await hook.leave();
}
{
  const { fetch, bodies } = server('4', 'client_tool', 'text');
  const hook = await hook4({ fetch, maxSteps: 3, sendExtraMessageFields: true, id: 'chat2' });
  await hook.do(chat => chat.append({ role: 'user', content: 'where am I' }));
  await hook.do(chat => chat.addToolResult({ toolCallId: 'c1', result: { city: 'Paris' } }));
  const body = bodies[1];
  // Times differ between recordings.
  for (const message of body.messages) message.createdAt = '2025-01-01T00:00:00.000Z';
  for (const message of body.messages) if (message.revisionId) message.revisionId = 'client-0';
  save('tool_output.4', body);
  await hook.leave();
}
{
  const { fetch, bodies } = server('4', 'approval', 'text');
  const hook = await hook4({ fetch, maxSteps: 3, id: 'chat3' });
  await hook.do(chat => chat.append({ role: 'user', content: 'pay' }));
  await hook.do(chat => chat.addToolResult({ toolCallId: 'interrupt:i1', result: { approved: false, reason: 'too much' } }));
  save('approval_denied.4', bodies[1]);
  await hook.leave();
}
