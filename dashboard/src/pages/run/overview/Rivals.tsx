/** The champion beside each source, the base and the static merges, with intervals drawn. */
import type { Rival, Run } from "../../../api/types";
import { extent, linear, padded } from "../../../lib/scale";
import { NONE, score, signed } from "../../../lib/format";
import { Icon } from "../../../ui/Icon";

const WIDE = 220;

export function Rivals({ rivals, test }: { rivals: Rival[]; test: Run["test"] }) {
  const domain = padded(extent([0, ...rivals.flatMap((one) => [one.low, one.high, one.lead])]) ?? [-1, 1], 0.05);
  const x = linear(domain, [6, WIDE - 6]);
  return (
    <div className="sheet bare" tabIndex={0} role="region" aria-label="Table of rivals">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Rival</th>
            <th scope="col">Kind</th>
            <th scope="col" className="num">Score</th>
            <th scope="col" className="num">Perplexity</th>
            <th scope="col" className="num">Accuracy</th>
            <th scope="col" className="num">Champion's lead</th>
            <th scope="col">Interval</th>
            <th scope="col">Champion</th>
          </tr>
        </thead>
        <tbody>
          {test && (
            <tr>
              <th scope="row"><i className="diamond" aria-hidden="true" /> champion</th>
              <td />
              <td className="num"><b>{score(test.score)}</b></td>
              <td className="num">{test.components?.perplexity.toFixed(3) ?? NONE}</td>
              <td className="num">{score(test.components?.accuracy)}</td>
              <td colSpan={3} />
            </tr>
          )}
          {rivals.map((one) => (
            <tr key={one.name}>
              <th scope="row">{one.name}</th>
              <td className="soft">{one.kind}</td>
              <td className="num">{score(one.score)}</td>
              <td className="num">{one.perplexity === null ? "–" : one.perplexity.toFixed(3)}</td>
              <td className="num">{score(one.accuracy)}</td>
              <td className="num">{signed(one.lead)}</td>
              <td>
                {one.low !== null && one.high !== null && one.lead !== null && (
                  <svg className="interval" data-beaten={one.beaten} width={WIDE} height="18" role="img"
                    aria-label={`${signed(one.low)} to ${signed(one.high)}`}>
                    <title>{`${signed(one.low)} … ${signed(one.high)}`}</title>
                    <line className="zero" x1={x(0)} x2={x(0)} y1="0" y2="18" />
                    <line x1={x(one.low)} x2={x(one.high)} y1="9" y2="9" />
                    <circle cx={x(one.lead)} cy="9" r="3.5" />
                  </svg>
                )}
              </td>
              <td className="nowrap">
                <Result rival={one} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Level is not lost: the interval holds zero. */
function Result({ rival }: { rival: Rival }) {
  if (rival.beaten) {
    return (
      <span className="beaten">
        <Icon name="check" /> wins
      </span>
    );
  }
  if (rival.worse) {
    return (
      <span className="lost">
        <Icon name="cross" /> loses
      </span>
    );
  }
  return <span className="quiet">{rival.lead === null ? "–" : "≈ level"}</span>;
}
