/** Keeps the frame of the page when a part of it cannot be drawn, and says what to do. */
import { Component, type ReactNode } from "react";
import { useAway } from "../lib/lazily";

interface Props {
  /** Another address begins anew. */
  at: string;
  children: ReactNode;
}

interface State {
  error: unknown;
  at: string;
}

export class Boundary extends Component<Props, State> {
  override state: State = { error: null, at: this.props.at };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error };
  }

  static getDerivedStateFromProps(props: Props, state: State): Partial<State> | null {
    return props.at === state.at ? null : { error: null, at: props.at };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    const { error } = this.state;
    return (
      <div className="note bad" role="alert">
        <strong>This page cannot be shown</strong>
        <span>{error instanceof Error ? error.message : String(error)}</span>
        <span>Nothing is lost: what you see here is read from the server.</span>
        <span className="buttons">
          <button type="button" className="button small" onClick={() => window.location.reload()}>
            Reload
          </button>
          <a href="#/runs">All runs</a>
        </span>
      </div>
    );
  }
}

/** What stands in the place of a part that is fetched. */
export function Arriving() {
  const away = useAway();
  if (!away) return <p className="loading">Loading …</p>;
  return (
    <div className="note warn" role="status">
      <strong>The server does not answer</strong>
      <span>This part of the page opens by itself when the server is back.</span>
    </div>
  );
}
