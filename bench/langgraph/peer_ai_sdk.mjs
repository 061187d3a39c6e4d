// Times @ai-sdk/langchain on recorded events; prints CPU seconds and bytes as JSON.
//
// The events are passed as parsed objects, so parsing is excluded; the output is counted in the bytes that the AI SDK
// would send. Usage: peer_ai_sdk.mjs RECORDING ROUNDS

import fs from "node:fs";

import { toUIMessageStream } from "@ai-sdk/langchain";
import { JsonToSseTransformStream } from "ai";
import { AIMessageChunk } from "@langchain/core/messages";

const [recording, rounds] = process.argv.slice(2);
const events = fs.readFileSync(recording, "utf8").split("\n").filter(Boolean).map((line) => {
  const event = JSON.parse(line);
  const chunk = event.data?.chunk;
  if (event.event === "on_chat_model_stream") event.data.chunk = new AIMessageChunk(chunk);
  return event;
});

let best = Infinity;
let bytes = 0;
for (let round = 0; round < Number(rounds); round += 1) {
  const begun = process.cpuUsage();
  const source = ReadableStream.from(events);
  const stream = toUIMessageStream(source).pipeThrough(new JsonToSseTransformStream()).pipeThrough(new TextEncoderStream());
  bytes = 0;
  for await (const part of stream) bytes += part.length;
  const { user, system } = process.cpuUsage(begun);
  best = Math.min(best, (user + system) / 1e6);
}
console.log(JSON.stringify({ events: events.length, seconds: best, bytes }));
