#!/usr/bin/env node
// One command: the gateway with its demo agent, and the page.

import { build } from "esbuild";

import { demoPage } from "../support/page.mjs";
import { main } from "../support/processes.mjs";

export const begin = demoPage(import.meta.dirname, build);

if (process.argv[1] === import.meta.filename) await main(begin);
