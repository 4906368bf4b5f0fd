/** The time slider: every event of the run is a place; the whole page shows the run as it was there. */
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { minuses } from "../../lib/format";
import { useThrottled } from "../../lib/hooks";
import { useMaySubmit } from "../../lib/currentUser";
import { go, replace, type Route } from "../../lib/router";
import { Icon } from "../../ui/Icon";
import { Time } from "../../ui/Time";
import { useRun } from "./context";
import { type EventIndex, type LightEvent, partOf } from "./eventIndex";
import { closings, type Closing, settle } from "./unitBoundaries";
import { addressOf, asked, placeIn } from "./moment";
import { leave } from "./nearestBoundary";

interface Props {
  route: Route;
  index: EventIndex;
  snapped: string | null;
  onFork: () => void;
}

/** Events that are read without being asked for; more only when one comes near the slider. */
const UNASKED = 5000;

export function TimeSlider({ route, index, snapped, onFork }: Props) {
  const { live, settled, at: isPast } = useRun();
  const { rows, loading } = useSyncExternalStore(index.subscribe, index.snapshot);
  const maySubmit = useMaySubmit();
  const [held, setHeld] = useState<number | null>(null);
  const [playing, setPlaying] = useState(false);
  const places = live.delegates ? Math.max(1, rows.length) : live.places;
  const at = isPast === null ? null : live.delegates ? placeIn(rows, asked(route), live.run) : isPast;
  const addressAt = (to: number | null) => addressOf(route, to, rows, live);
  const unit = live.progress.unit;
  const place = held ?? at ?? places;
  const ends = useMemo(() => closings(rows), [rows]);
  useEffect(() => {
    if (live.delegates) index.want(1);
    else if (places <= UNASKED) index.want(places);
  }, [index, places, live.delegates]);

  const sent = useRef<number | null>(null);
  const commit = useThrottled(() => {
    if (held === null) return;
    sent.current = held >= places ? null : held;
    if (sent.current === at) setHeld(null);
    else (at === null ? go : replace)(addressAt(sent.current));
  }, 80);
  const show = (next: number) => {
    const to = settle(rows, Math.max(1, Math.min(places, next)), next > place);
    leave(place);
    setHeld(to);
    commit();
  };
  // The thumb stays where it is dragged to until the page is there, or the server says to go elsewhere.
  const shownAt = useRef(at);
  useEffect(() => {
    if (shownAt.current === at) return;
    shownAt.current = at;
    setHeld((now) => (at !== sent.current || now === (at ?? places) ? null : now));
  }, [at, places]);
  useEffect(() => {
    // The page is at each place before the next one is asked for, however slow the server is.
    if (!playing || !settled) return;
    const timer = window.setTimeout(() => {
      const next = settle(rows, place + 1, true);
      if (next >= places) setPlaying(false);
      leave(place);
      replace(addressOf(route, next >= places ? null : next, rows, live));
    }, 350);
    return () => window.clearTimeout(timer);
  }, [playing, place, places, rows, route, at, settled, live]);

  const jump = (step: 1 | -1) => {
    const next = step > 0 ? ends.find((end) => end.place > place) : ends.findLast((end) => end.place < place);
    show(next?.place ?? (step > 0 ? places : 1));
  };
  const play = () => {
    if (!playing && place >= places) show(1);
    setPlaying(!playing);
  };
  const here = rows[place - 1];
  return (
    <section className="dock" aria-label="Time" data-past={at !== null} onPointerEnter={() => index.want(places)} onFocus={() => index.want(places)}>
      <div className="dock-buttons">
        <button type="button" className="button plain icon" aria-label={ends.length ? `Previous ${unit}'s end` : "First event"} disabled={loading} onClick={() => jump(-1)}>
          <Icon name="first" />
        </button>
        <button type="button" className="button plain icon" aria-label={playing ? "Stop" : "Play"} aria-pressed={playing} onClick={play}>
          <Icon name={playing ? "pause" : "play"} />
        </button>
        <button type="button" className="button plain icon" aria-label={ends.length ? `Next ${unit}'s end` : "Last event"} disabled={loading} onClick={() => jump(1)}>
          <Icon name="last" />
        </button>
      </div>
      <div className="dock-track">
        <Marks ends={ends} places={places} place={place} unit={unit} />
        <input
          type="range"
          min={1}
          max={Math.max(1, places)}
          value={place}
          aria-label="Event"
          aria-valuetext={`event ${place} of ${places}${here ? `, ${here.type}: ${here.gist}` : ""}`}
          onChange={(event) => show(Number(event.target.value))}
        />
      </div>
      <Caption here={here} run={live.run} place={place} places={places} loading={loading} snapped={snapped} />
      <div className="dock-buttons dock-end">
        {maySubmit && at !== null && (
          <button type="button" className="button small" onClick={onFork}>
            <Icon name="fork" />
            Fork from here
          </button>
        )}
        {at !== null && (
          <button
            type="button"
            className="button small back"
            onClick={() => {
              setPlaying(false);
              setHeld(null);
              go(addressAt(null));
            }}
          >
            Back to live
          </button>
        )}
      </div>
    </section>
  );
}

interface CaptionProps {
  here: LightEvent | undefined;
  run: string;
  place: number;
  places: number;
  loading: boolean;
  snapped: string | null;
}

function Caption({ here, run, place, places, loading, snapped }: CaptionProps) {
  return (
    <p className="dock-caption cut" title={snapped ?? here?.gist}>
      <b>
        {place.toLocaleString("en-US")} <span className="quiet">/ {places.toLocaleString("en-US")}</span>
      </b>
      {snapped ? (
        <span role="status">{snapped}</span>
      ) : here ? (
        <>
          {here.run !== run && <span className="quiet">{partOf(run, here.run)} </span>}
          <span className="mono">{here.type}</span> <span className="soft">{minuses(here.gist)}</span>{" "}
          <span className="quiet">
            <Time at={here.recorded_at} />
          </span>
        </>
      ) : (
        <span className="quiet">{loading ? "reading events …" : ""}</span>
      )}
    </p>
  );
}

function Marks({ ends, places, place, unit }: { ends: Closing[]; places: number; place: number; unit: string }) {
  const x = (value: number) => `${(((value - 1) / Math.max(1, places - 1)) * 100).toFixed(3)}%`;
  const every = Math.max(1, Math.ceil(ends.length / 24));
  return (
    <div className="dock-marks" aria-hidden="true">
      <i className="dock-gone" style={{ width: x(place) }} />
      {ends.map((end, index) => (
        <span key={end.place} style={{ left: x(end.place) }}>
          <i data-changed={end.changed} />
          {index % every === 0 && (
            <small>
              {index === 0 && <span className="dock-unit">{unit} </span>}
              {end.unit}
            </small>
          )}
        </span>
      ))}
    </div>
  );
}
