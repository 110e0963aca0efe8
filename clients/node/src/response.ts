import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { buffer, json, text } from "node:stream/consumers";

/** A response. Its request is in flight until the body is read to its end, or destroyed. */
export class Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The body, and what else node:http knows of the response. */
  readonly body: IncomingMessage;

  constructor(message: IncomingMessage) {
    this.status = message.statusCode ?? 0;
    this.headers = message.headers;
    this.body = message;
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
