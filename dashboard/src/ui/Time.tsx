/** A time in this browser's zone; the title has it in UTC. */
import { exactTime, time, utc } from "../lib/format";

interface Props {
  at: string | null | undefined;
  exact?: boolean;
  /** Another form than the shortest that is clear. */
  form?: (text: string) => string;
}

export function Time({ at, exact = false, form }: Props) {
  return (
    <time dateTime={at ?? undefined} title={utc(at)} className="nowrap">
      {exact ? exactTime(at) : form && at ? form(at) : time(at)}
    </time>
  );
}
