// The text of a push.

/**
 * A version of a text: a string, or CodeMirror's Text. The string of a large one is made only when it is needed. Two
 * versions are equal if they are identical, or equal strings.
 */
export interface Body {
  readonly length: number;
  toString(): string;
}

/** The length, in UTF-16 units, up to which a text is validated while it is typed. */
export const mostTyped = 1_000_000;

export const isLarge = (body: Body): boolean => body.length > mostTyped;

/** Whether there is nothing to push. */
export const isBlank = (body: Body): boolean => !isLarge(body) && body.toString().trim() === "";
