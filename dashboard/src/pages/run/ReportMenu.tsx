/** The run's report for people: opened in a tab of its own, or saved. The server makes it from the log. */
import { download, openFile } from "../../api/client";
import { Icon } from "../../ui/Icon";
import { SaveMenu } from "../../ui/SaveMenu";
import { runPath } from "./context";

export function ReportMenu({ run, name }: { run: string; name: string }) {
  const save = (form: string) => download(runPath(run, `/report.${form}`), `${name}.${form}`);
  return (
    <SaveMenu
      className="report"
      label="Report"
      entries={[
        ["Open", () => openFile(runPath(run, "/report.html"))],
        ["Download as HTML", () => save("html")],
        ["Download as Markdown", () => save("md")],
      ]}
      button={
        <summary className="button">
          <Icon name="export" />
          Report
        </summary>
      }
    />
  );
}
