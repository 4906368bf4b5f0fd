/** The settings that a run may have, as the server describes them. */
import type { Settings } from "../api/types";
import { withQuery } from "../api/client";
import { type Resource, useResource } from "./hooks";
import type { Schema } from "./schema";

export interface KnownSettings extends Omit<Settings, "schema"> {
  schema: Schema;
}

export function useSettings(kind = "evomerge"): Resource<KnownSettings> {
  return useResource<KnownSettings>(withQuery("settings", { kind }));
}
