// Mastra's AG-UI agent (`@ag-ui/mastra`) with a scripted model. The package has no server of its own but CopilotKit's
// runtime, so this one sends the events of each run.

import http from "node:http";

import { EventEncoder } from "@ag-ui/encoder";
import { MastraAgent } from "@ag-ui/mastra";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { Memory } from "@mastra/memory";
import { z } from "zod";

const tool = (id, inputSchema, execute, more = {}) => createTool({ id, description: id, inputSchema, execute, ...more });

const tools = {
  get_weather: tool("get_weather", z.object({ city: z.string() }), async ({ city }) => `It rains in ${city}`),
  add: tool("add", z.object({ a: z.number(), b: z.number() }), async ({ a, b }) => String(a + b)),
  break_down: tool("break_down", z.object({}), async () => {
    throw new Error("the tool has broken");
  }),
  set_theme: tool("set_theme", z.object({ theme: z.string() }), async ({ theme }, { agent: { threadId, resourceId } }) => {
    await memory.updateWorkingMemory({ threadId, resourceId, workingMemory: JSON.stringify({ theme }) });
    return `theme ${theme}`;
  }),
  delete_all: tool(
    "delete_all",
    z.object({ scope: z.string() }),
    async ({ scope }, { agent: { resumeData, suspend } }) => {
      if (!resumeData) return suspend({ message: `Delete ${scope}?` });
      return resumeData.approved ? `deleted ${scope}` : `kept ${scope}`;
    },
    { suspendSchema: z.object({ message: z.string() }), resumeSchema: z.object({ approved: z.boolean() }) },
  ),
};

const storage = new InMemoryStore();
const model = createOpenAICompatible({ name: "scripted", baseURL: process.env.MODEL_URL }).chatModel("scripted");
const workingMemory = { enabled: true, schema: z.object({ theme: z.string().optional() }) };
const memory = new Memory({ storage, options: { lastMessages: 100, workingMemory } });
const scripted = new Agent({ id: "scripted", name: "scripted", instructions: "Follow the script.", model, tools, memory });
const mastra = new Mastra({ agents: { scripted }, storage, logger: false });

http.createServer(async (request, response) => {
  if (request.method === "GET") return response.end("available");
  const input = JSON.parse(Buffer.concat(await request.toArray()));
  const encoder = new EventEncoder();
  response.writeHead(200, { "content-type": encoder.getContentType() });
  const run = new MastraAgent({ agent: mastra.getAgent("scripted"), resourceId: "somebody" }).run(input).subscribe({
    next: (event) => response.write(encoder.encodeSSE(event)),
    error: (error) => response.end(encoder.encodeSSE({ type: "RUN_ERROR", message: error.message })),
    complete: () => response.end(),
  });
  response.on("close", () => run.unsubscribe());
}).listen(Number(process.argv[2]), "127.0.0.1");
