// Where lbd's errors and warnings are in a text.

import type { BrokenRule } from "./model.ts";

/** A text by lines, such as CodeMirror's Text. */
export interface Lines {
  /** The number of lines. */
  readonly lines: number;
  /** A line by its number, from 1. */
  line(n: number): { from: number; to: number; text: string };
}

export interface Mark {
  from: number;
  to: number;
  severity: "error" | "warning";
  message: string;
}

/** The length of a mark in a line that has no end of a value. */
const longest = 200;

/** The mark of an error; null if lbd does not know its line. */
export function markOf(text: Lines, rule: BrokenRule, severity: Mark["severity"]): Mark | null {
  if (!rule.line) return null;
  const line = text.line(Math.min(rule.line, text.lines));
  const start = rule.column ? indexOfByte(line.text, rule.column - 1) : line.text.search(/\S|$/);
  const rest = line.text.slice(start, start + longest);
  // From the name of a field to the end of its value.
  const length = (rule.column ? rest.replace(/(?<=.)[,{}[\]].*$/, "") : rest).trimEnd().length;
  return { from: line.from + start, to: line.from + start + length, severity, message: rule.field ? `${rule.field}: ${rule.reason}` : rule.reason };
}

/** The index into a text of a byte of its UTF-8 form. */
function indexOfByte(text: string, byte: number): number {
  let i = 0;
  for (let at = 0; at < byte && i < text.length; ) {
    const code = text.codePointAt(i)!;
    at += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    i += code < 0x10000 ? 1 : 2;
  }
  return i;
}

/** The marks of all errors and warnings. */
export const marksOf = (text: Lines, errors: BrokenRule[], warnings: BrokenRule[]): Mark[] =>
  [...errors.map((r) => markOf(text, r, "error")), ...warnings.map((r) => markOf(text, r, "warning"))].filter((m) => m !== null);
