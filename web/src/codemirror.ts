// CodeMirror, in the colors of the dashboard. Only the page for pushes loads it.

import { defaultKeymap, history, historyKeymap, indentWithTab, isolateHistory } from "@codemirror/commands";
import { yamlLanguage } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { forEachDiagnostic, lintGutter, nextDiagnostic, previousDiagnostic, setDiagnostics } from "@codemirror/lint";
import { search, searchKeymap } from "@codemirror/search";
import { Annotation, Compartment, EditorState, type Extension, StateEffect, Text } from "@codemirror/state";
import { type Command, EditorView, highlightSpecialChars, keymap, lineNumbers, placeholder, showPanel } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { StyleModule } from "style-mod";
import type { Body } from "./body.ts";
import { markOf, marksOf } from "./marks.ts";
import type { BrokenRule } from "./model.ts";

// The Content-Security-Policy blocks <style> elements, with which StyleModule adds its rules to a document.
// A style sheet without an element is not affected by it.
const sheet = new CSSStyleSheet();
StyleModule.mount = (_, modules) => sheet.replaceSync([modules].flat().map((m) => m.getRules()).join("\n"));
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

const theme = EditorView.theme({
  "&": { height: "100%" },
  "&.cm-focused": { outline: "none" },
  // The gutters would cover an outline.
  "&.cm-focused::after": { content: '""', position: "absolute", inset: 0, border: "2px solid var(--accent)", borderRadius: "3px", pointerEvents: "none", zIndex: 400 },
  ".cm-scroller": { font: "12px/18px var(--mono)", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-line": { padding: "0 8px" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-specialChar": { color: "var(--bad)", fontWeight: 700 },
  ".cm-gutters": { background: "var(--sunk)", color: "var(--muted)", border: 0 },
  ".cm-gutter-lint": { width: "1.5em" },
  ".cm-gutter-lint .cm-gutterElement": { padding: 0, textAlign: "center" },
  ".cm-lint-marker": { width: "auto", height: "auto", content: "normal", fontWeight: 700, cursor: "default" },
  ".cm-lint-marker-error": { color: "var(--bad)", "&::before": { content: '"✕"' } },
  ".cm-lint-marker-warning": { color: "var(--busy)", "&::before": { content: '"!"' } },
  ".cm-lintRange": { backgroundImage: "none", padding: 0, textDecoration: "underline wavy", textDecorationSkipInk: "none" },
  ".cm-lintRange-error": { textDecorationColor: "var(--bad)" },
  ".cm-lintRange-warning": { textDecorationColor: "var(--busy)" },
  ".cm-tooltip": { background: "var(--panel)", color: "var(--text)", border: "1px solid var(--field)", borderRadius: "4px", maxWidth: "min(70ch, 90vw)", fontSize: "12px" },
  ".cm-diagnostic": { margin: 0, overflowWrap: "anywhere" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--busy)" },
  ".cm-panels": { background: "var(--sunk)", color: "var(--text)" },
  ".cm-panels-bottom": { borderTop: "1px solid var(--edge)" },
  ".cm-notice": { margin: 0, padding: ".2rem .5rem", color: "var(--muted)" },
  ".cm-panels-top": { borderBottom: "1px solid var(--edge)" },
  ".cm-panel.cm-search": { display: "flex", flexWrap: "wrap", alignItems: "center", gap: ".3rem .5rem", padding: ".4rem 2rem .4rem .5rem", font: "13px/1.4 var(--font)" },
  ".cm-panel.cm-search br": { flexBasis: "100%", content: '""' },
  ".cm-panel.cm-search input, .cm-panel.cm-search button, .cm-panel.cm-search label": { margin: 0 },
  ".cm-panel.cm-search label": { display: "inline-flex", alignItems: "center", gap: ".3rem", fontSize: "inherit" },
  ".cm-panel.cm-search [name=close]": { position: "absolute", top: ".3rem", right: ".4rem", padding: "0 .4rem", font: "inherit", fontSize: "1.2em", cursor: "pointer" },
  ".cm-textfield": { background: "var(--panel)", border: "1px solid var(--field)", borderRadius: "4px", padding: ".15rem .4rem", font: "inherit", flex: "0 1 10em", minWidth: "6em" },
  ".cm-button": { background: "var(--panel)", border: "1px solid var(--field)", borderRadius: "4px", padding: ".1rem .5rem", font: "inherit", "&:active": { background: "var(--sunk)" } },
  ".cm-searchMatch": { background: "var(--busy-back)", outline: "1px solid var(--busy)" },
  ".cm-searchMatch-selected": { background: "var(--accent-back)", outline: "2px solid var(--accent)" },
});

const colors = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--accent)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.comment, tags.separator, tags.punctuation, tags.squareBracket, tags.brace, tags.meta], color: "var(--muted)" },
  { tag: [tags.labelName, tags.typeName, tags.keyword], color: "var(--unwell)" },
]);

/** Goes to an error, and reads it to users of a screen reader. */
const announced = (go: Command): Command => (view) => {
  if (!go(view)) return false;
  const { from } = view.state.selection.main;
  const messages: string[] = [];
  forEachDiagnostic(view.state, (d, at) => at === from && messages.push(d.message));
  view.dispatch({ effects: EditorView.announce.of(messages.join("; ")) });
  return true;
};

/** Whether lines are so long that the parser, which begins at the start of one, would delay each key. */
const isWide = (text: Text) => text.length > 100_000 * text.lines;

function notice() {
  const dom = document.createElement("p");
  dom.className = "cm-notice";
  dom.textContent = "Without colors, because the lines are too long.";
  return { dom };
}

const language = new Compartment();
const languageOf = (text: Text): Extension => (isWide(text) ? showPanel.of(notice) : yamlLanguage);

// CodeMirror takes the focus back for a cursor at the end of a row of a wrapped line, so a cursor without focus has no row.
const left = StateEffect.define<null>();
const leaving: Extension = [
  EditorView.focusChangeEffect.of((_, focusing) => (focusing ? null : left.of(null))),
  EditorState.transactionFilter.of((t) => {
    const { main } = t.startState.selection;
    return main.empty && main.assoc !== 0 && t.effects.some((e) => e.is(left)) ? [t, { selection: { anchor: main.head } }] : t;
  }),
];

/** Chrome gives a text that replaces a colored one a style attribute, which the policy blocks and reports. */
function replaceSelection(e: InputEvent, view: EditorView): boolean {
  if (e.inputType !== "insertText" || e.data === null || view.state.selection.main.empty) return false;
  view.dispatch(view.state.replaceSelection(e.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

/** Marks a change that the page made. */
const replaced = Annotation.define<boolean>();

/** How long Tab leaves the editor after Escape, in milliseconds. Another key ends it. */
const leavable = 3_600_000;

/** An editor of a text in YAML or JSON, which YAML includes. */
export class TextEditor {
  private readonly view: EditorView;
  private invalid = false;

  /**
   * @param parent gets the editor as a child
   * @param attributes of the element with the text
   * @param onChange gets each version that the user makes
   */
  constructor(parent: HTMLElement, body: Body, attributes: Record<string, string>, example: string, onChange: (body: Body) => void) {
    const doc = textOf(body);
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        doc,
        extensions: [
          lineNumbers(), lintGutter(), highlightSpecialChars(), history(), EditorView.lineWrapping, search({ top: true }), placeholder(example),
          language.of(languageOf(doc)), syntaxHighlighting(colors), theme, leaving,
          EditorState.transactionExtender.of((t) =>
            isWide(t.newDoc) === isWide(t.startState.doc) ? null : { effects: language.reconfigure(languageOf(t.newDoc)) },
          ),
          keymap.of([
            { key: "F8", run: announced(nextDiagnostic), shift: announced(previousDiagnostic) },
            ...searchKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab,
          ]),
          // The page takes files.
          EditorView.domEventHandlers({ drop: (e) => (e.dataTransfer?.files.length ?? 0) > 0, beforeinput: replaceSelection }),
          EditorView.contentAttributes.of(() => ({ ...attributes, "aria-invalid": String(this.invalid) })),
          EditorView.updateListener.of((u) => {
            if (u.docChanged && !u.transactions.some((t) => t.annotation(replaced))) onChange(u.state.doc);
          }),
        ],
      }),
    });
    parent.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.view.setTabFocusMode(leavable);
    });
  }

  /** Replaces the text, without a call of onChange. The user can undo it. */
  replace(body: Body): void {
    const changes = { from: 0, to: this.view.state.doc.length, insert: textOf(body) };
    this.view.dispatch({ changes, selection: { anchor: 0 }, scrollIntoView: true, annotations: [replaced.of(true), isolateHistory.of("full")] });
  }

  setMarks(errors: BrokenRule[], warnings: BrokenRule[]): void {
    this.invalid = errors.length > 0;
    this.view.dispatch(setDiagnostics(this.view.state, marksOf(this.view.state.doc, errors, warnings)));
  }

  /** Selects an error, and gives the editor the focus. */
  select(rule: BrokenRule): void {
    const mark = markOf(this.view.state.doc, rule, "error");
    if (!mark) return;
    this.view.dispatch({ selection: { anchor: mark.from, head: mark.to }, effects: EditorView.scrollIntoView(mark.from, { y: "center" }) });
    this.view.focus();
  }

  close(): void {
    this.view.destroy();
  }
}

const textOf = (body: Body): Text => (body instanceof Text ? body : Text.of(body.toString().split(/\r\n?|\n/)));
