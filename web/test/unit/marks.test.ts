import assert from "node:assert/strict";
import { test } from "node:test";
import { Text } from "@codemirror/state";
import { isBlank, isLarge, mostTyped } from "../../src/body.ts";
import { markOf, marksOf } from "../../src/marks.ts";

const rule = (line?: number, column?: number, field = "a.b") => ({ resource: "Cluster/orders", field, reason: "is wrong", line, column });

test("the mark of an error is its field and value", () => {
  const cases: [text: string, line: number | undefined, column: number | undefined, marked: string | null][] = [
    ["a:\n  port_value: 99999\n", 2, 3, "port_value: 99999"],
    ["{address: 10.0.0.1, port_value: 99999}", 1, 21, "port_value: 99999"],
    ['{"port_value":99999,"a":[1]}', 1, 2, '"port_value":99999'],
    ["a: {b: [1, 2]}", 1, 5, "b:"],
    ["{a: 1}", 1, 1, "{a: 1"],
    ["  - a: 1  ", 1, undefined, "- a: 1"],
    // Columns are in bytes: é has two, € three, and 😀 four in UTF-8 and two in UTF-16.
    ["{é: 1, b: 2}", 1, 9, "b: 2"],
    ["{€: 1, b: 2}", 1, 10, "b: 2"],
    ["{😀: 1, b: 2}", 1, 11, "b: 2"],
    ["a\r\nb: 1\rc: 2", 3, 1, "c: 2"],
    ["", 1, 1, ""],
    ["a: 1", 1, 99, ""],
    ["a: 1\nb: 2", 99, 1, "b: 2"],
    [`a: ${"x".repeat(500)}`, 1, 1, `a: ${"x".repeat(197)}`],
    ["a: 1", undefined, undefined, null],
  ];
  for (const [text, line, column, marked] of cases) {
    const lines = Text.of(text.split(/\r\n?|\n/));
    const mark = markOf(lines, rule(line, column), "error");
    assert.equal(mark && lines.sliceString(mark.from, mark.to), marked, JSON.stringify(text));
  }
});

test("errors and warnings have marks with their messages", () => {
  assert.deepEqual(marksOf(Text.of(["a: 1", "b: 2"]), [rule(2, 1), rule()], [rule(1, 1, "")]), [
    { from: 5, to: 9, severity: "error", message: "a.b: is wrong" },
    { from: 0, to: 4, severity: "warning", message: "is wrong" },
  ]);
});

test("a text is blank, typed or large", () => {
  for (const [body, blank, large] of [["", true, false], [" \n", true, false], ["a", false, false], [" ".repeat(mostTyped + 1), false, true]] as const) {
    for (const form of [body, Text.of(body.split("\n"))]) assert.deepEqual([isBlank(form), isLarge(form)], [blank, large]);
  }
});
