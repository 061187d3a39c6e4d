/** Feedback on a message, a call or a run: thumbs, a score and a comment. */

import { useState } from "preact/hooks";
import { agentPath, request } from "../lib/api";
import { t } from "../lib/i18n";
import { Dialog, Icon, Problem } from "./common";

export interface JudgeTarget {
  agent?: string;
  threadId?: string;
  runId?: string;
  messageId?: string;
  toolCallId?: string;
}

export function Judge({ target, label }: { target: JudgeTarget; label?: string }) {
  const [given, setGiven] = useState<string>();
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState<unknown>();
  const send = async (feedback: object, mark: string) => {
    const { agent = "", ...about } = target;
    try {
      await request(`${agentPath(agent)}/feedback`, { method: "POST", body: { ...about, ...feedback } });
      setGiven(mark);
      setError(undefined);
      setOpen(false);
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <span class="judge">
      {label && <span class="muted">{label}</span>}
      <button type="button" class="icon-button" aria-label={t("judge.up")} title={t("judge.up")} aria-pressed={given === "up"} onClick={() => send({ rating: "up" }, "up")}>
        <Icon name="up" />
      </button>
      <button type="button" class="icon-button" aria-label={t("judge.down")} title={t("judge.down")} aria-pressed={given === "down"} onClick={() => send({ rating: "down" }, "down")}>
        <Icon name="down" />
      </button>
      <button type="button" class="icon-button" aria-label={t("judge.comment")} title={t("judge.comment")} aria-pressed={given === "comment"} onClick={() => setOpen(true)}>
        <Icon name="comment" />
      </button>
      {given && <span class="muted" role="status">{t("judge.thanks")}</span>}
      {error !== undefined && !isOpen && <Problem error={error} />}
      {isOpen && (
        <Dialog title={t("judge.comment")} onClose={() => setOpen(false)}>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              const data = new FormData(event.currentTarget);
              const comment = String(data.get("comment") ?? "").trim();
              const score = String(data.get("score") ?? "").trim();
              void send({ ...(comment && { comment }), ...(score && { score: Number(score) }) }, "comment");
            }}
          >
            <div class="field">
              <label for="judge-comment">{t("judge.comment")}</label>
              <textarea id="judge-comment" name="comment" rows={4} maxLength={4000} />
            </div>
            <div class="field">
              <label for="judge-score">{t("judge.score")}</label>
              <input id="judge-score" name="score" type="number" min={0} max={1} step="any" />
            </div>
            {error !== undefined && <Problem error={error} />}
            <div class="actions">
              <button type="submit" class="primary">{t("judge.send")}</button>
            </div>
          </form>
        </Dialog>
      )}
    </span>
  );
}
