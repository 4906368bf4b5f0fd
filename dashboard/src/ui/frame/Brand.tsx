/** The mark: two lines of descent that meet in one. */
export function Brand() {
  return (
    <a className="brand" href="#/runs">
      <svg viewBox="0 0 24 24" fill="none" strokeWidth="2.4" strokeLinecap="round" aria-hidden="true">
        <path d="M3 4c6 0 8 8 17 8M3 20c6 0 8-8 17-8" stroke="var(--accent)" />
        <circle cx="20" cy="12" r="3" fill="var(--champion-mark)" />
      </svg>
      Agent Forge
    </a>
  );
}
