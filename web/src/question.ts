// Calls of lbd, of which only the last response counts.

import { useEffect, useRef } from "preact/hooks";
import { waitsForToken } from "./api.ts";
import { session } from "./session.ts";

/** Question is a repeated call; only the response to the last one is used. */
export class Question {
  private abort = new AbortController();

  /** Calls, and cancels the previous call. */
  ask<T>(how: (signal: AbortSignal) => Promise<T>, answered: (answer: T) => void, refused: (why: unknown) => void): void {
    this.drop();
    const { signal } = this.abort;
    how(signal).then(
      (answer) => signal.aborted || answered(answer),
      (why: unknown) => signal.aborted || refused(why),
    );
  }

  /** Cancels the call. */
  drop(): void {
    this.abort.abort();
    this.abort = new AbortController();
  }
}

/** A question that is canceled when the component is removed. */
export function useQuestion(): Question {
  const question = useRef(new Question()).current;
  useEffect(() => () => question.drop(), []);
  return question;
}

/**
 * Round calls at once, periodically, and soon after a call of "soon": one call at a time, so
 * that no response is older than the last one.
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
   * @param how calls, and handles the response; it must not reject
   * @param every the period, in milliseconds
   * @param least the minimum time between two calls, in milliseconds
   */
  constructor(how: (signal: AbortSignal) => Promise<void>, every: number, least = 1000) {
    this.how = how;
    this.every = every;
    this.least = least;
    void this.turn();
  }

  soon(): void {
    if (this.asking) this.wanted = true; // its response may be older
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
 * Calls while the page is visible: at once, periodically, and when the returned function is
 * called. Another key starts another round. After a call without the required role, it waits
 * for another token.
 */
export function useRound<T>(
  ask: (signal: AbortSignal) => Promise<T>, every: number, key: string, answered: (answer: T) => void, refused: (why: unknown) => void,
): () => void {
  const handlers = useRef({ ask, answered, refused });
  handlers.current = { ask, answered, refused };
  const round = useRef<Round>();
  useEffect(() => {
    let refusedVersion = -1;
    const mine = new Round(async (signal) => {
      const { version } = session;
      if (document.hidden || version === refusedVersion) return;
      try {
        const answer = await handlers.current.ask(signal);
        if (!signal.aborted) handlers.current.answered(answer);
      } catch (why) {
        if (signal.aborted) return;
        if (waitsForToken(why)) refusedVersion = version;
        handlers.current.refused(why);
      }
    }, every);
    round.current = mine;
    const seen = () => {
      if (!document.hidden) mine.soon();
    };
    document.addEventListener("visibilitychange", seen);
    const forget = session.onChange(() => mine.soon());
    return () => {
      forget();
      document.removeEventListener("visibilitychange", seen);
      mine.close();
    };
  }, [key, every]);
  return () => round.current?.soon();
}
