/** Tokens for retries of one cluster, as in gRFC A6. */
export class Budget {
  readonly #max: number;
  #tokens: number;

  constructor(maxTokens: number) {
    this.#max = maxTokens;
    this.#tokens = maxTokens;
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
