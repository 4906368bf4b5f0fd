/** Writes a panel as a file: pictures and tables with all of its data, made by the server. */
import { useRef, useState } from "react";
import { download, explain, withQuery } from "../api/client";
import { Icon } from "../ui/Icon";
import { usePlace } from "./context";

const FORMS = { png: "PNG picture", svg: "SVG picture", csv: "CSV table", json: "JSON data" };

export function ExportMenu({ name, title }: { name: string; title: string }) {
  const { run, at, upto } = usePlace();
  const [state, setState] = useState("");
  const menu = useRef<HTMLDetailsElement>(null);
  const save = async (form: string) => {
    setState("Writing …");
    try {
      await download(withQuery(`runs/${encodeURIComponent(run)}/panels/${name}.${form}`, at === null ? { upto } : { at }), `${run}-${name}.${form}`);
      setState("");
      if (menu.current) menu.current.open = false;
    } catch (error) {
      setState(explain(error));
    }
  };
  return (
    <details className="columns export" ref={menu}
      onKeyDown={(event) => event.key === "Escape" && menu.current && (menu.current.open = false)}
      onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && (event.currentTarget.open = false)}>
      <summary className="button plain icon" aria-label={`Export ${title}`} title="Export">
        <Icon name="export" />
      </summary>
      <div className="columns-list" role="group" aria-label={`Formats of ${title}`}>
        {Object.entries(FORMS).map(([form, word]) => (
          <button key={form} type="button" className="button plain" onClick={() => void save(form)}>
            {word}
          </button>
        ))}
        <span role="status" className="quiet small">
          {state}
        </span>
      </div>
    </details>
  );
}
