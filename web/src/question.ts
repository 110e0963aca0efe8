// Questions to lbd whose answers may be late.

import { useEffect, useRef } from "preact/hooks";

/** Question is asked again and again; only the answer to the last one is heard. */
export class Question {
  private abort = new AbortController();

  /** Asks, and gives up what was asked before. */
  ask<T>(how: (signal: AbortSignal) => Promise<T>, answered: (answer: T) => void, refused: (why: unknown) => void): void {
    this.drop();
    const { signal } = this.abort;
    how(signal).then(
      (answer) => signal.aborted || answered(answer),
      (why: unknown) => signal.aborted || refused(why),
    );
  }

  /** Gives up what was asked. */
  drop(): void {
    this.abort.abort();
    this.abort = new AbortController();
  }
}

/** A question that is given up when the component goes. */
export function useQuestion(): Question {
  const question = useRef(new Question()).current;
  useEffect(() => () => question.drop(), []);
  return question;
}

/**
 * Round asks at once, every so often, and soon after somebody says so: one question at a
 * time, so that no answer is older than what is known already.
 */
export class Round {
  private timer?: ReturnType<typeof setTimeout>;
  private abort = new AbortController();
  private asking = false;
  private wanted = false;
  private at = 0;
  private readonly how: (signal: AbortSignal) => Promise<void>;
  private readonly every: number;
  private readonly least: number;

  /**
   * @param how asks, and takes the answer; it should not reject
   * @param every from one question to the next, in milliseconds
   * @param least what is between two at least, however often somebody says "soon"
   */
  constructor(how: (signal: AbortSignal) => Promise<void>, every: number, least = 1000) {
    this.how = how;
    this.every = every;
    this.least = least;
    void this.turn();
  }

  soon(): void {
    if (this.asking) this.wanted = true; // what it answers may be from before
    else this.after(this.least);
  }

  close(): void {
    this.abort.abort();
    clearTimeout(this.timer);
  }

  private after(wait: number): void {
    if (this.abort.signal.aborted) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.turn(), Math.max(0, this.at + wait - Date.now()));
  }

  private async turn(): Promise<void> {
    this.asking = true;
    this.wanted = false;
    this.at = Date.now();
    await this.how(this.abort.signal);
    this.asking = false;
    this.after(this.wanted ? this.least : this.every);
  }
}

/**
 * Asks while the page is seen: at once, every so often, and when what it returns is
 * called. Another key is another question.
 */
export function useRound<T>(
  ask: (signal: AbortSignal) => Promise<T>, every: number, key: string, answered: (answer: T) => void, refused: (why: unknown) => void,
): () => void {
  const handlers = useRef({ ask, answered, refused });
  handlers.current = { ask, answered, refused };
  const round = useRef<Round>();
  useEffect(() => {
    const mine = new Round(async (signal) => {
      if (document.hidden) return;
      try {
        const answer = await handlers.current.ask(signal);
        if (!signal.aborted) handlers.current.answered(answer);
      } catch (why) {
        if (!signal.aborted) handlers.current.refused(why);
      }
    }, every);
    round.current = mine;
    const seen = () => {
      if (!document.hidden) mine.soon();
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      document.removeEventListener("visibilitychange", seen);
      mine.close();
    };
  }, [key, every]);
  return () => round.current?.soon();
}
