// The tests of `e2e/adk` with a server of ADK 1.x: different ids, no node paths, no events for exceptions.

process.env.ADK_SUITE = "adk-1";
await import("../adk/server.test.mjs");
