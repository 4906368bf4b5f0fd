/** Writes a panel as a file: pictures and tables with all of its data, made by the server. */
import { download, withQuery } from "../api/client";
import { Icon } from "../ui/Icon";
import { SaveMenu } from "../ui/SaveMenu";
import { usePlace } from "./context";

const FORMS = { png: "PNG picture", svg: "SVG picture", csv: "CSV table", json: "JSON data" };

export function ExportMenu({ name, title }: { name: string; title: string }) {
  const { run, at, upto } = usePlace();
  const save = (form: string) =>
    download(withQuery(`runs/${encodeURIComponent(run)}/panels/${name}.${form}`, at === null ? { upto } : { at }), `${run}-${name}.${form}`);
  return (
    <SaveMenu
      className="export"
      label={`Formats of ${title}`}
      entries={Object.entries(FORMS).map(([form, word]) => [word, () => save(form)])}
      button={
        <summary className="button plain icon" aria-label={`Export ${title}`} title="Export">
          <Icon name="export" />
        </summary>
      }
    />
  );
}
