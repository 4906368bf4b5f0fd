/** Integers that a JavaScript number cannot hold, as seeds are: they travel as marked texts, digit for digit. */

const MARK = "\u2063";
const SUSPECT = /[\s:[,]-?\d{16,}\s*[,\]}]/;
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG = /^-?\d{16,}$/;

/** JSON read with its long integers whole. */
export function readJson<T>(text: string): T {
  const safe = SUSPECT.test(text) ? text.replace(TOKEN, (token) => (LONG.test(token) ? `"${MARK}${token}"` : token)) : text;
  return JSON.parse(safe) as T;
}

/** JSON written with its long integers as they came. */
export function writeJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replaceAll(new RegExp(`"${MARK}(-?\\d+)"`, "g"), "$1");
}

/** A long integer that somebody typed; null where the text is none. */
export function long(text: string): string | null {
  return LONG.test(text) ? MARK + text : null;
}

/** The digits alone. */
export function plain(text: string): string {
  return text.replace(MARK, "");
}
