export * from "./errors";
export * from "./events";
export { mergeOutputs, parseContents, parseJsonString, randomId } from "./json";
export type { OutputDocument } from "./json";
export { parseSse } from "./sse";
export type { SseFrame } from "./sse";
export * from "./types";
