/** A form made from a JSON Schema; shapes beyond its fields are entered as JSON. */

import { useState } from "preact/hooks";
import type { Schema } from "../lib/api";
import { prose } from "../lib/escape";
import { t } from "../lib/i18n";

export interface FormProps {
  schema: Schema | undefined;
  initial?: unknown;
  submit: string;
  isBusy?: boolean;
  onSubmit(value: unknown): void;
}

type Field = { name: string; schema: Schema; isRequired: boolean };

const typeOf = (schema: Schema): string => (Array.isArray(schema?.type) ? schema.type.find((type: string) => type !== "null") : schema?.type) ?? (schema?.enum ? "string" : schema?.properties ? "object" : "");

function fieldsOf(schema: Schema | undefined): Field[] | undefined {
  if (!schema || typeOf(schema) !== "object" || typeof schema.properties !== "object") return undefined;
  const required: string[] = Array.isArray(schema.required) ? schema.required : [];
  const entries = Object.entries<Schema>(schema.properties);
  return entries.length > 0 && entries.length <= 50 ? entries.map(([name, member]) => ({ name, schema: member ?? {}, isRequired: required.includes(name) })) : undefined;
}

let count = 0;

export function SchemaForm({ schema, initial, submit, isBusy, onSubmit }: FormProps) {
  const [id] = useState(() => `form${count++}`);
  const fields = fieldsOf(schema);
  const single: Field = { name: "", schema: schema ?? {}, isRequired: true };
  const list = fields ?? [single];
  const [values, setValues] = useState<Record<string, string | boolean>>(() => Object.fromEntries(list.map((field) => [field.name, start(field, fields ? (initial as any)?.[field.name] : initial)])));
  const [problems, setProblems] = useState<Record<string, string>>({});
  const send = (event: Event) => {
    event.preventDefault();
    const found: Record<string, string> = {};
    const result: Record<string, unknown> = {};
    for (const field of list) {
      try {
        const value = read(field, values[field.name]);
        if (value !== undefined) result[field.name] = value;
      } catch {
        found[field.name] = t("decide.badjson");
      }
    }
    setProblems(found);
    if (Object.keys(found).length === 0) onSubmit(fields ? result : result[""]);
  };
  return (
    <form class="schema-form" onSubmit={send}>
      {list.map((field) => (
        <FieldInput key={field.name} id={`${id}-${field.name}`} field={field} value={values[field.name]} problem={problems[field.name]} onChange={(value) => setValues({ ...values, [field.name]: value })} />
      ))}
      <div class="actions">
        <button type="submit" class="primary" disabled={isBusy}>
          {submit}
        </button>
      </div>
    </form>
  );
}

function start({ schema }: Field, initial: unknown): string | boolean {
  const value = initial ?? schema.default;
  const type = typeOf(schema);
  if (type === "boolean") return value === true;
  if (type === "string" || type === "number" || type === "integer") return value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return value === undefined ? (type === "array" ? "[]" : type === "object" ? "{}" : "") : JSON.stringify(value, null, 2);
}

function read({ schema, isRequired }: Field, value: string | boolean): unknown {
  const type = typeOf(schema);
  if (typeof value === "boolean") return value;
  if (Array.isArray(schema.enum)) return value === "" ? undefined : schema.enum.find((entry: unknown) => String(entry) === value);
  if (type === "string") return value === "" && !isRequired ? undefined : value;
  if (value.trim() === "") {
    if (isRequired) throw new Error("empty");
    return undefined;
  }
  if (type === "number" || type === "integer") {
    const number = Number(value);
    if (Number.isNaN(number)) throw new Error("not a number");
    return number;
  }
  if (type === "") {
    try {
      return JSON.parse(value);
    } catch {
      // Without a type, any text is a value.
      return value;
    }
  }
  return JSON.parse(value);
}

function FieldInput({ id, field, value, problem, onChange }: { id: string; field: Field; value: string | boolean; problem?: string; onChange(value: string | boolean): void }) {
  const { name, schema, isRequired } = field;
  const type = typeOf(schema);
  const label = prose(String(schema.title ?? (name || t("decide.answer")))).slice(0, 200);
  const about = schema.description ? prose(String(schema.description)).slice(0, 1000) : undefined;
  const described = [about && `${id}-about`, problem && `${id}-problem`].filter(Boolean).join(" ") || undefined;
  const common = { id, "aria-describedby": described, "aria-invalid": problem ? true : undefined };
  let input;
  if (typeof value === "boolean") {
    return (
      <div class="field field-check">
        <input {...common} type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
        <label for={id}>{label}</label>
        {about && <small id={`${id}-about`}>{about}</small>}
      </div>
    );
  }
  if (Array.isArray(schema.enum)) {
    input = (
      <select {...common} value={value} required={isRequired} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="" />
        {schema.enum.slice(0, 500).map((entry: unknown) => <option key={String(entry)} value={String(entry)}>{prose(String(entry))}</option>)}
      </select>
    );
  } else if (type === "number" || type === "integer") {
    input = <input {...common} type="number" step={type === "integer" ? 1 : "any"} min={schema.minimum} max={schema.maximum} value={value} required={isRequired} onInput={(event) => onChange(event.currentTarget.value)} />;
  } else if (type === "string" && !(Number(schema.maxLength) > 200) && schema.format !== "textarea") {
    const kind = ({ date: "date", "date-time": "datetime-local", email: "email", uri: "url" } as Record<string, string>)[schema.format] ?? "text";
    input = <input {...common} type={(kind === "datetime-local" ? "text" : kind) as "text"} value={value} required={isRequired} maxLength={schema.maxLength} onInput={(event) => onChange(event.currentTarget.value)} />;
  } else {
    input = <textarea {...common} rows={type === "string" || type === "" ? 3 : 6} value={value} spellcheck={false} class={type === "string" ? "" : "mono"} onInput={(event) => onChange(event.currentTarget.value)} />;
  }
  return (
    <div class="field">
      <label for={id}>
        {label}
        {isRequired && name !== "" && <span aria-hidden="true"> *</span>}
      </label>
      {input}
      {about && <small id={`${id}-about`}>{about}</small>}
      {problem && (
        <small id={`${id}-problem`} class="problem" role="alert">
          {problem}
        </small>
      )}
    </div>
  );
}
