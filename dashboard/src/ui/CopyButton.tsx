/** Copying: a button with a text, and an id that is shown short and copied whole. */
import { useEffect, useState } from "react";
import { short } from "../lib/format";
import { Icon } from "./Icon";

async function toClipboard(text: string): Promise<void> {
  if (window.isSecureContext && navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function useCopied(text: string): [boolean, () => void] {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = window.setTimeout(() => setCopied(false), 1500);
    return () => window.clearTimeout(timer);
  }, [copied]);
  return [copied, () => void toClipboard(text).then(() => setCopied(true))];
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [copied, copy] = useCopied(text);
  return (
    <button type="button" className="button small" onClick={copy}>
      <Icon name={copied ? "check" : "copy"} />
      <span aria-live="polite">{copied ? "Copied" : label}</span>
    </button>
  );
}

export function Id({ id, whole = false, what = "id" }: { id: string; whole?: boolean; what?: string }) {
  const [copied, copy] = useCopied(id);
  return (
    <span className="copy-id">
      <span className="mono" title={id}>
        {whole ? id : short(id)}
      </span>
      <button type="button" className="button plain icon" onClick={copy} aria-label={copied ? "Copied" : `Copy ${what}`}>
        <Icon name={copied ? "check" : "copy"} />
      </button>
    </span>
  );
}
