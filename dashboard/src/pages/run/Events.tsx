/** The run's events up to the place that is shown. */
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { clock, duration, plural } from "../../lib/format";
import { useStored } from "../../lib/hooks";
import { useNarrow } from "../../lib/media";
import { currentRoute, go, useQuery } from "../../lib/router";
import { Empty, Failure } from "../../ui/Messages";
import { Time } from "../../ui/Time";
import { VirtualRows } from "../../ui/VirtualRows";
import { useRun } from "./context";
import { EventData } from "./EventData";
import { eventIndex, type LightEvent, partOf } from "./eventIndex";
import { addressOf, asked, placeIn } from "./moment";
import { leave } from "./nearestBoundary";

const OPEN = 340;

export default function Events() {
  const { live, shown, at } = useRun();
  const index = useMemo(() => eventIndex(live.run, live.delegates), [live.run, live.delegates]);
  const { rows, total, loading, error } = useSyncExternalStore(index.subscribe, index.snapshot);
  const [type, setType] = useQuery("type");
  const [text, setText] = useState("");
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const [oldest, setOldest] = useStored("events.oldest", false);
  const narrow = useNarrow();
  const places = live.delegates ? rows.length : live.places;
  const past = live.delegates ? placeIn(rows, asked(currentRoute()), live.run) : at === null ? null : shown.place;
  const upto = past ?? places;
  useEffect(() => index.want(live.places), [index, live.places]);

  const types = useMemo(() => [...new Set(rows.map((row) => row.type))].sort(), [rows]);
  const found = useMemo(
    () => {
      const kept = rows.filter((row) => row.place <= upto && (!type || row.type === type) && (!text || `${row.type} ${row.gist} ${row.actor} ${row.run}`.includes(text)));
      return oldest ? kept : kept.reverse();
    },
    [rows, upto, type, text, oldest],
  );
  const extra = useMemo(() => {
    const more = new Map<number, number>();
    found.forEach((row, position) => opened.has(row.place) && more.set(position, OPEN));
    return more;
  }, [found, opened]);
  const toggle = (place: number) => {
    const next = new Set(opened);
    if (!next.delete(place)) next.add(place);
    setOpened(next);
  };
  return (
    <>
      <div className="filters">
        <input className="input" type="search" aria-label="Search events" placeholder="Search" value={text} onChange={(event) => setText(event.target.value)} />
        <select className="select" aria-label="Type" value={type} onChange={(event) => setType(event.target.value)}>
          <option value="">Every type</option>
          {types.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
        <label className="check">
          <input type="checkbox" checked={oldest} onChange={(event) => setOldest(event.target.checked)} />
          Oldest first
        </label>
        <span className="quiet small" role="status">
          {plural(found.length, "event")}
          {loading && `, reading: ${rows.length} of ${live.delegates ? total : live.places}`}
        </span>
      </div>
      {error && <Failure error={new Error(error)} onRetry={() => index.want(live.places)} />}
      {found.length === 0 && !loading ? (
        <div className="sheet">
          <Empty title="No matching events" />
        </div>
      ) : (
        <VirtualRows
          className="events sheet"
          label="Events"
          role="list"
          count={found.length}
          height={narrow ? 76 : 38}
          extra={extra}
          keyOf={(position) => String(found[position]?.place ?? position)}
          reveal={at === null ? null : oldest ? found.length - 1 : 0}
          render={(position) => {
            const row = found[position];
            return row ? (
              <EventRow row={row} before={rows[row.place - 2]} of={live.run} here={row.place === past} open={opened.has(row.place)} onToggle={toggle}
                onShow={() => go(addressOf(currentRoute(), row.place, rows, live))} />
            ) : null;
          }}
        />
      )}
    </>
  );
}

interface RowProps {
  row: LightEvent;
  /** The event before it, if it is known: the time since then is told. */
  before: LightEvent | undefined;
  /** The run whose page it is; events of its children say theirs. */
  of: string;
  here: boolean;
  open: boolean;
  onToggle: (place: number) => void;
  onShow: () => void;
}

/** The time since the event before; nothing for the first one, or if clocks went back. */
function Elapsed({ since, at }: { since: string | undefined; at: string }) {
  const seconds = since === undefined ? NaN : (Date.parse(at) - Date.parse(since)) / 1000;
  return seconds >= 0 ? <span className="event-elapsed" title="Since the event before">{`+${duration(seconds)}`}</span> : null;
}

function EventRow({ row, before, of, here, open, onToggle, onShow }: RowProps) {
  return (
    <div role="listitem" className="event" data-here={here}>
      <div className="event-line">
        <button
          type="button"
          className="link event-place"
          aria-label={`Show the run after event ${row.place}`}
          onClick={() => {
            leave(row.place);
            onShow();
          }}
        >
          {row.place}
        </button>
        <button type="button" className="event-toggle" aria-expanded={open} onClick={() => onToggle(row.place)}>
          <span className="mono event-type" data-type={row.type}>
            {row.type}
          </span>
          <span className="event-gist cut">
            {row.run !== of && <span className="quiet">{partOf(of, row.run)}: </span>}
            {row.gist}
          </span>
        </button>
        <span className="event-actor cut quiet">{row.actor}</span>
        <span className="event-time quiet">
          <Elapsed since={before?.recorded_at} at={row.recorded_at} />
          <Time at={row.recorded_at} form={clock} />
        </span>
      </div>
      {open && <EventData run={row.run} place={row.own} />}
    </div>
  );
}
