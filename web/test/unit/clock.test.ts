import assert from "node:assert/strict";
import { test } from "node:test";
import { heard, now, told } from "../../src/clock.ts";

test("lbd's clock is as far away as its answers prove, and no farther", (t) => {
  const start = Date.parse("2026-11-20T03:00:00Z");
  let here = start;
  t.mock.method(Date, "now", () => here);
  const answered = (date: number, asked: number) => heard(new Response(null, { headers: { Date: new Date(date).toUTCString() } }), asked);

  here = start + 900;
  answered(start, start + 100);
  assert.equal(now(), here, "the same second");
  answered(start - 1000, start + 500); // written before start: 500 ms before it was asked for here
  assert.equal(now(), here - 500);
  answered(start, start + 800); // fits
  assert.equal(now(), here - 500);
  answered(start + 3_600_000, start + 800);
  assert.equal(now(), start + 3_600_000);
  here += 5000;
  assert.equal(now(), start + 3_605_000);
  heard(new Response(null), here);
  assert.equal(now(), start + 3_605_000, "nothing was told");
  answered(start - 3_600_000, here - 10);
  assert.equal(now(), start - 3_600_000 + 1010);

  told(start, here - 40); // to the millisecond, at some moment of the last 40 ms
  assert.equal(now(), start);
  told(start - 30, here - 40);
  assert.equal(now(), start, "fits");
  told(start - 60, here - 40);
  assert.equal(now(), start - 20);
  told(NaN, here);
  assert.equal(now(), start - 20, "nothing was told");
});
