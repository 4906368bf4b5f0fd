/** The numbers of a chart as a table, for those who would rather read than look. */
import type { ReactNode } from "react";

interface Props {
  caption: string;
  heads: string[];
  rows: ReactNode[][];
}

export function ChartTable({ caption, heads, rows }: Props) {
  return (
    <details className="chart-table">
      <summary>As a table</summary>
      <div className="sheet" tabIndex={0} role="region" aria-label={caption}>
        <table className="table">
          <caption className="hidden-text">{caption}</caption>
          <thead>
            <tr>
              {heads.map((head, index) => (
                <th key={head} scope="col" className={index ? "num" : undefined}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
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
    </details>
  );
}
