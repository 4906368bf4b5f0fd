/** A modal dialog: the browser's own, which keeps the focus inside and closes with Escape. It is an entry of the history: Back closes it. */
import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";
import { dialogOf } from "../../lib/router";
import { Icon } from "../Icon";

interface Props {
  title: string;
  onClose: () => void;
  onSubmit?: () => void;
  wide?: boolean;
  foot?: ReactNode;
  children: ReactNode;
}

export function Dialog({ title, onClose, onSubmit, wide, foot, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    if (element && !element.open) {
      element.showModal();
      (element.querySelector<HTMLElement>("input, select, textarea") ?? element).focus();
    }
    return () => {
      element?.close();
      if (before instanceof HTMLElement || before instanceof SVGElement) before.focus();
    };
  }, []);
  const close = useRef(onClose);
  useEffect(() => {
    close.current = onClose;
  });
  useEffect(() => {
    if (dialogOf(window.history.state) !== id) window.history.pushState({ dialog: id }, "");
    const back = () => {
      if (dialogOf(window.history.state) === id) return;
      window.removeEventListener("popstate", back); // closing may write the address, which is told as well
      close.current();
    };
    window.addEventListener("popstate", back);
    return () => {
      window.removeEventListener("popstate", back);
      // Later: a dialog that is drawn twice at first, as in development, keeps its entry.
      window.setTimeout(() => !document.getElementById(id) && dialogOf(window.history.state) === id && window.history.back());
    };
  }, [id]);
  const leave = () => (dialogOf(window.history.state) === id ? window.history.back() : onClose());
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit?.();
  };
  const inside = (
    <>
      <header className="dialog-head">
        <h2 id={id}>{title}</h2>
        <button type="button" className="button plain icon" aria-label="Close" onClick={leave}>
          <Icon name="cross" />
        </button>
      </header>
      {children}
      {foot && <footer className="dialog-foot">{foot}</footer>}
    </>
  );
  return (
    <dialog
      ref={dialog}
      tabIndex={-1}
      className={wide ? "wide" : undefined}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        leave();
      }}
    >
      {onSubmit ? (
        <form className="dialog-body" onSubmit={submit} noValidate>
          {inside}
        </form>
      ) : (
        <div className="dialog-body">{inside}</div>
      )}
    </dialog>
  );
}
