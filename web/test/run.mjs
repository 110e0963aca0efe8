// Bundles the tests of one kind (unit, browser or screenshots) and runs them with Node's
// own runner. ESBUILD names the bundler.

import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const here = import.meta.dirname;
const [kind = "unit", ...options] = process.argv.slice(2);
const esbuild = process.env.ESBUILD;
if (!esbuild) throw new Error("ESBUILD should name the bundler: run make test-web");

// Where packages of node_modules are found.
const out = join(here, "..", "node_modules", ".tests", kind);
rmSync(out, { recursive: true, force: true });
const tests = readdirSync(join(here, kind)).filter((f) => f.endsWith(".test.ts"));
execFileSync(
  esbuild,
  [
    ...tests.map((f) => join("test", kind, f)), "--bundle", "--platform=node", "--format=esm", "--target=node20", "--packages=external",
    "--out-extension:.js=.mjs", "--sourcemap=inline", "--log-level=warning", `--outdir=${out}`,
  ],
  { cwd: join(here, ".."), stdio: "inherit" },
);
const files = readdirSync(out).map((f) => join(out, f));
// Browser tests wait more than they compute. Screenshots show times, which other work would change.
const beside = kind === "browser" ? availableParallelism() + 1 : 1;
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", `--test-concurrency=${beside}`, ...options, ...files], { stdio: "inherit" });
process.exit(run.status ?? 1);
