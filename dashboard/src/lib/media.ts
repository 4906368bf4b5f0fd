/** Whether the window is narrow. */
import { useSyncExternalStore } from "react";

const narrow = window.matchMedia("(max-width: 760px)");

export function useNarrow(): boolean {
  return useSyncExternalStore(
    (listener) => {
      narrow.addEventListener("change", listener);
      return () => narrow.removeEventListener("change", listener);
    },
    () => narrow.matches,
  );
}
