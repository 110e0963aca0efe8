import type { Attempt, Call } from "./call.js";
import { RETRIED_STATUSES } from "./call.js";
import type { Limit } from "./limit.js";

/** Bytes and milliseconds that the rest of a discarded response may take. Beyond that, its connection is closed. */
export const DRAIN_MAX = 64 * 1024;
export const DRAIN_TIME = 1000;

/** A response whose status and headers are there. */
export interface Answer {
  readonly status: number;
  /** Ends its try, without its body. */
  discard(): void;
}

/** Sends the tries of one request with an HTTP library. */
export interface Transport<A extends Answer> {
  /** Resolves after attempt.connected and attempt.answered; attempt.finish is called at the end of the response. */
  send(attempt: Attempt): Promise<A>;
  /** Whether the body of the request could not be read. */
  readonly bodyFailed: boolean;
}

/** Sends a request, and again while it fails and may be retried. Resolves with the response of the last try. */
export async function sendWithRetries<A extends Answer>(call: Call, limit: Limit, transport: Transport<A>): Promise<A> {
  if (limit.reason !== undefined) throw limit.reason;
  let attempt = await limit.race(call.first(), giveUp);
  for (;;) {
    let answer: A | undefined;
    let failure: unknown;
    try {
      answer = await transport.send(attempt);
      if (!RETRIED_STATUSES.has(answer.status)) return answer;
    } catch (error) {
      if (!attempt.failed(error, transport.bodyFailed)) throw error;
      failure = error;
    }
    let other: Attempt | undefined;
    try {
      other = await limit.race(call.retry(attempt, limit, answer !== undefined), giveUp);
    } catch (error) {
      answer?.discard();
      throw error;
    }
    if (other === undefined) {
      if (answer === undefined) throw failure;
      return answer;
    }
    answer?.discard();
    attempt = other;
  }
}

const giveUp = (attempt: Attempt | undefined) => attempt?.finish();
