/** Whether the window is narrow, as a phone's, or of a middle width. */
import { useSyncExternalStore } from "react";

const narrow = window.matchMedia("(max-width: 760px)");
const middle = window.matchMedia("(max-width: 1100px)");

export function useNarrow(): boolean {
  return useMedia(narrow);
}

/** True for narrow windows too. */
export function useMiddle(): boolean {
  return useMedia(middle);
}

function useMedia(query: MediaQueryList): boolean {
  return useSyncExternalStore(
    (listener) => {
      query.addEventListener("change", listener);
      return () => query.removeEventListener("change", listener);
    },
    () => query.matches,
  );
}
