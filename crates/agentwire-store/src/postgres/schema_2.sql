-- `raw` or `scoped`: the form of the ids of the thread and its runs on the agent's side. Null for threads of earlier versions.
ALTER TABLE agentwire.threads ADD COLUMN thread_ids text;
