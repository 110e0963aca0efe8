import assert from "node:assert/strict";
import { test } from "node:test";
import { compareLines } from "../../src/lines.ts";
import { documentPath, messageError, partsOf, partWords } from "../../src/restore.ts";

const written = (before: string, after: string, near?: number) =>
  compareLines(before, after, near).map((l) => `${{ same: " ", added: "+", removed: "-", gap: "…" }[l.change]}${l.text}`);

test("texts are compared by line", () => {
  assert.deepEqual(written("a\nb\nc", "a\nx\nc"), [" a", "-b", "+x", " c"]);
  assert.deepEqual(written("", "a\nb"), ["+a", "+b"]);
  assert.deepEqual(written("a\nb", ""), ["-a", "-b"]);
  assert.deepEqual(written("a\nb\nc\nd", "b\nc\nx\nd"), ["-a", " b", " c", "+x", " d"]);
});

test("equal lines away from changes are left out", () => {
  assert.deepEqual(written("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\nx", 1), ["…4", " 5", "-6", "+x"]);
  assert.deepEqual(written("1\n2", "1\n2"), ["…2"]);
});

test("very long changed parts are replaced as a whole", () => {
  const a = Array.from({ length: 3000 }, (_, i) => `a${i}`);
  const b = Array.from({ length: 3000 }, (_, i) => `b${i}`);
  b[1500] = a[1500]!;
  const lines = compareLines(a.join("\n"), b.join("\n"));
  assert.equal(lines.filter((l) => l.change === "removed").length, 3000);
  assert.equal(lines.filter((l) => l.change === "added").length, 3000);
});

test("resources of clusters can be restored alone, others only with everything", () => {
  assert.deepEqual(partsOf(["Listener/shop", "Cluster/a/b", "ClusterLoadAssignment/a/b"]).map(partWords), [
    "Cluster/a/b", "ClusterLoadAssignment/a/b", "cluster a/b: config and endpoints", "everything",
  ]);
  assert.deepEqual(partsOf(["Cluster/.."]).map(partWords), ["cluster ..: config and endpoints", "everything"]);
  assert.equal(documentPath("ClusterLoadAssignment/a/b"), "v1/clusters/a%2Fb/endpoints");
  assert.equal(documentPath("Listener/shop"), undefined);
});

test("a message has only characters of a header", () => {
  assert.equal(messageError("back to zone a"), "");
  assert.match(messageError("zurück"), /ASCII/);
  assert.match(messageError("a\tb"), /ASCII/);
  assert.match(messageError("x".repeat(501)), /500/);
});
