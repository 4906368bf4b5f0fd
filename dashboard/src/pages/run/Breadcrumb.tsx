/** The place of a run in its pipeline: a way up, and to the phases before and after it. */
import { useEffect } from "react";
import type { PartOf, RunFacts } from "../../api/types";
import { go, href } from "../../lib/router";
import { Empty } from "../../ui/Messages";

export function Breadcrumb({ part, upto }: { part: PartOf; upto: number | null }) {
  const { previous, next } = part;
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const to = event.key === "[" ? previous : event.key === "]" ? next : null;
      const writes = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, dialog, [contenteditable]");
      const slides = event.target instanceof HTMLInputElement && event.target.type === "range";
      if (to === null || event.ctrlKey || event.metaKey || event.altKey || (writes && !slides)) return;
      go(href(["runs", to], { upto }));
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [previous, next, upto]);
  return (
    <nav className="breadcrumb" aria-label="Pipeline">
      <span>
        <a className="mono" href={href(["runs", part.run], { upto })}>
          {part.name}
        </a>
        <span aria-hidden="true"> / </span>
        <span aria-current="page">{part.stage}</span>
      </span>
      {previous && (
        <a href={href(["runs", previous], { upto })} aria-keyshortcuts="[" title="Previous phase: key [">
          ‹ previous phase
        </a>
      )}
      {next && (
        <a href={href(["runs", next], { upto })} aria-keyshortcuts="]" title="Next phase: key ]">
          next phase ›
        </a>
      )}
    </nav>
  );
}

/** A run that had not begun at the moment that is asked for. */
export function NotYet({ run, upto, now }: { run: RunFacts; upto: number | null; now: string }) {
  return (
    <>
      {run.part_of && <Breadcrumb part={run.part_of} upto={upto} />}
      <Empty title={`${run.name} had not begun`}>
        <p>The page shows the moment at position {upto?.toLocaleString("en-US")} of the log.</p>
        <a href={now}>Show it as it is now</a>
      </Empty>
    </>
  );
}
