/** A long list of which only the rows in sight are in the page: TanStack Virtual, with the roles of a table or a list. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useLayoutEffect, useRef } from "react";

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
const TALL = 800;
/** Height of the head, for boxes that are no taller than their rows. */
const HEAD = 36;

export function VirtualRows(props: Props) {
  const { count, height, extra, keyOf, render, onSight, reveal } = props;
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: (index) => height + (extra?.get(index) ?? 0),
    getItemKey: keyOf,
    overscan: BEYOND,
    initialRect: { width: 0, height: TALL },
    useFlushSync: false,
    // Rows that appear above the ones in sight must not move them; at the very top they are what one wants to see.
    anchorTo: (box.current?.scrollTop ?? 0) > 0 ? "end" : "start",
  });
  useLayoutEffect(() => rows.measure(), [rows, height, extra]);
  const seen = rows.getVirtualItems();
  const first = seen[0]?.index ?? 0;
  const last = seen.at(-1)?.index ?? 0;
  useEffect(() => onSight?.(first, last), [first, last, onSight]);
  useEffect(() => {
    if (reveal !== null && reveal !== undefined && reveal >= 0) rows.scrollToIndex(reveal);
  }, [rows, reveal]);
  const table = props.role !== "list";
  return (
    <div className={`virtual ${props.className ?? ""}`} ref={box} tabIndex={-1}
      style={{ "--whole": `calc(${rows.getTotalSize() + 2}px + ${props.head ? `var(--head, ${HEAD}px)` : "0px"})` } as React.CSSProperties}
      role={table ? "table" : "list"} aria-label={props.label} aria-rowcount={table ? count + 1 : undefined}>
      {props.head}
      <div className="virtual-all" role="presentation" style={{ height: rows.getTotalSize() }}>
        {seen.map((row) => (
          <div key={row.key} className="virtual-row" role="presentation" style={{ transform: `translateY(${row.start}px)`, height: row.size }}>
            {render(row.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
