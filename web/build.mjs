// Bundles src/ into dist/: index.html, and assets/ under names that change with their
// content. ESBUILD names the bundler, which is a tool of tools/go.mod.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

const here = import.meta.dirname;
const dist = join(here, "dist");
const esbuild = process.env.ESBUILD;
if (!esbuild) throw new Error("ESBUILD should name the bundler: run make web");

rmSync(join(dist, "assets"), { recursive: true, force: true });
const scratch = mkdtempSync(join(tmpdir(), "bundle-"));
try {
  const meta = join(scratch, "meta.json");
  execFileSync(
    esbuild,
    [
      "src/main.tsx", "--bundle", "--splitting", "--format=esm", "--minify", "--target=es2022", "--charset=utf8",
      "--jsx=automatic", "--jsx-import-source=preact", "--legal-comments=none", "--log-level=warning",
      "--entry-names=[name]-[hash]", "--chunk-names=[name]-[hash]", `--outdir=${join(dist, "assets")}`, `--metafile=${meta}`,
    ],
    { cwd: here, stdio: "inherit" },
  );
  const outputs = Object.entries(JSON.parse(readFileSync(meta, "utf8")).outputs);
  const [script, made] = outputs.find(([, o]) => o.entryPoint === "src/main.tsx");
  const page = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("STYLE", `assets/${basename(made.cssBundle)}`)
    .replace("SCRIPT", `assets/${basename(script)}`);
  writeFileSync(join(dist, "index.html"), page);
  for (const [name, o] of outputs) console.log(`${basename(name)}: ${(o.bytes / 1024).toFixed(0)} KB`);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
