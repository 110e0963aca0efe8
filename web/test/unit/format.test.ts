import assert from "node:assert/strict";
import { test } from "node:test";
import { dayAndClock, duration } from "../../src/format.ts";

const night = Date.parse("2026-11-20T03:12:44Z");

test("times have the time zone of the reader", (t) => {
  const was = process.env.TZ;
  t.after(() => {
    if (was === undefined) delete process.env.TZ;
    else process.env.TZ = was;
  });
  const inZone = (zone: string) => {
    process.env.TZ = zone;
    return dayAndClock(night);
  };
  assert.equal(inZone("UTC"), "2026-11-20 03:12:44 UTC");
  assert.equal(inZone("Europe/Berlin"), "2026-11-20 04:12:44 +01:00");
  assert.equal(inZone("America/St_Johns"), "2026-11-19 23:42:44 −03:30");
});

test("durations of Go are milliseconds", () => {
  for (const [text, ms] of [["1h2m3.5s", 3_723_500], ["1m4s", 64_000], ["2.25ms", 2.25], ["250µs", 0.25], ["0s", 0]] as const) {
    assert.equal(duration(text), ms, text);
  }
});
