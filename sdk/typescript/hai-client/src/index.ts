export * from "./client";
export * from "./core";
