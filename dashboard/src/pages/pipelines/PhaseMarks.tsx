/** The phases of a pipeline in one row of marks, and the one that matters now in words. */
import type { PipelineStage } from "../../api/types";
import { href } from "../../lib/router";
import { StageMark } from "../../ui/StageMark";

/** States that are told in words, the most telling first. */
const TELLING: PipelineStage["state"][] = ["gate stopped", "failed", "running", "measuring", "paused", "cancelled"];

export function PhaseMarks({ stages }: { stages: PipelineStage[] }) {
  const now = TELLING.map((state) => stages.find((stage) => stage.state === state)).find(Boolean);
  return (
    <>
      <ol className="marks" aria-label="Phases">
        {stages.map((stage) => (
          <li key={stage.number}>
            <Mark stage={stage} />
          </li>
        ))}
      </ol>
      {now && (
        <span className="under small quiet" aria-hidden="true">
          {now.name}: {now.gate ? `gate ${now.gate.replaceAll("_", " ")} not met` : now.state}
        </span>
      )}
    </>
  );
}

function Mark({ stage }: { stage: PipelineStage }) {
  const says = `${stage.number} ${stage.name}, ${stage.what}: ${stage.state}${stage.gate && stage.state === "gate stopped" ? ` by ${stage.gate}` : ""}`;
  const seen = (
    <>
      <StageMark state={stage.state} />
      <span className="hidden-text">{says}</span>
    </>
  );
  if (stage.run === null) return <span className="mark" title={says}>{seen}</span>;
  return (
    <a className="mark" title={says} href={href(["runs", stage.run])}>
      {seen}
    </a>
  );
}
