/** A value that views observe. */

import { useEffect, useState } from "preact/hooks";

export class Observable<T> {
  private readonly listeners = new Set<() => void>();
  constructor(private current: T) {}
  get value(): T {
    return this.current;
  }
  set(value: T): void {
    this.current = value;
    for (const listener of [...this.listeners]) listener();
  }
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** The value of an observable, with a new drawing when it changes. */
export function useValue<T>(observable: Observable<T>): T {
  const [, redraw] = useState(0);
  useEffect(() => observable.subscribe(() => redraw((count) => count + 1)), [observable]);
  return observable.value;
}

/** Repeats `work` while the page is visible; `work` may return a promise, which is awaited. */
export function usePolling(work: () => unknown, everyMs: number, dependencies: unknown[]): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let isOver = false;
    const tick = async () => {
      if (!document.hidden) {
        try {
          await work();
        } catch {
          // The view shows its own errors.
        }
      }
      if (!isOver) timer = setTimeout(tick, everyMs);
    };
    void tick();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, dependencies);
}
