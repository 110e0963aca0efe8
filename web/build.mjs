// Bundles src/ into dist/: index.html, and assets/ under names that change with their
// content, all compressed, as lbd contains and serves them. Each import() is a file of its
// own. ESBUILD names the bundler, which is a tool of tools/go.mod.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";

const here = import.meta.dirname;
const dist = join(here, "dist");
const esbuild = process.env.ESBUILD;
if (!esbuild) throw new Error("ESBUILD should name the bundler: run make web");

/** The licenses of the packages that have code in a bundle, which have to be part of each copy. */
function licenses(inputs) {
  const packages = new Set(inputs.map((name) => /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(name)?.[1]).filter(Boolean));
  const texts = [...packages].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((f) => /^licen[cs]e/i.test(f));
    if (!file) throw new Error(`${name} has no file with its license`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return `The dashboard of lbd contains the packages below.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}

const pack = (name, content) => writeFileSync(join(dist, `${name}.gz`), gzipSync(content, { level: 9 }));

for (const old of ["assets", "index.html", "index.html.gz"]) rmSync(join(dist, old), { recursive: true, force: true });
mkdirSync(join(dist, "assets"));
const scratch = mkdtempSync(join(tmpdir(), "bundle-"));
try {
  const meta = join(scratch, "meta.json");
  execFileSync(
    esbuild,
    [
      "src/main.tsx", "--bundle", "--splitting", "--format=esm", "--minify", "--target=es2022", "--charset=utf8",
      "--jsx=automatic", "--jsx-import-source=preact", "--legal-comments=none", "--log-level=warning",
      "--entry-names=[name]-[hash]", "--chunk-names=[name]-[hash]", `--outdir=${scratch}`, `--metafile=${meta}`,
    ],
    { cwd: here, stdio: "inherit" },
  );
  const outputs = Object.entries(JSON.parse(readFileSync(meta, "utf8")).outputs);
  const notice = licenses(outputs.flatMap(([, o]) => Object.entries(o.inputs).filter(([, i]) => i.bytesInOutput > 0).map(([name]) => name)));
  const noticeName = `licenses-${createHash("sha256").update(notice).digest("hex").slice(0, 8).toUpperCase()}.txt`;
  pack(`assets/${noticeName}`, notice);
  const [script, made] = outputs.find(([, o]) => o.entryPoint === "src/main.tsx");
  const page = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("LICENSES", `assets/${noticeName}`)
    .replace("STYLE", `assets/${basename(made.cssBundle)}`)
    .replace("SCRIPT", `assets/${basename(script)}`);
  for (const [name] of outputs) pack(`assets/${basename(name)}`, readFileSync(join(scratch, basename(name))));
  pack("index.html", page);
  for (const [name, o] of outputs) console.log(`${basename(name)}: ${(o.bytes / 1024).toFixed(0)} KB`);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
