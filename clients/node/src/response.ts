import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { buffer, json, text } from "node:stream/consumers";

/** Ends requests whose response was forgotten: its body cannot be read any more. */
const forgotten = new FinalizationRegistry<IncomingMessage>((message) => message.destroy());

/**
 * A response. Its request is in flight until the body is read to its end or destroyed, or the response is garbage and
 * nobody has asked for its body.
 */
export class Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly #message: IncomingMessage;

  constructor(message: IncomingMessage) {
    this.status = message.statusCode ?? 0;
    this.headers = message.headers;
    this.#message = message;
    forgotten.register(this, message, this);
  }

  /** The body, and what else node:http knows of the response. */
  get body(): IncomingMessage {
    forgotten.unregister(this);
    return this.#message;
  }

  /** Reads the body as UTF-8. */
  text(): Promise<string> {
    return text(this.body);
  }

  /** Reads the body as JSON. */
  json(): Promise<unknown> {
    return json(this.body);
  }

  /** Reads the body. */
  bytes(): Promise<Buffer> {
    return buffer(this.body);
  }
}
