// The editor of a resource.

import { useEffect, useRef, useState } from "preact/hooks";
import { says } from "../api.ts";
import type { Body } from "../body.ts";
import type { TextEditor } from "../codemirror.ts";
import type { Verdict } from "../verdict.ts";
import { Alert } from "./basics.tsx";

const example = `endpoints:
- locality: {region: us-east1, zone: a}
  load_balancing_weight: 3
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: 10.0.0.7, port_value: 8080}}}
`;

/**
 * @param body is called for the text when the editor is loaded, which is after the page is opened
 * @param editor refers to the editor from then on
 */
export function Editor({ body, verdict, onInput, editor }: {
  body: () => Body;
  verdict: Verdict | null;
  onInput: (body: Body) => void;
  editor: { current: TextEditor | null };
}) {
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef({ body, onInput });
  latest.current = { body, onInput };
  const [open, setOpen] = useState<TextEditor | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    let left = false;
    import("../codemirror.ts").then(
      ({ TextEditor }) => {
        if (left || !host.current) return;
        const attributes = { id: "body", "aria-label": "The resource, JSON or YAML", "aria-describedby": "keys" };
        editor.current = new TextEditor(host.current, latest.current.body(), attributes, example, (b) => latest.current.onInput(b));
        setOpen(editor.current);
      },
      (e: unknown) => setError(says(e)),
    );
    return () => {
      left = true;
      editor.current?.close();
      editor.current = null;
    };
  }, []);
  // The marks of a version move with the text, until the verdict about the next one. One that arrives as the text
  // changes is about another text: its marks would be elsewhere, and close the message that the user reads.
  useEffect(() => {
    if (!verdict || verdict.body === latest.current.body()) open?.setMarks(verdict?.problem?.errors ?? [], verdict?.answer?.warnings ?? []);
  }, [open, verdict]);
  return (
    <div>
      <div class="editor" ref={host} />
      {error ? <Alert>The editor could not be loaded. Reload the page. {error}</Alert> : !open && <p>Loading the editor…</p>}
      <p class="of" id="keys">
        Ctrl+F or ⌘F searches. F8 goes to the next error. Tab indents: to leave the editor, press Escape, then Tab.
      </p>
    </div>
  );
}
