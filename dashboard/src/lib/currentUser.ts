/** Who is signed in, for every component. */
import { createContext, useContext } from "react";
import type { Me } from "../api/types";

export const MeContext = createContext<Me | null>(null);

export function useMe(): Me | null {
  return useContext(MeContext);
}

/** Whether this user may submit and fork runs and register models. */
export function useMaySubmit(): boolean {
  const role = useMe()?.role;
  return role === "submitter" || role === "admin";
}

/** A test for runs: whether this user may ask something of one, by the name of its owner. */
export function useOwns(): (owner: string) => boolean {
  const me = useMe();
  const maySubmit = useMaySubmit();
  return (owner) => me?.role === "admin" || (maySubmit && me?.name === owner);
}
