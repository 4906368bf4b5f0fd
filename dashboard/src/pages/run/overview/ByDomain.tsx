/** The champion beside the sources and the base, domain by domain: whether one of them got worse. */
import type { DomainRow, Domains } from "../../../api/types";
import { NONE, score } from "../../../lib/format";

export function ByDomain({ domains }: { domains: Domains }) {
  const names = [...new Set(domains.rows.flatMap((row) => Object.keys(row.others)))];
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label="Results by domain">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Domain</th>
            <th scope="col">Measure</th>
            <th scope="col" className="num">
              <i className="diamond" aria-hidden="true" /> Champion
            </th>
            {names.map((name) => (
              <th key={name} scope="col" className="num">
                {name}
              </th>
            ))}
            <th scope="col">Against the best of them</th>
          </tr>
        </thead>
        <tbody>
          {domains.rows.map((row) => (
            <tr key={row.domain}>
              <th scope="row">{row.domain}</th>
              <td className="soft nowrap">
                {row.metric} {row.better === "down" ? "(lower is better)" : "(higher is better)"}
              </td>
              <td className="num">
                <b>{told(row, row.champion)}</b>
              </td>
              {names.map((name) => (
                <td key={name} className="num">
                  {told(row, row.others[name] ?? null)}
                </td>
              ))}
              <td className="nowrap">{against(row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function told(row: DomainRow, value: number | null): string {
  if (value === null) return NONE;
  return row.metric === "accuracy" ? score(value) : value.toFixed(3);
}

/** "3.1 % better than code". */
function against(row: DomainRow): string {
  const sign = row.better === "up" ? 1 : -1;
  const others = Object.entries(row.others).filter((one): one is [string, number] => one[1] !== null);
  const best = others.sort((a, b) => sign * (b[1] - a[1]))[0];
  if (!best || row.champion === null) return NONE;
  const [name, value] = best;
  const share = value === 0 ? 0 : (100 * sign * (row.champion - value)) / Math.abs(value);
  if (Math.abs(share) < 0.05) return `as good as ${name}`;
  return `${Math.abs(share).toFixed(1)} % ${share > 0 ? "better" : "worse"} than ${name}`;
}
