import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { Question, Round } from "../../src/question.ts";

/** Answers that are given when the test says so. */
function answers<T>() {
  const asked: { signal: AbortSignal; give: (answer: T) => void; refuse: (why: unknown) => void }[] = [];
  const how = (signal: AbortSignal) => new Promise<T>((give, refuse) => asked.push({ signal, give, refuse }));
  return { asked, how };
}
const settled = () => new Promise((done) => setImmediate(done));

test("only the response to the last call is used", async () => {
  const { asked, how } = answers<string>();
  const used: unknown[] = [];
  const q = new Question();
  for (let i = 0; i < 3; i++) q.ask(how, (a) => used.push(a), (e) => used.push(e));
  assert.deepEqual(asked.map((a) => a.signal.aborted), [true, true, false]);
  asked[2]!.give("third");
  asked[0]!.give("first");
  asked[1]!.refuse("second");
  await settled();
  assert.equal(used.join(), "third");
  q.ask(how, (a) => used.push(a), (e) => used.push(e));
  asked[3]!.refuse("no");
  await settled();
  q.ask(how, (a) => used.push(a), (e) => used.push(e));
  q.drop();
  asked[4]!.give("too late");
  await settled();
  assert.equal(used.join(), "third,no");
});

test("a round makes one call at a time, and another one after a request during a call", async (t) => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 0 });
  t.after(() => mock.timers.reset());
  const { asked, how } = answers<void>();
  const round = new Round(how, 5000, 1000);
  assert.equal(asked.length, 1, "at once");
  mock.timers.tick(60_000);
  assert.equal(asked.length, 1, "while there is no answer");
  asked[0]!.give();
  await settled();
  mock.timers.tick(0);
  assert.equal(asked.length, 2, "the next is due");
  round.soon();
  round.soon();
  asked[1]!.give();
  await settled();
  mock.timers.tick(999);
  assert.equal(asked.length, 2);
  mock.timers.tick(1);
  assert.equal(asked.length, 3, "a second after the last");
  asked[2]!.give();
  await settled();
  mock.timers.tick(4999);
  assert.equal(asked.length, 3);
  mock.timers.tick(1);
  assert.equal(asked.length, 4, "five seconds after the last");
  asked[3]!.give();
  await settled();
  mock.timers.tick(3000);
  round.soon();
  mock.timers.tick(0);
  assert.equal(asked.length, 5, "soon is now where the last is long ago");
  round.close();
  assert.ok(asked[4]!.signal.aborted);
  asked[4]!.give();
  await settled();
  mock.timers.tick(60_000);
  assert.equal(asked.length, 5, "closed");
});
