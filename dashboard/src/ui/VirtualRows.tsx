/** A long list of which only the rows in sight are in the page. Rows are of one height, but for open ones. */
import { type ReactNode, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

interface Props {
  count: number;
  height: number;
  /** Extra pixels under some rows, by index: rows that are open. */
  extra?: Map<number, number>;
  keyOf: (index: number) => string;
  render: (index: number) => ReactNode;
  /** Told which rows are in sight. */
  onSight?: (first: number, last: number) => void;
  className?: string;
  label: string;
  /** A row above the others that stays in sight. */
  head?: ReactNode;
  role?: "table" | "list";
  /** Rows to be brought into sight when this changes. */
  reveal?: number | null;
}

const BEYOND = 8;
const NO_EXTRA = new Map<number, number>();

export function VirtualRows(props: Props) {
  const { count, height, extra = NO_EXTRA, keyOf, render, onSight, reveal } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, tall: 800 });
  const opened = useMemo(() => [...extra].sort((a, b) => a[0] - b[0]), [extra]);
  const offset = useCallback(
    (index: number) => opened.reduce((sum, [row, more]) => (row < index ? sum + more : sum), index * height),
    [opened, height],
  );
  const indexAt = (pixels: number) => {
    let index = Math.max(0, Math.min(count - 1, Math.floor(pixels / height)));
    while (index > 0 && offset(index) > pixels) index -= 1;
    return index;
  };
  const first = Math.max(0, indexAt(view.top) - BEYOND);
  const last = Math.min(count - 1, indexAt(view.top + view.tall) + BEYOND);

  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const top = Math.floor(element.scrollTop / height) * height;
    setView((old) => (old.top === top && old.tall === element.clientHeight ? old : { top, tall: element.clientHeight }));
  }, [height]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [measure]);
  useEffect(() => onSight?.(first, last), [first, last, onSight]);

  // Rows that appear above the ones in sight must not move them.
  const anchor = useRef<{ key: string; index: number } | null>(null);
  useLayoutEffect(() => {
    const element = box.current;
    const held = anchor.current;
    if (element && held && element.scrollTop > 0 && held.index < count && keyOf(held.index) !== held.key) {
      for (let step = 1; step <= 200 && held.index + step < count; step += 1) {
        if (keyOf(held.index + step) === held.key) {
          element.scrollTop += step * height;
          break;
        }
      }
    }
    const index = indexAt(element?.scrollTop ?? 0);
    anchor.current = count > 0 ? { key: keyOf(index), index } : null;
  });

  useEffect(() => {
    const element = box.current;
    if (!element || reveal === null || reveal === undefined || reveal < 0) return;
    const at = offset(reveal);
    if (at < element.scrollTop || at > element.scrollTop + element.clientHeight - 2 * height) {
      element.scrollTop = Math.max(0, at - element.clientHeight / 2);
    }
  }, [reveal, offset, height]);

  const rows = [];
  for (let index = first; index <= last; index += 1) {
    rows.push(
      <div key={keyOf(index)} className="virtual-row" role="presentation"
        style={{ transform: `translateY(${offset(index)}px)`, height: height + (extra.get(index) ?? 0) }}>
        {render(index)}
      </div>,
    );
  }
  const table = props.role !== "list";
  return (
    <div className={`virtual ${props.className ?? ""}`} ref={box} onScroll={measure} tabIndex={-1}
      role={table ? "table" : "list"} aria-label={props.label} aria-rowcount={table ? count + 1 : undefined}>
      {props.head}
      <div className="virtual-all" role="presentation" style={{ height: offset(count) }}>
        {rows}
      </div>
    </div>
  );
}
