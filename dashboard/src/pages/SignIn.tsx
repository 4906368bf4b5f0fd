/** Asks for a token. */
import { type FormEvent, useState } from "react";
import { keep, wasRefused } from "../api/session";
import { useTitle } from "../lib/hooks";
import { Brand } from "../ui/frame/Brand";
import { Field } from "../ui/forms/Field";

export function SignIn() {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState<string | null>(
    wasRefused() ? "The server does not take that token. It may have been revoked." : null,
  );
  useTitle("Sign in");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) keep(text);
    else setWrong("Paste a token.");
  };
  return (
    <main className="signin">
      <form onSubmit={submit} noValidate>
        <Brand />
        <h1>Sign in</h1>
        <p className="soft">
          When <code>forge up</code> or <code>forge serve</code> starts for the first time, it prints an address that has an admin's token. Another one is
          made with <code>forge users token NAME</code>.
        </p>
        <Field label="Token" wrong={wrong} hint="It is kept in this browser until you sign out.">
          {(given) => (
            <input
              {...given}
              className="input mono"
              type="password"
              autoComplete="current-password"
              value={text}
              onChange={(event) => {
                setText(event.target.value);
                setWrong(null);
              }}
            />
          )}
        </Field>
        <button className="button primary" type="submit">
          Sign in
        </button>
      </form>
    </main>
  );
}
