/** Where panels stand: of which run, at which place, and what opens a model that they name. */
import { createContext, useContext } from "react";

export interface PanelPlace {
  run: string;
  at: number | null;
  /** The position in the log that is shown, and that pages of other runs are opened at; null: now. */
  upto: number | null;
  /** Opens a candidate; null on the page of a kind that has no page for its models. */
  pick: ((id: string) => void) | null;
  /** Whether the user may ask something of the run, as it is now. */
  mayAct: boolean;
}

const PlaceContext = createContext<PanelPlace>({ run: "", at: null, upto: null, pick: null, mayAct: false });
export const PanelPlaceProvider = PlaceContext.Provider;

export function usePlace(): PanelPlace {
  return useContext(PlaceContext);
}
