/** A labelled field with a hint and what is wrong with it. */
import { type ReactNode, useId } from "react";

interface Given {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean | undefined;
}

interface Props {
  label: ReactNode;
  hint?: ReactNode;
  wrong?: string | null;
  children: (given: Given) => ReactNode;
}

export function Field({ label, hint, wrong, children }: Props) {
  const id = useId();
  const described = [hint ? `${id}-hint` : "", wrong ? `${id}-wrong` : ""].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-describedby": described || undefined, "aria-invalid": wrong ? true : undefined })}
      {hint && (
        <span className="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      {wrong && (
        <span className="wrong" id={`${id}-wrong`}>
          {wrong}
        </span>
      )}
    </div>
  );
}
