/** How much of each layer of the champion is whose. */
import type { Layers as Answer } from "../../../api/types";
import { useResource } from "../../../lib/hooks";
import { HeatMap } from "../../../charts/HeatMap";
import { Empty, Loaded } from "../../../ui/Messages";
import { runPath, useMerging } from "../context";
import { matrix } from "./matrix";

export default function Layers() {
  const { live, shown } = useMerging();
  const champion = shown.champion?.recipe_id ?? null;
  const path = champion ? runPath(live.run, "/layers", { candidate: champion }) : null;
  const answer = useResource<Answer>(path, (data) => (data?.status === "working" ? 2000 : false));
  if (!champion) {
    return (
      <div className="sheet">
        <Empty title="No champion yet">
          <p>Layers are shown of the champion; the first one comes at the end of generation 0.</p>
        </Empty>
      </div>
    );
  }
  return (
    <Loaded of={answer}>
      {(data) => {
        const found = matrix(data);
        if (data.status === "working") {
          return (
            <p className="loading" role="status">
              The layers are being compared. This page shows them as soon as that is done.
            </p>
          );
        }
        return found ? (
          <div className="sheet padded">
            <p className="soft small heat-note">
              The champion's task vector in each layer as a sum of the sources': how much of whose. <i>Explained</i> is the share of it
              that the sum explains, <i>moved</i> its norm beside the sources' mean.
            </p>
            <HeatMap title="Layers of the champion by source" rows={found.sources} columns={found.layers} values={found.values} beside={found.beside} />
          </div>
        ) : (
          <div className="sheet">
            <Empty title="Nothing to show">
              <p>The server has no data on the layers of this candidate.</p>
            </Empty>
          </div>
        );
      }}
    </Loaded>
  );
}
