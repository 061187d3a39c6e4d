// The front-end tools of the page: each gets its arguments and returns the answer of the person.

import { element } from "./blocks.js";

const $ = (id) => document.getElementById(id);

/** Shows a form in the dialog; resolves with the value of the button that was clicked. */
function ask(...parts) {
  const form = element("form", { method: "dialog" }, ...parts);
  $("dialog").replaceChildren(form);
  $("dialog").showModal();
  return new Promise((resolve) => ($("dialog").onclose = () => resolve($("dialog").returnValue)));
}

const button = (value, text, more = {}) => element("button", { value, ...more }, text);

/** A field of a JSON schema. */
function field(name, schema, isRequired) {
  if (schema.enum) return element("select", { name }, ...schema.enum.map((value) => element("option", {}, String(value))));
  const kinds = { boolean: "checkbox", integer: "number", number: "number" };
  const input = element("input", { name, type: kinds[schema.type] ?? "text", required: isRequired && schema.type !== "boolean" });
  if (schema.minimum !== undefined) input.min = schema.minimum;
  return input;
}

function valueOf(input, schema) {
  if (schema.type === "boolean") return input.checked;
  return schema.type === "integer" || schema.type === "number" ? Number(input.value) : input.value;
}

export const tools = [
  {
    name: "confirmAction",
    description: "Asks the person to confirm an action",
    parameters: { type: "object", properties: { action: { type: "string" }, importance: { enum: ["low", "medium", "high"] } }, required: ["action"] },
    run: async ({ action, importance = "medium" }) =>
      (await ask(element("p", { className: importance }, action), button("yes", "Confirm"), button("no", "Refuse"))) === "yes",
  },
  {
    name: "fillForm",
    description: "Asks the person to fill in the form of a JSON schema",
    parameters: { type: "object" },
    run: async ({ title, properties = {}, required = [] }) => {
      const fields = Object.entries(properties).map(([name, schema]) => [name, schema, field(name, schema, required.includes(name))]);
      const rows = fields.map(([name, schema, input]) => element("p", {}, element("label", {}, `${schema.title ?? name} `, input)));
      const chosen = await ask(element("h3", {}, title ?? ""), ...rows, button("yes", "Send"), button("no", "Cancel", { formNoValidate: true }));
      return chosen === "yes" ? Object.fromEntries(fields.map(([name, schema, input]) => [name, valueOf(input, schema)])) : null;
    },
  },
  {
    name: "openToolSidePage",
    description: "Opens the side page of a shown tool",
    parameters: { type: "object", properties: { id: { type: "string" } }, required: ["id"] },
    run: async ({ id }, { openSidePage }) => openSidePage(id),
  },
];
