/** Texts that models wrote, with the stretches that are marked and the verifier's verdict. */
import { type ReactNode, useState } from "react";
import type { Sample, Samples } from "../../api/types";
import { plural } from "../../lib/format";

const FIRST = 5;

export function SamplesPanel({ panel }: { panel: Samples }) {
  const [shown, setShown] = useState(FIRST);
  const left = panel.samples.length - shown;
  return (
    <>
      <ol className="samples" aria-label={panel.title}>
        {panel.samples.slice(0, shown).map((sample, index) => (
          <li key={index} className="sample">
            <header>
              <b>{sample.title || `Sample ${index + 1}`}</b>
              {sample.verdict && <span className={sample.verdict === "pass" ? "beaten" : "lost"}>{sample.verdict === "pass" ? "✓ pass" : "✗ fail"}</span>}
            </header>
            {sample.prompt && (
              <p className="sample-text soft" dir="auto">
                {sample.prompt}
              </p>
            )}
            <p className="sample-text" dir="auto">
              {marked(sample)}
            </p>
          </li>
        ))}
      </ol>
      {left > 0 && (
        <div>
          <button type="button" className="button small" onClick={() => setShown(shown + 20)}>
            Show {Math.min(20, left)} more of {plural(panel.samples.length, "sample")}
          </button>
        </div>
      )}
    </>
  );
}

/** The text with its marks. Positions count characters as Python does: a letter outside of Unicode's first plane is one. */
function marked({ text, marks }: Sample): ReactNode[] {
  const letters = [...text];
  const found: ReactNode[] = [];
  let done = 0;
  for (const mark of [...marks].sort((a, b) => a.start - b.start)) {
    const [start, end] = [Math.max(done, mark.start), Math.min(letters.length, mark.end)];
    if (end <= start) continue;
    found.push(letters.slice(done, start).join(""));
    found.push(
      <mark key={start} title={mark.says}>
        {letters.slice(start, end).join("")}
        <span className="hidden-text"> ({mark.says})</span>
      </mark>,
    );
    done = end;
  }
  return [...found, letters.slice(done).join("")];
}
