/** A few line icons on a grid of 16. */
const PATHS = {
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.2v9.6l7.5-4.8z",
  cross: "M4 4l8 8M12 4l-8 8",
  check: "M3.5 8.5l3 3 6-7",
  retry: "M12.5 5A5 5 0 1 0 13 9M12.8 2.2V5.2H9.8",
  fork: "M4 13V3M4 8.5c0-3 8-1 8-5.5",
  export: "M8 10V2.5M5 5.2l3-2.9 3 2.9M3 10.5v3h10v-3",
  download: "M8 2.5V10M5 7.3l3 2.9 3-2.9M3 10.5v3h10v-3",
  priority: "M8 13V3M4.5 6.5L8 3l3.5 3.5",
  copy: "M6 6h7v7H6zM10 3.5V3H3v7h.5",
  pencil: "M3 13l.8-3L10.6 3.2l2.2 2.2L6 12.2z",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6M8 1.2v1.4M8 13.4v1.4M1.2 8h1.4M13.4 8h1.4M3.2 3.2l1 1M11.8 11.8l1 1M12.8 3.2l-1 1M4.2 11.8l-1 1",
  moon: "M13 9.6A5.6 5.6 0 0 1 6.4 3 5.4 5.4 0 1 0 13 9.6z",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  left: "M10 3.5L5.5 8l4.5 4.5",
  right: "M6 3.5L10.5 8 6 12.5",
  first: "M11 3.5L6.5 8l4.5 4.5M4 3.5v9",
  last: "M5 3.5L9.5 8 5 12.5M12 3.5v9",
  plus: "M8 3v10M3 8h10",
  out: "M6 3H3v10h3M10 5l3 3-3 3M13 8H6.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round"
      strokeLinejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
