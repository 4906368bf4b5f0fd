/** After the server was away: takes over a new build, at once unless somebody is typing. */
import { useState } from "react";
import { useTold } from "../../lib/hooks";
import { isOld, reload } from "../../lib/lazily";

export function Newer() {
  const [old, setOld] = useState(false);
  useTold((told) => {
    if (told.type !== "reconnected") return;
    void isOld().then((found) => {
      if (!found) return;
      const typing = document.querySelector("dialog[open], .new-run") !== null;
      if (typing || !reload()) setOld(true);
    });
  });
  if (!old) return null;
  return (
    <div className="note warn newer" role="status">
      <strong>The server has a new version of this page</strong>
      <span>
        <button type="button" className="button small" onClick={() => window.location.reload()}>
          Reload
        </button>
      </span>
    </div>
  );
}
