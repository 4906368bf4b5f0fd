/** A new token: it is shown now and never again. */
import { CopyButton } from "../../ui/CopyButton";
import { Dialog } from "../../ui/forms/Dialog";

export function TokenDialog({ name, token, onClose }: { name: string; token: string; onClose: () => void }) {
  const address = `${window.location.origin}${window.location.pathname}#token=${encodeURIComponent(token)}`;
  return (
    <Dialog
      title={`A token for ${name}`}
      onClose={onClose}
      foot={
        <button type="button" className="button primary" onClick={onClose}>
          Done
        </button>
      }
    >
      <p className="note warn">
        <span>It is shown only once: the log holds only its hash.</span>
      </p>
      <pre tabIndex={0} aria-label="Token">{token}</pre>
      <div className="buttons">
        <CopyButton text={token} label="Copy the token" />
        <CopyButton text={address} label="Copy an address that signs in" />
      </div>
    </Dialog>
  );
}
