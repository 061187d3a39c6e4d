/** JSON Patch without mutation, and a description of each change. */

export interface Operation {
  op: string;
  path: string;
  from?: string;
  value?: unknown;
}

export interface Change {
  op: string;
  path: string;
  before?: unknown;
  after?: unknown;
  error?: string;
}

const names = (pointer: string): string[] =>
  pointer === "" ? [] : pointer.split("/").slice(1).map((name) => name.replace(/~1/g, "/").replace(/~0/g, "~"));

const isContainer = (value: unknown): value is any => typeof value === "object" && value !== null;

export function valueAt(document: unknown, pointer: string): unknown {
  let value: any = document;
  for (const name of names(pointer)) {
    if (!isContainer(value) || (!Array.isArray(value) && !Object.prototype.hasOwnProperty.call(value, name))) return undefined;
    value = value[name];
  }
  return value;
}

/** A copy of `document` in which the container of `pointer` is changed. */
function changed(document: any, path: string[], change: (container: any, key: string) => void): any {
  const [name, ...rest] = path;
  if (!isContainer(document)) throw new Error("there is no container");
  const copy: any = Array.isArray(document) ? [...document] : { ...document };
  if (rest.length === 0) change(copy, name);
  else {
    if (!Array.isArray(copy) && !Object.prototype.hasOwnProperty.call(copy, name)) throw new Error(`no member ${name}`);
    // As an own member, so that `__proto__` is a name like any other.
    Object.defineProperty(copy, name, { value: changed(copy[name], rest, change), writable: true, enumerable: true, configurable: true });
  }
  return copy;
}

function set(document: unknown, pointer: string, value: unknown, isReplace: boolean): unknown {
  const path = names(pointer);
  if (path.length === 0) return value;
  return changed(document, path, (container, key) => {
    if (Array.isArray(container)) {
      const index = key === "-" ? container.length : Number(key);
      if (!Number.isInteger(index) || index < 0 || index > container.length) throw new Error(`no element ${key}`);
      if (isReplace) container[index] = value;
      else container.splice(index, 0, value);
    } else Object.defineProperty(container, key, { value, writable: true, enumerable: true, configurable: true });
  });
}

function remove(document: unknown, pointer: string): unknown {
  const path = names(pointer);
  if (path.length === 0) return null;
  return changed(document, path, (container, key) => {
    if (Array.isArray(container)) container.splice(Number(key), 1);
    else delete container[key];
  });
}

/** The document after a patch and the changes that were made; an operation that does not apply is left out and named. */
export function applyPatch(document: unknown, patch: unknown): { document: unknown; changes: Change[] } {
  const operations: Operation[] = Array.isArray(patch) ? patch : isContainer(patch) ? [patch as Operation] : [];
  const changes: Change[] = [];
  let current = document;
  for (const operation of operations) {
    const { op, path, from, value } = operation;
    const before = valueAt(current, path ?? "");
    try {
      if (op === "add") current = set(current, path, value, false);
      else if (op === "replace") current = set(current, path, value, true);
      else if (op === "remove") current = remove(current, path);
      else if (op === "move") current = set(remove(current, from ?? ""), path, valueAt(current, from ?? ""), false);
      else if (op === "copy") current = set(current, path, valueAt(current, from ?? ""), false);
      const after = op === "remove" ? undefined : op === "move" || op === "copy" ? valueAt(current, path) : value;
      changes.push({ op, path, before: op === "add" && path.endsWith("/-") ? undefined : before, after });
    } catch (error) {
      changes.push({ op, path, error: String((error as Error).message) });
    }
  }
  return { document: current, changes };
}
