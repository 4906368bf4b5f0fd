/** A table in a sheet. In a narrow window each row is a card: its cells, each under its column's name. */
import { type ReactNode, useLayoutEffect, useRef } from "react";

interface Props {
  label: string;
  /** Further classes of the sheet. */
  look?: string;
  children: ReactNode;
}

/** Cells with texts of more letters than these take two columns of a card, and its whole width. */
const SHORT = 11;
const LONG = 24;

export function Sheet({ label, look = "", children }: Props) {
  const sheet = useRef<HTMLDivElement>(null);
  // After every render: rows and columns may be others. React leaves these attributes alone.
  useLayoutEffect(() => {
    const table = sheet.current?.querySelector("table");
    const heads = [...(table?.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.querySelector(".sort")?.firstChild?.textContent ?? cell.textContent ?? "");
    for (const row of table?.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, at) => {
        const { length } = (cell.textContent ?? "").trim();
        cell.dataset.label = heads[at] ?? "";
        cell.dataset.room = length > LONG || cell.querySelector("svg.interval, select, .button:not(.icon)") ? "all" : length > SHORT ? "two" : "";
        cell.toggleAttribute("data-empty", length === 0 && cell.querySelector("svg, i, select, button") === null);
      });
    }
  });
  return (
    <div ref={sheet} className={`sheet stacks ${look}`} tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}
