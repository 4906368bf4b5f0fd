/** Asks once more before something that cannot be taken back. */
import { FormDialog } from "./FormDialog";

export interface Question {
  title: string;
  says: string;
  does: string;
  act: () => Promise<unknown>;
}

export function Confirm({ asked, onClose }: { asked: Question; onClose: () => void }) {
  const act = async () => {
    await asked.act();
    onClose();
  };
  return (
    <FormDialog title={asked.title} does={asked.does} danger onClose={onClose} act={act}>
      <p className="soft">{asked.says}</p>
    </FormDialog>
  );
}
