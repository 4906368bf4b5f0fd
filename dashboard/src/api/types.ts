/** The generated types of the API, and names for parts of them. */
import type { Me, Model, Run } from "./openapi";

export type * from "./openapi";

export type Action = Run["allowed"][number];
export type ModelKind = Model["kind"];
export type Role = Me["role"];
export const ROLES: Role[] = ["viewer", "submitter", "admin"];

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
/** Settings of a run, by name. */
export type Values = Record<string, unknown>;
