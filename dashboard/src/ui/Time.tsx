/** A time in this browser's zone; the title has it in UTC. */
import { exactTime, time, utc } from "../lib/format";

export function Time({ at, exact = false }: { at: string | null | undefined; exact?: boolean }) {
  return (
    <time dateTime={at ?? undefined} title={utc(at)} className="nowrap">
      {exact ? exactTime(at) : time(at)}
    </time>
  );
}
