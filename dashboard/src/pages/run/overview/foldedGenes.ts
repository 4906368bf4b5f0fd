/** One name for genes that always have the same value: those of the parts of a model that moves as a whole. */

/** "weights code (5 parts)" for "attention weights code", "head weights code" and so on; the title names all. */
export function folded(names: readonly string[]): { label: string; title: string } {
  const [first = ""] = names;
  if (names.length < 2) return { label: first, title: first };
  const words = first.split(" ");
  const shared = words.findIndex((_, index) => names.every((name) => name.endsWith(` ${words.slice(index).join(" ")}`)));
  const title = names.join(", ");
  return shared < 0 ? { label: `${first} and ${names.length - 1} alike`, title } : { label: `${words.slice(shared).join(" ")} (${names.length} parts)`, title };
}

/** Items with the same key together, in the order of each group's first one. */
export function grouped<T>(items: readonly T[], key: (item: T) => string): [T, ...T[]][] {
  const groups = new Map<string, [T, ...T[]]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group) group.push(item);
    else groups.set(key(item), [item]);
  }
  return [...groups.values()];
}
