/** How often each technique was used, and what it was worth. */
import type { Technique } from "../../../api/types";
import { score } from "../../../lib/format";
import { Sheet } from "../../../ui/Sheet";

export function Techniques({ techniques }: { techniques: Technique[] }) {
  const most = Math.max(1, ...techniques.map((one) => one.candidates));
  const rows = [...techniques].sort((a, b) => b.candidates - a.candidates);
  return (
    <Sheet label="Table of techniques" look="bare">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Technique</th>
            <th scope="col" className="num">Candidates</th>
            <th scope="col" className="num">Better half</th>
            <th scope="col" className="bar-column">Share</th>
            <th scope="col" className="num">Best, selection slice</th>
            <th scope="col" className="num">Champions</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.technique}>
              <th scope="row" className="mono nowrap">{one.technique}</th>
              <td className="num">{one.candidates}</td>
              <td className="num">{one.better_half}</td>
              <td>
                <span className="bar-cell" aria-hidden="true">
                  <i style={{ width: `${(one.candidates / most) * 100}%` }} />
                  <i style={{ width: `${(one.better_half / most) * 100}%` }} />
                </span>
              </td>
              <td className="num">{score(one.best)}</td>
              <td className="num">{one.champions || <span className="quiet">0</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Sheet>
  );
}
