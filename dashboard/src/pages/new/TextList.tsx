/** A list of texts, one a line, with a button for one more. */
import { Icon } from "../../ui/Icon";

interface Props {
  label: string;
  each: string;
  hint: string;
  values: string[];
  least: number;
  list?: string;
  wrong?: string | undefined;
  onChange: (values: string[]) => void;
}

export function TextList({ label, each, hint, values, least, list, wrong, onChange }: Props) {
  const id = `list-${each}`;
  return (
    <fieldset className="field" aria-describedby={`${id}-hint`}>
      <legend>{label}</legend>
      {values.map((value, index) => (
        <div key={index} className="change single">
          <input
            className="input mono"
            list={list}
            aria-label={`${each} ${index + 1}`}
            aria-invalid={wrong ? true : undefined}
            value={value}
            onChange={(event) => onChange(values.map((one, at) => (at === index ? event.target.value : one)))}
          />
          {values.length > least && (
            <button type="button" className="button plain icon" aria-label={`Remove ${each.toLowerCase()} ${index + 1}`}
              onClick={() => onChange(values.filter((_, at) => at !== index))}>
              <Icon name="cross" />
            </button>
          )}
        </div>
      ))}
      <div>
        <button type="button" className="button small" onClick={() => onChange([...values, ""])}>
          <Icon name="plus" />
          {each}
        </button>
      </div>
      <span className="hint" id={`${id}-hint`}>
        {hint}
      </span>
      {wrong && <span className="wrong">{wrong}</span>}
    </fieldset>
  );
}
