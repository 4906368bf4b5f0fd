/** Which genes go with good scores: correlations, drawn from zero. */
import type { Run } from "../../../api/types";

export function GeneCorrelations({ genes }: { genes: Run["genes"] }) {
  const rows = genes
    .filter((one) => one.correlation !== null)
    .sort((a, b) => Math.abs(b.correlation ?? 0) - Math.abs(a.correlation ?? 0))
    .slice(0, 12);
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label="Table of genes">
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
              <th scope="row" className="mono">{one.gene}</th>
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
      {genes.length > rows.length && <p className="quiet small more">the {rows.length} strongest of {genes.length}</p>}
    </div>
  );
}
