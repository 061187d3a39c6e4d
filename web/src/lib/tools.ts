/** The front-end tools that this page offers to agents. */

import type { Schema } from "./api";

const TOOLS_KEY = "agentwire.tools";

export interface Tool {
  name: string;
  description: string;
  parameters: Schema;
}

const CONFIRM: Tool = {
  name: "confirmAction",
  description: "Ask the person to confirm an action before it is carried out.",
  parameters: {
    type: "object",
    properties: {
      action: { type: "string", description: "The action that needs a confirmation" },
      importance: { type: "string", enum: ["low", "medium", "high"], description: "How much depends on it" },
    },
    required: ["action"],
  },
};

export function toolsText(): string {
  return localStorage.getItem(TOOLS_KEY) ?? "[]";
}

/** Keeps the tools of the settings; throws if the text is no list of tools. */
export function setTools(text: string): void {
  const tools: unknown = JSON.parse(text.trim() || "[]");
  if (!Array.isArray(tools) || tools.some((tool) => typeof tool?.name !== "string" || tool.name === "")) throw new Error("not a list of tools");
  localStorage.setItem(TOOLS_KEY, text.trim() || "[]");
}

export function tools(): Tool[] {
  try {
    const own: Tool[] = JSON.parse(toolsText());
    const added = own.filter((tool) => tool.name !== CONFIRM.name);
    return [CONFIRM, ...added.map((tool) => ({ name: tool.name, description: tool.description ?? "", parameters: tool.parameters ?? { type: "object", properties: {} } }))];
  } catch {
    return [CONFIRM];
  }
}
