/** Which genes go with good scores: correlations, drawn from zero. */
import type { Run } from "../../../api/types";
import { folded, grouped } from "./foldedGenes";
import { Sheet } from "../../../ui/Sheet";

export function GeneCorrelations({ genes }: { genes: Run["genes"] }) {
  const known = genes.filter((one) => one.correlation !== null).sort((a, b) => Math.abs(b.correlation ?? 0) - Math.abs(a.correlation ?? 0));
  const alike = grouped(known, (one) => `${one.correlation} ${one.candidates}`);
  const rows = alike.slice(0, 12).map((group) => ({ ...group[0], ...folded(group.map((one) => one.gene)) }));
  return (
    <Sheet label="Table of genes" look="bare">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Gene</th>
            <th scope="col" className="num">Correlation</th>
            <th scope="col" className="bar-column">−1 … 1</th>
            <th scope="col" className="num">Candidates</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.gene}>
              <th scope="row" className="mono" title={one.title}>{one.label}</th>
              <td className="num">{(one.correlation ?? 0).toFixed(2).replace("-", "−")}</td>
              <td>
                <span className="signed-bar" aria-hidden="true">
                  <i data-negative={(one.correlation ?? 0) < 0} style={{ width: `${Math.abs(one.correlation ?? 0) * 50}%` }} />
                </span>
              </td>
              <td className="num">{one.candidates}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {alike.length > rows.length && <p className="quiet small more">the {rows.length} strongest of {alike.length}</p>}
    </Sheet>
  );
}
