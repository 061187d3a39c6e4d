/** A list of which only the visible rows are in the page. Rows have one height. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface VirtualProps {
  count: number;
  rowHeight: number;
  selected: number;
  label: string;
  /** Keeps the end in view while rows are added. */
  isFollowing?: boolean;
  row(index: number): ComponentChildren;
  onSelect(index: number): void;
  /** A row that must be visible; a new object scrolls again. */
  reveal?: { index: number };
  onScroll?(): void;
}

const OVERSCAN = 12;

export function VirtualList({ count, rowHeight, selected, label, isFollowing, row, onSelect, reveal, onScroll }: VirtualProps) {
  const place = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    observer.observe(place.current!);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (isFollowing && isAtEnd.current && place.current) place.current.scrollTop = place.current.scrollHeight;
  }, [count, isFollowing]);
  useLayoutEffect(() => {
    if (!reveal || reveal.index < 0) return;
    const at = reveal.index * rowHeight;
    const box = place.current!;
    if (at < box.scrollTop || at + rowHeight > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, at - box.clientHeight / 2);
  }, [reveal]);
  const first = Math.max(0, Math.floor(top / rowHeight) - OVERSCAN);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + OVERSCAN);
  const move = (index: number) => onSelect(Math.max(0, Math.min(count - 1, index)));
  const page = Math.max(1, Math.floor(height / rowHeight) - 1);
  return (
    <div
      ref={place}
      class="virtual"
      role="listbox"
      tabIndex={0}
      aria-label={label}
      aria-activedescendant={selected >= first && selected < last ? `row-${selected}` : undefined}
      onScroll={(event) => {
        const box = event.currentTarget;
        setTop(box.scrollTop);
        isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < rowHeight * 2;
        onScroll?.();
      }}
      onKeyDown={(event) => {
        const steps: Record<string, number> = { ArrowDown: selected + 1, ArrowUp: selected - 1, PageDown: selected + page, PageUp: selected - page, Home: 0, End: count - 1 };
        if (event.key in steps && count > 0) {
          event.preventDefault();
          move(steps[event.key]);
        }
      }}
    >
      <div class="virtual-space" style={{ height: `${count * rowHeight}px` }} role="presentation">
        {Array.from({ length: Math.max(0, last - first) }, (_, offset) => {
          const index = first + offset;
          return (
            <div key={index} id={`row-${index}`} class="virtual-row" role="option" aria-selected={index === selected} aria-setsize={count} aria-posinset={index + 1} style={{ transform: `translateY(${index * rowHeight}px)`, height: `${rowHeight}px` }} onClick={() => move(index)}>
              {row(index)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
