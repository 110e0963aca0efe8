/** Tokens for retries of one cluster, as in gRFC A6. */
export class Budget {
  readonly #first: number;
  #max: number;
  #tokens: number;

  constructor(maxTokens: number) {
    this.#first = maxTokens;
    this.#max = maxTokens;
    this.#tokens = maxTokens;
  }

  /** Makes the budget fit batches that are so many times as large as the first one. */
  fit(times: number): void {
    const max = this.#first * Math.max(times, 1);
    if (max > this.#max) this.#tokens += max - this.#max;
    this.#max = max;
  }

  /** Takes a token, and says whether a retry is permitted. */
  failed(): boolean {
    this.#tokens = Math.max(0, this.#tokens - 1);
    return this.#tokens > this.#max / 2;
  }

  succeeded(): void {
    this.#tokens = Math.min(this.#max, this.#tokens + 0.1);
  }
}
