// The caller's token. It is in the memory of the page only: not in a URL, a store of the browser or the document.

import type { Problem } from "./model.ts";

/** What the page shows about the caller's access. */
export interface Access {
  hasToken: boolean;
  /** Changes with the token. */
  version: number;
  /** Whether the prompt for a token is open. */
  open: boolean;
  /** Why lbd rejected the last token. */
  rejected: Problem | null;
  /** Why lbd refuses what the page shows. */
  refused: Problem | null;
  /** Why lbd refused a request for which the user opens the prompt. */
  asked: Problem | null;
}

/** Whether another token could be accepted. */
export const needsToken = (p: Problem) => p.code === "unauthenticated" || (p.code === "permission_denied" && p.role !== undefined);

/** Whether the caller may see other clusters only: another role would not help. */
export const isAnotherCluster = (p: Problem) => p.code === "permission_denied" && p.role === undefined;

const invalidToken = (p: Problem) => p.code === "unauthenticated";

/**
 * Session has the token that calls send, and what their refusals mean for the prompt. A caller that is refused
 * waits for a change instead of retrying.
 */
export class Session {
  #token = "";
  #dismissed = false;
  #access: Access = { hasToken: false, version: 0, open: false, rejected: null, refused: null, asked: null };
  readonly #callers = new Set<() => void>();
  readonly #views = new Set<() => void>();

  get access(): Access {
    return this.#access;
  }

  get version(): number {
    return this.#access.version;
  }

  /** The headers that a call sends. */
  headers(): Record<string, string> {
    return bearer(this.#token);
  }

  /** Calls f when calls should be sent again, and returns a function that ends this. */
  onChange(f: () => void): () => void {
    this.#callers.add(f);
    return () => this.#callers.delete(f);
  }

  /** Calls f when access has changed, and returns a function that ends this. */
  onAccess(f: () => void): () => void {
    this.#views.add(f);
    return () => this.#views.delete(f);
  }

  /** Removes the token if lbd rejects it. The version is that of the call. */
  reject(problem: Problem, version: number): void {
    if (version !== this.version || !this.#token || !invalidToken(problem)) return;
    this.#set("", { rejected: problem, refused: null, asked: null, open: true });
  }

  /**
   * Takes note of a call that was refused, and opens the prompt unless the user closed it. It reports whether the
   * caller should wait for a change.
   */
  refuse(problem: Problem, version: number): boolean {
    if (!needsToken(problem)) return false;
    if (version !== this.version) return true;
    this.reject(problem, version);
    if (version === this.version) {
      const open = !this.#dismissed && (invalidToken(problem) || this.#token !== "");
      this.#show({ refused: problem, open: this.#access.open || open });
    }
    return true;
  }

  /** Takes note that lbd no longer refuses what the page shows. */
  accept(version: number): void {
    const { refused, rejected, asked, open } = this.#access;
    if (version !== this.version || !refused) return;
    this.#set(this.#token, { refused: null, open: open && (rejected !== null || asked !== null) });
  }

  /** Opens the prompt, for a request that was refused. */
  ask(problem: Problem | null): void {
    this.#show({ asked: problem, open: true });
  }

  /** Closes the prompt until the token changes. */
  dismiss(): void {
    this.#dismissed = true;
    this.#show({ open: false, asked: null, rejected: null });
  }

  /** Uses a token from now on; "" forgets the last one. */
  use(token: string): void {
    this.#dismissed = false;
    this.#set(token, { open: false, asked: null, rejected: null, refused: null });
  }

  #set(token: string, change: Partial<Access>): void {
    this.#token = token;
    this.#show({ ...change, hasToken: token !== "", version: this.version + 1 });
    for (const f of [...this.#callers]) f();
  }

  #show(change: Partial<Access>): void {
    this.#access = { ...this.#access, ...change };
    for (const f of [...this.#views]) f();
  }
}

export const bearer = (token: string): Record<string, string> => (token ? { Authorization: `Bearer ${token}` } : {});

/** The session of this page. */
export const session = new Session();
