/** The run's report for people: opened in a tab of its own, or saved. The server makes it from the log. */
import { useRef, useState } from "react";
import { download, explain, openFile } from "../../api/client";
import { Icon } from "../../ui/Icon";
import { runPath } from "./context";

export function ReportMenu({ run }: { run: string }) {
  const [state, setState] = useState("");
  const menu = useRef<HTMLDetailsElement>(null);
  const get = async (act: () => Promise<void>) => {
    setState("Writing …");
    try {
      await act();
      setState("");
      if (menu.current) menu.current.open = false;
    } catch (error) {
      setState(explain(error));
    }
  };
  return (
    <details className="columns report" ref={menu}
      onKeyDown={(event) => event.key === "Escape" && menu.current && (menu.current.open = false)}
      onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && (event.currentTarget.open = false)}>
      <summary className="button">
        <Icon name="export" />
        Report
      </summary>
      <div className="columns-list" role="group" aria-label="Report">
        <button type="button" className="button plain" onClick={() => void get(() => openFile(runPath(run, "/report.html")))}>
          Open
        </button>
        {["html", "md"].map((form) => (
          <button key={form} type="button" className="button plain" onClick={() => void get(() => download(runPath(run, `/report.${form}`), `${run}.${form}`))}>
            {form === "html" ? "Download as HTML" : "Download as Markdown"}
          </button>
        ))}
        <span role="status" className="quiet small">
          {state}
        </span>
      </div>
    </details>
  );
}
