/** One event in full: read when it is opened. */
import type { Events } from "../../api/types";
import { writeJson } from "../../lib/bigJson";
import { exactTime, utc } from "../../lib/format";
import { useResource } from "../../lib/hooks";
import { CopyButton } from "../../ui/CopyButton";
import { Loaded } from "../../ui/Messages";
import { runPath } from "./context";

export function EventData({ run, place }: { run: string; place: number }) {
  const page = useResource<Events>(runPath(run, "/events", { after: place - 1, limit: 1 }));
  return (
    <div className="event-data">
      <Loaded of={page}>
        {(data) => {
          const event = data.events[0];
          if (!event) return null;
          const text = writeJson(event.data, 2);
          return (
            <>
              <p className="small soft">
                <span title={utc(event.recorded_at)}>{exactTime(event.recorded_at)}</span> · position {event.position} · schema {event.schema} ·{" "}
                <span className="mono" title={event.hash}>
                  {event.hash.slice(0, 12)}
                </span>{" "}
                <CopyButton text={text} label="Copy the data" />
              </p>
              <pre tabIndex={0} aria-label={`Data of event ${place}`}>
                {text}
              </pre>
            </>
          );
        }}
      </Loaded>
    </div>
  );
}
