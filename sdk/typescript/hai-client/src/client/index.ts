export * from "./agent";
export { verifyEvents } from "./verify";
export type { VerifyMode } from "./verify";
