/** The settings that a run may have, as the server describes them. */
import type { Settings } from "../api/types";
import { type Resource, useResource } from "./hooks";
import type { Schema } from "./schema";

export interface KnownSettings extends Omit<Settings, "schema"> {
  schema: Schema;
}

export function useSettings(): Resource<KnownSettings> {
  return useResource<KnownSettings>("settings");
}
