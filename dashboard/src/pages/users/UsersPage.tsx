/** Users, their roles and tokens. For admins. */
import { useState } from "react";
import { explain, send } from "../../api/client";
import { type IssuedToken, ROLES, type Token, type UserRow, type Users } from "../../api/types";
import { useResource, useTitle } from "../../lib/hooks";
import { useMe } from "../../lib/currentUser";
import { Confirm, type Question } from "../../ui/forms/Confirm";
import { Empty, Failure, Loaded } from "../../ui/Messages";
import { Time } from "../../ui/Time";
import { AddUserDialog } from "./AddUserDialog";
import { TokenDialog } from "./TokenDialog";
import { Sheet } from "../../ui/Sheet";

export default function UsersPage() {
  const me = useMe();
  const users = useResource<Users>(me?.role === "admin" ? "users" : null);
  const [adding, setAdding] = useState(false);
  const [token, setToken] = useState<{ name: string; token: string } | null>(null);
  const [asked, setAsked] = useState<Question | null>(null);
  const [error, setError] = useState<unknown>(null);
  useTitle("Users");
  if (me && me.role !== "admin") {
    return (
      <Empty title="For admins only">
        <p>You are signed in as {me.name}, a {me.role}.</p>
      </Empty>
    );
  }
  const act = async (what: () => Promise<unknown>) => {
    setError(null);
    try {
      await what();
    } catch (cause) {
      setError(cause);
    }
    await users.reload();
  };
  const path = (name: string, rest = "") => `users/${encodeURIComponent(name)}${rest}`;
  const revoke = (user: UserRow, token: Token) =>
    setAsked({
      title: `Revoke ${token.id} of ${user.name}`,
      says: "Programs and browsers with this token are signed out.",
      does: "Revoke",
      act: () => send(path(user.name, `/tokens/${encodeURIComponent(token.id)}`), "DELETE").then(users.reload),
    });
  const remove = (user: UserRow) =>
    setAsked({
      title: `Remove ${user.name}`,
      says: "The user's tokens become void. The user's runs stay.",
      does: "Remove",
      act: () => send(path(user.name), "DELETE").then(users.reload),
    });
  const newToken = (name: string) =>
    act(async () => {
      const answer = await send<IssuedToken>(path(name, "/tokens"), "POST", {});
      setToken({ name, token: answer.data.token });
    });
  return (
    <>
      <header className="page-head">
        <h1>Users</h1>
        <button type="button" className="button primary end" onClick={() => setAdding(true)}>
          Add a user
        </button>
      </header>
      {error !== null && <Failure error={new Error(explain(error))} />}
      <Loaded of={users}>
        {(data) => (
          <Sheet label="Users">
            <table className="table">
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col">Role</th>
                  <th scope="col">Tokens</th>
                  <th scope="col" className="num">Actions</th>
                </tr>
              </thead>
              <tbody>
                {data.users.map((user) => (
                  <tr key={user.name}>
                    <th scope="row">{user.name}</th>
                    <td>
                      <select className="select" aria-label={`Role of ${user.name}`} value={user.role}
                        onChange={(event) => void act(() => send(path(user.name), "PATCH", { role: event.target.value }))}>
                        {ROLES.map((role) => (
                          <option key={role}>{role}</option>
                        ))}
                      </select>
                    </td>
                    <td>
                      <ul className="tokens">
                        {user.tokens.map((one) => (
                          <li key={one.id}>
                            <span className="mono">{one.id}</span>{" "}
                            <span className="quiet">
                              {one.note && `${one.note}, `}created <Time at={one.issued_at} />
                            </span>
                            <button type="button" className="button plain small danger" onClick={() => revoke(user, one)}>
                              Revoke
                            </button>
                          </li>
                        ))}
                        {user.tokens.length === 0 && <li className="quiet">none</li>}
                      </ul>
                    </td>
                    <td className="num nowrap">
                      <button type="button" className="button small" onClick={() => void newToken(user.name)}>
                        New token
                      </button>
                      {user.name !== me?.name && (
                        <button type="button" className="button plain small danger" onClick={() => remove(user)}>
                          Remove
                        </button>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Sheet>
        )}
      </Loaded>
      {adding && (
        <AddUserDialog
          onClose={() => setAdding(false)}
          onDone={(name, made) => {
            setAdding(false);
            setToken({ name, token: made });
            void users.reload();
          }}
        />
      )}
      {asked && <Confirm asked={asked} onClose={() => setAsked(null)} />}
      {token && <TokenDialog name={token.name} token={token.token} onClose={() => setToken(null)} />}
    </>
  );
}
