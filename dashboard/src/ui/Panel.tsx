/** A part of a page with a heading. */
import { type ReactNode, useId } from "react";

interface Props {
  title: string;
  note?: ReactNode;
  span?: number;
  children: ReactNode;
}

export function Panel({ title, note, span = 12, children }: Props) {
  const id = useId();
  return (
    <section className="panel" aria-labelledby={id} style={{ "--span": span } as React.CSSProperties}>
      <header className="panel-head">
        <h2 id={id}>{title}</h2>
        {note && <span className="quiet small">{note}</span>}
      </header>
      {children}
    </section>
  );
}
