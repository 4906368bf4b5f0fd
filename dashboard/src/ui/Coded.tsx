/** A sentence of the server, whose `commands` are set as code. */
export function Coded({ text }: { text: string }) {
  return text.split("`").map((part, index) => (index % 2 ? <code key={index} className={part.length < 24 ? "nowrap" : undefined}>{part}</code> : part));
}
