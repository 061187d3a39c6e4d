/** A question to a person: its true arguments, and a form for the answer. */

import { useState } from "preact/hooks";
import { agentPath, type PendingItem, request } from "../lib/api";
import { prose, shownJson, visible } from "../lib/escape";
import { ago, t } from "../lib/i18n";
import { tools } from "../lib/tools";
import { newId } from "../lib/ids";
import { Problem, Status } from "./common";
import { SchemaForm } from "./form";
import { Long } from "./long";

/** An answer as the AG-UI request of the next run carries it. */
export interface Answer {
  item: PendingItem;
  resume?: { interruptId: string; status: string; payload?: unknown };
  message?: { id: string; role: string; toolCallId: string; content: string };
}

const isApproval = (item: PendingItem): boolean => item.kind === "approval";
const isTool = (item: PendingItem): boolean => item.kind === "frontend-tool" || item.kind === "long-running-tool";

export function toolAnswer(item: PendingItem, value: unknown): Answer {
  const content = typeof value === "string" ? value : JSON.stringify(value ?? null);
  return { item, message: { id: newId("m"), role: "tool", toolCallId: item.toolCallId ?? item.id, content } };
}

export function answer(item: PendingItem, payload: unknown): Answer {
  if (isTool(item)) return toolAnswer(item, payload);
  return { item, resume: { interruptId: item.id, status: "resolved", payload } };
}

/** The body of the run that carries answers. */
export function answerBody(thread: string, answers: Answer[], tools: unknown[]): any {
  const resume = answers.flatMap((entry) => (entry.resume ? [entry.resume] : []));
  const messages = answers.flatMap((entry) => (entry.message ? [entry.message] : []));
  return { threadId: thread, runId: newId("r"), protocolVersion: "1.0", messages, tools, context: [], state: {}, forwardedProps: {}, ...(resume.length > 0 && { resume }) };
}

/** Sends answers without following the run that they start. */
export async function sendAnswers(agent: string, thread: string, answers: Answer[], tools: unknown[]): Promise<void> {
  const response = await request(`${agentPath(agent)}/`, { method: "POST", body: answerBody(thread, answers, tools), headers: { accept: "text/event-stream" } });
  // Read to the end of the stream in the background, so that an agent which stops without readers goes on.
  void response.body?.pipeTo(new WritableStream()).catch(() => undefined);
}

/** All open items of a run: one is answered at once, several together. */
export function Decisions({ items, agent, isBusy, onAnswer }: { items: PendingItem[]; agent: string; isBusy?: boolean; onAnswer(answers: Answer[]): void }) {
  const [chosen, setChosen] = useState<Record<string, Answer>>({});
  const required = items.filter((item) => item.kind !== "frontend-tool");
  const isTogether = items.length > 1 && required.length > 0;
  const choose = (given: Answer) => {
    if (!isTogether) return onAnswer([given]);
    setChosen({ ...chosen, [given.item.id]: given });
  };
  const missing = items.filter((item) => !chosen[item.id]);
  return (
    <div class="decisions">
      {isTogether && <p class="muted">{t("decide.together", { count: items.length })}</p>}
      {items.map((item) => (
        <Decision key={item.id} item={item} agent={agent} isBusy={isBusy} chosen={chosen[item.id]} onAnswer={choose} />
      ))}
      {isTogether && (
        <div class="actions">
          <button type="button" class="primary" disabled={missing.length > 0 || isBusy} onClick={() => onAnswer(items.map((item) => chosen[item.id]))}>
            {t("decide.sendall")}
          </button>
        </div>
      )}
    </div>
  );
}

function Decision({ item, agent, isBusy, chosen, onAnswer }: { item: PendingItem; agent: string; isBusy?: boolean; chosen?: Answer; onAnswer(answer: Answer): void }) {
  const [isEditing, setEditing] = useState(false);
  const [error, setError] = useState<unknown>();
  const args = item.arguments as any;
  const importance = item.name === "confirmAction" ? String(args?.importance ?? "") : "";
  const level = ["high", "medium", "low"].includes(importance) ? importance : "";
  const question = item.message ?? (item.name === "confirmAction" ? String(args?.action ?? "") : undefined) ?? t("decide.question");
  const edit = (text: string) => {
    try {
      onAnswer(answer(item, { approved: true, editedArgs: JSON.parse(text) }));
      setError(undefined);
    } catch {
      setError(new Error(t("decide.badjson")));
    }
  };
  return (
    <section class={`card decision ${level ? `importance-${level}` : ""}`} aria-label={prose(question).slice(0, 200)} data-item={item.id}>
      <header>
        <h3>{prose(question).slice(0, 2000)}</h3>
        {chosen && <Status status="finished" />}
      </header>
      <p class="muted">
        {t("decide.asked", { agent: prose(agent), time: ago(item.createdAt) })}
        {item.expiresAt && <> · {t("decide.expires", { time: ago(item.expiresAt) })}</>}
        {level && <> · {t("decide.importance", { level })}</>}
      </p>
      {item.name && <p class="mono"><b>{visible(item.name)}</b></p>}
      {item.arguments !== undefined && !isEditing && (
        <>
          <pre tabIndex={0} class="arguments"><Long text={shownJson(item.arguments)} /></pre>
          {item.argumentsHash && (
            <p class="hash muted">
              {t("decide.hash")}: <code>{item.argumentsHash}</code>
            </p>
          )}
        </>
      )}
      {isEditing && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            edit(String(new FormData(event.currentTarget).get("arguments") ?? ""));
          }}
        >
          <div class="field">
            <label for={`edit-${item.id}`}>{t("tool.arguments")}</label>
            <textarea id={`edit-${item.id}`} class="mono" name="arguments" rows={8} spellcheck={false}>
              {shownJson(item.arguments)}
            </textarea>
          </div>
          <div class="actions">
            <button type="submit" class="primary" disabled={isBusy}>{t("decide.edited")}</button>
            <button type="button" onClick={() => setEditing(false)}>{t("cancel")}</button>
          </div>
        </form>
      )}
      {error !== undefined && <Problem error={error} />}
      {!isEditing && isApproval(item) && (
        <div class="actions">
          <button type="button" class="primary" disabled={isBusy} onClick={() => onAnswer(answer(item, { approved: true }))}>{t("decide.approve")}</button>
          <button type="button" disabled={isBusy} onClick={() => onAnswer(answer(item, { approved: false }))}>{t("decide.deny")}</button>
          {item.arguments !== undefined && <button type="button" disabled={isBusy} onClick={() => setEditing(true)}>{t("decide.edit")}</button>}
        </div>
      )}
      {!isApproval(item) && item.name === "confirmAction" && isTool(item) && (
        <div class="actions">
          <button type="button" class="primary" disabled={isBusy} onClick={() => onAnswer(toolAnswer(item, "true"))}>{t("decide.confirm")}</button>
          <button type="button" disabled={isBusy} onClick={() => onAnswer(toolAnswer(item, "false"))}>{t("decide.refuse")}</button>
        </div>
      )}
      {!isApproval(item) && !(item.name === "confirmAction" && isTool(item)) && (
        <SchemaForm schema={schemaOf(item)} initial={item.responseSchema ? undefined : item.arguments} submit={t("decide.answer")} isBusy={isBusy} onSubmit={(value) => onAnswer(answer(item, value ?? ""))} />
      )}
      {isApproval(item) && hasMore(item) && !isEditing && (
        <details>
          <summary>{t("decide.answer")}</summary>
          <SchemaForm schema={item.responseSchema} submit={t("decide.answer")} isBusy={isBusy} onSubmit={(value) => onAnswer(answer(item, value))} />
        </details>
      )}
    </section>
  );
}

/** The schema of an answer: that of the question, or of the known tool; without one, any JSON is an answer. */
function schemaOf(item: PendingItem) {
  if (item.responseSchema) return item.responseSchema;
  return isTool(item) ? tools().find((tool) => tool.name === item.name)?.parameters : undefined;
}

/** True if the schema asks for more than a yes or no. */
function hasMore(item: PendingItem): boolean {
  const names = Object.keys(item.responseSchema?.properties ?? {});
  return names.some((name) => name !== "approved" && name !== "editedArgs");
}
