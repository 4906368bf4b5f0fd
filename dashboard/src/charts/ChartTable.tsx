/** The numbers of a chart as a table, for those who would rather read than look. It is made when it is opened. */
import { type ReactNode, useState } from "react";

interface Props {
  caption: string;
  heads: string[];
  /** All rows, or a function that makes them. */
  rows: ReactNode[][] | (() => ReactNode[][]);
}

/** Rows of a table at most: the newest. All of them are in the file that the export writes. */
const MOST = 500;

export function ChartTable({ caption, heads, rows }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <details className="chart-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {open && <Rows caption={caption} heads={heads} rows={typeof rows === "function" ? rows() : rows} />}
    </details>
  );
}

function Rows({ caption, heads, rows }: { caption: string; heads: string[]; rows: ReactNode[][] }) {
  const shown = rows.slice(-MOST);
  return (
    <div className="sheet" tabIndex={0} role="region" aria-label={`Numbers: ${caption}`}>
      {shown.length < rows.length && (
        <p className="quiet small more">
          the last {MOST} of {rows.length.toLocaleString("en-US")} rows
        </p>
      )}
      <table className="table">
        <caption className="hidden-text">{caption}</caption>
        <thead>
          <tr>
            {heads.map((head, index) => (
              <th key={index} scope="col" className={index ? "num" : undefined}>
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) =>
                column === 0 ? (
                  <th key={column} scope="row">
                    {cell}
                  </th>
                ) : (
                  <td key={column} className="num">
                    {cell}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
