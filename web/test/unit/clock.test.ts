import assert from "node:assert/strict";
import { test } from "node:test";
import { learnFromResponse, now, learnFromTime } from "../../src/clock.ts";

test("the offset of lbd's clock is as large as its responses prove, and not larger", (t) => {
  const start = Date.parse("2026-11-20T03:00:00Z");
  let here = start;
  t.mock.method(Date, "now", () => here);
  const answered = (date: number, asked: number) => learnFromResponse(new Response(null, { headers: { Date: new Date(date).toUTCString() } }), asked);

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
  learnFromResponse(new Response(null), here);
  assert.equal(now(), start + 3_605_000, "clock unchanged");
  answered(start - 3_600_000, here - 10);
  assert.equal(now(), start - 3_600_000 + 1010);

  learnFromTime(start, here - 40); // to the millisecond, at some moment of the last 40 ms
  assert.equal(now(), start);
  learnFromTime(start - 30, here - 40);
  assert.equal(now(), start, "fits");
  learnFromTime(start - 60, here - 40);
  assert.equal(now(), start - 20);
  learnFromTime(NaN, here);
  assert.equal(now(), start - 20, "clock unchanged");
});
