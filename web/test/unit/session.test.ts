import assert from "node:assert/strict";
import { test } from "node:test";
import type { Problem } from "../../src/model.ts";
import { Session } from "../../src/session.ts";

const problem = (code: Problem["code"], detail: string, role?: string): Problem =>
  ({ type: `/problems/${code}`, title: code, status: code === "unauthenticated" ? 401 : 403, code, grpc_code: "", detail, ...(role && { role }) });
const missing = problem("unauthenticated", "role read is required", "read");
const unknown = problem("unauthenticated", "the token is unknown");
const lacking = problem("permission_denied", "role read is required: ci has the roles push", "read");
const restricted = problem("permission_denied", "ci may use only some clusters");

/** A session, and how often its calls were sent again. */
function start(token = "") {
  const s = new Session();
  let changes = 0;
  s.onChange(() => changes++);
  if (token) s.use(token);
  return { s, changes: () => changes };
}

test("a refusal opens the prompt once, and the caller waits", () => {
  const { s, changes } = start();
  assert.deepEqual(s.headers(), {});
  assert.equal(s.refuse(missing, s.version), true);
  assert.equal(s.access.open, true);
  assert.equal(s.access.refused, missing);
  s.dismiss();
  assert.equal(s.refuse(missing, s.version), true);
  assert.equal(s.access.open, false, "the user closed it");
  assert.equal(s.access.refused, missing, "the page still shows why");
  assert.equal(changes(), 0);
  s.ask(null);
  assert.equal(s.access.open, true, "by hand");
  s.use("abc");
  assert.deepEqual(s.headers(), { Authorization: "Bearer abc" });
  assert.deepEqual({ open: s.access.open, refused: s.access.refused, hasToken: s.access.hasToken }, { open: false, refused: null, hasToken: true });
  assert.equal(changes(), 1);
});

test("a rejected token is removed, and its reason stays while others are refused", () => {
  const { s, changes } = start("abc");
  const { version } = s;
  s.dismiss();
  assert.equal(s.refuse(unknown, version), true);
  assert.deepEqual(s.headers(), {});
  assert.equal(changes(), 2, "callers try again without a token");
  assert.equal(s.refuse(unknown, version), true, "an older call");
  assert.equal(changes(), 2);
  assert.equal(s.refuse(missing, s.version), true);
  assert.deepEqual([s.access.open, s.access.rejected, s.access.refused], [true, unknown, missing]);
  s.dismiss();
  assert.deepEqual([s.access.open, s.access.rejected, s.access.refused], [false, null, missing]);
});

test("a rejection of the last token does not remove the current one", () => {
  const { s } = start("abc");
  const { version } = s;
  s.use("def");
  s.reject(unknown, version);
  assert.deepEqual([s.headers(), s.access.open], [{ Authorization: "Bearer def" }, false]);
});

test("a token without the role opens the prompt, and is kept", () => {
  const { s } = start("abc");
  assert.equal(s.refuse(lacking, s.version), true);
  assert.deepEqual([s.access.open, s.access.hasToken, s.access.refused], [true, true, lacking]);
});

test("another caller than the token's lacks the role: the prompt does not open by itself", () => {
  const { s } = start();
  assert.equal(s.refuse(lacking, s.version), true);
  assert.deepEqual([s.access.open, s.access.refused], [false, lacking]);
});

test("other refusals have nothing to do with the token", () => {
  const { s } = start("abc");
  assert.equal(s.refuse(restricted, s.version), false);
  assert.deepEqual([s.access.open, s.access.refused], [false, null]);
});

test("a call that succeeds ends a refusal, but not a prompt that the user opened", () => {
  const { s, changes } = start();
  s.refuse(missing, s.version);
  s.accept(s.version - 1);
  assert.equal(s.access.refused, missing, "an older call");
  s.accept(s.version);
  assert.deepEqual([s.access.open, s.access.refused, changes()], [false, null, 1]);
  s.accept(s.version);
  assert.equal(changes(), 1);
  s.refuse(missing, s.version);
  s.ask(lacking);
  s.accept(s.version);
  assert.deepEqual([s.access.open, s.access.refused, s.access.asked], [true, null, lacking]);
});

test("the token is in no property", () => {
  const { s } = start("secret");
  assert.doesNotMatch(JSON.stringify(s) + JSON.stringify(s.access) + JSON.stringify(Object.entries(s)), /secret/);
});
