// The official clients against a server: `node clients.mjs URL FOLDER`. Prints what each of them got, as JSON.

import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

import { bundleKit } from "../hai-sdk/kit.mjs";

const [url, folder] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const packagesOf = (suite) => createRequire(path.join(here, "..", suite, "package.json"));
const got = {};

for (const name of ["@ag-ui/client", "@ag-ui/client-0", "agui-0-0-59"]) {
  const { HttpAgent } = packagesOf("ag-ui")(name);
  const thread = `t-${name.replaceAll(/\W/g, "")}`;
  const agent = new HttpAgent({ url: `${url}/`, threadId: thread, initialMessages: [{ id: `q-${thread}`, role: "user", content: "hello" }] });
  const seen = [];
  await agent.runAgent({ runId: `r-${thread}` }, { onEvent: ({ event }) => void seen.push(event.type) });
  got[name] = { text: agent.messages.at(-1).content, seen: seen.length === 0 ? null : [seen[0], seen.at(-1)] };
}

/** The state of a chat, which `useChat` of each framework brings. */
class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => void (this.messages = this.messages.concat(structuredClone(message)));
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (thing) => structuredClone(thing);
}

for (const version of ["5.0.277", "6.0.326", "7.0.169"]) {
  const ai = await import(pathToFileURL(packagesOf("ai-sdk").resolve(`ai-${version}`)));
  class Chat extends ai.AbstractChat {}
  const transport = new ai.DefaultChatTransport({ api: `${url}/agents/echo/api/chat` });
  const chat = new Chat({ id: `chat-${version}`, transport, state: new State() });
  await chat.sendMessage({ text: "hello" });
  const parts = chat.messages.at(-1).parts.filter(({ type }) => type === "text");
  got[`ai ${version}`] = { text: parts.map(({ text }) => text).join(""), status: chat.status };
}

fs.mkdirSync(path.join(folder, "hai-client"), { recursive: true });
const file = path.join(folder, "hai-client", "index.mjs");
bundleKit(file);
const kit = await import(pathToFileURL(file));
const agent = new kit.HttpAgent({ url: `${url}/awp`, initialMessages: [{ id: "q", role: "user", content: "hello" }] });
await agent.runAgent({ runId: "r-hai" });
const documents = kit.parseJsonString(agent.messages.at(-1).content);
got.hai = { text: documents.map(({ output }) => output.content).join("") };
console.log(JSON.stringify(got));
